"""Word times over HTTP and on the speech socket."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from sidecar.core import word_stamps
from tests.e2e.conftest import Running, running
from tests.e2e.speech_tools import SPEECH, sound
from tests.e2e.ws_client import STREAMED, SpeechSocket, opened

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = "Good morning, this is your sidecar speaking."
WORDS = ["Good", "morning", "this", "is", "your", "sidecar", "speaking"]
TIMED = {**STREAMED, "word_timestamps": True}
HEADER, OMITTED = "x-word-timestamps", "x-word-timestamps-omitted"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def talker() -> AsyncIterator[Running]:
    async with running() as server:
        yield server


async def ask(talker: Running, text: str = TEXT, **members: Any) -> Any:
    return await talker.http.post(SPEECH, json={"input": text, "word_timestamps": True, "seed": 1, **members})


def check(stamps: list[dict[str, Any]], words: list[str], length_ms: float) -> None:
    assert [set(stamp) for stamp in stamps] == [{"word", "start_ms", "end_ms"}] * len(stamps)
    assert [stamp["word"] for stamp in stamps] == words
    moments = [moment for stamp in stamps for moment in (stamp["start_ms"], stamp["end_ms"])]
    assert all(isinstance(moment, int) for moment in moments)
    assert moments == sorted(moments)
    assert moments[0] >= 0
    assert length_ms * 0.9 <= moments[-1] <= length_ms


# ---------------------------------------------------------------- HTTP
@pytest.mark.parametrize("format", ["wav", "pcm", "flac", "mp3", "opus"])
async def test_a_whole_answer_has_them_in_a_header(talker: Running, format: str) -> None:
    answer = await ask(talker, response_format=format)
    assert answer.status_code == 200
    assert answer.headers[HEADER].isascii()
    length_ms = 1000 * sound((await ask(talker, response_format="pcm")).content, "pcm").duration_s
    check(json.loads(answer.headers[HEADER]), WORDS, length_ms)
    assert OMITTED not in answer.headers


async def test_unasked_there_are_none(talker: Running) -> None:
    for value in (False, None):
        members = {} if value is None else {"word_timestamps": value}
        answer = await talker.http.post(SPEECH, json={"input": TEXT, **members})
        assert not {HEADER, OMITTED} & set(answer.headers)


@pytest.mark.parametrize("speed", [0.5, 1.0, 1.7, 4.0])
@pytest.mark.parametrize("rate_hz", [8_000, 24_000])
async def test_they_are_those_of_the_audio_that_is_sent(talker: Running, speed: float, rate_hz: int) -> None:
    answer = await ask(talker, response_format="pcm", speed=speed, sample_rate=rate_hz)
    length_ms = 1000 * sound(answer.content, "pcm", rate_hz).duration_s
    check(json.loads(answer.headers[HEADER]), WORDS, length_ms)


async def test_words_of_other_scripts_are_escaped(talker: Running) -> None:
    answer = await ask(talker, "Größe 你好")
    assert answer.headers[HEADER].isascii()
    assert [stamp["word"] for stamp in json.loads(answer.headers[HEADER])] == ["Größe", "你", "好"]


async def test_a_list_that_is_too_long_for_a_header(talker: Running) -> None:
    answer = await ask(talker, "word " * 200)
    bytes_, limit = (part.partition("=")[2] for part in answer.headers[OMITTED].split("; ")[1:])
    assert answer.headers[OMITTED].startswith("oversize; bytes=")
    assert (int(bytes_) > 4_096, limit) == (True, "4096")
    assert HEADER not in answer.headers


async def test_no_words_no_times(talker: Running) -> None:
    assert (await ask(talker, "...")).headers[HEADER] == "[]"


async def test_they_are_of_the_text_that_is_spoken(talker: Running) -> None:
    answer = await ask(talker, "A **bold** [page](https://example.org/a_b).", clean_text=True)
    assert [stamp["word"] for stamp in json.loads(answer.headers[HEADER])] == ["A", "bold", "page"]


@pytest.mark.parametrize("model", ["tts-1", "gpt-4o-mini-tts"])
async def test_an_openai_answer_that_has_them_comes_whole(talker: Running, model: str) -> None:
    """Its headers go out before its words are known otherwise."""
    answer = await ask(talker, model=model, voice="alloy")
    assert answer.headers["content-type"] == "audio/mpeg"
    assert int(answer.headers["content-length"]) == len(answer.content)
    assert [stamp["word"] for stamp in json.loads(answer.headers[HEADER])] == WORDS
    for format in ("sse", "audio"):
        refused = await ask(talker, model=model, voice="alloy", stream_format=format)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "word_timestamps")


async def test_a_batch_knows_no_word_times(talker: Running) -> None:
    items = [{"input": TEXT, "word_timestamps": True}]
    answer = await talker.http.post("/v1/audio/speech/batch", json={"items": items})
    (result,) = answer.json()["results"]
    assert set(result) == {"index", "status", "audio_data", "media_type", "usage"}


# ---------------------------------------------------------------- the socket
async def heard(client: SpeechSocket) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]:
    """Start, chunks and end of the next bracket, in which there is no binary frame."""
    start = await client.expect("audio.start")
    chunks = []
    while True:
        message = await client.message()
        assert isinstance(message, dict), "a binary frame"
        if message["type"] != "audio.chunk":
            break
        chunks.append(message)
    assert message["type"] == "audio.done"
    return start, chunks, message


FIELDS = {
    *("type", "utterance_index", "sentence_index", "chunk_id", "chunk_start_ms", "chunk_end_ms"),
    *("sample_rate", "channels", "audio_b64", "timestamps"),
}


async def test_chunks_of_a_unit(talker: Running) -> None:
    async with opened(talker, {**STREAMED, "seed": 3}) as client:
        plain = (await client.spoken(TEXT)).units[0]
        assert "word_timestamps" not in plain.start
        await client.configure(**TIMED, seed=3)
        await client.say(TEXT)
        start, chunks, done = await heard(client)
        assert (await client.expect("session.done"))["utterance_index"] == 1
    assert start == {**plain.start, "utterance_index": 1, "word_timestamps": True}
    *live, last = chunks
    assert [set(chunk) for chunk in chunks] == [FIELDS] * len(chunks)
    assert [chunk["chunk_id"] for chunk in chunks] == list(range(len(chunks)))
    assert {(c["utterance_index"], c["sentence_index"], c["sample_rate"], c["channels"]) for c in chunks} == {
        (1, 0, 24_000, 1)
    }
    audio = b"".join(base64.b64decode(chunk["audio_b64"], validate=True) for chunk in live)
    assert audio == plain.audio
    assert done == {**plain.done, "utterance_index": 1}
    assert done["total_bytes"] == len(audio)
    assert [chunk["timestamps"] for chunk in live] == [None] * len(live)
    for chunk, before in zip(live, [0, *(chunk["chunk_end_ms"] for chunk in live)], strict=False):
        assert chunk["chunk_start_ms"] == before
        assert chunk["chunk_end_ms"] - before == len(base64.b64decode(chunk["audio_b64"])) // 48
    length_ms = len(audio) // 48
    assert (last["audio_b64"], last["chunk_start_ms"], last["chunk_end_ms"]) == ("", 0, length_ms)
    check(last["timestamps"], WORDS, length_ms)


async def test_every_unit_has_its_own(talker: Running) -> None:
    async with opened(talker, {**TIMED, "split_granularity": "sentence"}) as client:
        await client.say("First one. And the second.")
        for index, words in enumerate((["First", "one"], ["And", "the", "second"])):
            start, chunks, done = await heard(client)
            assert (start["sentence_index"], done["sentence_index"]) == (index, index)
            assert chunks[0]["chunk_id"] == chunks[0]["chunk_start_ms"] == 0
            assert [stamp["word"] for stamp in chunks[-1]["timestamps"]] == words
        assert (await client.expect("session.done"))["total_sentences"] == 2


async def test_marks_are_silence(talker: Running) -> None:
    async with opened(talker, TIMED) as client:
        await client.say("...")
        _, chunks, _ = await heard(client)
    assert chunks[-1]["timestamps"] == []


async def test_null_means_that_there_are_none_to_be_had(talker: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ArithmeticError

    monkeypatch.setattr(word_stamps, "word_times", broken)
    async with opened(talker, TIMED) as client:
        await client.say(TEXT)
        _, chunks, done = await heard(client)
    assert (chunks[-1]["audio_b64"], chunks[-1]["timestamps"]) == ("", None)
    assert done["error"] is False
    assert HEADER not in (await ask(talker)).headers


async def test_a_unit_that_is_cut_off_has_none(start: Any) -> None:
    slow = {"engine__tone_realtime_factor": 1.0, "engine__warm_up": False}
    async with start(**slow) as server, opened(server, TIMED) as client:
        await client.say(TEXT * 5)
        await client.expect("audio.start")
        first = await client.expect("audio.chunk")
        assert first["audio_b64"]
        await client.send("input.cancel")
        while isinstance(message := await client.message(), dict) and message["type"] == "audio.chunk":
            assert message["audio_b64"]
        assert isinstance(message, dict)
        assert (message["type"], message["cancelled"]) == ("audio.done", True)


async def test_a_unit_that_fails_has_none(start: Any) -> None:
    async with start(engine__tone_fault="mid", engine__warm_up=False) as server, opened(server, TIMED) as client:
        await client.say(TEXT)
        await client.expect("audio.start")
        message = await client.expect("audio.chunk")
        while message["type"] == "audio.chunk":
            assert message["audio_b64"]
            assert message["timestamps"] is None
            received = await client.message()
            assert isinstance(received, dict)
            message = received
        assert (message["type"], message["partial_audio"], message["action"]) == ("error", True, "discard")
        assert (await client.expect("audio.done"))["error"] is True


async def test_a_unit_without_a_voice_fails_in_its_bracket(talker: Running) -> None:
    async with opened(talker, {**TIMED, "voice": "nobody"}) as client:
        unit = (await client.spoken(TEXT)).units[0]
    assert (unit.start["word_timestamps"], unit.frames, unit.done["error"]) == (True, [], True)
