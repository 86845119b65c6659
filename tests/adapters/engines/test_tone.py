from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.engines.tone import ToneEngine, ToneSettings
from sidecar.faults import EngineFault, EngineLost
from sidecar.ports import FRAME_SAMPLES, AudioChunk, Pcm, Speaking, Utterance
from tests.adapters.engines.clocks import ManualClock, settle

TEXT = "one two three four five six seven eight nine ten"  # 40 frames


async def started(clock: ManualClock | None = None, **settings: Any) -> ToneEngine:
    engine = ToneEngine(ToneSettings(**settings), clock or ManualClock())
    await engine.start()
    return engine


async def collect(speaking: Speaking) -> list[AudioChunk]:
    return [chunk async for chunk in speaking.chunks()]


async def hum(text: str = TEXT, voice: str = "alto", seed: int = 1, **settings: Any) -> Pcm:
    engine = await started(**settings)
    chunks = await collect(await engine.open(Utterance(text, voice, seed)))
    return np.concatenate([chunk.pcm for chunk in chunks])


async def test_samples_depend_on_text_voice_and_seed() -> None:
    base = await hum()
    assert np.array_equal(base, await hum())
    for other in (await hum(voice="bass"), await hum(seed=2), await hum(text=TEXT.replace("one", "six"))):
        assert len(other) == len(base)
        assert not np.array_equal(other, base)


async def test_length_follows_the_text() -> None:
    assert len(await hum(text="a")) == 2 * FRAME_SAMPLES
    assert len(await hum(text="x" * 120)) == 100 * FRAME_SAMPLES


@given(st.lists(st.integers(1, 25), min_size=1, max_size=6).map(sorted), st.text(max_size=200))
def test_the_ramp_never_changes_the_samples(ramp: list[int], text: str) -> None:
    async def both() -> tuple[Pcm, Pcm]:
        return await hum(text), await hum(text, chunk_ramp_frames=tuple(ramp))

    usual, ramped = asyncio.run(both())
    assert np.array_equal(usual, ramped)


async def test_chunks_follow_the_ramp() -> None:
    engine = await started()
    chunks = await collect(await engine.open(Utterance(TEXT, "alto", 1)))
    assert [len(chunk.pcm) // FRAME_SAMPLES for chunk in chunks] == [1, 2, 4, 8, 16, 9]


async def test_pace_is_that_of_the_settings() -> None:
    clock = ManualClock()
    engine = await started(clock, realtime_factor=0.5, first_chunk_delay_ms=100, chunk_ramp_frames=(5,))
    speaking = await engine.open(Utterance(TEXT, "alto", 1))
    times: list[float] = []

    async def read() -> None:
        async for _ in speaking.chunks():
            times.append(clock.now_ms())

    reader = asyncio.ensure_future(read())
    await clock.advance(5_000)
    await reader
    assert times == [300, 500, 700, 900, 1100, 1300, 1500, 1700]


async def test_a_paused_reader_gets_no_backlog() -> None:
    clock = ManualClock()
    engine = await started(clock, realtime_factor=1.0, chunk_ramp_frames=(5,))
    speaking = await engine.open(Utterance(TEXT, "alto", 1))
    stream = speaking.chunks()
    first = asyncio.ensure_future(anext(stream))
    await clock.advance(400)
    await first
    await clock.advance(60_000)
    assert (await anext(stream)).first_sample == 5 * FRAME_SAMPLES  # the one made meanwhile
    third = asyncio.ensure_future(anext(stream))
    await clock.advance(399)
    assert not third.done()
    await clock.advance(1)
    assert (await third).first_sample == 10 * FRAME_SAMPLES
    speaking.cancel()


async def test_cancel_wakes_a_sleeping_row_at_once() -> None:
    clock = ManualClock()
    engine = await started(clock, realtime_factor=1.0)
    speaking = await engine.open(Utterance(TEXT, "alto", 1))
    reader = asyncio.ensure_future(collect(speaking))
    await settle()
    speaking.cancel()
    assert await reader == []
    assert (await engine.health()).active_rows == 0
    assert clock.now_ms() == 0


async def test_listener_hears_of_every_valid_utterance() -> None:
    heard: list[Utterance] = []
    engine = ToneEngine(ToneSettings(fault="open", fault_every=2), ManualClock(), on_open=heard.append)
    await engine.start()
    await engine.open(Utterance("a", "alto", 1))
    with pytest.raises(EngineFault):
        await engine.open(Utterance("b", "alto", 1))
    assert [one.text for one in heard] == ["a", "b"]
    assert (await engine.health()).active_rows == 1


# ---------------------------------------------------------------- faults
@pytest.mark.parametrize(("fault", "frames_before"), [("first_chunk", 0), ("mid", 31)])
async def test_breaking_faults(fault: str, frames_before: int) -> None:
    engine = await started(fault=fault)
    speaking = await engine.open(Utterance(TEXT, "alto", 1))
    got: list[AudioChunk] = []

    async def read() -> None:
        async for chunk in speaking.chunks():
            got.append(chunk)

    with pytest.raises(EngineFault):
        await read()
    assert sum(len(chunk.pcm) for chunk in got) == frames_before * FRAME_SAMPLES
    assert (await engine.health()).active_rows == 0


async def test_only_every_nth_utterance_fails() -> None:
    engine = await started(fault="first_chunk", fault_every=3)
    failed = []
    for _ in range(6):
        speaking = await engine.open(Utterance("a", "alto", 1))
        try:
            await collect(speaking)
        except EngineFault:
            failed.append(True)
        else:
            failed.append(False)
    assert failed == [False, False, True, False, False, True]


async def test_hang_holds_the_row_until_cancelled() -> None:
    clock = ManualClock()
    engine = await started(clock, fault="hang")
    speaking = await engine.open(Utterance(TEXT, "alto", 1))
    reader = asyncio.ensure_future(collect(speaking))
    await clock.advance(3_600_000)
    assert not reader.done()
    assert (await engine.health()).active_rows == 1
    speaking.cancel()
    assert len(await reader) == 1
    assert (await engine.health()).active_rows == 0


async def test_hang_ends_with_engine_lost_on_close() -> None:
    engine = await started(fault="hang")
    reader = asyncio.ensure_future(collect(await engine.open(Utterance(TEXT, "alto", 1))))
    await settle()
    await engine.close()
    with pytest.raises(EngineLost):
        await reader


async def test_silence_and_nan() -> None:
    assert not (await hum(fault="silence")).any()
    broken = np.isnan(await hum(fault="nan"))
    assert broken.any()
    assert not broken.all()


async def test_endless_ignores_the_cap() -> None:
    engine = await started(fault="endless")
    speaking = await engine.open(Utterance("a", "alto", 1, max_frames=3))
    samples = 0
    async for chunk in speaking.chunks():
        assert chunk.first_sample == samples
        samples += len(chunk.pcm)
        if samples > 1_000 * FRAME_SAMPLES:
            speaking.cancel()
    assert samples > 1_000 * FRAME_SAMPLES


@pytest.mark.parametrize(
    "settings",
    [
        {"fault": "fire"},
        {"chunk_ramp_frames": ()},
        {"chunk_ramp_frames": (2, 1)},
        {"chunk_ramp_frames": (0, 1)},
        {"realtime_factor": -1.0},
        {"realtime_factor": float("nan")},
        {"first_chunk_delay_ms": float("inf")},
        {"max_rows": 0},
        {"fault_every": 0},
    ],
)
def test_senseless_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        ToneSettings(**settings)


async def test_chunks_can_be_iterated_once() -> None:
    engine = await started()
    speaking = await engine.open(Utterance("a", "alto", 1))
    await collect(speaking)
    with pytest.raises(RuntimeError):
        speaking.chunks()
