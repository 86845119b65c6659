"""One spoken chat completion: a language model's stream in, n replies out, as events in an order clients accept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Protocol, Self

from segmenter import ReasoningFilter
from sidecar.core.events import ReplyAudio, ReplyEvent, SegmentEnded, SegmentGrew, SegmentStarted
from sidecar.core.playhead import Playhead
from sidecar.core.word_times import WordTime
from sidecar.faults import Fault, UpstreamBroken
from sidecar.ports import ChatDelta, ChatOpened, ChatStream, ChatUsage
from sidecar.reply import fatal

QUEUE_EVENTS = 16
"""Events that may wait for the client; beyond it the model and the engine are held back."""

TURN_EVENTS = 4
"""Events of the model read before others get their turn: a whole answer may lie in one network read."""

QUEUE_CHUNKS = 1
"""Chunks of audio of one choice among them: a chunk may last for seconds."""


class SpokenReply(Protocol):
    """A reply that is spoken while it is written: ``reply.Reply`` or ``live_reply.LiveReply``."""

    async def __aenter__(self) -> Self:
        """Begin."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop everything. May be called again."""

    async def feed(self, text: str) -> None:
        """The next piece of text; waits while too much is unspoken. Raises ``TooLarge``."""

    def finish(self) -> None:
        """The text is complete."""

    def events(self) -> AsyncGenerator[ReplyEvent, None]:
        """What is heard, in order."""


@dataclass(frozen=True, slots=True)
class Words:
    """Text of one choice, to be shown before it is heard."""

    choice: int
    text: str


@dataclass(frozen=True, slots=True)
class Passed:
    """Members of a delta that go through to the client and are never spoken."""

    choice: int
    delta: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Heard:
    """Something of the spoken reply of one choice."""

    choice: int
    event: ReplyEvent

    @property
    def audio(self) -> ReplyAudio | None:
        """The event, if it is sound."""
        return self.event if isinstance(self.event, ReplyAudio) else None


@dataclass(frozen=True, slots=True)
class WordsTimed:
    """When the words of the segment that has just ended sound, and where they stand in the choice's text."""

    choice: int
    times: tuple[WordTime, ...]


@dataclass(frozen=True, slots=True)
class ChoiceOver:
    """One choice is written and spoken to its end."""

    choice: int
    finish_reason: str


TurnEvent = ChatOpened | Words | Passed | Heard | WordsTimed | ChoiceOver


@dataclass(slots=True)
class _Choice:
    """One choice while it is being written."""

    reply: SpokenReply
    visible: ReasoningFilter
    finish_reason: str | None = None
    samples: int = 0
    stopped: bool = False
    over: bool = False
    playing: asyncio.Task[None] | None = None
    playhead: Playhead = field(default_factory=Playhead)
    audio_room: asyncio.Semaphore = field(default_factory=partial(asyncio.Semaphore, QUEUE_CHUNKS))


class ChatTurn:
    """Drives the answer to one request. ``events`` is iterated once; closing it stops the model and the engine.

    A model that breaks off is heard to the last word that arrived, then its fault is raised.
    """

    def __init__(
        self,
        stream: ChatStream,
        n: int,
        make_reply: Callable[[int], SpokenReply],
        starts_in_think: bool,
        *,
        word_times: bool = False,
    ) -> None:
        self._word_times = word_times
        self._stream = stream
        self._choices = {index: _Choice(make_reply(index), ReasoningFilter(starts_in_think)) for index in range(n)}
        self._queue: asyncio.Queue[TurnEvent | BaseException] = asyncio.Queue(QUEUE_EVENTS)
        self._tasks: list[asyncio.Task[None]] = []
        self.usage: dict[str, Any] | None = None

    def samples(self, choice: int) -> int:
        """Samples of this choice that the engine has delivered; at the end of the turn all were handed out."""
        return self._choices[choice].samples

    def playhead(self, choice: int) -> Playhead:
        """What of this choice the reader has taken, and what of that was heard."""
        return self._choices[choice].playhead

    def stop(self, choice: int) -> bool:
        """Say no more of this choice: nothing of it is answered any more but that it is over. False if it was."""
        chosen = self._choices[choice]
        if chosen.over or chosen.stopped:
            return False
        chosen.stopped = True
        chosen.playhead.abandoned()
        if self._tasks:
            self._tasks.append(asyncio.create_task(self._leave(choice, chosen)))
        return True

    async def _leave(self, index: int, choice: _Choice) -> None:
        if choice.playing is not None:
            choice.playing.cancel()
            await asyncio.gather(choice.playing, return_exceptions=True)
        await choice.reply.__aexit__(None, None, None)
        await self._queue.put(ChoiceOver(index, "stop"))

    async def events(self) -> AsyncGenerator[TurnEvent, None]:
        """Everything that happens, in order; raises the fault that ended the turn early."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._stream.aclose)
            for choice in self._choices.values():
                await stack.enter_async_context(choice.reply)
            self._tasks = [asyncio.create_task(self._read_model())]
            for index, choice in self._choices.items():
                choice.playing = asyncio.create_task(self._play(index, choice))
                self._tasks.append(choice.playing)
            stack.push_async_callback(_stop, self._tasks)
            broken: Fault | None = None
            while not all(choice.over for choice in self._choices.values()):
                event = await self._queue.get()
                if isinstance(event, UpstreamFaultAtEnd):
                    broken = broken or event.fault
                elif isinstance(event, BaseException):
                    raise event
                elif not self._is_late(event):
                    if isinstance(event, ChoiceOver):
                        self._choices[event.choice].over = True
                    if broken is None or not isinstance(event, ChoiceOver):
                        yield event
                        self._taken(event)
                        if timed := self._timed(event):
                            yield timed
            if broken is not None and not all(choice.stopped for choice in self._choices.values()):
                raise broken

    def _is_late(self, event: TurnEvent) -> bool:
        """It belongs to a choice that was stopped, or is over already."""
        if isinstance(event, ChatOpened):
            return False
        choice = self._choices[event.choice]
        return choice.over or (choice.stopped and not isinstance(event, ChoiceOver))

    def _timed(self, event: TurnEvent) -> WordsTimed | None:
        """The words of a segment that has been sent, for those who want them."""
        if not (self._word_times and isinstance(event, Heard) and isinstance(event.event, SegmentEnded)):
            return None
        choice = self._choices[event.choice]
        if choice.stopped or event.event.fault is not None:
            return None
        times = choice.playhead.ended()
        return WordsTimed(event.choice, tuple(times)) if times else None

    def _taken(self, event: TurnEvent) -> None:
        """The reader came back for more: it has dealt with this one."""
        if isinstance(event, Words):
            self._choices[event.choice].playhead.wrote(event.text)
        if not isinstance(event, Heard):
            return
        choice, happened = self._choices[event.choice], event.event
        if choice.stopped:
            return
        if isinstance(happened, SegmentStarted):
            segment = happened.segment
            choice.playhead.began(segment.start, segment.end, segment.spoken, happened.ends)
        elif isinstance(happened, SegmentGrew):
            choice.playhead.grew(happened.spoken, happened.ends)
        elif isinstance(happened, ReplyAudio):
            if not happened.is_pause:
                choice.audio_room.release()
            choice.playhead.sent(happened.pcm, happened.text_chars)
        elif happened.fault is not None:
            choice.playhead.abandoned()
        elif not self._word_times:
            choice.playhead.over()

    async def _read_model(self) -> None:
        try:
            try:
                await self._read_events()
            except Fault as fault:
                await self._queue.put(UpstreamFaultAtEnd(fault))
            await self._finish_replies()
        except Exception as error:
            await self._queue.put(error)

    async def _read_events(self) -> None:
        read = 0
        async for event in self._stream:
            read += 1
            if read % TURN_EVENTS == 0:
                await asyncio.sleep(0)
            if isinstance(event, ChatUsage):
                self.usage = dict(event.body)
            elif isinstance(event, ChatOpened):
                await self._queue.put(event)
            else:
                await self._take(event)

    async def _finish_replies(self) -> None:
        for index, choice in self._choices.items():
            try:
                await self._speak(index, choice, choice.visible.flush())
            except Fault as fault:
                await self._queue.put(UpstreamFaultAtEnd(fault))
            choice.reply.finish()

    async def _take(self, delta: ChatDelta) -> None:
        choice = self._choices.get(delta.choice)
        if choice is None:
            raise UpstreamBroken("The language model answered with a choice that was not asked for.")
        if delta.finish_reason:
            choice.finish_reason = delta.finish_reason
        passed = dict(delta.other)
        if delta.refusal:
            passed["refusal"] = delta.refusal
        if passed:
            await self._queue.put(Passed(delta.choice, passed))
        if delta.text:
            await self._speak(delta.choice, choice, choice.visible.feed(delta.text))
        if delta.refusal:
            await self._speak(delta.choice, choice, delta.refusal)

    async def _speak(self, index: int, choice: _Choice, text: str) -> None:
        if text and not choice.stopped:
            await self._queue.put(Words(index, text))
            await choice.reply.feed(text)

    async def _play(self, index: int, choice: _Choice) -> None:
        try:
            async for event in choice.reply.events():
                if isinstance(event, ReplyAudio):
                    choice.samples += len(event.pcm)
                    if not event.is_pause:
                        await choice.audio_room.acquire()
                elif isinstance(event, SegmentEnded) and (fault := fatal(event, choice.samples > 0)):
                    raise fault
                await self._queue.put(Heard(index, event))
            await self._queue.put(ChoiceOver(index, choice.finish_reason or "stop"))
        except Exception as error:
            await self._queue.put(error)


class UpstreamFaultAtEnd(Exception):
    """Carries the model's fault past what was still to be heard."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


async def _stop(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
