"""The embedded runtime behind every endpoint, on a tiny checkpoint with random weights."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from websockets.asyncio.client import connect

from tests.adapters.engines.qwen3_tts import tiny
from tests.e2e.conftest import Running, running

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


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"voice": "nobody"}, "vivian"),
        ({"language": "hi"}, "languages"),
        ({"task_type": "Base"}, "CustomVoice"),
        ({"task_type": "VoiceDesign", "instructions": "calm"}, "CustomVoice"),
        ({"input": "word " * 3_000}, ""),
    ],
)
async def test_what_it_cannot_do_is_told_with_what_it_can(fields: dict[str, object], says: str, qwen: Running) -> None:
    body = json.loads(await speak(qwen, status=400, **fields))
    assert says in body["error"]["message"]


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


async def test_a_base_checkpoint_speaks_with_an_embedding(folder: Path) -> None:
    checkpoint = tiny.write(folder / "base", kind="base")
    async with running(engine__checkpoint=str(checkpoint), engine__kind="qwen3_tts") as server:
        width = server.service.engine.traits.clone_widths[0]
        vector = [0.1] * width
        pcm = await speak(server, speaker_embedding=vector)
        assert len(pcm) >= FRAME_BYTES
        wrong = json.loads(await speak(server, status=400, speaker_embedding=vector[:-1]))
        assert str(width) in wrong["error"]["message"]
        assert "speaker_embedding" in json.loads(await speak(server, status=400))["error"]["message"]


async def test_a_broken_checkpoint_is_refused_at_the_start(folder: Path) -> None:
    checkpoint = tiny.write(folder / "broken", kind="custom_voice")
    weights = checkpoint / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(Exception, match="start"):
        async with running(engine__checkpoint=str(checkpoint), engine__kind="auto"):
            pass
