"""The speech socket when all goes well: order, indices, formats, settings, seeds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.e2e.conftest import Running, running
from tests.e2e.speech_tools import FORMATS, SPEECH, overheard, sound, tone_s, wav
from tests.e2e.ws_client import LONG, STREAMED, opened

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def talker() -> AsyncIterator[Running]:
    async with running() as server:
        yield server


# ---------------------------------------------------------------- one utterance
async def test_a_whole_file_is_one_frame(talker: Running) -> None:
    async with opened(talker, {}) as client:
        await client.say("Hello there.")
        assert await client.expect("audio.start") == {
            "type": "audio.start",
            "format": "wav",
            "utterance_index": 0,
            "sentence_index": 0,
            "sentence_text": "Hello there.",
        }
        body = await client.message()
        assert isinstance(body, bytes)
        assert wav(body).data_size == len(wav(body).data) == round(tone_s("Hello there.") * 48_000)
        assert await client.expect("audio.done") == {
            "type": "audio.done",
            "utterance_index": 0,
            "sentence_index": 0,
            "total_bytes": len(body),
            "error": False,
        }
        assert await client.expect("session.done") == {
            "type": "session.done",
            "utterance_index": 0,
            "total_sentences": 1,
        }
        await client.silent()


async def test_a_stream_is_many_frames_of_whole_samples(talker: Running) -> None:
    async with opened(talker, STREAMED) as client:
        heard = await client.spoken(LONG)
    (unit,) = heard.units
    assert (unit.start["format"], unit.start["sample_rate"], unit.start["channels"]) == ("pcm", 24_000, 1)
    assert len(unit.frames) > 4
    assert all(frame and len(frame) % 2 == 0 for frame in unit.frames)
    assert len(unit.audio) == round(tone_s(LONG.strip()) * 48_000)


@pytest.mark.parametrize("format", FORMATS)
async def test_every_format_as_a_whole(talker: Running, format: str) -> None:
    text = "One of many formats."
    async with opened(talker, {"response_format": format}) as client:
        (unit,) = (await client.spoken(text)).units
    assert unit.start["format"] == format
    assert len(unit.frames) == 1
    assert sound(unit.audio, format).duration_s == pytest.approx(tone_s(text), abs=0.1)


async def test_speed_of_a_whole_file(talker: Running) -> None:
    text = "As fast as it can be said."
    async with opened(talker, {"response_format": "pcm", "speed": 2.0}) as client:
        (unit,) = (await client.spoken(text)).units
    assert len(unit.audio) == pytest.approx(tone_s(text) * 24_000, rel=0.01)


# ---------------------------------------------------------------- several
async def test_config_is_not_answered_and_none_waits_for_done(talker: Running) -> None:
    async with opened(talker, {}) as client:
        await client.silent()
        await client.text("One. Two. Three. ")
        await client.silent()
        await client.send("input.done")
        assert (await client.utterance()).texts == ["One. Two. Three."]


async def test_pieces_are_joined_as_they_are(talker: Running) -> None:
    async with opened(talker, {}) as client:
        assert (await client.spoken("  Hel", "lo", "", " wor", "ld. ")).texts == ["Hello world."]


async def test_done_is_a_flush(talker: Running) -> None:
    async with opened(talker, {}) as client:
        for index in range(3):
            heard = await client.spoken(f"Number {index}.")
            assert heard.texts == [f"Number {index}."]
            assert heard.done["utterance_index"] == index
            assert heard.units[0].start["sentence_index"] == 0


async def test_pipelined_utterances_keep_their_order(talker: Running) -> None:
    async with opened(talker, {**STREAMED, "split_granularity": "sentence"}) as client:
        for index in range(5):
            await client.say(f"First of {index}. Second of {index}.")
        await client.send("session.close")
        for index in range(5):
            heard = await client.utterance()
            assert heard.texts == [f"First of {index}.", f"Second of {index}."]
            assert (heard.done["utterance_index"], heard.done["total_sentences"]) == (index, 2)
            assert [unit.start["sentence_index"] for unit in heard.units] == [0, 1]
        assert await client.close_code() == 1000


@pytest.mark.parametrize("texts", [(), ("",), ("  ", "\n\t"), ("\u3000",)])
async def test_an_empty_flush_counts(talker: Running, texts: tuple[str, ...]) -> None:
    async with opened(talker, {}) as client:
        heard = await client.spoken(*texts)
        assert heard.units == []
        assert heard.done == {"type": "session.done", "utterance_index": 0, "total_sentences": 0}
        assert (await client.spoken("Now.")).done["utterance_index"] == 1


async def test_a_missing_text_is_empty(talker: Running) -> None:
    async with opened(talker, {}) as client:
        await client.send("input.text")
        await client.configure(response_format="pcm")
        assert (await client.spoken()).done["total_sentences"] == 0


async def test_sentences_sound_before_the_end_of_the_text(talker: Running) -> None:
    async with opened(talker, {**STREAMED, "split_granularity": "sentence"}) as client:
        await client.text("Good morning. The train")
        assert (await client.unit()).text == "Good morning."
        await client.text(" leaves at 3.15 p.m. today.")
        await client.silent()
        await client.send("input.done")
        heard = await client.utterance()
        assert heard.texts == ["The train leaves at 3.15 p.m. today."]
        assert heard.units[0].start["sentence_index"] == 1
        assert heard.done["total_sentences"] == 2


async def test_sockets_do_not_mix(talker: Running) -> None:
    async def one(number: int) -> None:
        async with opened(talker, {**STREAMED, "split_granularity": "sentence"}) as client:
            for index in range(3):
                text = f"Socket {number} says {index}."
                heard = await client.spoken(f"{text} {text}")
                assert heard.texts == [text, text]
                assert heard.done["utterance_index"] == index

    await asyncio.gather(*(one(number) for number in range(6)))
    await talker.rows_free()


# ---------------------------------------------------------------- the end
async def test_close(talker: Running) -> None:
    async with opened(talker, {}) as client:
        await client.send("session.close")
        assert await client.close_code() == 1000


async def test_close_after_queued_work_drops_only_what_was_not_flushed(talker: Running) -> None:
    async with opened(talker, {"split_granularity": "sentence"}) as client:
        await client.say("One. Two.")
        await client.text("Never said")
        await client.send("session.close")
        await client.text("Nor is this.")
        await client.send("input.done")
        assert (await client.utterance()).texts == ["One.", "Two."]
        assert await client.close_code() == 1000
    assert talker.service.sockets == 0


# ---------------------------------------------------------------- settings
async def test_settings_stay_until_they_are_sent_again(talker: Running) -> None:
    async with opened(talker, {"response_format": "wav"}) as client:
        await client.configure(response_format="flac")
        for index, format in enumerate(["flac", "flac", "pcm", "pcm"]):
            if index == 2:
                await client.configure(response_format="pcm")
            heard = await client.spoken("Sticky.")
            assert heard.units[0].start["format"] == format
            assert heard.done["utterance_index"] == index


async def test_queued_units_keep_the_settings_they_were_accepted_under(talker: Running) -> None:
    async with opened(talker, {"response_format": "flac"}) as client:
        await client.say("Before.")
        await client.configure(response_format="pcm")
        await client.say("After.")
        formats = [(await client.utterance()).units[0].start["format"] for _ in range(2)]
    assert formats == ["flac", "pcm"]


async def test_an_open_utterance_keeps_its_settings(talker: Running) -> None:
    async with opened(talker, {"response_format": "wav", "split_granularity": "sentence"}) as client:
        await client.text("A whole sentence. ")
        assert (await client.unit()).text == "A whole sentence."
        await client.configure(response_format="flac")
        await client.error()
        await client.text(" ")
        await client.configure(response_format="flac")
        await client.error()
        heard = await client.spoken("Another.")
        assert heard.units[0].start["format"] == "wav"
        await client.text("")
        await client.configure(response_format="flac")
        assert (await client.spoken("Changed.")).units[0].start["format"] == "flac"


async def test_what_the_engine_is_told(talker: Running) -> None:
    config = {"speaker": "BASS", "language": "German", "instructions": "Softly.", "seed": 5, "max_new_tokens": 9}
    with overheard(talker) as asked:
        async with opened(talker, {**config, "initial_codec_chunk_frames": 2, "unknown": {"a": 1}}) as client:
            await client.spoken("Guten Tag.")
    (utterance,) = asked
    assert (utterance.voice, utterance.language, utterance.instructions) == ("bass", "de", "Softly.")
    assert (utterance.seed, utterance.max_frames, utterance.first_chunk_frames) == (5, 9, 2)


@pytest.mark.parametrize("model", ["sidecar-tts", "tts-1", "", None])
async def test_models_that_are_served(talker: Running, model: str | None) -> None:
    async with opened(talker, {"model": model}) as client:
        heard = await client.spoken("Hi.")
    assert heard.units[0].start["format"] == "wav", "the socket speaks one dialect"


async def test_the_seed_holds_for_every_unit_and_equals_rest(talker: Running) -> None:
    text = "The same every time."
    config: dict[str, Any] = {"seed": 77, "voice": "tenor", "split_granularity": "sentence"}
    asked = {"input": text, "seed": 77, "voice": "tenor", "response_format": "pcm"}
    rest = (await talker.http.post(SPEECH, json=asked)).content
    async with opened(talker, {**STREAMED, **config}) as client:
        streamed = [unit.audio for _ in range(2) for unit in (await client.spoken(f"{text} {text}")).units]
        await client.configure(response_format="pcm", **config)
        whole = [unit.audio for unit in (await client.spoken(text)).units]
        await client.configure(response_format="pcm", **{**config, "seed": 78})
        other = [unit.audio for unit in (await client.spoken(text)).units]
    assert streamed + whole == [rest] * 5
    assert other != [rest]
