"""Live replies sound the same however their text arrives; slow and halting writers are spoken whole."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.engines.qwen3_tts.engine import make
from adapters.engines.tone import ToneEngine, ToneSettings
from sidecar.clock import SystemClock
from sidecar.core.events import ReplyAudio, ReplyEvent, SegmentEnded
from sidecar.core.feed import FeedLimits
from sidecar.live_reply import LiveReply
from sidecar.ports import Clock, Engine, Utterance
from sidecar.reply import ReplyLimits, SoundRules, Voicing
from tests.adapters.engines.clocks import ManualClock, settle
from tests.adapters.engines.qwen3_tts import tiny
from tests.adapters.engines.qwen3_tts.toy_engine import toy_engine

TEXT = (
    "Guten Tag, wie geht es Ihnen? **Sehr** gut, danke! Es ist ein schöner Tag 😀 heute.\n\n"
    "- Erstens: viel Text.\n- Zweitens: noch mehr, bitte. 今天天气很好。明天也是。"
)
AS_IT_IS = SoundRules(shape_pauses=False)
ROLLING = FeedLimits(roll_tokens=12, low_tokens=2, high_tokens=6, paragraph_tokens=8)


@asynccontextmanager
async def replying(
    engine: Engine, clock: Clock, voice: str, feed: FeedLimits, language: str = "de"
) -> AsyncIterator[LiveReply]:
    voicing = Voicing(voice=voice, dialog_seed=11, language=language)
    async with LiveReply(engine, clock, voicing, ReplyLimits(), feed, sound=AS_IT_IS) as reply:
        yield reply


async def spoken(engine: Engine, voice: str, pieces: list[str], feed: FeedLimits) -> tuple[list[str], np.ndarray]:
    """The generations' texts, and all samples."""
    async with replying(engine, SystemClock(), voice, feed) as reply:

        async def write() -> None:
            for piece in pieces:
                await reply.feed(piece)
                await asyncio.sleep(0)
            reply.finish()

        writing = asyncio.create_task(write())
        events = [event async for event in reply.events()]
        await writing
    texts = [event.segment.spoken for event in events if isinstance(event, SegmentEnded)]
    return texts, pcm_of(events)


def pcm_of(events: list[ReplyEvent]) -> np.ndarray:
    return np.concatenate([np.zeros(0, np.float32), *(e.pcm for e in events if isinstance(e, ReplyAudio))])


async def at_once(engine: Engine, asked: Utterance) -> np.ndarray:
    speaking = await engine.open(asked)
    speaking.finish()
    return np.concatenate([chunk.pcm async for chunk in speaking.chunks()])


def cut(text: str, places: list[int]) -> list[str]:
    edges = sorted({0, len(text), *(place % (len(text) + 1) for place in places)})
    return [text[a:b] for a, b in pairwise(edges)]


@given(st.lists(st.integers(0, 10_000), max_size=60))
@settings(max_examples=25, deadline=None)
def test_one_generation_sounds_the_same_in_any_pieces(places: list[int]) -> None:
    async def run() -> None:
        engine = ToneEngine(ToneSettings(), SystemClock())
        await engine.start()
        whole = await spoken(engine, "alto", [TEXT], FeedLimits(roll_tokens=1_000, paragraph_tokens=1_000))
        pieces = await spoken(engine, "alto", cut(TEXT, places), FeedLimits(roll_tokens=1_000, paragraph_tokens=1_000))
        assert whole[0] == pieces[0]
        assert len(whole[0]) == 1
        assert np.array_equal(whole[1], pieces[1])

    asyncio.run(run())


@given(st.lists(st.integers(0, 10_000), max_size=40))
@settings(max_examples=25, deadline=None)
def test_every_generation_sounds_like_its_text_given_at_once(places: list[int]) -> None:
    async def run() -> None:
        asked: list[Utterance] = []
        engine = ToneEngine(ToneSettings(), SystemClock(), on_open=asked.append)
        await engine.start()
        texts, pcm = await spoken(engine, "alto", cut(TEXT, places), ROLLING)
        assert len(texts) > 1
        opened = asked[: len(texts)]
        alone = [await at_once(engine, replace(one, text=text)) for one, text in zip(opened, texts, strict=True)]
        # Between them lie pauses only.
        at = 0
        for sound in alone:
            while not np.array_equal(pcm[at + 2_400 : at + len(sound)], sound[2_400:]):
                at += 240
                assert at < len(pcm)
            at += len(sound)
        assert at == len(pcm)

    asyncio.run(run())


@pytest.mark.parametrize("weights", ["toy", "tiny"])
async def test_the_embedded_runtime_too(weights: str, tmp_path: Path) -> None:
    if weights == "toy":
        engine: Engine = toy_engine(max_rows=2)
    else:
        checkpoint = tiny.write(tmp_path / "tiny", kind="custom_voice")
        engine = make({"checkpoint": str(checkpoint), "device": "cpu", "max_rows": 2, "max_positions": 512})
    await engine.start()
    try:
        text = "one two three four five six seven. eight nine ten"
        feed = FeedLimits(roll_tokens=1_000)
        voice = engine.traits.default_voice
        whole = await spoken(engine, voice, [text], feed)
        assert len(whole[1]) > 0
        for seed in range(6 if weights == "toy" else 3):
            places = random.Random(seed).choices(range(len(text)), k=seed * 4)
            pieces = await spoken(engine, voice, cut(text, places), feed)
            assert pieces[0] == whole[0] == [text]
            assert len(pieces[1]) == len(whole[1])
            assert np.allclose(pieces[1], whole[1], atol=1e-5)
    finally:
        await engine.close()


# ---------------------------------------------------------------- halting writers
WORDS = ["so", "it", "was", "told", "that", "there", "are", "many", "more", "things", "to", "be", "said", "of", "all"]


def script(draw: random.Random) -> list[str]:
    """Tokens of a few sentences."""
    tokens = []
    for _ in range(draw.randint(1, 4)):
        words = draw.choices(WORDS, k=draw.randint(2, 9))
        tokens += [*(f" {word}" for word in words), draw.choice(".!?")]
    return tokens


async def test_two_hundred_halting_replies_are_spoken_whole() -> None:
    clock, draw = ManualClock(), random.Random(7)
    engine = ToneEngine(ToneSettings(), clock)
    await engine.start()
    scripts = [script(draw) for _ in range(200)]
    heard: list[list[ReplyEvent]] = [[] for _ in scripts]
    closed_ms: dict[int, float] = {}
    ended_ms: list[list[float]] = [[] for _ in scripts]

    async def one(number: int, tokens: list[str], pauses: random.Random) -> None:
        async with replying(engine, clock, "alto", FeedLimits(), "en") as reply:

            async def write() -> None:
                for token in tokens:
                    await clock.sleep(500 + (pauses.uniform(200, 3_000) if pauses.random() < 0.2 else 0))
                    await reply.feed(token)
                reply.finish()
                closed_ms[number] = clock.now_ms()

            writing = asyncio.create_task(write())
            async for event in reply.events():
                heard[number].append(event)
                if isinstance(event, SegmentEnded):
                    ended_ms[number].append(clock.now_ms())
            await writing

    tasks = [asyncio.create_task(one(n, tokens, random.Random(n))) for n, tokens in enumerate(scripts)]
    while not all(task.done() for task in tasks):
        await clock.advance(250)
        await settle()
    await asyncio.gather(*tasks)
    for number, tokens in enumerate(scripts):
        segments = [event for event in heard[number] if isinstance(event, SegmentEnded)]
        assert " ".join(e.segment.spoken for e in segments).split() == "".join(tokens).split(), "none is cut short"
        assert all(event.fault is None for event in segments)
        assert ended_ms[number][-1] >= closed_ms[number], "the end comes after the text is closed"
        for event in segments[:-1]:
            assert event.segment.spoken.rstrip()[-1] in ".!?", "nothing ends in mid-sentence"
        for event in segments:
            whole = await at_once(engine, Utterance(event.segment.spoken, "alto", 1, live=True))
            assert event.samples == len(whole), "and nothing is padded"
    await engine.close()
