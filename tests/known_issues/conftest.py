"""Servers for the tests that are named after what is known to go wrong when Qwen3-TTS is served."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.adapters.engines.qwen3_tts import tiny
from tests.e2e.conftest import Running, running
from tests.e2e.voice_tools import recording, upload

WORDS = "What is said in here."


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tone() -> AsyncIterator[Running]:
    """The tone engine, as fast as it can."""
    async with running() as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def base(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    """A tiny clone checkpoint with two stored voices: ``anna`` in context, ``bare`` a vector."""
    folder = tiny.write(tmp_path_factory.mktemp("checkpoints") / "base", kind="base")
    flags: dict[str, Any] = {
        "engine__kind": "qwen3_tts",
        "engine__checkpoint": str(folder),
        "engine__max_positions": 512,
    }
    async with running(**flags) as server:
        assert (await upload(server, "anna", recording(2.0), ref_text=WORDS, language="en")).status_code == 200
        assert (await upload(server, "bare", recording(2.0, hz=320, seed=4))).status_code == 200
        yield server
