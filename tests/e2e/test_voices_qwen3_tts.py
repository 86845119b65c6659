"""Stored voices with the embedded runtime, on tiny checkpoints with random weights."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.adapters.engines.qwen3_tts import tiny
from tests.e2e.conftest import Running, running
from tests.e2e.speech_tools import omni_error
from tests.e2e.voice_tools import SPEECH, listed, recording, said, upload, vector, wav_file

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

SHORT = {"max_new_tokens": 8, "seed": 5}
CLIP = recording(1.5)
WORDS = "What is said here."


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def base(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    checkpoint = tiny.write(tmp_path_factory.mktemp("checkpoints") / "base", kind="base")
    flags: dict[str, Any] = {
        "engine__kind": "qwen3_tts",
        "engine__checkpoint": str(checkpoint),
        "engine__max_positions": 512,
    }
    async with running(**flags, voices__default="anna", voices__aliases={"nova": "bare"}) as server:
        assert (await upload(server, "anna", CLIP, ref_text=WORDS, language="en")).status_code == 200
        assert (await upload(server, "bare", CLIP)).status_code == 200
        yield server


async def test_a_transcript_makes_a_reference_in_context(base: Running) -> None:
    entries = {entry["name"]: entry for entry in (await listed(base))["uploaded_voices"]}
    assert (entries["anna"]["in_context"], entries["bare"]["in_context"]) == (True, False)
    assert entries["anna"]["ref_text"] == WORDS
    whole, vector_only = (
        await said(base, voice="anna", **SHORT),
        await said(base, voice="anna", x_vector_only_mode=True, **SHORT),
    )
    assert whole != vector_only
    assert whole == await said(base, voice="anna", **SHORT)
    assert await said(base, voice="anna", ref_text="Something else.", **SHORT) != whole
    refused = await base.http.post(SPEECH, json={"input": "x", "voice": "bare", "ref_text": WORDS})
    assert omni_error(refused)["param"] == "ref_text"


async def test_the_recording_in_the_request_is_the_stored_voice(base: Running) -> None:
    url = "data:audio/wav;base64," + base64.b64encode(wav_file(CLIP)).decode()
    assert await said(base, ref_audio=url, ref_text=WORDS, language="en", **SHORT) == await said(
        base, voice="anna", **SHORT
    )
    missing = await base.http.post(SPEECH, json={"input": "x", "ref_audio": url})
    assert omni_error(missing)["param"] == "ref_text"


async def test_defaults_and_aliases_may_be_stored_voices(base: Running) -> None:
    assert await said(base, **SHORT) == await said(base, voice="anna", **SHORT)
    assert await said(base, voice="alloy", **SHORT) == await said(base, voice="anna", **SHORT)
    assert await said(base, voice="nova", **SHORT) == await said(base, voice="bare", **SHORT)


async def test_a_chat_answer_and_a_stored_vector(base: Running) -> None:
    body = {
        "model": "scripted-echo",
        "messages": [{"role": "user", "content": "Hi."}],
        "modalities": ["text", "audio"],
        "audio": {"voice": "anna", "format": "pcm16"},
    }
    answer = await base.http.post("/v1/chat/completions", json=body)
    assert base64.b64decode(answer.json()["choices"][0]["message"]["audio"]["data"])
    width = base.service.engine.traits.clone_widths[0]
    made = await base.http.post("/api/voice-vectors", json={"name": "vec", "embedding": vector(width)})
    assert made.status_code == 201, made.text
    spoken = await base.http.post("/api/voice-vectors/vec/speech", json={"input": "Hi.", **SHORT})
    assert spoken.status_code == 200
    in_context = await base.http.post(
        "/api/voice-vectors/anna/speech",
        json={"input": "Hello there, this is me.", "response_format": "pcm", "language": "en", **SHORT},
    )
    assert in_context.content == await said(base, voice="anna", x_vector_only_mode=True, **SHORT)


async def test_an_engine_without_voices_says_what_to_do(base: Running) -> None:
    answer = await base.http.post(SPEECH, json={"input": "x", "voice": "vivian"})
    message = omni_error(answer)["message"]
    assert "anna" in message
    assert "ref_audio" in message
