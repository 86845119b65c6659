"""The edge client, the relay and the real server together, on a tiny checkpoint."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from sidecar.edge import EdgeRequest
from sidecar.edge.commands import EdgeOptions, run_edge
from sidecar.relay.seen import Side
from tests.adapters.engines.qwen3_tts import tiny
from tests.e2e.conftest import Running, running
from tests.e2e.voice_tools import recording, upload
from tests.sidecar.relay.helpers import relayed

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

TEXT = "Good morning. The train leaves."
REQUEST = EdgeRequest(7, {"max_new_tokens": 12, "split_granularity": "sentence"})


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write(tmp_path_factory.mktemp("checkpoint") / "custom", kind="custom_voice")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def qwen(checkpoint: Path) -> AsyncIterator[Running]:
    async with running(
        engine__kind="auto", engine__checkpoint=str(checkpoint), engine__max_positions=512, engine__threads=1
    ) as server:
        yield server


async def test_the_edge_hears_what_the_server_speaks(qwen: Running, checkpoint: Path, tmp_path: Path) -> None:
    said: list[str] = []
    async with relayed(qwen.url) as (address, facts):
        options = EdgeOptions(f"ws://{address}", str(checkpoint), REQUEST, tmp_path / "a.wav", parity=True, threads=1)
        assert await run_edge(options, TEXT, said.append), said
        await facts.over(2)
    assert said[-1].startswith("parity          good"), said
    assert (tmp_path / "a.wav").stat().st_size > 2 * 1_920
    assert facts.types(Side.SERVER)[:2] == ["codec.start", "codec.done"]
    lines = "\n".join(facts.lines())
    assert re.search(r"codec seq 0 1 frames +0\.080 s", lines)
    assert re.search(r"7 B +codec seq \d+ 0 frames EOS|codec seq \d+ \d+ frames EOS", lines)


async def test_another_checkpoint_is_refused(qwen: Running, tmp_path: Path) -> None:
    other = tiny.write(tmp_path / "other", kind="custom_voice", seed=1)
    with pytest.raises(Exception, match="for the decoder"):
        await run_edge(EdgeOptions(qwen.ws_url, str(other), REQUEST), TEXT, print)


async def test_a_voice_that_brings_reference_codes_cannot_be_equal_and_one_without_is(tmp_path: Path) -> None:
    folder = tiny.write(tmp_path / "base", kind="base")
    flags: dict[str, Any] = {
        "engine__kind": "qwen3_tts",
        "engine__checkpoint": str(folder),
        "engine__max_positions": 512,
    }
    said: dict[str, list[str]] = {"anna": [], "bare": []}
    good = {}
    async with running(**flags) as server:
        assert (await upload(server, "anna", recording(1.5), ref_text="What is said here.")).status_code == 200
        assert (await upload(server, "bare", recording(1.5))).status_code == 200
        for voice, lines in said.items():
            request = EdgeRequest(7, {**REQUEST.config, "voice": voice})
            options = EdgeOptions(server.ws_url, str(folder), request, parity=True, threads=1)
            good[voice] = await run_edge(options, TEXT, lines.append)
    assert good == {"anna": False, "bare": True}
    assert said["anna"][-1].startswith("parity          not to be had: "), said["anna"]
    assert said["bare"][-1].startswith("parity          good"), said["bare"]
