"""Hosted engines for tests, closed at their end, and what their tests share."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
import pytest_asyncio

from adapters.engines.host import HostedEngine, HostSettings
from sidecar.clock import SystemClock
from sidecar.ports import AudioChunk, Pcm, Speaking, Utterance

TEXT = " ".join(f"word{number}" for number in range(60))
SAY = Utterance(TEXT, "alto", 3, "en")
QUICK = HostSettings(back_off_s=(0.01,), ping_every_s=0.05)
FACTORIES = "tests.adapters.engines.hosted_factories"

Make = Callable[..., HostedEngine]


@pytest_asyncio.fixture
async def make() -> AsyncIterator[Make]:
    made: list[HostedEngine] = []

    def make(factory: str = "tone", host: HostSettings = QUICK, **settings: Any) -> HostedEngine:
        engine = HostedEngine(f"{FACTORIES}:{factory}", settings, SystemClock(), host)
        made.append(engine)
        return engine

    yield make
    for engine in made:
        await engine.close()


async def started(engine: HostedEngine) -> HostedEngine:
    await engine.start()
    return engine


async def rest(stream: AsyncIterator[AudioChunk]) -> list[AudioChunk]:
    return [chunk async for chunk in stream]


async def said(speaking: Speaking) -> Pcm:
    return np.concatenate([chunk.pcm for chunk in await rest(speaking.chunks())])


def joined(chunks: list[AudioChunk]) -> Pcm:
    expected = 0
    for chunk in chunks:
        assert chunk.first_sample == expected
        expected += len(chunk.pcm)
    return np.concatenate([chunk.pcm for chunk in chunks])


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(2_000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it does not come true")


def killed(engine: HostedEngine) -> int:
    pid = engine.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    return pid
