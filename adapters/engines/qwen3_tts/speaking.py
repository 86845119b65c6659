"""One utterance between the step loop's thread and its reader on the event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Literal

from adapters.engines.live_text import TextCount
from adapters.engines.qwen3_tts.requests import Ended, Event, Failed, Placed, Samples
from adapters.engines.qwen3_tts.runtime import Ticket
from adapters.engines.qwen3_tts.stages import FRAME_SAMPLES, Prompt
from adapters.engines.qwen3_tts.utterances import LiveTokens
from sidecar.faults import EngineFault, EngineLost, Fault, TooLarge
from sidecar.ports import AudioChunk


class RowSpeaking:
    """See ``Speaking``. ``tokens`` read the text of a live utterance, and tell where ids end in the text of any.

    ``sink`` takes the runtime's events in its thread. What waits here unread is bounded by the scheduler, which hears
    of every chunk that is taken.
    """

    def __init__(self, language: str, prompt: Prompt, text: TextCount, tokens: LiveTokens | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._language = language
        self._prompt = prompt
        self._text_tokens = len(prompt.text_ids)
        self._text = text
        self._tokens = tokens
        self._ticket: Ticket | None = None
        self._waiting: deque[Samples] = deque()
        self._wake = asyncio.Event()
        self._end: Literal["ended", "cancelled"] | Fault | None = None
        self._started = False
        self.on_end: Callable[[RowSpeaking], None] = lambda speaking: None
        self.placed: asyncio.Future[None] = self._loop.create_future()

    def attach(self, ticket: Ticket) -> None:
        """The request that this is the voice of."""
        self._ticket = ticket

    def sink(self, event: Event) -> None:
        """Called from any thread."""
        with contextlib.suppress(RuntimeError):  # the event loop is gone, and with it who would listen
            self._loop.call_soon_threadsafe(self._take, event)

    @property
    def language(self) -> str:
        """The language asked for, else that of the text."""
        return self._language

    @property
    def text_tokens(self) -> int:
        """Ids of the text so far, at least one, and of the instructions."""
        return max(1, self._text_tokens) + len(self._prompt.instruct_ids)

    def chunks(self) -> AsyncIterator[AudioChunk]:
        """See ``Speaking``."""
        if self._started:
            raise RuntimeError("chunks() can be iterated only once")
        self._started = True
        return self._chunks()

    def cancel(self) -> None:
        """The row is free before its next step."""
        self._finish("cancelled")

    def lose(self) -> None:
        """The engine is closed: ``chunks`` ends with ``EngineLost``."""
        self._finish(EngineLost("The speech engine was stopped."))

    def append(self, text: str) -> None:
        """See ``Speaking``; what its next words may still change is held back."""
        if self._text.append(text, over=self._end is not None):
            self.read(text)

    def read(self, text: str) -> None:
        """Take in a piece of a live text that has been counted."""
        if self._tokens is not None:
            self._more(self._tokens.feed(text))

    def finish(self) -> None:
        """See ``Speaking``."""
        if self._text.finish() and self._tokens is not None:
            self._more(self._tokens.finish())
            if self._ticket is not None:
                self._ticket.finish()

    def _more(self, ids: Sequence[int]) -> None:
        self._text_tokens += len(ids)
        if ids and self._ticket is not None:
            self._ticket.append(ids)

    def _take(self, event: Event) -> None:
        match event:
            case Placed():
                if not self.placed.done():
                    self.placed.set_result(None)
            case Samples():
                self._waiting.append(event)
                self._text.read(self._text_chars(event))
            case Ended():
                self._end = self._end or self._ending(event)
            case Failed(fault):
                if not self.placed.done():
                    self.placed.set_exception(fault)
                    self.placed.exception()  # read by open, if it still waits
                self._end = self._end or fault
        self._wake.set()

    def _ending(self, event: Ended) -> Literal["ended"] | Fault:
        """A live text that has outgrown its row is a fault: it must not look like its end.

        So is a clone that never drew its end: what comes after several times the length of the text is no speech.
        """
        if event.reason == "cap" and self._prompt.reference is not None and not self._text.live:
            return EngineFault("The speech engine did not come to an end.")
        left = not self._text.finished or self._prompt.ids_fed(event.frames) < self._text_tokens
        if event.reason == "cap" and self._text.live and left:
            return TooLarge("The text is too long for one live utterance; begin another one.", param="input")
        return "ended"

    def _text_chars(self, piece: Samples) -> int | None:
        """Characters that had been fed when the last frame of the piece was made; the whole layout cannot tell."""
        if self._tokens is None or not self._tokens.ends:
            return None
        ids = self._prompt.ids_fed((piece.first + piece.count) // FRAME_SAMPLES)
        ends = self._tokens.ends
        return ends[min(ids, len(ends)) - 1] if ids else 0

    def _finish(self, how: Literal["cancelled"] | Fault) -> None:
        if self._end in (None, "ended"):
            self._end = how
        self._waiting.clear()
        self._wake.set()
        if self._ticket is not None:
            self._ticket.cancel()
        self.on_end(self)

    async def _chunks(self) -> AsyncIterator[AudioChunk]:
        try:
            while True:
                while not self._waiting and self._end is None:
                    self._wake.clear()
                    await self._wake.wait()
                if isinstance(self._end, EngineLost):
                    raise self._end
                if self._end == "cancelled":
                    return
                if self._waiting:
                    piece = self._waiting.popleft()
                    if self._ticket is not None:
                        self._ticket.took(piece.count)
                    yield AudioChunk(piece.pcm, piece.first, piece.codes, self._text_chars(piece))
                elif isinstance(self._end, Fault):
                    raise self._end
                else:
                    return
        finally:
            if self._end is None or self._waiting:
                self._finish("cancelled")
            self.on_end(self)
