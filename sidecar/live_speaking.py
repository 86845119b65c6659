"""A live reply as one utterance of a speech line: opened with its first word, heard as one stretch of samples."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Protocol

from sidecar.core.events import ReplyAudio, ReplyEvent, SegmentEnded, SegmentGrew, SegmentStarted
from sidecar.faults import BadRequest, Fault
from sidecar.live_reply import LiveReply
from sidecar.ports import AudioChunk

Note = tuple[int, SegmentStarted | SegmentGrew | SegmentEnded | str]
"""What happened, or what was written (raw), and before which sample of the utterance."""


class TextSource(Protocol):
    """Text that is still coming; ``core.session.LiveText``."""

    @property
    def finished(self) -> bool:
        """Nothing more comes than what ``take`` answers now."""

    def take(self) -> str:
        """What has come since the last call."""


class LiveSpeaking:
    """See ``ports.Speaking``; the text comes from ``text``, whose owner calls ``text_changed``.

    ``notes`` tell the playhead which words the samples are of; whoever sends the samples takes them.
    """

    def __init__(self, reply: LiveReply, text: TextSource) -> None:
        self._reply = reply
        self._text = text
        self._changed = asyncio.Event()
        self._changed.set()
        self._events = reply.events()
        self._writing: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._cancelled = False
        self._samples = 0
        self.language = ""
        self.text_tokens = 1
        self.notes: deque[Note] = deque()

    def text_changed(self) -> None:
        """There is more text, or it is complete."""
        self._changed.set()

    async def open(self) -> LiveSpeaking:
        """Wait until the engine has begun to speak. Raises ``Fault``; ``BadRequest`` where nothing is to be said."""
        await self._reply.__aenter__()
        self._writing = asyncio.create_task(self._write())
        try:
            first = await anext(self._events, None)
            if isinstance(first, SegmentEnded) and first.fault is not None:
                raise first.fault
            if not isinstance(first, SegmentStarted):
                if self._writing.done():
                    self._writing.result()
                raise BadRequest("There is no text to speak.", param="input")
        except BaseException:
            await self._close()
            raise
        self.language = first.language
        self.notes.append((0, first))
        return self

    async def _write(self) -> None:
        try:
            while True:
                finished = self._text.finished
                if text := self._text.take():
                    self.notes.append((self._samples, text))
                    await self._reply.feed(text)
                if finished:
                    break
                await self._changed.wait()
                self._changed.clear()
        except Fault:
            self._reply.finish()
            raise
        self._reply.finish()

    def append(self, text: str) -> None:
        """Its text has a source of its own."""
        raise RuntimeError("the text of this utterance comes from its source")

    def finish(self) -> None:
        """Its source says when the text is complete."""
        raise RuntimeError("the text of this utterance comes from its source")

    async def chunks(self) -> AsyncGenerator[AudioChunk, None]:
        """See ``Speaking``. Raises the fault of the generation that fails, or of a text that is too long."""
        try:
            async with aclosing(self._events) as events:
                async for event in events:
                    if self._cancelled:
                        return
                    chunk = self._heard(event)
                    if chunk is not None:
                        yield chunk
            if self._writing is not None and not self._cancelled:
                await self._writing
        finally:
            await self._close()

    def _heard(self, event: ReplyEvent) -> AudioChunk | None:
        if isinstance(event, ReplyAudio):
            first, self._samples = self._samples, self._samples + len(event.pcm)
            return AudioChunk(event.pcm, first, text_chars=event.text_chars)
        self.notes.append((self._samples, event))
        if isinstance(event, SegmentEnded) and event.fault is not None:
            raise event.fault
        return None

    def cancel(self) -> None:
        """See ``Speaking``."""
        if not self._cancelled:
            self._cancelled = True
            self._closing = asyncio.ensure_future(self._close())

    async def _close(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)
        await self._reply.__aexit__(None, None, None)
