from __future__ import annotations

import asyncio
import itertools
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.engines.tone import ToneEngine, ToneSettings
from adapters.engines.tone_tune import spectrum_of, timbre_of_embedding
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


# ---------------------------------------------------------------- texts that are still coming
async def hummed_live(text: str, sizes: list[int]) -> list[AudioChunk]:
    engine = await started()
    speaking = await engine.open(Utterance("", "alto", 1, live=True))
    reader = asyncio.ensure_future(collect(speaking))
    at = 0
    for size in itertools.chain(sizes, itertools.repeat(7)):
        if at >= len(text):
            break
        speaking.append(text[at : at + size])
        at += size
        await settle()
    speaking.finish()
    return await reader


@given(st.text("ab \n\u00e9\u3000", max_size=60), st.lists(st.integers(1, 20), max_size=12))
def test_any_arrival_hums_what_the_whole_text_hums(text: str, sizes: list[int]) -> None:
    if not text.strip():
        text += "x"
    live = asyncio.run(hummed_live(text, sizes))
    whole = asyncio.run(hum(text))
    assert np.array_equal(np.concatenate([chunk.pcm for chunk in live]), whole)
    read = [chunk.text_chars or 0 for chunk in live]
    assert read == sorted(read)
    assert read[-1] == len(text.rstrip())


async def test_a_word_sounds_once_the_next_has_begun() -> None:
    engine = await started()
    speaking = await engine.open(Utterance("", "alto", 1, live=True))
    stream = speaking.chunks()
    first = asyncio.ensure_future(anext(stream))
    for piece in ("hel", "lo", " "):
        speaking.append(piece)
        await settle()
        assert not first.done()
    speaking.append("w")
    assert (await first).text_chars == len("hello")
    speaking.cancel()


async def test_characters_read_are_those_of_the_word_that_sounds() -> None:
    engine = await started(chunk_ramp_frames=(1,))
    chunks = await collect(await engine.open(Utterance(TEXT, "alto", 1)))
    ends = [found.end() for found in re.finditer(r"\S+", TEXT)]
    assert sorted({chunk.text_chars or 0 for chunk in chunks}) == ends


# ---------------------------------------------------------------- voices
def buzz(hz: float) -> Pcm:
    time_s = np.arange(12_000) / 24_000
    partials = [np.sin(2 * np.pi * hz * partial * time_s) / 20 for partial in range(1, 6)]
    made: Pcm = np.sum(partials, axis=0).astype(np.float32)
    return made


def test_a_brighter_recording_gives_a_higher_voice() -> None:
    voices = [timbre_of_embedding(spectrum_of(buzz(hz))) for hz in (120, 500, 2_000)]
    assert [voice.base_hz for voice in voices] == sorted({voice.base_hz for voice in voices})
    assert all(90 <= voice.base_hz <= 330 for voice in voices)
    assert len({voice.name for voice in voices}) == 3


def test_a_louder_recording_of_the_same_is_the_same_voice() -> None:
    assert np.array_equal(spectrum_of(buzz(200)), spectrum_of(buzz(200) * 2))


@given(st.integers(0, 2**32 - 1))
def test_any_embedding_gives_a_voice_of_the_usual_level(seed: int) -> None:
    vector = np.random.default_rng(seed).normal(size=1_024).astype(np.float32)
    voice = timbre_of_embedding(vector)
    assert np.isclose(np.square(voice.wave).mean(), 0.5, rtol=1e-3)
    assert np.abs(voice.wave).max() < 4
    assert np.array_equal(timbre_of_embedding(vector).wave, voice.wave)
