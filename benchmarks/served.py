"""The server of a measurement: a process of its own on a real socket that keeps every raw value.

It obeys lines on its standard input: ``mark`` forgets what was measured so far, ``report`` answers with one line of
JSON on standard output, the end of the input stops it. Started by ``benchmarks.server.Server``; settings come as one
JSON object (dotted names) in its only argument.
"""

from __future__ import annotations

import asyncio
import contextlib
import cProfile
import gc
import json
import os
import sys
import time
from array import array
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import psutil

from benchmarks.figures import spread
from benchmarks.own_time import OwnTime
from sidecar.config import load
from sidecar.http.app import create_app
from sidecar.ports import ChatEvent, ChatStream, LanguageModel, RawAnswer
from sidecar.serve import settle
from sidecar.server import SidecarServer, bind, url_of
from sidecar.telemetry import Metrics, configure_logging
from sidecar.wiring import build

_TOKENS_KEPT = 256

_arrivals: ContextVar[deque[float] | None] = ContextVar("arrivals", default=None)
"""When the latest tokens of this request's model arrived (monotonic ms)."""


KEPT = (
    "segment_waited_ms",
    "token_to_engine_ms",
    "token_to_engine_own_ms",
    "chunk_waited_ms",
    "chunk_waited_own_ms",
    "loop_lag_ms",
    "loop_lag_own_ms",
    "gc_own_ms",
)
"""Times of which every value is kept."""


class RawMetrics(Metrics):
    """``Metrics`` that also keeps every value.

    ``*_own_ms`` is how much of a time the server itself has computed: with a core of its own, which nobody takes away
    in between, that is all that it would have taken.

    ``token_to_engine`` begins earlier than the product's own ``segment_waited``: when the model's adapter hands the
    token over, so that filtering, segmenting and the words' way into the queue count too.
    """

    def __init__(self, own: OwnTime) -> None:
        super().__init__()
        self._own = own
        self.mark()

    def mark(self) -> None:
        """Forget everything kept so far."""
        self.kept = {name: array("d") for name in KEPT}
        self.audio_samples = 0
        self.outcomes: dict[str, int] = {}
        self.underruns = 0

    def segment_waited(self, ms: float) -> None:
        """Keeps the time since the segment was complete, and since the arrival of the token that completed it."""
        super().segment_waited(ms)
        now_ms = time.monotonic() * 1000
        self.kept["segment_waited_ms"].append(ms)
        for arrived_ms in reversed(_arrivals.get() or ()):
            if arrived_ms <= now_ms - ms:
                self.kept["token_to_engine_ms"].append(now_ms - arrived_ms)
                self.kept["token_to_engine_own_ms"].append(self._own.since_ms(arrived_ms))
                break

    def chunk_waited(self, ms: float) -> None:
        """Keeps it."""
        super().chunk_waited(ms)
        self.kept["chunk_waited_ms"].append(ms)
        self.kept["chunk_waited_own_ms"].append(self._own.since_ms(time.monotonic() * 1000 - ms))

    def loop_lag(self, ms: float) -> None:
        """Keeps it."""
        super().loop_lag(ms)
        self.kept["loop_lag_ms"].append(ms)
        self.kept["loop_lag_own_ms"].append(self._own.since_ms(time.monotonic() * 1000 - ms))

    def audio(self, samples: int) -> None:
        """Keeps the sum."""
        super().audio(samples)
        self.audio_samples += samples

    def underrun(self) -> None:
        """Counts."""
        super().underrun()
        self.underruns += 1

    def reply_ended(self, endpoint: str, outcome: str, realtime_factor: float | None = None) -> None:
        """Counts by outcome."""
        super().reply_ended(endpoint, outcome, realtime_factor)
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1

    def collecting(self, phase: str, info: Mapping[str, int]) -> None:
        """Told by the garbage collector, whose work stops everything else."""
        if phase == "start":
            self._collecting_s = time.thread_time()
        else:
            self.kept["gc_own_ms"].append((time.thread_time() - self._collecting_s) * 1000)

    def report(self) -> dict[str, Any]:
        """Everything kept since the last ``mark``."""
        return {
            **{name: spread(values) for name, values in self.kept.items()},
            "audio_s": round(self.audio_samples / 24_000, 1),
            "outcomes": self.outcomes,
            "underruns": self.underruns,
        }


class _StampedStream:
    """Notes when the model hands each event over."""

    def __init__(self, stream: ChatStream, own: OwnTime) -> None:
        self._own = own
        self.headers = stream.headers
        self._stream = stream
        self._events = aiter(stream)
        self._arrivals = _arrivals.get()

    def __aiter__(self) -> AsyncIterator[ChatEvent]:
        return self

    async def __anext__(self) -> ChatEvent:
        event = await anext(self._events)
        self._own.read()
        if self._arrivals is not None:
            self._arrivals.append(time.monotonic() * 1000)
        return event

    async def aclose(self) -> None:
        await self._stream.aclose()


class _StampedModel:
    """A language model whose tokens are stamped on arrival."""

    def __init__(self, model: LanguageModel, own: OwnTime) -> None:
        self._model = model
        self._own = own

    async def stream(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> ChatStream:
        return _StampedStream(await self._model.stream(body, headers), self._own)

    async def forward(self, path: str, body: bytes | None, headers: Mapping[str, str]) -> RawAnswer:
        return await self._model.forward(path, body, headers)

    async def models(self) -> Sequence[Mapping[str, Any]]:
        return await self._model.models()

    async def close(self) -> None:
        await self._model.close()


def _each_request_apart(app: Any) -> Any:
    """The application, with a list of arrivals for each request that all of its tasks share."""

    async def measured(scope: Any, receive: Any, send: Any) -> None:
        _arrivals.set(deque(maxlen=_TOKENS_KEPT))
        await app(scope, receive, send)

    return measured


async def _obey(metrics: RawMetrics, server: SidecarServer) -> None:
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    process = psutil.Process()
    cpu = os.times()
    while command := (await lines.readline()).strip():
        if command == b"mark":
            metrics.mark()
            cpu = os.times()
        now = os.times()
        used = {"user_s": round(now.user - cpu.user, 2), "system_s": round(now.system - cpu.system, 2)}
        used["cpu_s"] = round(sum(used.values()), 2)
        print(json.dumps({**metrics.report(), **used, "rss_bytes": process.memory_info().rss}), flush=True)
    server.stop()


async def _serve(settings: Mapping[str, object]) -> None:
    config = load(None, {}, settings)
    configure_logging(config.server.log_level, config.server.log_texts)
    service = build(config)
    own = OwnTime()
    service.metrics = metrics = RawMetrics(own)
    gc.callbacks.append(metrics.collecting)
    service.llm = _StampedModel(service.llm, own)
    listener = bind(config.server)
    listening = asyncio.Event()
    server = SidecarServer(_each_request_apart(create_app(service)), config.server, listening.set)
    serving = asyncio.create_task(server.serve([listener]))
    obeying = asyncio.create_task(_obey(metrics, server))
    await asyncio.wait({serving, asyncio.create_task(listening.wait())}, return_when=asyncio.FIRST_COMPLETED)
    await service.until_ready()
    await settle(service)
    print(json.dumps({"url": url_of(listener)}), flush=True)
    await serving
    obeying.cancel()


def main() -> None:
    """Serve with the settings in the first argument; a second one names a file for a profile."""
    settings = json.loads(sys.argv[1])
    profile = cProfile.Profile(time.thread_time) if len(sys.argv) > 2 else None
    with contextlib.suppress(KeyboardInterrupt), profile or contextlib.nullcontext():
        asyncio.run(_serve(settings))
    if profile is not None:
        profile.dump_stats(Path(sys.argv[2]))


if __name__ == "__main__":
    main()
