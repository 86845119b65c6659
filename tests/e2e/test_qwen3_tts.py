"""The embedded runtime behind every endpoint, on a tiny checkpoint with random weights."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from websockets.asyncio.client import connect

from tests.adapters.engines.qwen3_tts import tiny
from tests.e2e.conftest import Running, running
from tests.e2e.voice_tools import upload, vector
from tests.e2e.ws_client import opened

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

FRAME_BYTES = 2 * 1_920
SHORT = {"max_new_tokens": 12, "seed": 5, "response_format": "pcm"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checkpoints")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def qwen(folder: Path) -> AsyncIterator[Running]:
    checkpoint = tiny.write(folder / "custom", kind="custom_voice")
    async with running(engine__kind="auto", engine__checkpoint=str(checkpoint), engine__max_positions=512) as server:
        yield server


async def speak(server: Running, status: int = 200, **fields: object) -> bytes:
    answer = await server.http.post("/v1/audio/speech", json={"input": "Hello there.", **SHORT, **fields})
    assert answer.status_code == status, answer.text[:300]
    return answer.content


async def test_a_checkpoint_is_what_auto_takes(qwen: Running) -> None:
    health = (await qwen.http.get("/health")).json()
    assert health["engine"] == "qwen3-tts"
    voices = (await qwen.http.get("/v1/audio/voices")).json()["voices"]
    assert {"vivian", "ryan", "alloy"} <= set(voices)


async def test_speech_is_whole_frames_and_the_seed_decides(qwen: Running) -> None:
    first, again = await speak(qwen), await speak(qwen)
    other = await speak(qwen, seed=6)
    assert len(first) % FRAME_BYTES == 0
    assert 0 < len(first) <= 12 * FRAME_BYTES
    assert first == again
    assert first != other


async def test_streamed_equals_whole(qwen: Running) -> None:
    whole = await speak(qwen)
    raw = await speak(qwen, stream_format="audio")
    worst = max(abs(a - b) for a, b in zip(memoryview(whole).cast("h"), memoryview(raw).cast("h"), strict=True))
    assert worst <= 1, "the same samples up to the last bit of rounding"


async def test_eight_at_once_equal_one_at_a_time(qwen: Running) -> None:
    texts = [f"Text number {n}." for n in range(8)]
    alone = [await speak(qwen, input=text) for text in texts]
    together = await asyncio.gather(*(speak(qwen, input=text) for text in texts))
    assert [len(pcm) for pcm in together] == [len(pcm) for pcm in alone]


SPEAKERS, LANGUAGES = "serena, shimmer, sohee, uncle_fu, verse, vivian", "de, en, es, fr, it, ja, ko, pt, ru, zh"

IMPOSSIBLE: list[tuple[dict[str, Any], str]] = [
    ({"voice": "nobody"}, SPEAKERS),
    ({"language": "hi"}, LANGUAGES),
    ({"language": "Klingon"}, "Chinese, English"),
    ({"task_type": "Base"}, "only CustomVoice"),
    ({"task_type": "VoiceDesign", "instructions": "calm"}, "only CustomVoice"),
    ({"task_type": "Base", "speaker_embedding": [0.1] * 64}, "only CustomVoice"),
]
"""Fields that a checkpoint of its own voices cannot serve, and what of the possible is named."""


@pytest.mark.parametrize(("fields", "says"), IMPOSSIBLE)
async def test_what_it_cannot_do_is_told_with_what_it_can(fields: dict[str, Any], says: str, qwen: Running) -> None:
    error = json.loads(await speak(qwen, status=400, **fields))["error"]
    assert says in error["message"]
    assert error["param"] in fields


async def test_a_text_that_cannot_fit_is_refused(qwen: Running) -> None:
    error = json.loads(await speak(qwen, status=400, input="word " * 600, max_new_tokens=None))["error"]
    assert "split it into shorter ones" in error["message"]
    assert error["param"] == "input"


@pytest.mark.parametrize(("fields", "says"), IMPOSSIBLE)
async def test_the_socket_tells_the_same_and_goes_on(fields: dict[str, Any], says: str, qwen: Running) -> None:
    async with opened(qwen, {"stream_audio": True, **SHORT, **fields}) as client:
        heard = await client.spoken("Hello there.")
        (error,) = heard.units[0].errors
        assert says in error["message"]
        assert heard.units[0].frames == []
        await client.configure(stream_audio=True, **SHORT)
        assert (await client.spoken("Hello there.")).failed == [False]


@pytest.mark.parametrize(
    ("audio", "stream", "says", "param"),
    [
        ({"voice": "nobody"}, False, SPEAKERS, "audio.voice"),
        ({"voice": "nobody"}, True, SPEAKERS, "audio.voice"),
        ({"voice": "ryan", "language": "hi"}, False, LANGUAGES, "audio.language"),
        ({"voice": "ryan", "language": "hi"}, True, LANGUAGES, "audio.language"),
    ],
)
async def test_a_chat_tells_it_too(audio: dict[str, str], stream: bool, says: str, param: str, qwen: Running) -> None:
    body = {
        "model": "scripted-echo",
        "messages": [{"role": "user", "content": "Hi."}],
        "modalities": ["text", "audio"],
        "audio": {"format": "pcm16", **audio},
        "stream": stream,
    }
    answer = await qwen.http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 400, answer.text[:300]
    error = answer.json()["error"]
    assert says in error["message"]
    assert error["param"] == param


async def test_a_chat_answer_speaks_through_it(qwen: Running) -> None:
    stream = await qwen.openai.chat.completions.create(
        model="scripted-echo",
        messages=[{"role": "user", "content": "Hi."}],
        modalities=["text", "audio"],
        audio={"voice": "alloy", "format": "pcm16"},
        stream=True,
    )
    data = b""
    async for chunk in stream:
        for choice in chunk.choices:
            if choice.delta.audio is not None and choice.delta.audio.data:
                data += base64.b64decode(choice.delta.audio.data)
    assert len(data) >= FRAME_BYTES


async def test_the_socket_speaks_through_it_as_rest_does(qwen: Running) -> None:
    async with connect(qwen.ws_url, max_size=None) as ws:
        config = {"type": "session.config", "stream_audio": True, **SHORT}
        await ws.send(json.dumps(config))
        await ws.send(json.dumps({"type": "input.text", "text": "Hello there."}))
        await ws.send(json.dumps({"type": "input.done"}))
        pcm = b""
        async for message in ws:
            if isinstance(message, bytes):
                pcm += message
            elif json.loads(message)["type"] == "session.done":
                break
    assert len(pcm) == len(await speak(qwen))


async def test_stored_voices_are_not_for_a_checkpoint_that_takes_none(qwen: Running) -> None:
    assert "its own voices" in (await upload(qwen, "anna")).json()["error"]["message"]
    made = await qwen.http.post("/api/voice-vectors", json={"name": "vec", "embedding": vector(1_024)})
    assert made.status_code == 201, made.text
    refused = await speak(qwen, status=400, voice="vec")
    assert "its own voices only" in json.loads(refused)["error"]["message"]
    refused = await speak(qwen, status=400, ref_audio="data:,", x_vector_only_mode=True)
    assert json.loads(refused)["error"]["param"] == "task_type"


async def test_a_base_checkpoint_speaks_with_an_embedding(folder: Path) -> None:
    checkpoint = tiny.write(folder / "base", kind="base")
    async with running(engine__checkpoint=str(checkpoint), engine__kind="qwen3_tts") as server:
        width = server.service.engine.traits.clone_widths[0]
        vector = [0.1] * width
        pcm = await speak(server, speaker_embedding=vector)
        assert len(pcm) >= FRAME_BYTES
        bad = {
            "speaker_embedding": (vector[:-1], f"{width - 1} elements; {width} are needed"),
            "task_type": ("VoiceDesign", "only Base"),
            "voice": ("ryan", "brings none: name a stored one"),
        }
        for field, (value, says) in bad.items():
            fields = {"instructions": "calm", field: value}
            error = json.loads(await speak(server, status=400, **fields))["error"]
            assert says in error["message"]
            assert error["param"] == field
            async with opened(server, {"stream_audio": True, **SHORT, **fields}) as client:
                heard = await client.spoken("Hello there.")
                assert says in heard.units[0].errors[0]["message"]


async def test_a_voice_design_checkpoint_speaks_as_instructed(folder: Path) -> None:
    checkpoint = tiny.write(folder / "design", kind="voice_design")
    async with running(engine__checkpoint=str(checkpoint), engine__kind="qwen3_tts") as server:
        calm, loud = [await speak(server, instructions=how) for how in ("A calm voice.", "A loud voice.")]
        assert calm != loud
        for fields, says in (
            ({}, "instructions"),
            ({"task_type": "CustomVoice", "instructions": "calm"}, "only VoiceDesign"),
            ({"speaker_embedding": [0.1] * 64}, "only VoiceDesign"),
            ({"voice": "ryan", "instructions": "calm"}, "designed"),
        ):
            assert says in json.loads(await speak(server, status=400, **fields))["error"]["message"]


async def test_a_broken_checkpoint_is_refused_at_the_start(folder: Path) -> None:
    checkpoint = tiny.write(folder / "broken", kind="custom_voice")
    weights = checkpoint / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(Exception, match="start"):
        async with running(engine__checkpoint=str(checkpoint), engine__kind="auto"):
            pass
