"""POST /v1/audio/speech: what is in the bodies, for every format and both dialects."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from tests.e2e.conftest import Running, running
from tests.e2e.speech_tools import FORMATS, MEDIA_TYPES, SPEECH, UNKNOWN_SIZE, sound, tone_s, wav

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = "The quick brown fox jumps over the lazy dog."
CODEC_SLACK_SAMPLES = {"mp3": 3 * 576, "aac": 2 * 1_024}
"""These formats cannot say where their last frame ends."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def talker() -> AsyncIterator[Running]:
    async with running() as server:
        yield server


def check(body: bytes, format: str, duration_s: float, rate_hz: int = 24_000) -> None:
    heard = sound(body, format, rate_hz)
    assert heard.rate_hz == (48_000 if format == "opus" else rate_hz)
    slack_s = CODEC_SLACK_SAMPLES.get(format, 0) / rate_hz
    assert duration_s - 0.001 <= heard.duration_s <= duration_s + slack_s + 0.001
    assert 0.01 < np.sqrt(np.mean(heard.samples**2)) < 0.5


# ---------------------------------------------------------------- OpenAI's SDK
@pytest.mark.parametrize("format", FORMATS)
async def test_sdk_create(talker: Running, format: Any) -> None:
    answer = await talker.openai.audio.speech.create(model="tts-1-hd", voice="nova", input=TEXT, response_format=format)
    assert answer.response.headers["content-type"] == MEDIA_TYPES[format]
    check(answer.content, format, tone_s(TEXT))


@pytest.mark.parametrize("format", FORMATS)
async def test_sdk_streaming_response(talker: Running, format: Any) -> None:
    ask = talker.openai.audio.speech.with_streaming_response.create
    async with ask(model="gpt-4o-mini-tts", voice="ash", input=TEXT, response_format=format) as answer:
        assert answer.headers["content-type"] == MEDIA_TYPES[format]
        assert answer.headers["x-request-id"]
        body = b"".join([piece async for piece in answer.iter_bytes()])
    check(body, format, tone_s(TEXT))


async def test_sdk_default_is_mp3_and_comes_as_it_is_made(talker: Running) -> None:
    ask = talker.openai.audio.speech.with_streaming_response.create
    async with ask(model="tts-1", voice="alloy", input=TEXT) as answer:
        assert answer.headers["content-type"] == "audio/mpeg"
        assert answer.headers["x-accel-buffering"] == "no"
        assert "content-length" not in answer.headers
        body = b"".join([piece async for piece in answer.iter_bytes()])
    check(body, "mp3", tone_s(TEXT))


async def test_one_seed_gives_the_same_samples_however_they_are_asked_for(talker: Running) -> None:
    async def body(**members: Any) -> bytes:
        answer = await talker.http.post(SPEECH, json={"input": TEXT, "seed": -5, **members})
        assert answer.status_code == 200
        return answer.content

    whole = await body(response_format="pcm")
    assert whole == await body(response_format="pcm", stream_format="audio")
    assert whole == await body(response_format="pcm", model="tts-1")
    assert whole == await body(response_format="pcm", initial_codec_chunk_frames=7, stream_format="audio")
    assert whole == wav(await body()).data
    assert whole == wav(await body(stream_format="audio", response_format="wav")).data
    flac = np.round(sound(await body(response_format="flac"), "flac").samples * 32_768).astype("<i2")
    assert whole == flac.tobytes()
    assert whole != await body(response_format="pcm", seed=6)


# ---------------------------------------------------------------- containers
async def test_a_whole_wav_has_its_true_sizes(talker: Running) -> None:
    for members in (
        {},
        {"model": "sidecar-tts", "response_format": "wav"},
        {"model": "tts-1", "response_format": "wav"},
    ):
        body = (await talker.http.post(SPEECH, json={"input": TEXT, **members})).content
        parts = wav(body)
        assert parts.riff_size == len(body) - 8
        assert parts.data_size == len(parts.data) == round(tone_s(TEXT) * 48_000)
        assert parts.rate_hz == 24_000


@pytest.mark.parametrize("members", [{}, {"model": "tts-1"}])
async def test_a_streamed_wav_has_none(talker: Running, members: dict[str, str]) -> None:
    asked = {"input": TEXT, "stream_format": "audio", "response_format": "wav", **members}
    answer = await talker.http.post(SPEECH, json=asked)
    parts = wav(answer.content)
    assert "content-length" not in answer.headers
    assert parts.riff_size == parts.data_size == UNKNOWN_SIZE
    assert len(parts.data) == round(tone_s(TEXT) * 48_000)


@pytest.mark.parametrize("format", ["mp3", "opus", "aac", "flac"])
async def test_signatures(talker: Running, format: str) -> None:
    body = (await talker.http.post(SPEECH, json={"input": TEXT, "response_format": format})).content
    if format == "opus":
        assert body[:4] == b"OggS"
        assert b"OpusHead" in body[:100]
    elif format == "flac":
        assert body[:4] == b"fLaC"
    else:
        assert body[0] == 0xFF
        assert body[1] & 0xF0 == 0xF0


async def test_mp3_bodies_one_after_another_are_one_file(talker: Running) -> None:
    """LibreChat writes the bodies of a long text's pieces into one response."""
    texts = [TEXT, "And once more, with feeling.", TEXT]
    bodies = []
    for text in texts:
        answer = await talker.openai.audio.speech.create(model="tts-1", voice="echo", input=text)
        bodies.append(answer.content)
    joined = b"".join(bodies)
    assert not any(mark in joined for mark in (b"ID3", b"Xing", b"Info"))
    alone_s = sum(sound(body, "mp3").duration_s for body in bodies)
    assert sound(joined, "mp3").duration_s == pytest.approx(alone_s, abs=0.01)


# ---------------------------------------------------------------- rate and speed
@pytest.mark.parametrize("format", FORMATS)
async def test_eight_kilohertz(talker: Running, format: str) -> None:
    asked = {"input": TEXT, "response_format": format, "sample_rate": 8_000}
    answer = await talker.http.post(SPEECH, json=asked)
    check(answer.content, format, tone_s(TEXT), 8_000)


async def test_a_raw_stream_obeys_the_rate(talker: Running) -> None:
    asked = {"input": TEXT, "response_format": "wav", "sample_rate": 8_000, "stream_format": "audio"}
    assert wav((await talker.http.post(SPEECH, json=asked)).content).rate_hz == 8_000


@pytest.mark.parametrize("speed", [0.25, 0.9, 2.0, 4.0])
async def test_speed_changes_the_length_and_not_the_pitch(talker: Running, speed: float) -> None:
    text = "Aaaaaaaaaaaaaaaaaaaaaaaaaaaah"
    bodies = [
        (
            await talker.http.post(SPEECH, json={"input": text, "seed": 3, "response_format": "pcm", "speed": value})
        ).content
        for value in (1.0, speed)
    ]
    plain, changed = (sound(body, "pcm") for body in bodies)
    assert changed.duration_s == pytest.approx(plain.duration_s / speed, rel=0.01, abs=0.002)
    assert changed.pitch_hz == pytest.approx(plain.pitch_hz, rel=0.03)


@pytest.mark.parametrize("format", FORMATS)
async def test_openai_streams_at_any_speed(talker: Running, format: Any) -> None:
    ask = talker.openai.audio.speech.with_streaming_response.create
    async with ask(model="tts-1", voice="sage", input=TEXT, response_format=format, speed=2.0) as answer:
        body = b"".join([piece async for piece in answer.iter_bytes()])
    heard = sound(body, format)
    assert heard.duration_s == pytest.approx(tone_s(TEXT) / 2, abs=0.16)


async def test_frames_cap_the_length(talker: Running) -> None:
    asked = {"input": TEXT, "response_format": "pcm", "max_new_tokens": 5}
    answer = await talker.http.post(SPEECH, json=asked)
    assert len(answer.content) == 5 * 1_920 * 2
    assert answer.headers["x-vllm-omni-output-tokens"] == "5"
