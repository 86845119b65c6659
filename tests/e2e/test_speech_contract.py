"""vLLM-Omni's contract where voices are stored, references come along and readings go wrong."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import patch

import httpx
import pytest
import pytest_asyncio

from sidecar.ports import Draws, Speaking, Utterance
from tests.e2e.conftest import Running, running
from tests.e2e.speech_tools import SPEECH, metric, omni_error, overheard
from tests.e2e.voice_tools import upload, vector

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = "Good morning."


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def talker() -> AsyncIterator[Running]:
    async with running() as server:
        assert (await upload(server, "anna")).status_code == 200
        yield server


async def ask(talker: Running, **members: Any) -> Any:
    return await talker.http.post(SPEECH, json={"input": TEXT, **members})


# ---------------------------------------------------------------- errors
@pytest.mark.parametrize(
    ("members", "type_"),
    [
        ({"speed": 9}, "Bad Request"),
        ({"seed": "x"}, "Bad Request"),
        ({"ambient_sound": 5}, "Bad Request"),
        ({"duration_seconds": "long"}, "Bad Request"),
        ({"references": [{"text": "x"}]}, "Bad Request"),
        ({"input": " "}, "BadRequestError"),
        ({"voice": "nobody"}, "BadRequestError"),
        ({"language": "Klingon"}, "BadRequestError"),
    ],
)
async def test_wrong_fields_are_told_from_wrong_requests(talker: Running, members: dict[str, Any], type_: str) -> None:
    assert omni_error(await ask(talker, **members))["type"] == type_


# ---------------------------------------------------------------- what the engine is told
@pytest.mark.parametrize(
    ("params", "draws"),
    [
        (None, None),
        ({}, None),
        ({"seed": 5, "min_p": 0.1}, None),
        ({"temperature": 0}, Draws(temperature=0)),
        ({"temperature": 0.7, "top_p": 0.5, "top_k": 20}, Draws(0.7, 0.5, 20)),
        ({"top_k": -1, "top_p": None}, Draws(top_k=0)),
    ],
)
async def test_how_codes_are_drawn(talker: Running, params: dict[str, Any] | None, draws: Draws | None) -> None:
    with overheard(talker) as asked:
        assert (await ask(talker, extra_params=params)).status_code == 200
    assert [utterance.draws for utterance in asked] == [draws]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", 11),
        ("temperature", "warm"),
        ("temperature", True),
        ("temperature", float("nan")),
        ("temperature", 10**400),
        ("top_p", 0),
        ("top_p", 1.1),
        ("top_p", []),
        ("top_k", -2),
        ("top_k", 1.5),
        ("top_k", 2**40),
    ],
)
async def test_draws_that_make_no_sense(talker: Running, name: str, value: Any) -> None:
    body = json.dumps({"input": TEXT, "extra_params": {name: value}})
    answer = await talker.http.post(SPEECH, content=body, headers={"content-type": "application/json"})
    assert omni_error(answer)["param"] == f"extra_params.{name}"


@pytest.mark.parametrize("value", [None, True, False])
async def test_how_the_text_is_read(talker: Running, value: bool | None) -> None:
    with overheard(talker) as asked:
        assert (await ask(talker, non_streaming_mode=value)).status_code == 200
    assert [utterance.whole_text for utterance in asked] == [value]


# ---------------------------------------------------------------- references
@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"references": []}, "references"),
        ({"references": [{"audio_path": "data:,"}] * 2}, "references"),
        ({"references": [{"audio_path": "data:,", "text": "x"}], "ref_audio": "data:,"}, "references"),
        ({"references": [{"audio_path": "data:,", "text": "x"}], "ref_text": "x"}, "references"),
        ({"references": [{"audio_path": "data:,"}]}, "ref_text"),
        ({"references": [{"audio_path": "ftp://example.org/a.wav", "text": "x"}]}, "ref_audio"),
        ({"references": [{"audio_path": "data:,", "text": "x"}], "task_type": "CustomVoice"}, "task_type"),
    ],
)
async def test_references_are_reference_fields(talker: Running, members: dict[str, Any], param: str) -> None:
    assert omni_error(await ask(talker, **members))["param"] == param


# ---------------------------------------------------------------- stored voices
@pytest.mark.parametrize("task", [None, "Base", "CustomVoice", "VoiceDesign"])
async def test_a_stored_voice_is_base_whatever_is_asked_for(talker: Running, task: str | None) -> None:
    with overheard(talker) as asked:
        answer = await ask(talker, voice="ANNA", task_type=task, instructions="Softly.")
        assert answer.status_code == 200, answer.text
    assert asked[0].anchor is not None


async def test_other_voices_are_not(talker: Running) -> None:
    for voice in ("alto", "alloy", "default", None):
        refused = await ask(talker, voice=voice, task_type="VoiceDesign", instructions="Softly.")
        assert omni_error(refused)["param"] == "task_type"
    unknown = await ask(talker, voice="nobody", task_type="VoiceDesign", instructions="Softly.")
    assert omni_error(unknown)["param"] == "voice"


async def test_a_vector_has_no_audio_tokens(talker: Running) -> None:
    for members in ({"voice": "anna"}, {"speaker_embedding": vector(1_024)}):
        answer = await ask(talker, **members)
        assert answer.headers["x-vllm-omni-input-audio-tokens"] == "0"


# ---------------------------------------------------------------- readings that go wrong
async def failing(server: Running, *, times: int, **members: Any) -> tuple[Any, list[Utterance]]:
    """The answer while the first readings go wrong, and what the engine was asked."""
    asked: list[Utterance] = []
    engine = server.service.engine
    real = engine.open

    class Broken:
        def __init__(self, speaking: Speaking) -> None:
            self.language, self.text_tokens = speaking.language, speaking.text_tokens
            self.cancel = speaking.cancel
            self._chunks = speaking.chunks

        async def chunks(self) -> AsyncIterator[Any]:
            async for chunk in self._chunks():
                yield chunk
                yield type(chunk)(chunk.pcm * float("nan"), chunk.first_sample)

    async def opened(utterance: Utterance) -> Any:
        asked.append(utterance)
        speaking = await real(utterance)
        return Broken(speaking) if len(asked) <= times else speaking

    with patch.object(engine, "open", opened):
        answer = await ask(server, **members)
    await server.rows_free()
    return answer, asked


@pytest.mark.parametrize("format", ["pcm", "mp3"])
async def test_a_reading_that_fails_is_tried_again_with_another_seed(talker: Running, format: str) -> None:
    before = await metric(talker, "sidecar_replies_total", endpoint="speech", outcome="failed")
    answer, (first, second) = await failing(talker, times=1, response_format=format)
    assert answer.status_code == 200
    assert first.seed != second.seed
    again = await ask(talker, response_format=format, seed=second.seed)
    assert answer.content == again.content, "nothing of the first reading is in it"
    assert answer.headers["x-vllm-omni-output-tokens"] == again.headers["x-vllm-omni-output-tokens"]
    assert await metric(talker, "sidecar_replies_total", endpoint="speech", outcome="failed") == before


async def test_only_once(talker: Running) -> None:
    answer, asked = await failing(talker, times=2)
    assert omni_error(answer, 500)["type"] == "InternalServerError"
    assert len(asked) == 2


@pytest.mark.parametrize("members", [{"seed": 1}, {"max_new_tokens": 100}])
async def test_not_what_must_be_this_very_reading(talker: Running, members: dict[str, Any]) -> None:
    answer, asked = await failing(talker, times=1, **members)
    omni_error(answer, 500)
    assert len(asked) == 1


@pytest.mark.parametrize("members", [{"stream": True}, {"stream_format": "audio"}])
async def test_not_what_is_being_heard_already(talker: Running, members: dict[str, Any]) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        await failing(talker, times=1, **members)
