"""Whatever is sent in whatever order: the speech socket answers every flush, and the server lives."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed

from tests.e2e.conftest import Running, running
from tests.e2e.ws_client import SpeechSocket, opened

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def talker() -> AsyncIterator[Running]:
    async with running(
        engine__tone_fault="mid", engine__tone_fault_every=5, engine__warm_up=False, stream__max_message_chars=2_048
    ) as server:
        yield server


PIECES = st.sampled_from(
    ["Hello", " there.", " Wait... ", "3.", "14, ", "Dr. ", "。", "**b**, ", "\n\n", "", " ", "?!", "🎉 ", "\ud800"]
)
CONFIGS = st.fixed_dictionaries(
    {"type": st.just("session.config")},
    optional={
        "voice": st.sampled_from(["alto", "NOVA", "nobody", None, {"id": "bass"}, 5]),
        "response_format": st.sampled_from(["pcm", "wav", "mp3", "flac", "xyz", None]),
        "stream_audio": st.sampled_from([True, False, "x"]),
        "split_granularity": st.sampled_from(["none", "sentence", "clause", "word"]),
        "split_rules": st.sampled_from(["vllm", "sidecar", None, "x"]),
        "speed": st.sampled_from([1, 2.0, 0.1, None]),
        "word_timestamps": st.booleans(),
        "output_mode": st.sampled_from(["pcm", "codec_tokens"]),
        "language": st.sampled_from(["Auto", "German", "Klingon"]),
        "seed": st.sampled_from([1, -1, 2**63]),
    },
)
TEXTS = st.fixed_dictionaries({"type": st.just("input.text")}, optional={"text": PIECES | st.none() | st.integers()})
PLAIN = st.sampled_from([{"type": "input.done"}, {"type": "input.done"}, {"type": "input.cancel"}])
ODD = st.sampled_from([{}, {"type": "x"}, {"type": None}, [], 5, {"type": "input.text", "text": "x" * 3_000}])
MESSAGES = (CONFIGS | TEXTS | PLAIN | ODD).map(json.dumps)
FRAMES = MESSAGES | st.sampled_from(["", "{", "[" * 500, b"", b"\x00", "\u0000"])
GOOD = {"stream_audio": True, "response_format": "pcm", "split_granularity": "sentence"}


async def heard_all(client: SpeechSocket) -> tuple[list[dict[str, Any]], int | None]:
    """Every text frame until the close, and its code; brackets must be whole."""
    messages: list[dict[str, Any]] = []
    bracket: dict[str, Any] | None = None
    sent = 0
    while True:
        try:
            message = await client.message()
        except ConnectionClosed:
            break
        if isinstance(message, bytes):
            assert bracket is not None
            sent += len(message)
            continue
        messages.append(message)
        kind = message["type"]
        if kind == "audio.start":
            assert bracket is None
            bracket, sent = message, 0
        elif kind == "audio.done":
            assert bracket is not None
            assert message["sentence_index"] == bracket["sentence_index"]
            assert message["total_bytes"] == sent
            bracket = None
        else:
            assert kind in ("error", "session.done", "input.cancelled")
            assert kind == "error" or bracket is None
    assert bracket is None, "closed in the middle of a bracket"
    return messages, client.connection.close_code


def is_done(frame: str | bytes) -> bool:
    return frame == '{"type": "input.done"}'


@settings(max_examples=40, deadline=None, derandomize=True)
@given(frames=st.lists(FRAMES, max_size=25), leave=st.sampled_from(["session.close", "rst", "fin"]))
async def test_every_flush_is_answered(talker: Running, frames: list[str | bytes], leave: str) -> None:
    async with opened(talker, GOOD) as client:
        if leave != "session.close":
            for frame in frames:
                await client.raw(frame)
            await client.vanish(leave)
        else:
            listening = asyncio.create_task(heard_all(client))
            for frame in frames:
                await client.raw(frame)
            await client.send("session.close")
            messages, code = await listening
            assert code == 1000
            done = [message["utterance_index"] for message in messages if message["type"] == "session.done"]
            assert done == list(range(sum(map(is_done, frames))))
    await talker.rows_free()


@settings(max_examples=25, deadline=None, derandomize=True)
@given(frames=st.lists(FRAMES, min_size=1, max_size=8))
async def test_without_a_config_first(talker: Running, frames: list[str | bytes]) -> None:
    """Either the first frame is a config that holds, or the socket ends with one error."""
    async with opened(talker) as client:
        listening = asyncio.create_task(heard_all(client))
        try:
            for frame in frames:
                await client.raw(frame)
            await client.send("session.close")
        except ConnectionClosed:
            pass
        messages, code = await listening
    if code == 1008:
        assert [message["type"] for message in messages] == ["error"]
    else:
        assert code == 1000
        assert "session.config" in str(frames[0])
        done = [message for message in messages if message["type"] == "session.done"]
        assert len(done) == sum(map(is_done, frames))
    await talker.rows_free()


async def test_and_it_still_speaks(talker: Running) -> None:
    async with opened(talker, {"response_format": "pcm"}) as client:
        heard = [(await client.spoken("Ok.")).failed for _ in range(5)]
    assert [False] in heard
