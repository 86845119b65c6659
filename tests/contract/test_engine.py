"""What every engine promises of speech, rows and life; see ``test_engine_abilities`` for what only some can do."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import replace

import numpy as np
import pytest

from sidecar.faults import EngineFault, EngineLost, EngineOverloaded, Fault, UnknownVoice
from sidecar.ports import FRAME_SAMPLES, Engine
from tests.contract.engines import Subject, alike, chunks_of, engine, freed, spoken, subject, utterance

__all__ = ["engine", "subject"]

pytestmark = pytest.mark.asyncio(loop_scope="module")


# ---------------------------------------------------------------- traits
async def test_traits_are_coherent(engine: Engine, subject: Subject) -> None:
    traits = engine.traits
    names = [voice.name for voice in traits.voices]
    assert traits.default_voice in (names or [""])
    assert subject.voice in (names or [""])
    assert len(set(names)) == len(names)
    assert all(name == name.lower() for name in names)
    assert all(set(voice.languages) <= set(traits.languages) for voice in traits.voices)
    assert traits.max_rows == 8
    assert (await engine.health()).ok


# ---------------------------------------------------------------- sound
async def test_audio_is_contiguous_finite_mono_float32(engine: Engine, subject: Subject) -> None:
    speaking = await engine.open(utterance(subject))
    chunks = await chunks_of(speaking)
    expected = 0
    for chunk in chunks:
        assert chunk.pcm.dtype == np.float32
        assert chunk.pcm.ndim == 1
        assert 0 < len(chunk.pcm) <= 25 * FRAME_SAMPLES
        assert chunk.first_sample == expected
        expected += len(chunk.pcm)
    pcm = np.concatenate([chunk.pcm for chunk in chunks])
    assert np.isfinite(pcm).all()
    assert np.abs(pcm).max() <= 1
    assert np.sqrt(np.mean(np.square(pcm))) > 0.01
    assert speaking.text_tokens >= 1


async def test_same_utterance_same_samples(engine: Engine, subject: Subject) -> None:
    first = await spoken(engine, utterance(subject))
    others = await asyncio.gather(
        spoken(engine, utterance(subject)),
        spoken(engine, utterance(subject, text="Quite another text.")),
        spoken(engine, utterance(subject)),
    )
    assert alike(subject, first, others[0])
    assert alike(subject, first, others[2])
    assert not alike(subject, first[: len(others[1])], others[1][: len(first)])


async def test_a_new_engine_says_the_same(engine: Engine, subject: Subject) -> None:
    other = subject.make(2, 2_000)
    await other.start()
    try:
        assert alike(subject, await spoken(other, utterance(subject)), await spoken(engine, utterance(subject)))
    finally:
        await other.close()


async def test_max_frames_caps_the_length(engine: Engine, subject: Subject) -> None:
    whole = await spoken(engine, utterance(subject))
    capped = await spoken(engine, replace(utterance(subject), max_frames=10))
    assert len(whole) > 11 * FRAME_SAMPLES
    assert len(capped) == 10 * FRAME_SAMPLES
    assert alike(subject, capped[: 9 * FRAME_SAMPLES], whole[: 9 * FRAME_SAMPLES])


@pytest.mark.parametrize("frames", [1, 3, 8])
async def test_first_chunk_frames_sets_the_first_chunk_only(engine: Engine, subject: Subject, frames: int) -> None:
    asked = replace(utterance(subject), first_chunk_frames=frames)
    chunks = await chunks_of(await engine.open(asked))
    assert len(chunks[0].pcm) == frames * FRAME_SAMPLES
    assert alike(subject, np.concatenate([chunk.pcm for chunk in chunks]), await spoken(engine, utterance(subject)))


# ---------------------------------------------------------------- cancel
@pytest.mark.parametrize("after", [0, 1, 3])
async def test_cancel_frees_the_row_within_one_chunk(engine: Engine, subject: Subject, after: int) -> None:
    speaking = await engine.open(utterance(subject, times=5))
    stream = speaking.chunks()
    for _ in range(after):
        await anext(stream)
    assert (await engine.health()).active_rows == 1
    speaking.cancel()
    speaking.cancel()
    assert len([chunk async for chunk in stream]) <= 1
    speaking.cancel()
    assert await freed(engine)


async def test_cancel_while_the_reader_waits(engine: Engine, subject: Subject) -> None:
    speaking = await engine.open(utterance(subject, times=5))
    reader = asyncio.ensure_future(chunks_of(speaking))
    await asyncio.sleep(0)
    speaking.cancel()
    await reader
    assert await freed(engine)


async def test_a_reader_that_walks_away_frees_the_row(engine: Engine, subject: Subject) -> None:
    speaking = await engine.open(utterance(subject))
    stream = speaking.chunks()
    await anext(stream)
    await stream.aclose()  # type: ignore[attr-defined]
    assert await freed(engine)


async def test_a_cancelled_reader_frees_the_row(engine: Engine, subject: Subject) -> None:
    speaking = await engine.open(utterance(subject, times=5))
    reader = asyncio.ensure_future(chunks_of(speaking))
    await asyncio.sleep(0)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert await freed(engine)


# ---------------------------------------------------------------- rows
async def test_rows_speak_at_once_and_alike(engine: Engine, subject: Subject) -> None:
    alone = await spoken(engine, utterance(subject))
    together = await asyncio.gather(*(spoken(engine, utterance(subject)) for _ in range(12)))
    assert all(alike(subject, alone, one) for one in together)
    assert await freed(engine)


async def test_too_much_work_is_refused(subject: Subject) -> None:
    small = subject.make(1, 0)
    await small.start()
    try:
        first = await small.open(utterance(subject))
        with pytest.raises(EngineOverloaded) as refused:
            await small.open(utterance(subject))
        assert refused.value.retryable
        assert (await small.health()).active_rows == 1
        await chunks_of(first)
        assert await freed(small)
        assert len(await spoken(small, utterance(subject))) > 0
    finally:
        await small.close()


async def test_a_waiting_utterance_gets_the_next_row(subject: Subject) -> None:
    small = subject.make(1, 60_000)
    await small.start()
    try:
        first = await small.open(utterance(subject))
        second = asyncio.ensure_future(small.open(utterance(subject)))
        await asyncio.sleep(0)
        assert not second.done()
        first.cancel()
        assert len(await chunks_of(await second)) > 0
    finally:
        await small.close()


async def test_a_paused_reader_holds_a_bounded_amount(engine: Engine, subject: Subject) -> None:
    before = len(asyncio.all_tasks())
    speaking = await engine.open(utterance(subject, times=20))
    stream = speaking.chunks()
    first = await anext(stream)
    await asyncio.sleep(0.05)
    assert (await engine.health()).active_rows == 1
    assert len(asyncio.all_tasks()) <= before + 1
    second = await anext(stream)
    assert second.first_sample == len(first.pcm)
    speaking.cancel()
    assert len([chunk async for chunk in stream]) <= 1
    assert await freed(engine)


# ---------------------------------------------------------------- refusals and odd texts
async def test_unknown_voice_lists_the_voices(engine: Engine, subject: Subject) -> None:
    with pytest.raises(UnknownVoice) as refused:
        await engine.open(replace(utterance(subject), voice="nobody", anchor=None))
    assert subject.voice in refused.value.message
    assert refused.value.param == "voice"
    assert (await engine.health()).active_rows == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "...",
        "!",
        "\x00\x01\x1b[31m",
        "🙂🙃",
        "I 🙂 you",
        "مرحبا بالعالم",
        "\u202eabc\u202c",
        "\ud800 half a pair \udfff",
        "a" * 2_000,
        "9" * 400,
        "<play file='x'/> [a](/b/) {c} \\d",
        "e\u0301\u0323" * 50,
        "\n\n\n",
        "A.\n\nB.\r\nC.",
    ],
    ids=lambda text: ascii(text)[:16],
)
async def test_odd_texts_give_audio_or_a_fault(engine: Engine, subject: Subject, text: str) -> None:
    with contextlib.suppress(Fault):
        pcm = await spoken(engine, replace(utterance(subject, "x"), text=text, language=None, max_frames=50))
        assert len(pcm) > 0
        assert np.isfinite(pcm).all()
        assert np.abs(pcm).max() <= 1
    assert await freed(engine)


async def test_a_very_long_text_streams(engine: Engine, subject: Subject) -> None:
    speaking = await engine.open(utterance(subject, times=300 if subject.max_frames is None else 5))
    stream = speaking.chunks()
    samples = 0
    async for chunk in stream:
        assert chunk.first_sample == samples
        samples += len(chunk.pcm)
        if samples > 50 * FRAME_SAMPLES:
            break
    speaking.cancel()
    assert len([chunk async for chunk in stream]) <= 1
    assert await freed(engine)


# ---------------------------------------------------------------- life
async def test_before_start_and_after_close_nothing_is_spoken(subject: Subject) -> None:
    made = subject.make(2, 2_000)
    assert not (await made.health()).ok
    with pytest.raises(EngineLost):
        await made.open(utterance(subject))
    await made.close()
    with pytest.raises(EngineLost):
        await made.start()
    with pytest.raises(EngineLost):
        await made.open(utterance(subject))


async def test_close_ends_speaking_and_waiting_with_engine_lost(subject: Subject) -> None:
    made = subject.make(1, 60_000)
    await made.start()
    speaking = await made.open(utterance(subject, times=5))
    stream = speaking.chunks()
    await anext(stream)
    waiting = asyncio.ensure_future(made.open(utterance(subject)))
    await asyncio.sleep(0)
    await made.close()
    await made.close()
    with pytest.raises(EngineLost):
        async for _ in stream:
            pass
    with pytest.raises(EngineLost):
        await waiting
    assert not (await made.health()).ok
    assert await freed(made)


async def test_close_catches_an_utterance_that_was_just_given_its_row(subject: Subject) -> None:
    made = subject.make(1, 60_000)
    await made.start()
    first = await made.open(utterance(subject))
    assert len(await chunks_of(first)) > 0
    second = await made.open(utterance(subject))
    waiting = asyncio.ensure_future(made.open(utterance(subject)))
    await asyncio.sleep(0)
    second.cancel()
    await made.close()
    with pytest.raises(EngineLost):
        await waiting
    assert await freed(made)


async def test_close_in_the_last_sentence_does_not_look_like_its_end(subject: Subject) -> None:
    made = subject.make(1, 2_000)
    await made.start()
    asked = replace(utterance(subject, text="Only one sentence."), first_chunk_frames=1)
    stream = (await made.open(asked)).chunks()
    await anext(stream)
    await made.close()
    with pytest.raises(EngineLost):
        await anext(stream)


async def test_close_leaves_no_thread_and_no_task(subject: Subject) -> None:
    threads, tasks = set(threading.enumerate()), asyncio.all_tasks()
    made = subject.make(4, 2_000)
    await made.start()
    await asyncio.gather(*(spoken(made, utterance(subject)) for _ in range(3)))
    left_open = await made.open(utterance(subject))
    await made.close()
    await asyncio.sleep(0)
    with pytest.raises(EngineFault):
        await chunks_of(left_open)
    assert set(threading.enumerate()) <= threads
    assert asyncio.all_tasks() <= tasks
