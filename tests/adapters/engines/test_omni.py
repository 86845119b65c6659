"""The engine that drives speech servers, with servers that do as they should."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from adapters.engines.omni import CodesHere, OmniSettings
from sidecar.codec_wire import CodecFormat, CodecReader
from sidecar.faults import (
    BadRequest,
    EngineFault,
    UnknownVoice,
    UnsupportedByEngine,
    UnsupportedLanguage,
)
from tests.adapters.engines.omni_driving import ASKED, WHOLE, driving, samples_of, spoken
from tests.adapters.engines.omni_fake import FRAME, FRAMES, FakeOmni, coded
from voices.anchor import SpeakerAnchor


# ---------------------------------------------------------------- ways to speak
@pytest.mark.parametrize("generation", ["A", "C", "D", "E"])
async def test_every_generation_of_the_socket_is_understood(generation: Any) -> None:
    fake = FakeOmni(generation)
    async with driving(fake) as engine:
        for _ in range(3):
            assert await spoken(engine) == WHOLE
        assert fake.posts == []
        assert {asked["seed"] for asked in fake.asked} == {7}
        assert {asked["voice"] for asked in fake.asked} == {"vivian"}
        assert {asked["language"] for asked in fake.asked} == {"English"}


@pytest.mark.parametrize("generation", ["C", "E"])
async def test_a_socket_is_used_again(generation: Any) -> None:
    fake = FakeOmni(generation)
    async with driving(fake) as engine:
        before = fake.connections
        for _ in range(4):
            await spoken(engine)
        assert fake.connections == before + 1


async def test_a_kept_socket_that_the_server_has_closed_says_nothing_of_the_server() -> None:
    fake = FakeOmni()
    async with driving(fake, back_off_s=60.0, back_off_max_s=60.0) as engine:
        for _ in range(3):
            assert await spoken(engine) == WHOLE
            for transport in fake.transports:
                transport.abort()  # whether this is noticed before the socket is used again is a matter of chance
        assert (await engine.health()).ok
        assert fake.posts == []


async def test_sockets_that_were_kept_for_long_are_not_used() -> None:
    fake = FakeOmni()
    async with driving(fake, idle_socket_s=0.001) as engine:
        before = fake.connections
        for _ in range(3):
            await spoken(engine)
            await asyncio.sleep(0.005)
        assert fake.connections == before + 3


async def test_as_many_sockets_are_kept_as_may_be() -> None:
    fake = FakeOmni()
    async with driving(fake, idle_sockets=2) as engine:
        await asyncio.gather(*(spoken(engine) for _ in range(6)))
        before = fake.connections
        await asyncio.gather(*(spoken(engine) for _ in range(6)))
        assert fake.connections == before + 4


async def test_a_server_without_the_socket_is_asked_over_rest() -> None:
    fake = FakeOmni(sockets=False)
    async with driving(fake) as engine:
        assert await spoken(engine) == WHOLE
        post = fake.posts[-1]
        assert (post["stream_format"], post["response_format"], post["seed"]) == ("audio", "pcm", 7)
        assert "stream" not in post


async def test_a_server_that_lists_nothing_speaks_with_the_voices_it_is_said_to_have() -> None:
    fake = FakeOmni(sockets=False, listed=None)
    async with driving(fake, voices=("Alloy",), model="tts-1") as engine:
        assert [voice.name for voice in engine.traits.voices] == ["default", "alloy"]
        assert engine.traits.clone_widths == ()
        await spoken(engine, replace(ASKED, voice="alloy", language="sv"))
        assert (fake.posts[-1]["voice"], fake.posts[-1]["model"]) == ("alloy", "tts-1")
        assert "language" not in fake.posts[-1]


async def test_a_voice_that_nobody_named_is_left_to_the_server() -> None:
    fake = FakeOmni()
    async with driving(fake) as engine:
        await spoken(engine, replace(ASKED, voice="default", language=None))
        assert not {"voice", "language"} & set(fake.asked[-1])


async def test_long_texts_go_in_pieces_and_arrive_whole() -> None:
    fake = FakeOmni()
    async with driving(fake) as engine:
        text = "".join(random.Random(1).choices("aé中🙂 .", k=40_000)).strip()
        await spoken(engine, replace(ASKED, text=text))
        assert fake.asked[-1]["input"] == text
        assert fake.events.count("input.text") > 4


async def test_what_is_no_text_is_refused_and_lone_surrogates_are_replaced() -> None:
    fake = FakeOmni()
    async with driving(fake) as engine:
        with pytest.raises(BadRequest):
            await engine.open(replace(ASKED, text=" \n"))
        await spoken(engine, replace(ASKED, text="half \ud800 a pair"))
        assert fake.asked[-1]["input"].encode().startswith(b"half ")


# ---------------------------------------------------------------- abilities
async def test_what_a_checkpoint_can_is_found_out() -> None:
    listed = {"voices": ["default"], "uploaded_voices": []}
    fake = FakeOmni(tasks=("Base",), models=("qwen3-tts-0.6b-base",), listed=listed)
    async with driving(fake) as engine:
        assert engine.traits.tasks == ("Base",)
        assert engine.traits.clone_widths == (1_024,)
        assert not engine.traits.deterministic
        anchor = SpeakerAnchor(np.linspace(-1, 1, 1_024, dtype=np.float32))
        await spoken(engine, replace(ASKED, voice="", anchor=anchor, max_frames=5))
        asked = fake.asked[-1]
        assert np.array_equal(np.array(asked["speaker_embedding"], np.float32), anchor.embedding)
        assert (asked["task_type"], asked["x_vector_only_mode"]) == ("Base", True)
        assert not {"voice", "max_new_tokens"} & set(asked)
        with pytest.raises(UnsupportedByEngine):
            await engine.encode_voice(np.ones(24_000, np.float32), None)


async def test_a_server_of_clones_has_no_voice_of_its_own() -> None:
    stored = [{"name": "anna", "embedding_dim": None}]
    fake = FakeOmni(tasks=("Base",), listed={"voices": ["default", "anna", "alloy"], "uploaded_voices": stored})
    async with driving(fake) as engine:
        assert [voice.name for voice in engine.traits.voices] == ["anna"]
        assert engine.traits.default_voice == "anna"
        await spoken(engine, replace(ASKED, voice="anna"))
        assert "task_type" not in fake.asked[-1]
        with pytest.raises(UnknownVoice):
            await engine.open(replace(ASKED, voice="default"))


async def test_a_server_that_designs_voices_is_always_told_of_one() -> None:
    fake = FakeOmni(tasks=("VoiceDesign",), listed={"voices": ["default"], "uploaded_voices": []})
    async with driving(fake) as engine:
        assert engine.traits.default_voice == "default"
        for told in ("", "An old man."):
            await spoken(engine, replace(ASKED, voice="default", instructions=told))
            assert fake.asked[-1]["task_type"] == "VoiceDesign"
            assert fake.asked[-1]["instructions"] == (told or "A calm, clear voice.")


async def test_what_no_server_can_is_refused_here() -> None:
    async with driving(FakeOmni()) as engine:
        with pytest.raises(UnknownVoice, match="serena"):
            await engine.open(replace(ASKED, voice="nobody"))
        with pytest.raises(UnsupportedLanguage):
            await engine.open(replace(ASKED, language="sv"))
        with pytest.raises(UnsupportedByEngine):
            await engine.open(replace(ASKED, anchor=SpeakerAnchor(np.ones(1_024, np.float32))))


async def test_an_utterance_goes_to_a_server_that_has_its_voice() -> None:
    one = FakeOmni(listed={"voices": ["anna"], "uploaded_voices": []})
    other = FakeOmni(listed={"voices": ["bert"], "uploaded_voices": []})
    async with driving(one, other) as engine:
        for voice, fake in (("anna", one), ("bert", other), ("anna", one)):
            await spoken(engine, replace(ASKED, voice=voice))
            assert fake.asked[-1]["voice"] == voice
        assert (len(one.asked), len(other.asked)) == (2, 1)


async def test_a_cap_and_a_first_chunk_are_kept_here_too() -> None:
    fake = FakeOmni()
    async with driving(fake) as engine:
        asked = replace(ASKED, max_frames=5, first_chunk_frames=3)
        chunks = [chunk async for chunk in (await engine.open(asked)).chunks()]
        assert len(chunks[0].pcm) == 3 * FRAME
        assert sum(len(chunk.pcm) for chunk in chunks) == 5 * FRAME
        assert (fake.asked[-1]["max_new_tokens"], fake.asked[-1]["initial_codec_chunk_frames"]) == (5, 3)


async def test_the_key_goes_with_every_request() -> None:
    async with driving(FakeOmni(key="sk-one"), key="sk-one") as engine:
        assert await spoken(engine) == WHOLE
    with pytest.raises(EngineFault):
        async with driving(FakeOmni(key="sk-one"), key="sk-other", start_wait_s=0.5):
            pass


# ---------------------------------------------------------------- codec tokens
class Beeps:
    """Decodes each frame to one level, with the frames before as state."""

    decoder_id = "ours"

    def new_state(self) -> list[int]:
        return [0]

    def decode(self, state: list[int], codes: np.ndarray) -> np.ndarray:
        levels = [(int(row[0]) + number + state[0]) / 4_096 for number, row in enumerate(codes)]
        state[0] += len(codes)
        return np.repeat(np.array(levels, np.float32), FRAME)


HERE = CodesHere(Beeps(), lambda message: CodecReader(CodecFormat.of(message)))


@pytest.mark.parametrize(("generation", "codes"), [("E", True), ("E", False), ("C", False)])
async def test_codec_tokens_are_taken_from_a_server_that_has_them(generation: Any, codes: bool) -> None:
    fake = FakeOmni(generation, codes=codes)
    async with driving(fake, codes=HERE) as engine:
        assert engine.server(0).abilities.codes_out == codes
        samples = await samples_of(await engine.open(ASKED))
        assert fake.posts == []
        assert ("output_mode" in fake.asked[-1]) == codes
        if codes:
            decoder = Beeps()
            assert np.array_equal(samples, decoder.decode(decoder.new_state(), coded(7, FRAMES)))
        else:
            assert len(samples) == FRAMES * FRAME


async def test_a_codec_packet_that_is_missing_is_a_fault() -> None:
    fake = FakeOmni("E", codes=True)
    async with driving(fake, codes=HERE) as engine:
        fake.ways = ["skip"]
        with pytest.raises(EngineFault):
            await samples_of(await engine.open(ASKED))
        assert len(await samples_of(await engine.open(ASKED))) == FRAMES * FRAME


# ---------------------------------------------------------------- settings
@pytest.mark.parametrize(
    "wrong",
    [
        {"urls": ()},
        {"urls": ("ftp://x",)},
        {"urls": ("http://u:p@x",)},
        {"urls": ("http://x?y",)},
        {"urls": ("http://x", "http://x/v1/")},
        {"key": "a\nb"},
        {"max_rows": 0},
        {"silent_after_s": 0},
        {"back_off_max_s": 0.001},
        {"server_wait_s": -1},
    ],
)
def test_settings_that_make_no_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        OmniSettings(**{"urls": ("http://127.0.0.1:1",)} | wrong)


def test_the_key_is_not_printed() -> None:
    assert "sk-secret" not in repr(OmniSettings(("http://x",), key="sk-secret"))
