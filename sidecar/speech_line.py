"""Speaks utterances one after another; the next is prepared while one still sounds.

Used for the segments of a chat reply and for the units of a speech socket alike. The line owns its tasks: leave its
context and every row it held is free within one chunk.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

import numpy as np

from sidecar.faults import EngineFault, EngineLost, Fault
from sidecar.ports import FRAME_SAMPLES, SAMPLE_RATE_HZ, AudioChunk, Engine, Speaking, Utterance

log = logging.getLogger(__name__)

LONGEST_BASE_S = 20.0
LONGEST_S_PER_CHAR = 1.0
"""A character may be a whole word (an ideograph, a digit of a long number), spoken slowly."""

Ticket = TypeVar("Ticket")


@dataclass(frozen=True, slots=True)
class LineLimits:
    """How far the line may run ahead of its reader.

    ``ahead`` utterances are prepared beside the one that sounds; each holds at most ``held_samples`` unread samples
    (or one chunk, if that is longer). An engine that delivers nothing for ``chunk_timeout_s`` is given up.
    """

    ahead: int = 2
    held_samples: int = 36_000
    chunk_timeout_s: float = 15.0


@dataclass(frozen=True, slots=True)
class Opened(Generic[Ticket]):
    """The engine accepted this utterance; its audio follows."""

    ticket: Ticket
    utterance: Utterance
    language: str
    text_tokens: int


@dataclass(frozen=True, slots=True)
class Audio(Generic[Ticket]):
    """The next samples of the utterance. ``ready_s`` (loop time): since when they could have been read."""

    ticket: Ticket
    chunk: AudioChunk
    ready_s: float


@dataclass(frozen=True, slots=True)
class Done(Generic[Ticket]):
    """The utterance is over: spoken whole, cancelled, or ended by ``fault``."""

    ticket: Ticket
    samples: int
    fault: Fault | None = None
    cancelled: bool = False


LineEvent = Opened[Ticket] | Audio[Ticket] | Done[Ticket]


class LineObserver(Protocol):
    """Told when an utterance goes to the engine (metrics)."""

    def utterance_opened(self) -> None:
        """``Engine.open`` is about to be called."""


class Listener(Protocol):
    """Hears an utterance as the engine makes it, ahead of its reader. Nothing here may take long."""

    def opened(self, asked: Utterance, language: str, text_tokens: int) -> None:
        """The engine begins to speak it."""

    def chunk(self, chunk: AudioChunk) -> None:
        """The next samples."""

    async def over(self, heard: Callable[[], bool]) -> Utterance | None:
        """It is complete; ``heard`` tells whether its reader has begun with it. An utterance to speak in its place."""

    async def better(self) -> bool:
        """The second take is complete as well, and was told of with ``opened`` and ``chunk``: whether it is better."""

    def chose(self, *, second: bool) -> None:
        """Which take is played, once there was a second one."""

    def lost(self) -> None:
        """It was cancelled or failed."""


def longest_samples(utterance: Utterance) -> int:
    """More samples than any sane reading of an utterance has: an engine that goes on has lost its way."""
    seconds = LONGEST_BASE_S + LONGEST_S_PER_CHAR * len(utterance.text)
    samples = int(seconds * SAMPLE_RATE_HZ)
    return samples if utterance.max_frames is None else min(samples, (utterance.max_frames + 1) * FRAME_SAMPLES)


async def checked_chunks(
    speaking: Speaking, timeout_s: float | None, max_samples: int | None = None
) -> AsyncGenerator[AudioChunk, None]:
    """The chunks of one utterance, refused if they are not finite, do not come in time, or never end.

    Raises ``EngineFault`` (invalid audio, no audio, more than ``max_samples``) and ``EngineLost`` (nothing for
    ``timeout_s``, if there is such a limit).
    """
    source = speaking.chunks()
    samples = 0
    try:
        while True:
            try:
                async with asyncio.timeout(timeout_s):
                    chunk = await anext(source)
            except StopAsyncIteration:
                break
            except TimeoutError:
                raise EngineLost("The speech engine stopped answering.") from None
            if not np.isfinite(chunk.pcm).all():
                raise EngineFault("The speech engine produced invalid audio.")
            samples += chunk.samples
            if max_samples is not None and samples > max_samples:
                raise EngineFault("The speech engine did not come to an end.")
            if chunk.samples:
                yield chunk
        if samples == 0:
            raise EngineFault("The speech engine produced no audio.")
    finally:
        speaking.cancel()
        if isinstance(source, AsyncGenerator):
            await source.aclose()


def _joined(chunks: Sequence[AudioChunk]) -> AudioChunk:
    """Chunks that follow one another as one."""
    codes = [chunk.codes for chunk in chunks if chunk.codes is not None]
    return AudioChunk(
        np.concatenate([chunk.pcm for chunk in chunks]),
        chunks[0].first_sample,
        np.concatenate(codes) if codes else None,
        chunks[-1].text_chars,
    )


class _Track(Generic[Ticket]):
    """One utterance on the line: its chunks wait here until those before it have been read."""

    def __init__(self, ticket: Ticket, limits: LineLimits) -> None:
        self.ticket = ticket
        self.limits = limits
        self.opened: Opened[Ticket] | None = None
        self.speaking: Speaking | None = None
        self.chunks: deque[tuple[AudioChunk, float]] = deque()
        self.held_samples = 0
        self.samples_read = 0
        self.finished = False
        self._cancelled = False
        self.fault: Fault | None = None
        self.changed = asyncio.Event()
        self.settled = asyncio.Event()
        self.complete = asyncio.Event()
        self.begun = False
        self.room = asyncio.Event()

    def cancelled(self) -> bool:
        return self._cancelled

    async def put(self, chunk: AudioChunk) -> None:
        while self.held_samples and self.held_samples + chunk.samples > self.limits.held_samples:
            self.room.clear()
            await self.room.wait()
        self.chunks.append((chunk, asyncio.get_running_loop().time()))
        self.held_samples += chunk.samples
        self.changed.set()

    def take(self) -> tuple[AudioChunk, float]:
        """All that waits here as one chunk, and since when its beginning has: many small ones cost more to send."""
        self.begun = True
        chunk, arrived_s = self.chunks.popleft()
        if self.chunks:
            chunk = _joined([chunk, *(later for later, _ in self.chunks)])
            self.chunks.clear()
        self.held_samples = 0
        self.samples_read += chunk.samples
        self.room.set()
        return chunk, arrived_s

    def replace(self, chunks: Sequence[AudioChunk], opened: Opened[Ticket]) -> None:
        """Another take, complete, in place of the one that waits here unread."""
        now_s = asyncio.get_running_loop().time()
        self.chunks = deque((chunk, now_s) for chunk in chunks)
        self.held_samples = sum(chunk.samples for chunk in chunks)
        self.opened = opened

    def end(self, fault: Fault | None = None) -> None:
        self.finished = True
        self.fault = self.fault or fault
        self.settled.set()
        self.complete.set()
        self.changed.set()

    def cancel(self) -> None:
        self._cancelled = True
        self.chunks.clear()
        self.held_samples = 0
        if self.speaking is not None:
            self.speaking.cancel()
        self.room.set()
        self.settled.set()
        self.complete.set()
        self.changed.set()


class SpeechLine(Generic[Ticket]):
    """An ordered line of utterances over one engine. Use as an async context manager, from one event loop.

    One task calls ``say`` and ``end``, another reads ``events``; ``cancel_all`` may come from anywhere.
    ``last_opened`` is what the engine accepted last (``make`` may look at it).
    """

    def __init__(self, engine: Engine, limits: LineLimits, observer: LineObserver | None = None) -> None:
        self._engine = engine
        self._limits = limits
        self._observer = observer
        self._tracks: deque[_Track[Ticket]] = deque()
        self._arrived = asyncio.Event()
        self._places = asyncio.Semaphore(limits.ahead + 1)
        self._ended = False
        self.last_opened: Opened[Ticket] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        for track in self._tracks:
            track.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def waiting(self) -> int:
        """Utterances on the line, the sounding one included."""
        return len(self._tracks)

    async def say(
        self,
        ticket: Ticket,
        make: Callable[[], Utterance],
        listener: Listener | None = None,
        *,
        after_whole: bool = False,
        opener: Callable[[Utterance], Awaitable[Speaking]] | None = None,
    ) -> None:
        """Put an utterance at the end of the line; waits while ``ahead`` others are being prepared.

        ``make`` is called when the one before has been opened, or with ``after_whole`` when it is complete. Opening
        happens in the line's own task: a fault of ``make`` or of the engine comes out as this ticket's ``Done``.
        ``opener`` takes the engine's place; of a live utterance it sees itself to it that its chunks come and end.
        """
        await self._places.acquire()
        track = _Track(ticket, self._limits)
        self._tracks.append(track)
        self._arrived.set()
        before = self._tracks[-2] if len(self._tracks) > 1 else None
        ready = None if before is None else before.complete if after_whole else before.settled
        task = asyncio.create_task(self._speak(track, ready, make, listener, opener or self._engine.open))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def end(self) -> None:
        """Nothing more will be said: ``events`` ends after the last utterance."""
        self._ended = True
        self._arrived.set()

    def cancel_all(self) -> None:
        """Cancel what sounds and what waits; each ticket still gets its ``Done``. The line stays usable."""
        for track in self._tracks:
            track.cancel()

    async def _speak(
        self,
        track: _Track[Ticket],
        ready: asyncio.Event | None,
        make: Callable[[], Utterance],
        listener: Listener | None,
        opener: Callable[[Utterance], Awaitable[Speaking]],
    ) -> None:
        whole = False
        try:
            # Rows are opened in order, so that an early segment never waits behind a later one for a row.
            if ready is not None:
                await ready.wait()
            if track.cancelled():
                return
            asked = make()
            if self._observer is not None:
                self._observer.utterance_opened()
            speaking = await opener(asked)
            track.speaking = speaking
            if track.cancelled():
                speaking.cancel()
                return
            track.opened = self.last_opened = Opened(track.ticket, asked, speaking.language, speaking.text_tokens)
            if listener is not None:
                listener.opened(asked, speaking.language, speaking.text_tokens)
            track.settled.set()
            track.changed.set()
            # Nobody knows how long a text will be that is still written, nor when the next word comes.
            limits = (None, None) if asked.live else (self._limits.chunk_timeout_s, longest_samples(asked))
            async with aclosing(checked_chunks(speaking, *limits)) as chunks:
                async for chunk in chunks:
                    if track.cancelled():
                        return
                    if listener is not None:
                        listener.chunk(chunk)
                    await track.put(chunk)
            whole = not track.cancelled()
            if listener is not None and whole:
                # Whoever reads it learns at once that it is complete; a second look is for those who do not yet.
                track.finished = True
                track.changed.set()
                again = await listener.over(lambda: self._heard(track))
                if again is not None:
                    await self._speak_again(track, again, listener)
        except Fault as fault:
            track.end(fault)
        except Exception as error:
            log.error("engine raised", exc_info=error)
            track.end(EngineFault("The speech engine failed."))
        finally:
            if listener is not None and not whole:
                listener.lost()
            track.end()

    async def _speak_again(self, track: _Track[Ticket], asked: Utterance, listener: Listener) -> None:
        """A second take of an utterance that waits unread; given up as soon as its reader comes."""
        chunks: list[AudioChunk] = []
        second = False
        try:
            speaking = await self._engine.open(asked)
            opened = Opened(track.ticket, asked, speaking.language, speaking.text_tokens)
            listener.opened(asked, speaking.language, speaking.text_tokens)
            async with aclosing(
                checked_chunks(speaking, self._limits.chunk_timeout_s, longest_samples(asked))
            ) as source:
                async for chunk in source:
                    if self._heard(track):
                        break
                    listener.chunk(chunk)
                    chunks.append(chunk)
                else:
                    second = await listener.better() and not self._heard(track)
            if second:
                track.replace(chunks, opened)
        except Fault:
            log.info("a second take failed; the first is played")
        listener.chose(second=second)

    def _heard(self, track: _Track[Ticket]) -> bool:
        """Its reader has begun with it, or waits for it."""
        return track.begun or track.cancelled() or (bool(self._tracks) and self._tracks[0] is track)

    async def events(self) -> AsyncGenerator[LineEvent[Ticket], None]:
        """Opened, Audio..., Done of each ticket in the order in which they were said; Done always comes."""
        while True:
            while not self._tracks:
                if self._ended:
                    return
                self._arrived.clear()
                await self._arrived.wait()
            async for event in self._track_events(self._tracks[0]):
                yield event

    async def _track_events(self, track: _Track[Ticket]) -> AsyncGenerator[LineEvent[Ticket], None]:
        announced = False
        first_s = asyncio.get_running_loop().time()
        while True:
            if track.opened is not None and not announced and not track.cancelled():
                announced = True
                yield track.opened
            elif track.cancelled() or (track.finished and not track.chunks):
                break
            elif track.chunks:
                chunk, arrived_s = track.take()
                yield Audio(track.ticket, chunk, max(first_s, arrived_s))
            else:
                track.changed.clear()
                await track.changed.wait()
        self._tracks.popleft()
        self._places.release()
        fault = None if track.cancelled() else track.fault
        yield Done(track.ticket, track.samples_read, fault=fault, cancelled=track.cancelled())
