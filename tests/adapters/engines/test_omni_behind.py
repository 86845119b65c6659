"""The engine that drives speech servers, with other sidecars as these."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters.engines.omni import OmniEngine
from sidecar.faults import ConfigError, EngineFault, Fault
from sidecar.ports import FRAME_SAMPLES, Engine, Utterance
from sidecar.wiring import build, chosen_engine
from tests.adapters.engines.qwen3_tts import tiny
from tests.e2e.conftest import Running, config_with, running
from voices.anchor import SpeakerAnchor

LONG = "This goes on and on, as far as anybody can hear. " * 40


@asynccontextmanager
async def driving(*servers: Running, **flags: Any) -> AsyncIterator[OmniEngine]:
    """The engine that a configuration with these servers has."""
    urls = [server.url for server in servers]
    engine = build(config_with(engine__kind="omni", engine__urls=urls, **flags)).engine
    assert isinstance(engine, OmniEngine)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.close()


async def spoken(engine: Engine, asked: Utterance) -> np.ndarray:
    return np.concatenate([chunk.pcm async for chunk in (await engine.open(asked)).chunks()])


async def test_a_sidecar_tells_what_its_engine_can() -> None:
    async with running() as behind, driving(behind) as engine:
        theirs, ours = behind.service.engine.traits, engine.traits
        assert ours.deterministic
        assert ours.clone_widths == theirs.clone_widths
        assert set(ours.languages) == set(theirs.languages)
        assert {voice.name for voice in theirs.voices} < {voice.name for voice in ours.voices}
        known = engine.server(0).abilities
        assert (known.kind, known.sockets, known.cancels) == ("sidecar", True, True)


async def test_a_cancel_frees_the_row_there_and_keeps_the_socket() -> None:
    async with running(engine__tone_realtime_factor=0.05) as behind, driving(behind) as engine:
        for turn in range(20):
            speaking = await engine.open(Utterance(LONG, "alto", seed=turn, language="en"))
            stream = speaking.chunks()
            for _ in range(turn % 3):
                await anext(stream)
            speaking.cancel()
            assert [chunk async for chunk in stream] == []
            await behind.rows_free()
            await asyncio.gather(speaking.task, return_exceptions=True)
            assert behind.service.sockets == 1


async def test_a_reader_that_pauses_for_longer_than_the_server_bears_still_hears_all() -> None:
    flags: dict[str, Any] = {"server__slow_consumer_s": 0.2, "speech__max_input_chars": 100_000}
    asked = Utterance(LONG * 3, "alto", seed=3, language="en")
    async with running(**flags) as behind, driving(behind) as engine:
        whole = await spoken(engine, asked)
        assert len(whole) > 90 * 24_000
        stream = (await engine.open(asked)).chunks()
        pieces = [(await anext(stream)).pcm]
        while behind.service.sockets > 0:  # cut off there
            await asyncio.sleep(0.02)
        pieces += [chunk.pcm async for chunk in stream]
        assert np.array_equal(np.concatenate(pieces), whole)


async def test_a_voice_by_its_vector() -> None:
    async with running() as behind, driving(behind) as engine:
        width = engine.traits.clone_widths[0]
        anchors = [SpeakerAnchor(np.random.default_rng(n).normal(size=width).astype(np.float32)) for n in range(2)]
        asked = [Utterance("Who is it?", "", seed=3, language="en", anchor=anchor) for anchor in anchors]
        first, second = [await spoken(engine, one) for one in asked]
        assert not np.array_equal(first, second)
        direct = await spoken(behind.service.engine, asked[0])
        assert np.abs(first - direct).max() <= 1 / 32_000


async def test_codec_tokens_are_decoded_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = str(tiny.write(tmp_path / "custom", kind="custom_voice"))
    flags: dict[str, Any] = {"engine__kind": "qwen3_tts", "engine__checkpoint": checkpoint}
    asked = Utterance("Hello there, dear listener.", "vivian", seed=5, language="en", max_frames=20)
    async with running(**flags, engine__max_positions=512) as behind:
        async with driving(behind) as engine:
            samples = await spoken(engine, asked)
            assert engine.ears(0) is None
        async with driving(behind, engine__checkpoint=checkpoint) as engine:
            ears = engine.ears(0)
            assert ears is not None
            decodes: list[int] = []
            decode = ears.codes.decoder.decode

            def counted(state: Any, codes: np.ndarray) -> np.ndarray:
                decodes.append(len(codes))
                return decode(state, codes)

            monkeypatch.setattr(ears.codes.decoder, "decode", counted)
            decoded = await spoken(engine, asked)
            assert sum(decodes) * FRAME_SAMPLES == len(decoded)
            together = await asyncio.gather(*(spoken(engine, asked) for _ in range(4)))
    async with running(**flags, engine__max_positions=512, engine__decoder_device="none") as talker:
        async with driving(talker, engine__checkpoint=checkpoint) as engine:
            apart = await spoken(engine, asked)
        with pytest.raises(EngineFault, match="checkpoint"):
            async with driving(talker):
                pass
    assert np.abs(apart - decoded).max() <= 1e-5
    assert decoded.shape == samples.shape
    assert np.abs(decoded - samples).max() <= 1 / 32_000
    assert all(np.abs(one - decoded).max() <= 1e-5 for one in together)


async def test_a_chain_of_three_says_what_the_last_one_says() -> None:
    body = {"input": "One after another.", "voice": "alto", "seed": 4, "response_format": "pcm"}
    async with (
        running() as last,
        running(engine__kind="omni", engine__urls=[last.url]) as middle,
        running(engine__kind="omni", engine__urls=[middle.url]) as first,
    ):
        answers = [await server.http.post("/v1/audio/speech", json=body) for server in (first, middle, last)]
        assert [answer.status_code for answer in answers] == [200] * 3
        assert answers[0].content == answers[1].content == answers[2].content
        refused = await first.http.post("/v1/audio/speech", json=body | {"voice": "nobody"})
        assert refused.status_code == 400


# ---------------------------------------------------------------- configuration
def test_addresses_choose_the_engine() -> None:
    assert chosen_engine(config_with(engine__kind="auto", engine__urls=["http://x:1"]))[0] == "omni"


@pytest.mark.parametrize(
    ("flags", "setting"),
    [
        ({"engine__kind": "omni"}, "engine.urls"),
        ({"engine__kind": "tone", "engine__urls": ["http://x"]}, "engine.kind"),
        ({"engine__kind": "omni", "engine__urls": ["x"]}, "engine.urls"),
        ({"engine__kind": "omni", "engine__urls": ["http://u:p@x"]}, "engine.urls"),
        ({"engine__kind": "omni", "engine__urls": ["http://x", "http://x/"]}, "engine.urls"),
        ({"engine__kind": "omni", "engine__urls": ["http://x", "http://x/v1"]}, "engine.urls"),
    ],
)
def test_what_cannot_be_configured(flags: dict[str, Any], setting: str) -> None:
    with pytest.raises(ConfigError) as wrong:
        build(config_with(**flags))
    assert setting in wrong.value.problems[0]
    assert "u:p" not in str(wrong.value)


async def test_no_server_at_all_is_told_at_the_start() -> None:
    engine = build(config_with(engine__kind="omni", engine__urls=["http://127.0.0.1:1"])).engine
    starting = asyncio.ensure_future(engine.start())
    await asyncio.sleep(0.01)
    await engine.close()
    with pytest.raises(Fault):
        await starting
