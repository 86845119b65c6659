"""Where one generation takes over from another: nothing is heard of it."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from adapters.engines.tone import ToneEngine, ToneSettings
from sidecar.core.events import ReplyAudio, SegmentEnded, SegmentStarted
from sidecar.core.feed import FeedLimits
from sidecar.live_reply import LiveReply
from sidecar.play_clock import PlayClock
from sidecar.reply import ReplyLimits, Voicing
from tests.adapters.engines.clocks import ManualClock, settle

SENTENCE = "This is a sentence of some length that is said again. "
STEP = 10 ** (-54 / 20)


class Heard:
    """What a listener gets, and when."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.play = PlayClock()
        self.pcm: list[np.ndarray] = []
        self.starts: list[int] = []
        self.ended: list[SegmentEnded] = []

    async def listen(self, reply: LiveReply) -> None:
        async for event in reply.events():
            if isinstance(event, ReplyAudio):
                self.play.piece(self._clock.now_ms(), len(event.pcm) / 24)
                self.pcm.append(event.pcm)
            elif isinstance(event, SegmentStarted):
                self.starts.append(event.first_sample)
            elif isinstance(event, SegmentEnded):
                self.ended.append(event)


@pytest.mark.parametrize("roll_s", [10.0, 30.0, 60.0])
async def test_no_gap_and_no_step(roll_s: float) -> None:
    clock = ManualClock()
    engine = ToneEngine(ToneSettings(realtime_factor=0.5, first_chunk_delay_ms=200), clock)
    await engine.start()
    heard = Heard(clock)
    feed = FeedLimits(roll_s=roll_s, roll_tokens=2_000)
    async with LiveReply(engine, clock, Voicing("alto", 3), ReplyLimits(), feed) as reply:
        sentences = int(roll_s / 4) * 2 + 4
        writing = asyncio.create_task(write(reply, sentences))
        listening = asyncio.create_task(heard.listen(reply))
        while not listening.done():
            await clock.advance(100)
            await settle()
        await asyncio.gather(writing, listening)
    await engine.close()
    assert len(heard.ended) > 1
    assert all(one.fault is None for one in heard.ended)
    assert all(one.samples / 24_000 < roll_s * 1.5 + 15 for one in heard.ended)
    assert heard.play.dry_ms == 0, "the sound never runs out"
    pcm = np.concatenate(heard.pcm)
    for start in heard.starts[1:]:
        assert np.abs(np.diff(pcm[start - 3 : start + 3])).max() < STEP
        silent = np.abs(pcm[start - 24_000 : start + 12_000]) < 1e-4
        assert silent.sum() < 24 * 500, "a pause between sentences, no more"


async def write(reply: LiveReply, sentences: int) -> None:
    for _ in range(sentences):
        await reply.feed(SENTENCE)
    reply.finish()
