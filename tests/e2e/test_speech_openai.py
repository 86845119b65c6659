"""POST /v1/audio/speech as OpenAI's clients ask it: the SDK, Pipecat, LiveKit, Open WebUI, LibreChat, SillyTavern."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
import pytest_asyncio

from tests.e2e.conftest import Running, running
from tests.e2e.speech_tools import OPENAI_VOICES, SPEECH, events, openai_error, overheard, sound, tone_s

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = "Good morning, this is your sidecar speaking."


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def talker() -> AsyncIterator[Running]:
    async with running(voices__aliases={"nova": "bass"}) as server:
        yield server


# ---------------------------------------------------------------- clients
async def test_pipecat(talker: Running) -> None:
    """Raw PCM at 24 kHz, streamed, read in pieces of its own size."""
    ask = talker.openai.audio.speech.with_streaming_response.create
    async with ask(
        input=TEXT, model="gpt-4o-mini-tts", voice="marin", response_format="pcm", instructions="Warmly."
    ) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].partition(";")[0] == "audio/pcm"
        body = b"".join([piece async for piece in answer.iter_bytes(4_096)])
    assert len(body) == round(tone_s(TEXT) * 48_000)


async def test_livekit_reads_sse_lines_of_one_mp3(talker: Running) -> None:
    """The default of its plugin: mp3 in server-sent events, of which it reads the data lines only."""
    asked = {
        "input": TEXT,
        "model": "gpt-4o-mini-tts",
        "voice": "ash",
        "response_format": "mp3",
        "stream_format": "sse",
    }
    mp3, last, lines = b"", {}, 0
    async with talker.http.stream("POST", SPEECH, json=asked) as answer:
        assert answer.headers["content-type"].partition(";")[0] == "text/event-stream"
        async for line in answer.aiter_lines():
            if line:
                assert line.startswith("data: {"), "nothing but data lines"
                last = json.loads(line[6:])
                lines += 1
                if last["type"] == "speech.audio.delta":
                    assert set(last) == {"type", "audio"}
                    mp3 += base64.b64decode(last["audio"], validate=True)
    assert set(last) == {"type", "usage"}
    assert last["type"] == "speech.audio.done"
    usage = last["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert min(usage["input_tokens"], usage["output_tokens"]) > 0
    assert lines > 3, "audio is sent while it is made"
    assert sound(mp3, "mp3").duration_s == pytest.approx(tone_s(TEXT), abs=0.16)


@pytest.mark.parametrize("format", ["pcm", "wav", "mp3", "opus", "flac", "aac"])
async def test_sse_pieces_are_one_file(talker: Running, format: str) -> None:
    asked = {"input": TEXT, "model": "tts-1", "response_format": format, "stream_format": "sse", "speed": 1.5}
    answer = await talker.http.post(SPEECH, json=asked)
    found = events(answer.text)
    assert {name for name, _ in found} == {None}
    assert [data["type"] for _, data in found].count("speech.audio.done") == 1
    body = b"".join(base64.b64decode(data["audio"]) for _, data in found[:-1])
    assert sound(body, format).duration_s == pytest.approx(tone_s(TEXT) / 1.5, abs=0.16)


async def test_open_webui(talker: Running) -> None:
    """No format: it wants mp3, by the content type."""
    answer = await talker.http.post(SPEECH, json={"input": TEXT, "voice": "alloy", "model": "tts-1"})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "audio/mpeg"
    assert sound(answer.content, "mp3").duration_s == pytest.approx(tone_s(TEXT), abs=0.16)


async def test_librechat(talker: Running) -> None:
    """It sends a field that nobody knows."""
    asked = {"input": TEXT, "model": "tts-1", "voice": "alloy", "backend": "openai", "nested": {"a": [1, None]}}
    answer = await talker.http.post(SPEECH, json=asked)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "audio/mpeg"


async def test_sillytavern(talker: Running) -> None:
    asked = {"model": "tts-1", "input": TEXT, "voice": "alloy", "response_format": "mp3", "speed": 1}
    answer = await talker.http.post(SPEECH, json=asked, headers={"content-type": "application/json; charset=utf-8"})
    assert answer.status_code == 200


# ---------------------------------------------------------------- voices
async def test_all_voices_of_openai_are_known(talker: Running) -> None:
    with overheard(talker) as asked:
        for voice in OPENAI_VOICES:
            answer = await talker.openai.audio.speech.create(
                model="gpt-4o-mini-tts", voice=voice, input="Hi.", response_format="pcm"
            )
            assert answer.content
    spoken = dict(zip(OPENAI_VOICES, [utterance.voice for utterance in asked], strict=True))
    assert spoken == {**dict.fromkeys(OPENAI_VOICES, "alto"), "nova": "bass"}, "the configured alias wins"


@pytest.mark.parametrize(
    ("members", "voice"),
    [
        ({}, "alto"),
        ({"voice": None}, "alto"),
        ({"voice": "TENOR"}, "tenor"),
        ({"voice": {"id": "Soprano"}}, "soprano"),
        ({"speaker": "bass"}, "bass"),
        ({"voice": "default"}, "alto"),
        ({"voice": "Nova"}, "bass"),
    ],
)
@pytest.mark.parametrize("model", ["tts-1", "sidecar-tts", None])
async def test_ways_to_name_a_voice(talker: Running, members: dict[str, Any], voice: str, model: str | None) -> None:
    with overheard(talker) as asked:
        answer = await talker.http.post(SPEECH, json={"input": "Hi.", "model": model, **members})
        assert answer.status_code == 200
    assert [utterance.voice for utterance in asked] == [voice]


# ---------------------------------------------------------------- errors
@pytest.mark.parametrize(
    ("members", "code", "param"),
    [
        ({"voice": "nobody"}, "voice_not_found", "voice"),
        ({"input": "   "}, "invalid_value", "input"),
        ({"input": 5}, "invalid_value", "input"),
        ({"input": "x" * 20_001}, "invalid_value", "input"),
        ({"speed": 5}, "invalid_value", "speed"),
        ({"speed": "fast"}, "invalid_value", "speed"),
        ({"response_format": "ogg"}, "invalid_value", "response_format"),
        ({"stream_format": "chunks"}, "invalid_value", "stream_format"),
        ({"instructions": "x" * 501}, "invalid_value", "instructions"),
        ({"language": "Klingon"}, "unsupported_language", "language"),
        ({"task_type": "VoiceDesign", "instructions": "Calm."}, "unsupported_by_engine", "task_type"),
    ],
)
async def test_error_codes_are_words(talker: Running, members: dict[str, Any], code: str, param: str) -> None:
    answer = await talker.http.post(SPEECH, json={"input": TEXT, "model": "tts-1", **members})
    error = openai_error(answer)
    assert (error["code"], error["param"], error["type"]) == (code, param, "invalid_request_error")
    assert answer.headers["x-should-retry"] == "false"


async def test_the_sdk_understands_the_errors(talker: Running) -> None:
    create = talker.openai.audio.speech.create
    with pytest.raises(openai.BadRequestError) as bad:
        await create(model="tts-1", voice="nobody", input=TEXT)
    assert (bad.value.code, bad.value.param) == ("voice_not_found", "voice")
    assert "alloy" in bad.value.message, "it says which voices there are"
    with pytest.raises(openai.NotFoundError) as unknown:
        await create(model="tts-9", voice="alloy", input=TEXT)
    assert unknown.value.param == "model"


async def test_an_error_of_a_stream_is_an_http_answer(talker: Running) -> None:
    asked = {"input": TEXT, "model": "gpt-4o-mini-tts", "voice": "nobody", "stream_format": "sse"}
    openai_error(await talker.http.post(SPEECH, json=asked))


async def test_a_request_id_is_kept(talker: Running) -> None:
    for given, kept in (("trace-1.a:b", True), ("no spaces", False)):
        answer = await talker.http.post(SPEECH, json={"input": TEXT, "model": "tts-1"}, headers={"x-request-id": given})
        assert (answer.headers["x-request-id"] == given) is kept
