"""Live mode on the embedded runtime in its own process, with a tiny checkpoint."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.adapters.engines.qwen3_tts import tiny
from tests.e2e.chat_helpers import audio_in, body_of, lines_of, rows_free, sse, streamed
from tests.e2e.conftest import Running, running
from tests.e2e.ws_client import STREAMED, opened

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = " ".join(["This is a sentence of some length."] * 5)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def qwen(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    folder: Path = tmp_path_factory.mktemp("checkpoint")
    checkpoint = tiny.write(folder / "custom", kind="custom_voice")
    flags = {"engine__checkpoint": str(checkpoint), "engine__device": "cpu", "engine__max_positions": 512}
    async with running(upstream=True, engine__kind="qwen3_tts", chat__live_roll_tokens=30, **flags) as server:
        yield server


def live(**more: Any) -> dict[str, Any]:
    return {"audio": {"voice": "vivian", "format": "pcm16", "mode": "live", "segments": True, **more}}


async def test_a_reply_in_generations(qwen: Running) -> None:
    choice = (await streamed(qwen, f"plain?text={TEXT}", **live())).choices[0]
    ended = [mark for mark in choice.marks if mark["type"] == "ended"]
    assert " ".join(mark["spoken"] for mark in ended) == TEXT
    assert len(ended) > 1
    assert not any("error" in mark for mark in ended)
    await rows_free(qwen)


async def test_an_interruption_frees_the_row(qwen: Running) -> None:
    audio_id, posted = "", None
    asked = body_of(f"gate?after=20&text={TEXT}", stream=True, **live())
    async with asyncio.timeout(30), sse(qwen, asked) as response:
        async for chunk in lines_of(response):
            audio_id = audio_id or audio_in(chunk, "id") or ""
            if posted is None and audio_in(chunk, "data"):
                path = f"/v1/audio/replies/{audio_id}/heard"
                posted = asyncio.create_task(qwen.http.post(path, json={"played_ms": 100}))
    assert posted is not None
    assert (await posted).status_code == 200
    await rows_free(qwen)


async def test_a_live_utterance_on_the_socket(qwen: Running) -> None:
    async with opened(qwen, {**STREAMED, "mode": "live", "voice": "vivian", "seed": 3}) as client:
        await client.say("Hello ", "there, my fr", "iend.")
        unit = await client.unit()
        assert unit.audio
        assert unit.done["error"] is False
        await client.expect("session.done")
    await rows_free(qwen)
