"""One utterance of a hosted engine: survives the engine's process, and never holds more than a window of samples."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal, Protocol

from adapters.engines.host_wire import chunk_from_wire, fault_from_json, pack, utterance_to_json
from adapters.engines.live_text import TextCount
from sidecar.faults import EngineLost, Fault
from sidecar.ports import FRAME_SAMPLES, MAX_UNREAD_CHARS, AudioChunk, Utterance


class Line(Protocol):
    """The way to the process."""

    def now_ms(self) -> float:
        """Monotonic milliseconds."""

    def send(self, header: Mapping[str, Any]) -> None:
        """Hand over a message; never waits."""

    def leave(self, id: int) -> None:
        """What was asked under this number is over."""


class _Text:
    """The text of a live utterance behind its beginning, kept for a process that must be told all of it again.

    Each process hears as much as may wait unread there.
    """

    def __init__(self, utterance: Utterance, line: Line, id: int) -> None:
        self._begun_chars = len(utterance.text)
        self._line = line
        self._id = id
        self._pieces: list[str] = []
        self._told = 0  # pieces
        self._ahead_chars = self._begun_chars
        self._read_chars = 0
        self._ends = False
        self._told_end = False

    def add(self, text: str) -> None:
        self._pieces.append(text)
        self._tell()

    def end(self) -> None:
        self._ends = True
        self._tell()

    def read(self, chars: int | None) -> None:
        """What the process of now has read."""
        if chars is not None and chars > self._read_chars:
            self._ahead_chars -= chars - self._read_chars
            self._read_chars = chars
            self._tell()

    def again(self) -> None:
        """To another process, which knows the beginning only."""
        self._told, self._told_end = 0, False
        self._ahead_chars, self._read_chars = self._begun_chars, 0
        self._tell()

    def _tell(self) -> None:
        while self._told < len(self._pieces):
            piece = self._pieces[self._told]
            if self._ahead_chars + len(piece) > MAX_UNREAD_CHARS:
                return
            self._line.send({"op": "append", "id": self._id, "text": piece})
            self._told += 1
            self._ahead_chars += len(piece)
        if self._ends and not self._told_end:
            self._told_end = True
            self._line.send({"op": "finish", "id": self._id})


class HostedSpeaking:
    """See ``Speaking``. Raises ``TooLarge`` for a live text that begins with too much."""

    def __init__(self, line: Line, id: int, utterance: Utterance) -> None:
        self.id = id
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line = line
        self._utterance = utterance
        self._count = TextCount(utterance)
        self._text = _Text(utterance, line, id)
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
        """See ``Speaking``."""
        if self._count.append(text, over=self._end is not None):
            self._text.add(text)

    def finish(self) -> None:
        """See ``Speaking``."""
        if self._count.finish() and self._end is None:
            self._text.end()

    # ------------------------------------------------------------ for the host
    @property
    def holds_row(self) -> bool:
        """True once it has been opened."""
        return self.opened.done()

    def message(self) -> bytes:
        """What opens this utterance in a process. Raises ``ValueError`` when it is too long."""
        return pack({"op": "open", "id": self.id, "utterance": utterance_to_json(self._utterance)})

    def again(self) -> None:
        """All that came after ``message``, for a new process."""
        if self._count.live:
            self._text.again()

    def hear(self, header: Mapping[str, Any], body: bytes) -> None:
        """A message of the process for this utterance."""
        if self._end is not None:
            return
        match header.get("op"):
            case "opened":
                self._note(header)
                if not self.opened.done():
                    self.opened.set_result(None)
            case "audio":
                self._take(chunk_from_wire(header, body))
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
        if self._hungry_since_ms is None or not self._count.finished or self._end is not None:
            return False
        return now_ms - self._hungry_since_ms > limit_ms

    # ------------------------------------------------------------ inside
    def _note(self, header: Mapping[str, Any]) -> None:
        self._language = str(header["language"])
        self._text_tokens = int(header["text_tokens"])

    def _take(self, chunk: AudioChunk) -> None:
        first, samples = chunk.first_sample, chunk.samples
        self._count.read(chunk.text_chars)
        self._text.read(chunk.text_chars)
        known = min(samples, max(0, self._heard - first))
        if known:  # said again after a crash: the reader has it
            self._line.send({"op": "credit", "id": self.id, "samples": known})
        if known < samples:
            codes = None if chunk.codes is None else chunk.codes[known // FRAME_SAMPLES :]
            self._waiting.append(AudioChunk(chunk.pcm[known:], first + known, codes, chunk.text_chars))
            self._heard = first + samples
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
        self._line.leave(self.id)
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
                        self._line.send({"op": "credit", "id": self.id, "samples": chunk.samples})
                    yield chunk
                elif isinstance(self._end, Fault):
                    raise self._end
                else:
                    return
        finally:
            self._hungry_since_ms = None
            if self._end is None or self._waiting:
                self._finish("cancelled")
            self._line.leave(self.id)
