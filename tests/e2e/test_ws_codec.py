"""Codec tokens on the speech socket, from a tiny checkpoint; what they decode to is what the server would have sent."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from websockets.asyncio.client import ClientConnection, connect

from adapters.engines.qwen3_tts.checkpoint import open_checkpoint
from adapters.engines.qwen3_tts.code2wav import Code2Wav
from sidecar.codec_wire import EOS, HEADER_BYTES, CodecFormat, CodecReader
from tests.adapters.engines.qwen3_tts import tiny
from tests.e2e.conftest import Running, running

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

CODES = {"output_mode": "codec_tokens"}
TEXT = "Hello there, dear listener."


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write(tmp_path_factory.mktemp("checkpoints") / "custom", kind="custom_voice")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def qwen(checkpoint: Path) -> AsyncIterator[Running]:
    async with running(engine__kind="auto", engine__checkpoint=str(checkpoint), engine__max_positions=512) as server:
        yield server


async def send(ws: ClientConnection, kind: str, **members: Any) -> None:
    await ws.send(json.dumps({"type": kind, **members}))


async def configured(ws: ClientConnection, **config: Any) -> None:
    base = {"stream_audio": True, "response_format": "pcm", "seed": 5, "max_new_tokens": 40}
    await send(ws, "session.config", **{**base, **config})


async def until(ws: ClientConnection, kind: str) -> list[bytes | dict[str, Any]]:
    found: list[bytes | dict[str, Any]] = []
    async for message in ws:
        found.append(message if isinstance(message, bytes) else json.loads(message))
        if isinstance(found[-1], dict) and found[-1]["type"] == kind:
            return found
    raise AssertionError(f"closed before {kind}: {found[-1:]}")


async def spoken(server: Running, text: str = TEXT, **config: Any) -> list[bytes | dict[str, Any]]:
    async with connect(server.ws_url, max_size=None) as ws:
        await configured(ws, **config)
        await send(ws, "input.text", text=text)
        await send(ws, "input.done")
        return await until(ws, "session.done")


def events(messages: list[bytes | dict[str, Any]]) -> list[dict[str, Any]]:
    return [message for message in messages if isinstance(message, dict)]


def frames(messages: list[bytes | dict[str, Any]]) -> list[bytes]:
    return [message for message in messages if isinstance(message, bytes)]


def read(messages: list[bytes | dict[str, Any]]) -> np.ndarray:
    """The codes of one bracket, every rule of it checked."""
    start = next(event for event in events(messages) if event["type"] == "codec.start")
    done = next(event for event in events(messages) if event["type"] == "codec.done")
    reader = CodecReader(CodecFormat.of(start))
    codes = [reader.packet(frame).codes for frame in frames(messages)]
    reader.done(done)
    return np.concatenate(codes)


async def test_a_bracket_of_codes(qwen: Running) -> None:
    messages = await spoken(qwen, **CODES)
    start, done, end = events(messages)
    assert start == {
        "type": "codec.start",
        "version": 1,
        "utterance_index": 0,
        "sentence_index": 0,
        "sentence_text": TEXT,
        "model": None,
        "codebooks": 16,
        "codebook_size": 2_048,
        "frame_rate_hz": 12.5,
        "sample_rate": 24_000,
        "decoder_id": qwen.service.engine.traits.codec_id,
        "header_format": "<IHB",
    }
    assert start["decoder_id"]
    codes = read(messages)
    assert done == {
        "type": "codec.done",
        "utterance_index": 0,
        "sentence_index": 0,
        "total_frames": len(codes),
        "seq_last": len(frames(messages)) - 1,
        "error": False,
        "cancelled": False,
    }
    assert end["type"] == "session.done"
    assert messages.index(start) == 0
    assert frames(messages)[-1][HEADER_BYTES - 1] & EOS


async def test_the_first_packet_comes_after_one_frame_and_bytes_stay_few(qwen: Running) -> None:
    packets = frames(await spoken(qwen, TEXT * 3, max_new_tokens=200, **CODES))
    sizes = [(len(packet) - HEADER_BYTES) // 32 for packet in packets]
    assert sizes[0] == 1
    seconds = sum(sizes) / 12.5
    if seconds >= 4:
        assert sum(map(len, packets)) / seconds <= 450


async def test_codes_decode_to_the_servers_own_samples(qwen: Running, checkpoint: Path) -> None:
    codes = read(await spoken(qwen, **CODES))
    pcm = np.frombuffer(b"".join(frames(await spoken(qwen))), "<i2") / 32_768
    opened = open_checkpoint(checkpoint)
    decoder = Code2Wav(opened.codec.decoder, opened.codec_weights)
    decoded = decoder.decode([(decoder.new_state(), codes)])[0]
    assert len(decoded) == len(pcm)
    noise = np.square(np.round(decoded * 32_768) / 32_768 - pcm).mean()
    assert 10 * np.log10(np.square(pcm).mean() / max(noise, 1e-30)) >= 80  # one bit of sixteen now and then


async def test_the_same_seed_gives_the_same_codes(qwen: Running) -> None:
    first, again = await spoken(qwen, **CODES), await spoken(qwen, **CODES)
    np.testing.assert_array_equal(read(first), read(again))


async def test_several_units_each_in_a_bracket_numbered_from_0(qwen: Running) -> None:
    messages = await spoken(qwen, "One is here. Two is there.", split_granularity="sentence", **CODES)
    kinds = [event["type"] for event in events(messages)]
    assert kinds == ["codec.start", "codec.done"] * 2 + ["session.done"]
    first_end = messages.index(events(messages)[1])
    read(messages[: first_end + 1])
    read(messages[first_end + 1 :])


async def test_a_cancel_closes_the_bracket_and_the_socket_goes_on(qwen: Running) -> None:
    async with connect(qwen.ws_url, max_size=None) as ws:
        await configured(ws, max_new_tokens=200, **CODES)
        await send(ws, "input.text", text=TEXT * 3)
        await send(ws, "input.done")
        while not isinstance(await ws.recv(), bytes):
            pass
        await send(ws, "input.cancel")
        messages = await until(ws, "session.done")
        done = next(event for event in events(messages) if event["type"] == "codec.done")
        if done["cancelled"]:  # unless the model came to its end in that very moment
            last = frames(messages)[-1]
            assert len(last) == HEADER_BYTES
            assert last[-1] & EOS
            assert messages.index(last) == messages.index(done) - 1
        await configured(ws, **CODES)
        await send(ws, "input.text", text=TEXT)
        await send(ws, "input.done")
        read(await until(ws, "session.done"))


async def test_audio_and_codes_take_turns_on_one_socket(qwen: Running) -> None:
    async with connect(qwen.ws_url, max_size=None) as ws:
        for mode in ("codec_tokens", "pcm", "codec_tokens"):
            await configured(ws, output_mode=mode)
            await send(ws, "input.text", text=TEXT)
            await send(ws, "input.done")
            kinds = [event["type"] for event in events(await until(ws, "session.done"))]
            bracket = "codec" if mode == "codec_tokens" else "audio"
            assert kinds == [f"{bracket}.start", f"{bracket}.done", "session.done"]


async def test_an_engine_without_codes_says_so() -> None:
    async with running() as server:
        messages = await spoken(server, **CODES)
        assert [event["type"] for event in events(messages)] == ["error", "session.done"]
        assert "codec" in events(messages)[0]["message"]
        assert frames(messages) == []


async def test_a_server_without_a_decoder_gives_codes_and_says_what_it_cannot(checkpoint: Path, qwen: Running) -> None:
    """Half of a deployment: the talker here, decoders where it is heard."""
    options: dict[str, Any] = {"engine__checkpoint": str(checkpoint), "engine__max_positions": 512}
    async with running(engine__kind="auto", engine__decoder_device="none", **options) as server:
        np.testing.assert_array_equal(read(await spoken(server, **CODES)), read(await spoken(qwen, **CODES)))
        answer = await server.http.post("/v1/audio/speech", json={"input": TEXT})
        assert answer.status_code == 400
        assert "codec" in answer.json()["error"]["message"]
        messages = await spoken(server)
        assert [event["type"] for event in events(messages) if event["type"] == "error"] == ["error"]
        assert frames(messages) == []
