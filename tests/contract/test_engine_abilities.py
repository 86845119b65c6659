"""What engines promise of anchors, codes, carry and live text, each as far as its traits go."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import numpy as np
import pytest

from sidecar.faults import BadRequest, EngineLost, TooLarge, UnsupportedByEngine
from sidecar.ports import (
    FRAME_SAMPLES,
    MAX_CLIP_S,
    MAX_UNREAD_CHARS,
    SAMPLE_RATE_HZ,
    AudioChunk,
    Engine,
    Pcm,
    Utterance,
)
from tests.contract.engines import Subject, alike, anchor, chunks_of, engine, freed, spoken, subject, utterance
from voices.anchor import CODEBOOKS, MAX_TRANSCRIPT_CHARS
from voices.carry import Carry

__all__ = ["engine", "subject"]

pytestmark = pytest.mark.asyncio(loop_scope="module")


def clip(hz: float = 150.0, seconds: float = 0.8) -> Pcm:
    """A buzz that comes and goes."""
    time_s = np.arange(int(seconds * SAMPLE_RATE_HZ)) / SAMPLE_RATE_HZ
    buzz = sum(np.sin(2 * np.pi * hz * partial * time_s) / partial for partial in range(1, 12))
    return (buzz * (0.6 + 0.4 * np.sin(2 * np.pi * 3 * time_s)) * 0.1).astype(np.float32)


def pcm_of(chunks: list[AudioChunk]) -> Pcm:
    return np.concatenate([chunk.pcm for chunk in chunks])


def codes_of(chunks: list[AudioChunk]) -> np.ndarray:
    return np.concatenate([chunk.codes for chunk in chunks if chunk.codes is not None])


async def live(engine: Engine, asked: Utterance, sizes: list[int], begin: int = 0) -> list[AudioChunk]:
    """Speak a text whose pieces arrive in these sizes, the last again and again, with pauses of all kinds."""
    text = asked.text
    speaking = await engine.open(replace(asked, text=text[:begin], live=True))
    reader = asyncio.ensure_future(chunks_of(speaking))
    at = begin
    for turn in range(len(text) + len(sizes)):
        size = sizes[min(turn, len(sizes) - 1)]
        if at >= len(text):
            break
        speaking.append(text[at : at + size])
        at += size
        await asyncio.sleep(0.002 * (turn % 3 == 0))
    speaking.finish()
    speaking.finish()
    return await reader


# ---------------------------------------------------------------- traits
async def test_traits_go_together(engine: Engine) -> None:
    traits = engine.traits
    assert traits.clone_widths or not traits.anchor_codes
    assert traits.codes_out or not traits.carry, "a carry is made of codes"
    assert ("Base" in traits.tasks) <= bool(traits.clone_widths)


# ---------------------------------------------------------------- voices from recordings
async def test_a_recording_becomes_an_anchor_that_it_speaks_with(engine: Engine, subject: Subject) -> None:
    traits = engine.traits
    if not (traits.clone_widths and traits.encodes):
        with pytest.raises(UnsupportedByEngine) as lacking:
            await engine.encode_voice(clip(), None)
        assert lacking.value.param == "ref_audio"
        return
    one, again, other = [await engine.encode_voice(pcm, None) for pcm in (clip(), clip(), clip(hz=260))]
    assert one.width in traits.clone_widths
    assert (one.codes, one.transcript) == (None, "")
    assert one.same_as(again)
    assert one.fingerprint == again.fingerprint != other.fingerprint
    assert not one.same_as(other)
    asked = replace(utterance(subject), voice="", max_frames=12)
    first, second, third = [await spoken(engine, replace(asked, anchor=a)) for a in (one, again, other)]
    assert alike(subject, first, second)
    assert not alike(subject, first, third)


async def test_a_transcript_adds_the_codes_of_the_recording(engine: Engine, subject: Subject) -> None:
    if not (engine.traits.clone_widths and engine.traits.encodes):
        pytest.skip("makes no anchors")
    plain, blank, said = [await engine.encode_voice(clip(), text) for text in (None, " ", " So it was said. ")]
    assert plain.same_as(blank)
    assert np.array_equal(plain.embedding, said.embedding)
    if not engine.traits.anchor_codes:
        assert said.same_as(plain)
        return
    assert said.codes is not None
    assert said.codes.shape == (-(-len(clip()) // FRAME_SAMPLES), CODEBOOKS)
    assert said.transcript == "So it was said."
    assert said.fingerprint != plain.fingerprint
    asked = replace(utterance(subject), voice="", max_frames=12)
    in_context = await chunks_of(await engine.open(replace(asked, anchor=said)))
    assert in_context[0].first_sample == 0
    assert not alike(subject, pcm_of(in_context), await spoken(engine, replace(asked, anchor=plain)))


@pytest.mark.parametrize(
    ("pcm", "text", "param"),
    [
        (np.zeros(0, np.float32), None, "ref_audio"),
        (clip()[:100], None, "ref_audio"),
        (np.zeros(24_000, np.float32), None, "ref_audio"),
        (np.full(24_000, np.nan, np.float32), None, "ref_audio"),
        (np.stack((clip(), clip())), None, "ref_audio"),
        (clip().astype(np.float64), None, "ref_audio"),
        (np.resize(clip(), int(MAX_CLIP_S * SAMPLE_RATE_HZ) + 1), None, "ref_audio"),
        (clip(), "x" * (MAX_TRANSCRIPT_CHARS + 1), "ref_text"),
        (clip(), "\ud800", "ref_text"),
    ],
    ids=["empty", "short", "silent", "nan", "stereo", "double", "long", "long-text", "surrogate"],
)
async def test_what_is_no_recording_of_a_voice_is_refused(
    engine: Engine, pcm: Pcm, text: str | None, param: str
) -> None:
    with pytest.raises(BadRequest) as refused:
        await engine.encode_voice(pcm, text)
    if engine.traits.clone_widths and engine.traits.encodes:
        assert refused.value.param == param
    assert (await engine.health()).ok


async def test_an_anchor_that_does_not_fit_is_refused_with_what_would(engine: Engine, subject: Subject) -> None:
    widths = engine.traits.clone_widths
    wrong = anchor(max(widths, default=64) + 1)
    with pytest.raises(BadRequest) as refused:
        await engine.open(replace(utterance(subject), anchor=wrong))
    assert isinstance(refused.value, UnsupportedByEngine) == (not widths)
    if widths:
        assert refused.value.param == "speaker_embedding"
        assert all(str(width) in refused.value.message for width in (*widths, wrong.width))
    assert await freed(engine)


async def test_encoding_before_the_start_and_after_the_end(subject: Subject) -> None:
    made = subject.make(2, 2_000)
    with pytest.raises((EngineLost, UnsupportedByEngine)):
        await made.encode_voice(clip(), None)
    await made.close()
    with pytest.raises((EngineLost, UnsupportedByEngine)):
        await made.encode_voice(clip(), None)


async def test_speech_goes_on_beside_encoding(engine: Engine, subject: Subject) -> None:
    if not (engine.traits.clone_widths and engine.traits.encodes):
        pytest.skip("makes no anchors")
    alone = await spoken(engine, utterance(subject))
    encoding = asyncio.gather(*(engine.encode_voice(clip(), "So it was said.") for _ in range(3)))
    said = await spoken(engine, utterance(subject))
    anchors = await encoding
    assert alike(subject, said, alone)
    assert all(one.same_as(anchors[0]) for one in anchors)


# ---------------------------------------------------------------- codes
async def test_codes_instead_of_samples_or_beside_them(engine: Engine, subject: Subject) -> None:
    asked = utterance(subject)
    if not engine.traits.codes_out:
        for output in ("codes", "both"):
            with pytest.raises(UnsupportedByEngine):
                await engine.open(replace(asked, output=output))
        return
    samples, codes, both = [
        await chunks_of(await engine.open(replace(asked, output=output))) for output in ("pcm", "codes", "both")
    ]
    assert all(chunk.codes is None for chunk in samples)
    at = 0
    for chunk in codes:
        assert chunk.codes is not None
        assert chunk.codes.dtype == np.int16
        assert chunk.codes.shape[1:] == (CODEBOOKS,)
        assert len(chunk.pcm) == 0
        assert chunk.first_sample == at
        at += len(chunk.codes) * FRAME_SAMPLES
        assert chunk.first_sample + chunk.samples == at
    assert all(chunk.codes is not None and len(chunk.codes) * FRAME_SAMPLES == len(chunk.pcm) for chunk in both)
    assert np.array_equal(codes_of(codes), codes_of(both))
    assert alike(subject, pcm_of(samples), pcm_of(both))
    assert at == len(pcm_of(samples))
    assert codes_of(codes).min() >= 0
    assert codes_of(codes).max() < 2_048
    assert await freed(engine)


async def test_codes_can_be_cancelled_and_paused(engine: Engine, subject: Subject) -> None:
    if not engine.traits.codes_out:
        pytest.skip("gives no codes")
    speaking = await engine.open(replace(utterance(subject, times=5), output="codes"))
    stream = speaking.chunks()
    await anext(stream)
    await asyncio.sleep(0.05)
    assert (await engine.health()).active_rows == 1
    speaking.cancel()
    assert len([chunk async for chunk in stream]) <= 1
    assert await freed(engine)


# ---------------------------------------------------------------- carry
async def test_a_carry_shapes_what_follows_and_is_not_heard_again(engine: Engine, subject: Subject) -> None:
    traits, asked = engine.traits, utterance(subject)
    plain = await spoken(engine, asked)
    if not traits.carry:
        made_up = Carry(np.ones((10, CODEBOOKS), np.int16), "So it was said.")
        assert alike(subject, await spoken(engine, replace(asked, carry=made_up)), plain)
        return
    before = replace(asked, text="So it was said.", output="codes", max_frames=9)
    codes = codes_of(await chunks_of(await engine.open(before)))
    carried = replace(asked, carry=Carry(codes, before.text), output="both")
    first, again = [await chunks_of(await engine.open(carried)) for _ in range(2)]
    assert first[0].first_sample == 0
    assert alike(subject, pcm_of(first), pcm_of(again))
    assert not alike(subject, pcm_of(first)[: len(plain)], plain[: len(pcm_of(first))])
    assert len(pcm_of(first)) == len(codes_of(first)) * FRAME_SAMPLES
    assert not np.array_equal(codes_of(first)[: len(codes)], codes)
    other = Carry(codes[::-1], before.text)
    assert not alike(subject, pcm_of(first), await spoken(engine, replace(asked, carry=other)))
    with pytest.raises(BadRequest) as refused:
        await engine.open(replace(asked, carry=Carry(codes, " ")))
    assert refused.value.param == "carry"


# ---------------------------------------------------------------- live text
async def test_any_arrival_of_a_live_text_says_the_same(engine: Engine, subject: Subject) -> None:
    asked = utterance(subject)
    if not engine.traits.live_text:
        with pytest.raises(UnsupportedByEngine):
            await engine.open(replace(asked, live=True))
        return
    asked = replace(asked, text="Caf\u00e9 cafe\u0301, na\u00efve 12.5 %!\n\n" + asked.text)
    if engine.traits.codes_out:
        asked = replace(asked, output="both")
    chance = random.Random(subject.name)
    whole = await live(engine, asked, [len(asked.text)])
    patterns = [[1], [len(asked.text) - 1, 1], [chance.randrange(1, 9) for _ in range(40)], [3, 40, 1]]
    for number, pattern in enumerate(patterns):
        spoken_ = await live(engine, asked, pattern, begin=number * 7)
        assert alike(subject, pcm_of(spoken_), pcm_of(whole))
        if engine.traits.codes_out:
            assert np.array_equal(codes_of(spoken_), codes_of(whole))
    assert await freed(engine)


async def test_live_texts_speak_side_by_side(engine: Engine, subject: Subject) -> None:
    if not engine.traits.live_text:
        pytest.skip("takes no live text")
    asked = utterance(subject)
    alone = pcm_of(await live(engine, asked, [5]))
    together = await asyncio.gather(*(live(engine, asked, [1 + number]) for number in range(6)))
    assert all(alike(subject, pcm_of(one), alone) for one in together)


async def test_a_live_text_with_a_carry_says_the_same_however_it_arrives(engine: Engine, subject: Subject) -> None:
    if not (engine.traits.live_text and engine.traits.carry):
        pytest.skip("takes no live text or no carry")
    before = replace(utterance(subject, "So it was said."), output="codes", max_frames=9)
    carry = Carry(codes_of(await chunks_of(await engine.open(before))), before.text)
    asked = replace(utterance(subject), carry=carry)
    whole = pcm_of(await live(engine, asked, [len(asked.text)]))
    for sizes in ([1], [2, 30]):
        assert alike(subject, pcm_of(await live(engine, asked, sizes)), whole)


async def test_a_text_that_is_whole_takes_no_more(engine: Engine, subject: Subject) -> None:
    speaking = await engine.open(utterance(subject))
    with pytest.raises(RuntimeError):
        speaking.append(" more")
    with pytest.raises(RuntimeError):
        speaking.finish()
    assert len(await chunks_of(speaking)) > 0


async def test_a_live_text_is_finished_once_and_bounded(engine: Engine, subject: Subject) -> None:
    if not engine.traits.live_text:
        pytest.skip("takes no live text")
    asked = replace(utterance(subject), live=True)
    with pytest.raises(TooLarge) as refused:
        await engine.open(replace(asked, text="x" * (MAX_UNREAD_CHARS + 1)))
    assert refused.value.param == "input"
    plain = pcm_of(await live(engine, replace(asked, live=False), [50]))
    speaking = await engine.open(replace(asked, text=""))
    with pytest.raises(TooLarge):
        speaking.append("x" * (MAX_UNREAD_CHARS + 1))
    speaking.append(asked.text)
    speaking.finish()
    with pytest.raises(RuntimeError):
        speaking.append(" more")
    assert alike(subject, pcm_of(await chunks_of(speaking)), plain)
    assert speaking.text_tokens > 1
    assert await freed(engine)


async def test_a_live_text_that_is_over_takes_no_more_and_does_no_harm(engine: Engine, subject: Subject) -> None:
    if not engine.traits.live_text:
        pytest.skip("takes no live text")
    speaking = await engine.open(replace(utterance(subject), live=True))
    stream = speaking.chunks()
    await anext(stream)
    speaking.cancel()
    for _ in range(3):
        speaking.append("y" * MAX_UNREAD_CHARS)
    speaking.finish()
    assert len([chunk async for chunk in stream]) <= 1
    assert await freed(engine)


@pytest.mark.parametrize("texts", [(), ("",), (" ", "\n")])
async def test_a_live_text_without_words_is_a_fault(engine: Engine, subject: Subject, texts: tuple[str, ...]) -> None:
    if not engine.traits.live_text:
        pytest.skip("takes no live text")
    speaking = await engine.open(replace(utterance(subject), text="", live=True))
    for text in texts:
        speaking.append(text)
    speaking.finish()
    with pytest.raises(BadRequest):
        await chunks_of(speaking)
    assert await freed(engine)


async def test_closing_ends_a_live_text_that_waits(subject: Subject) -> None:
    made = subject.make(2, 2_000)
    await made.start()
    try:
        if not made.traits.live_text:
            pytest.skip("takes no live text")
        reader = asyncio.ensure_future(chunks_of(await made.open(replace(utterance(subject), text="Wait", live=True))))
        await asyncio.sleep(0.01)
        assert not reader.done()
    finally:
        await made.close()
    with pytest.raises(EngineLost):
        await reader


# ---------------------------------------------------------------- where in the text it is
async def test_characters_read_grow_with_the_frames(engine: Engine, subject: Subject) -> None:
    asked = replace(utterance(subject), max_frames=None if subject.max_frames is None else 120)
    kinds = [False, True] if engine.traits.live_text else [False]
    for is_live in kinds:
        chunks = await (live(engine, asked, [4]) if is_live else _whole(engine, asked))
        read = [chunk.text_chars for chunk in chunks if chunk.text_chars is not None]
        assert len(read) in (0, len(chunks))
        assert read == sorted(read)
        assert all(0 <= chars <= len(asked.text) for chars in read)
        if is_live:
            assert read, "who takes live text knows how far it has read"
        if read and is_live:
            assert read[-1] == len(asked.text)
            assert read[0] < len(asked.text)


async def _whole(engine: Engine, asked: Utterance) -> list[AudioChunk]:
    return await chunks_of(await engine.open(asked))
