"""One generation of a live reply: text that grows on one side, samples on the other."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace

import numpy as np

from sidecar.faults import EngineFault, EngineLost, Fault, TooLarge
from sidecar.ports import AudioChunk, Engine, Speaking, Utterance
from sidecar.speech_line import LineLimits, longest_samples


class Generation:
    """One utterance whose text is still being written. ``spoken`` is all of it so far, ``ends`` its places.

    The text may come before the engine is asked. Whoever reads ``take`` paces it: at most ``held_samples`` wait here.
    """

    def __init__(self, index: int, limits: LineLimits, starts_at: int) -> None:
        self.index = index
        self.starts_at = starts_at
        self.spoken = ""
        self.ends: list[int] = []
        self.told_chars = 0
        """How much of ``spoken`` its reader has been told of."""
        self.asked: Utterance | None = None
        self.language = ""
        self.text_tokens = 0
        self.fault: Fault | None = None
        self.over = False
        self.overflowed = False
        self.samples = 0
        self.text_chars: int | None = 0
        self.changed = asyncio.Event()
        self.settled = asyncio.Event()
        """It is open at the engine, or never will be."""
        self.complete = asyncio.Event()
        """Its last sample is made."""
        self._limits = limits
        self._speaking: Speaking | None = None
        self._finished = False
        self._given_s = 0.0
        self._chunks: deque[tuple[AudioChunk, float]] = deque()
        self._held_samples = 0
        self._room = asyncio.Event()

    # ------------------------------------------------------------ text
    @property
    def finished(self) -> bool:
        """Its text is complete."""
        return self._finished

    def append(self, text: str, ends: Sequence[int]) -> None:
        """More of its text."""
        self.spoken += text
        self.ends.extend(ends)
        self._given_s = asyncio.get_running_loop().time()
        if self._speaking is not None:
            self._speaking.append(text)

    def finish(self) -> None:
        """Its text is complete."""
        self._finished = True
        self._given_s = asyncio.get_running_loop().time()
        if self._speaking is not None:
            self._speaking.finish()

    def cut(self, chars: int) -> tuple[str, list[int]]:
        """Only so much of its text is ever said; the rest and its places are answered."""
        left = self.spoken[chars:], self.ends[chars:]
        self.spoken, self.ends = self.spoken[:chars], self.ends[:chars]
        return left

    # ------------------------------------------------------------ the engine's side
    async def speak(self, engine: Engine, asked: Utterance) -> AsyncGenerator[AudioChunk, None]:
        """Say ``asked`` and whatever text comes; each chunk once it may be made. Raises ``Fault``."""
        begun = len(asked.text)
        self.asked = asked
        speaking = await engine.open(asked)
        self.language, self.text_tokens = speaking.language, speaking.text_tokens
        self._speaking = speaking
        try:
            if more := self.spoken[begun:]:
                speaking.append(more)
            if self._finished:
                speaking.finish()
            self.settled.set()
            self.changed.set()
            async with aclosing(self._checked(speaking)) as chunks:
                async for chunk in chunks:
                    yield chunk
            self.text_tokens = speaking.text_tokens
        finally:
            speaking.cancel()

    async def _checked(self, speaking: Speaking) -> AsyncGenerator[AudioChunk, None]:
        source = speaking.chunks()
        try:
            while (chunk := await self._next(source)) is not None:
                if not np.isfinite(chunk.pcm).all():
                    raise EngineFault("The speech engine produced invalid audio.")
                self.samples += chunk.samples
                if self.asked is not None and self.samples > longest_samples(replace(self.asked, text=self.spoken)):
                    raise EngineFault("The speech engine did not come to an end.")
                if chunk.samples:
                    self.text_chars = chunk.text_chars
                    yield chunk
        except TooLarge:
            if self._finished or not self.samples or self.text_chars is None:
                raise
            self.overflowed = True
        finally:
            if isinstance(source, AsyncGenerator):
                await source.aclose()
        if not self.samples:
            raise EngineFault("The speech engine produced no audio.")

    async def _next(self, source: AsyncIterator[AudioChunk]) -> AudioChunk | None:
        """The next chunk; an engine may be slow only while it waits for text. None at the end."""
        loop = asyncio.get_running_loop()
        limit_s = self._limits.chunk_timeout_s
        asked_s = loop.time()
        waiting = asyncio.create_task(_after(source))
        try:
            while True:
                left_s = max(asked_s, self._given_s) + limit_s - loop.time()
                if left_s <= 0 and not self._waits_for_text():
                    raise EngineLost("The speech engine stopped answering.")
                done, _ = await asyncio.wait({waiting}, timeout=left_s if left_s > 0 else limit_s)
                if done:
                    return waiting.result()
        finally:
            if not waiting.done():
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)

    def _waits_for_text(self) -> bool:
        """Everything but the last word is read, and more may come."""
        read = len(self.spoken) if self.text_chars is None else self.text_chars
        return not self._finished and len(self.spoken[read:].split()) <= 1

    async def put(self, chunk: AudioChunk) -> None:
        """Keep a chunk for the reader; waits while there is no room."""
        while self._held_samples and self._held_samples + chunk.samples > self._limits.held_samples:
            self._room.clear()
            await self._room.wait()
        self._chunks.append((chunk, asyncio.get_running_loop().time()))
        self._held_samples += chunk.samples
        self.changed.set()

    def end(self, fault: Fault | None = None) -> None:
        """Nothing more comes of it."""
        self.fault = self.fault or fault
        self.over = True
        for event in (self.settled, self.complete, self.changed):
            event.set()

    # ------------------------------------------------------------ the reader's side
    @property
    def has_audio(self) -> bool:
        """Something waits for the reader."""
        return bool(self._chunks)

    def take(self) -> tuple[AudioChunk, float]:
        """The next chunk, and the loop's time since which it waits here."""
        chunk, ready_s = self._chunks.popleft()
        self._held_samples -= chunk.samples
        self._room.set()
        return chunk, ready_s

    def grown(self) -> tuple[str, tuple[int, ...]]:
        """The text that its reader has not been told of."""
        at, self.told_chars = self.told_chars, len(self.spoken)
        return self.spoken[at:], tuple(self.ends[at:])


async def _after(source: AsyncIterator[AudioChunk]) -> AudioChunk | None:
    return await anext(source, None)
