"""The engine that drives speech servers over servers that a test has in hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import numpy as np

from adapters.engines.omni import OmniEngine, OmniSettings
from sidecar.clock import SystemClock
from sidecar.ports import Speaking, Utterance
from tests.adapters.engines.omni_fake import FakeOmni, serving, voiced

ASKED = Utterance("The table is booked.", "vivian", seed=7, language="en")
QUICK: dict[str, Any] = {
    "back_off_s": 0.01,
    "back_off_max_s": 0.02,
    "server_wait_s": 5.0,
    "answer_timeout_s": 2.0,
    "silent_after_s": 2.0,
}


@asynccontextmanager
async def driving(*fakes: FakeOmni, **settings: Any) -> AsyncIterator[OmniEngine]:
    """An engine over these servers."""
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(serving(fake)) for fake in fakes]
        engine = OmniEngine(OmniSettings(tuple(urls), **QUICK | settings), SystemClock())
        stack.push_async_callback(engine.close)
        await engine.start()
        for fake in fakes:
            fake.events.clear()
            fake.gone.clear()
        yield engine


async def samples_of(speaking: Speaking) -> np.ndarray:
    pieces = [chunk.pcm async for chunk in speaking.chunks()]
    return np.concatenate(pieces) if pieces else np.zeros(0, np.float32)


async def heard_into(heard: list[int], speaking: Speaking) -> None:
    async for chunk in speaking.chunks():
        heard.append(len(chunk.pcm))


async def spoken(engine: OmniEngine, asked: Utterance = ASKED) -> bytes:
    """The sound as the server's own bytes."""
    samples = await samples_of(await engine.open(asked))
    return (samples * 32_768).astype("<i2").tobytes()


WHOLE = voiced(ASKED.text, ASKED.seed)


async def until(engine: OmniEngine, *, ok: bool) -> None:
    async with asyncio.timeout(10):
        while (await engine.health()).ok != ok:
            await asyncio.sleep(0.005)
