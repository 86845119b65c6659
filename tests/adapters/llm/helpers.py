"""What the tests of language models share."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from adapters.llm.openai_chat import OpenAiChat
from sidecar.ports import ChatDelta, ChatEvent, ChatOpened, ChatUsage, RawAnswer

BEGUN = "Hello there! Dr. Lee paid $12.50 for"
"""What scripts that break off have said before."""


class JumpingClock:
    """Sleeping takes no time: it only moves the clock."""

    def __init__(self) -> None:
        self.ms = 0.0

    def now_ms(self) -> float:
        return self.ms

    def unix_s(self) -> float:
        return 1_700_000_000.0

    async def sleep(self, ms: float) -> None:
        self.ms += ms
        await asyncio.sleep(0)


class StoppedClock(JumpingClock):
    """Time stands still; a sleep sets ``asleep`` and never ends."""

    def __init__(self) -> None:
        super().__init__()
        self.asleep = asyncio.Event()

    async def sleep(self, ms: float) -> None:
        self.asleep.set()
        await asyncio.Event().wait()


@dataclass
class Taken:
    """What came out of a chat stream."""

    events: list[ChatEvent] = field(default_factory=list)
    texts: dict[int, str] = field(default_factory=dict)
    refusal: str = ""
    finish: dict[int, str] = field(default_factory=dict)
    other: list[Mapping[str, Any]] = field(default_factory=list)
    usage: list[Mapping[str, Any]] = field(default_factory=list)
    fault: Exception | None = None

    @property
    def text(self) -> str:
        return self.texts.get(0, "")

    @property
    def opened(self) -> ChatOpened:
        first = self.events[0]
        assert isinstance(first, ChatOpened)
        return first

    def joined(self, name: str) -> str:
        return "".join(other.get(name, "") for other in self.other)

    def add(self, event: ChatEvent) -> None:
        self.events.append(event)
        if isinstance(event, ChatUsage):
            self.usage.append(event.body)
        elif isinstance(event, ChatDelta):
            self.texts[event.choice] = self.texts.get(event.choice, "") + event.text
            self.refusal += event.refusal
            if event.other:
                self.other.append(event.other)
            if event.finish_reason is not None:
                assert event.choice not in self.finish
                self.finish[event.choice] = event.finish_reason


async def take(stream: AsyncIterator[ChatEvent] | Any) -> Taken:
    """Read a stream to its end or its fault."""
    taken = Taken()
    try:
        async for event in stream:
            taken.add(event)
    except Exception as fault:
        taken.fault = fault
    return taken


async def read(answer: RawAnswer) -> bytes:
    return b"".join([chunk async for chunk in answer])


def ask(model: str, text: str = "Hello?", **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}], **more}


@contextlib.contextmanager
def refusing_port() -> Iterator[int]:
    """A port that nobody can listen on and that refuses connections."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


async def answer(llm: OpenAiChat, script: str, **more: Any) -> Taken:
    return await take(await llm.stream(ask(f"fake-{script}", **more), {}))
