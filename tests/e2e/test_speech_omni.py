"""POST /v1/audio/speech as vLLM-Omni answers it: defaults, usage, streams, and every field that can be wrong."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.e2e.conftest import Running, running
from tests.e2e.speech_tools import SPEECH, UNKNOWN_SIZE, events, omni_error, overheard, tone_s, wav

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = "Good morning, this is your sidecar speaking."
USAGE = "x-vllm-omni-"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def talker() -> AsyncIterator[Running]:
    async with running() as server:
        yield server


async def ask(talker: Running, text: str = TEXT, **members: Any) -> Any:
    return await talker.http.post(SPEECH, json={"input": text, **members})


# ---------------------------------------------------------------- whole answers
async def test_usage_headers(talker: Running) -> None:
    short, long = await ask(talker, "Hi."), await ask(talker)
    for answer in (short, long):
        input_, output, total, text, audio = (
            int(answer.headers[f"{USAGE}{name}-tokens"])
            for name in ("input", "output", "total", "input-text", "input-audio")
        )
        assert (input_, total) == (text + audio, input_ + output)
        assert output == round(len(wav(answer.content).data) / 3_840)
    assert short.headers[f"{USAGE}input-text-tokens"] < long.headers[f"{USAGE}input-text-tokens"]


@pytest.mark.parametrize("text", ["你好，世界。", "Привет.", "Größe — こんにちは 🎉", "Ok.", "...", "a\ud800b"])
async def test_any_text_is_spoken(talker: Running, text: str) -> None:
    body = json.dumps({"input": text})
    answer = await talker.http.post(SPEECH, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 200
    assert wav(answer.content).data


@pytest.mark.parametrize(
    ("hint", "code"),
    [
        ("Auto", None),
        ("auto", None),
        ("", None),
        (None, None),
        ("English", "en"),
        ("gERMAN", "de"),
        ("CHINESE", "zh"),
        ("fr", "fr"),
        ("pt-BR", "pt"),
        ("zh_CN", "zh"),
    ],
)
async def test_language_hints(talker: Running, hint: str | None, code: str | None) -> None:
    with overheard(talker) as asked:
        assert (await ask(talker, language=hint)).status_code == 200
    assert [utterance.language for utterance in asked] == [code]


@pytest.mark.parametrize(
    "members",
    [
        {"model": None},
        {"model": ""},
        {"model": "sidecar-tts"},
        {"initial_codec_chunk_frames": 0},
        {"initial_codec_chunk_frames": 4},
        {"non_streaming_mode": True},
        {"max_new_tokens": 4_096},
        {"instructions": ""},
        {"instructions": "x" * 500},
        {"stream_format": None},
        {"stream": False},
        {"speed": None},
        {"extra_params": {"temperature": 0.8}},
        {"word_timestamps": False},
        {"task_type": "CustomVoice"},
        {"seed": -(2**63)},
        {"seed": 2**63 - 1},
        {"x_vector_only_mode": None},
        {"ambient_sound": "rain", "duration_seconds": 3},
    ],
)
async def test_neutral_values(talker: Running, members: dict[str, Any]) -> None:
    answer = await ask(talker, **members)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "audio/wav"


async def test_what_the_engine_is_told(talker: Running) -> None:
    with overheard(talker) as asked:
        await ask(talker, seed=12, instructions="Softly.", max_new_tokens=9, initial_codec_chunk_frames=3)
        await ask(talker)
        await ask(talker)
    first, second, third = asked
    assert (first.text, first.seed, first.instructions) == (TEXT, 12, "Softly.")
    assert (first.max_frames, first.first_chunk_frames) == (9, 3)
    assert second.seed != third.seed, "without a seed every answer has its own"


async def test_clean_text(talker: Running) -> None:
    markdown = "# Title\n\nThis is **bold**, see [the page](https://example.org/a_b)."
    with overheard(talker) as asked:
        await ask(talker, markdown)
        await ask(talker, markdown, clean_text=True)
        await ask(talker, "```", clean_text=True)
    assert asked[0].text == markdown
    assert "bold" in asked[1].text
    assert not set("*#[]") & set(asked[1].text)
    assert "example.org" not in asked[1].text
    assert asked[2].text == "```", "what would be nothing is said as it is"
    async with running(speech__clean_text=True) as cleaning:
        with overheard(cleaning) as asked:
            await ask(cleaning, markdown)
            await ask(cleaning, markdown, clean_text=False)
        assert "*" not in asked[0].text
        assert asked[1].text == markdown


async def test_many_at_once(talker: Running) -> None:
    texts = [f"Number {number} of many." + " And more." * number for number in range(12)]
    for text, answer in zip(texts, await asyncio.gather(*(ask(talker, text) for text in texts)), strict=True):
        assert len(wav(answer.content).data) == round(tone_s(text) * 48_000)
    await talker.rows_free()


# ---------------------------------------------------------------- streams
@pytest.mark.parametrize(
    "members", [{"stream": True}, {"stream_format": "sse"}, {"stream": False, "stream_format": "sse"}]
)
@pytest.mark.parametrize("format", ["pcm", "wav", None])
async def test_sse(talker: Running, members: dict[str, Any], format: str | None) -> None:
    named = {} if format is None else {"response_format": format}
    answer = await ask(talker, seed=4, **members, **named)
    assert answer.headers["content-type"].partition(";")[0] == "text/event-stream"
    found = events(answer.text)
    assert all(name == data["type"] for name, data in found)
    *deltas, (_, done) = found
    assert {data["type"] for _, data in deltas} == {"speech.audio.delta"}
    assert {data["response_format"] for _, data in deltas} == {format or "wav"}
    body = b"".join(base64.b64decode(data["audio"], validate=True) for _, data in deltas)
    if format != "pcm":
        assert wav(body).data_size == UNKNOWN_SIZE
        body = wav(body).data
    assert body == (await ask(talker, seed=4, response_format="pcm")).content
    usage = done["usage"]
    details = usage["input_token_details"]
    assert done["type"] == "speech.audio.done"
    assert usage["input_tokens"] == details["text_tokens"] + details["audio_tokens"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert usage["output_tokens"] == len(body) / 3_840


async def test_raw_wins_over_stream(talker: Running) -> None:
    answer = await ask(talker, stream=True, stream_format="audio", response_format="pcm")
    assert answer.headers["content-type"] == "audio/pcm"
    assert len(answer.content) == round(tone_s(TEXT) * 48_000)


@pytest.mark.parametrize("streamed", [{"stream": True}, {"stream_format": "sse"}, {"stream_format": "audio"}])
@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"response_format": "mp3"}, "response_format"),
        ({"response_format": "opus"}, "response_format"),
        ({"response_format": "flac"}, "response_format"),
        ({"response_format": "aac"}, "response_format"),
        ({"speed": 1.5, "response_format": "pcm"}, "speed"),
        ({"word_timestamps": True}, "word_timestamps"),
        ({"voice": "nobody"}, "voice"),
        ({"input": "  "}, "input"),
    ],
)
async def test_what_cannot_be_streamed(
    talker: Running, streamed: dict[str, Any], members: dict[str, Any], param: str
) -> None:
    assert omni_error(await ask(talker, **streamed, **members))["param"] == param


# ---------------------------------------------------------------- what is wrong
WRONG: list[tuple[str, list[Any], str]] = [
    ("input", [5, ["a"], {"t": 1}, None, True], "body.input"),
    ("input", ["", " ", "\n\t  ", "x" * 20_001], "input"),
    ("response_format", ["xyz", "WAV", 3, None], "body.response_format"),
    ("speed", [0.1, 4.5, -1, "fast", True, float("nan"), float("inf")], "body.speed"),
    ("task_type", ["Clone", "base", 1], "body.task_type"),
    ("language", [5], "body.language"),
    ("language", ["Klingon", "e", "123"], "language"),
    ("max_new_tokens", [0, -5, 4_097, "many", 1.5], "body.max_new_tokens"),
    ("seed", ["abc", 2**63, -(2**63) - 1, 1.5, True, 10**400], "body.seed"),
    ("initial_codec_chunk_frames", [-1, "x"], "body.initial_codec_chunk_frames"),
    ("stream_format", ["xml", 1], "body.stream_format"),
    ("stream", ["perhaps", None], "body.stream"),
    ("extra_params", [[1], "x"], "body.extra_params"),
    ("instructions", [7], "body.instructions"),
    ("instructions", ["x" * 501], "instructions"),
    ("sample_rate", [0, -1, "x"], "body.sample_rate"),
    ("sample_rate", [11_025, 44_100], "sample_rate"),
    ("voice", [5, {"name": "x"}, ["alto"]], "body.voice"),
    ("voice", ["nobody", "alto+nobody", {"id": "nobody"}, "../alto"], "voice"),
    ("speaker", ["nobody"], "voice"),
    ("model", [5], "body.model"),
    ("word_timestamps", ["perhaps"], "body.word_timestamps"),
    ("x_vector_only_mode", ["perhaps"], "body.x_vector_only_mode"),
    ("x_vector_only_mode", [True, False], "x_vector_only_mode"),
    ("ref_audio", [5, {"a": 1}, [1]], "body.ref_audio"),
    ("ref_audio", [[]], "ref_audio"),
    ("ref_audio", ["/etc/passwd", "ftp://example.org/a.wav", "data:audio/wav;base64,AAAA"], "ref_text"),
    ("ref_text", ["hi"], "ref_audio"),
    ("task_type", ["Base"], "task_type"),
    ("task_type", ["VoiceDesign"], "instructions"),
    ("speaker_embedding", ["x"], "body.speaker_embedding"),
    ("speaker_embedding", [[], ["a"], [[1.0], 2.0], [float("nan")] * 1_024, [0.1] * 8_193], "speaker_embedding"),
    ("clean_text", ["yes"], "body.clean_text"),
]


@pytest.mark.parametrize(("name", "values", "param"), WRONG, ids=[f"{name}-{param}" for name, _, param in WRONG])
async def test_a_wrong_field_is_named(talker: Running, name: str, values: list[Any], param: str) -> None:
    for value in values:
        body = json.dumps({"input": TEXT, name: value})
        answer = await talker.http.post(SPEECH, content=body, headers={"content-type": "application/json"})
        error = omni_error(answer)
        path = param if error["param"] and error["param"].startswith(f"{param}[") else error["param"]
        assert path == param, f"{name}={value!r}: {error}"


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"task_type": "CustomVoice", "ref_text": "hi"}, "task_type"),
        ({"task_type": "CustomVoice", "ref_audio": "https://example.org/a.wav"}, "task_type"),
        ({"task_type": "VoiceDesign", "instructions": "A deep voice."}, "task_type"),
        ({"task_type": "VoiceDesign", "instructions": "A deep voice.", "input": " "}, "task_type"),
        ({"speaker_embedding": [0.1] * 1_024, "ref_audio": "https://example.org/a.wav"}, "speaker_embedding"),
    ],
)
async def test_fields_that_do_not_go_together(talker: Running, members: dict[str, Any], param: str) -> None:
    assert omni_error(await ask(talker, **members))["param"] == param


async def test_an_unknown_model(talker: Running) -> None:
    error = omni_error(await ask(talker, model="no/such-model"), 404)
    assert (error["type"], error["param"]) == ("NotFoundError", "model")
    assert "no/such-model" in error["message"]


@pytest.mark.parametrize("body", ["{", "", "not json", '{"input": "x",}', "[" * 100_000, "[]", '"text"', "null", "3"])
async def test_bodies_that_are_no_object(talker: Running, body: str) -> None:
    answer = await talker.http.post(SPEECH, content=body, headers={"content-type": "application/json"})
    assert omni_error(answer)["type"] == "Bad Request"


async def test_bodies_that_are_no_text(talker: Running) -> None:
    for body in (b"\xff\xfe\x00", b'{"input": "\xff"}'):
        omni_error(await talker.http.post(SPEECH, content=body, headers={"content-type": "application/json"}))


async def test_an_input_is_needed(talker: Running) -> None:
    answer = await talker.http.post(SPEECH, json={"voice": "alto"})
    assert "input" in omni_error(answer)["message"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", None])
async def test_only_json_is_read(talker: Running, kind: str | None) -> None:
    headers = {} if kind is None else {"content-type": kind}
    omni_error(await talker.http.post(SPEECH, content=b'{"input": "x"}', headers=headers))


async def test_a_body_that_is_too_large(start: Any) -> None:
    async with start(server__max_body_bytes=2_048) as small:
        assert (await ask(small, "x" * 1_500)).status_code == 200
        omni_error(await ask(small, "x" * 2_500), 413)

        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(40):
                yield b" " * 100

        headers = {"content-type": "application/json"}
        omni_error(await small.http.post(SPEECH, content=pieces(), headers=headers), 413)


async def test_nothing_of_all_this_has_hurt(talker: Running) -> None:
    assert (await ask(talker)).status_code == 200
    await talker.rows_free()
