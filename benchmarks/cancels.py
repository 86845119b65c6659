"""How soon a cancel is answered on the speech socket.

    python -m benchmarks.cancels [--times 500] [--sockets 1] [--factor 0.1]

The tone engine speaks at ``--factor`` seconds of work a second of audio; each socket cancels at a random moment of an
utterance. Timed is from the cancel's frame in the client's socket to the event that ends what sounded (``audio.done``
with ``cancelled``) or says that nothing did (``input.cancelled``). Client and server share one process and its event
loop, so what the client does counts too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time

from websockets.asyncio.client import ClientConnection, connect

from benchmarks.figures import machine, spread
from sidecar.config import load
from sidecar.http.app import create_app
from sidecar.server import BackgroundServer
from sidecar.wiring import build

TEXT = "This goes on and on, as long as nobody stops it. " * 8
CONFIG = {"stream_audio": True, "response_format": "pcm", "split_granularity": "sentence"}


async def cancels(url: str, chance: random.Random, times: int, longest_ms: float) -> tuple[list[float], list[float]]:
    """Milliseconds to the end of what sounded, and to the answer that nothing did."""
    cut_ms: list[float] = []
    idle_ms: list[float] = []
    async with connect(url, max_size=None, proxy=None) as socket:
        await _send(socket, "session.config", **CONFIG)
        for _ in range(times):
            await _send(socket, "input.text", text=TEXT)
            await _send(socket, "input.done")
            reading = asyncio.create_task(_until_over(socket))
            await asyncio.sleep(chance.uniform(0, longest_ms) / 1000)
            started_s = time.monotonic()
            await _send(socket, "input.cancel")
            was_cut, at_s = await reading
            (cut_ms if was_cut else idle_ms).append((at_s - started_s) * 1000)
    return cut_ms, idle_ms


async def _send(socket: ClientConnection, kind: str, **members: object) -> None:
    await socket.send(json.dumps({"type": kind, **members}))


async def _until_over(socket: ClientConnection) -> tuple[bool, float]:
    """Whether a bracket was cut off, and when; read on to the end of the utterance, whose cancel it was."""
    over: tuple[bool, float] | None = None
    async for frame in socket:
        if isinstance(frame, bytes):
            if over is not None:
                raise AssertionError("audio after the end of what was cancelled")
            continue
        message = json.loads(frame)
        if message["type"] == "input.cancelled" or (message["type"] == "audio.done" and message.get("cancelled")):
            over = message["type"] == "audio.done", time.monotonic()
        elif message["type"] == "session.done" and over is not None:
            return over
    raise AssertionError("the socket was closed")


async def main() -> None:
    """Serve, cancel, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--times", type=int, default=500)
    parser.add_argument("--sockets", type=int, default=1)
    parser.add_argument("--factor", type=float, default=0.1)
    options = parser.parse_args()
    config = load(
        None,
        {},
        {
            "engine.kind": "tone",
            "engine.tone_realtime_factor": options.factor,
            "store.url": "memory:",
            "server.port": 0,
            "server.log_level": "error",
        },
    )
    service = build(config)
    async with BackgroundServer(create_app(service), config.server) as server:
        await service.until_ready()
        url = "ws" + server.url[4:] + "/v1/audio/speech/stream"
        longest_ms = options.factor * 2_000
        each = options.times // options.sockets
        results = await asyncio.gather(
            *(cancels(url, random.Random(seed), each, longest_ms) for seed in range(options.sockets))
        )
    print(machine())
    for name, at in (("cut off", 0), ("nothing sounded", 1)):
        print(f"{name}, ms:", spread([value for result in results for value in result[at]]))


if __name__ == "__main__":
    asyncio.run(main())
