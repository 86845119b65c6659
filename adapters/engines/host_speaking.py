"""One utterance of a hosted engine: survives the engine's process, and never holds more than a window of samples."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal, Protocol

from adapters.engines.host_wire import fault_from_json, utterance_to_json
from sidecar.faults import EngineLost, Fault
from sidecar.ports import AudioChunk, Pcm, Utterance


class Line(Protocol):
    """The way to the process."""

    def now_ms(self) -> float:
        """Monotonic milliseconds."""

    def send(self, header: Mapping[str, Any]) -> None:
        """Hand over a message; never waits."""

    def leave(self, call: HostedSpeaking) -> None:
        """The utterance is over."""


class HostedSpeaking:
    """See ``Speaking``; with ``live`` also ``append`` and ``finish``."""

    def __init__(self, line: Line, id: int, utterance: Utterance, *, live: bool) -> None:
        self.id = id
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line = line
        self._utterance = utterance
        self._live = live
        self._text: list[str] = []
        self._text_closed = not live
        self._language = utterance.language or "en"
        self._text_tokens = 1
        self._waiting: deque[AudioChunk] = deque()
        self._wake = asyncio.Event()
        self._heard = 0  # samples that came, of whichever process
        self._replays = 0
        self._end: Literal["ended", "cancelled"] | Fault | None = None
        self._started = False
        self._hungry_since_ms: float | None = None

    # ------------------------------------------------------------ for the reader
    @property
    def language(self) -> str:
        """See ``Speaking``."""
        return self._language

    @property
    def text_tokens(self) -> int:
        """See ``Speaking``; of a live text those known when it was opened, or all once it has ended."""
        return self._text_tokens

    def chunks(self) -> AsyncIterator[AudioChunk]:
        """See ``Speaking``."""
        if self._started:
            raise RuntimeError("chunks() can be iterated only once")
        self._started = True
        return self._chunks()

    def cancel(self) -> None:
        """See ``Speaking``."""
        self._finish("cancelled")

    def append(self, text: str) -> None:
        """More of a live text. Never waits."""
        if self._text_closed:
            raise RuntimeError("the text of this utterance is complete")
        self._text.append(text)
        self._line.send({"op": "append", "id": self.id, "text": text})

    def finish(self) -> None:
        """The live text is complete. Idempotent."""
        if not self._text_closed:
            self._text_closed = True
            self._line.send({"op": "finish", "id": self.id})

    # ------------------------------------------------------------ for the host
    def message(self) -> dict[str, Any]:
        """What opens this utterance in a process."""
        return {"op": "open", "id": self.id, "utterance": utterance_to_json(self._utterance), "live": self._live}

    def repeat_text(self) -> None:
        """All that came after the beginning of a live text, for a new process."""
        if self._live:
            if self._text:
                self._line.send({"op": "append", "id": self.id, "text": "".join(self._text)})
            if self._text_closed:
                self._line.send({"op": "finish", "id": self.id})

    def hear(self, header: Mapping[str, Any], pcm: Pcm) -> None:
        """A message of the process for this utterance."""
        if self._end is not None:
            return
        match header.get("op"):
            case "opened":
                self._note(header)
                if not self.opened.done():
                    self.opened.set_result(None)
            case "audio":
                self._take(int(header["first"]), pcm)
            case "done":
                self._note(header)
                self._end = "ended"
                self._wake.set()
            case "fault":
                self._fail(fault_from_json(header["fault"]))

    def cut(self, max_replays: int, *, deterministic: bool) -> None:
        """The process is gone: wait for the next one, if this can be said again from where it broke off."""
        if self._end is not None:
            return
        if self._replays >= max_replays or (self._heard and not deterministic):
            self._fail(EngineLost("The speech engine's process broke down while it spoke.", retry_after_s=1.0))
            return
        self._replays += 1

    def lose(self, fault: EngineLost, *, complete: bool = False) -> None:
        """Nothing more comes; ``complete``: not even what is here already in full."""
        if complete or self._end is None:
            self._fail(fault)

    def silent(self, now_ms: float, limit_ms: float) -> bool:
        """True when a reader has waited for longer than that although the whole text is known."""
        if self._hungry_since_ms is None or not self._text_closed or self._end is not None:
            return False
        return now_ms - self._hungry_since_ms > limit_ms

    # ------------------------------------------------------------ inside
    def _note(self, header: Mapping[str, Any]) -> None:
        self._language = str(header["language"])
        self._text_tokens = int(header["text_tokens"])

    def _take(self, first: int, pcm: Pcm) -> None:
        known = min(len(pcm), max(0, self._heard - first))
        if known:  # said again after a crash: the reader has it
            self._line.send({"op": "credit", "id": self.id, "samples": known})
        if known < len(pcm):
            self._waiting.append(AudioChunk(pcm[known:], first + known))
            self._heard = first + len(pcm)
            self._hungry_since_ms = None
            self._wake.set()

    def _fail(self, fault: Fault) -> None:
        if self._end in (None, "ended"):
            self._finish(fault, tell=False)

    def _finish(self, how: Literal["cancelled"] | Fault, *, tell: bool = True) -> None:
        running = self._end is None
        if self._end in (None, "ended"):
            self._end = how
        if how == "cancelled" or isinstance(how, EngineLost):
            self._waiting.clear()
        if isinstance(how, Fault) and not self.opened.done():
            self.opened.set_exception(how)
            self.opened.exception()  # read by open, if it still waits
        self._wake.set()
        self._line.leave(self)
        if tell and running:
            self._line.send({"op": "cancel", "id": self.id})

    async def _chunks(self) -> AsyncIterator[AudioChunk]:
        try:
            while True:
                while not self._waiting and self._end is None:
                    self._wake.clear()
                    self._hungry_since_ms = self._line.now_ms()
                    await self._wake.wait()
                    self._hungry_since_ms = None
                if isinstance(self._end, EngineLost):
                    raise self._end
                if self._end == "cancelled":
                    return
                if self._waiting:
                    chunk = self._waiting.popleft()
                    if self._end is None:
                        self._line.send({"op": "credit", "id": self.id, "samples": len(chunk.pcm)})
                    yield chunk
                elif isinstance(self._end, Fault):
                    raise self._end
                else:
                    return
        finally:
            self._hungry_since_ms = None
            if self._end is None or self._waiting:
                self._finish("cancelled")
            self._line.leave(self)
