"""The engine that drives speech servers, against servers that misbehave."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from adapters.engines.omni import CodesHere, OmniEngine, OmniSettings
from sidecar.clock import SystemClock
from sidecar.codec_wire import CodecFormat, CodecReader
from sidecar.faults import (
    BadRequest,
    EngineFault,
    EngineLost,
    EngineOverloaded,
    PassageLost,
    UnknownVoice,
    UnsupportedByEngine,
    UnsupportedLanguage,
)
from sidecar.ports import Speaking, Utterance
from tests.adapters.engines.omni_fake import FRAME, FRAMES, FakeOmni, Way, coded, serving, voiced
from voices.anchor import SpeakerAnchor

ASKED = Utterance("The table is booked.", "vivian", seed=7, language="en")
QUICK: dict[str, Any] = {
    "back_off_s": 0.01,
    "back_off_max_s": 0.02,
    "server_wait_s": 5.0,
    "answer_timeout_s": 2.0,
    "silent_after_s": 2.0,
}


@asynccontextmanager
async def driving(*fakes: FakeOmni, **settings: Any) -> AsyncIterator[OmniEngine]:
    """An engine over these servers."""
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(serving(fake)) for fake in fakes]
        engine = OmniEngine(OmniSettings(tuple(urls), **QUICK | settings), SystemClock())
        stack.push_async_callback(engine.close)
        await engine.start()
        for fake in fakes:
            fake.events.clear()
            fake.gone.clear()
        yield engine


async def samples_of(speaking: Speaking) -> np.ndarray:
    pieces = [chunk.pcm async for chunk in speaking.chunks()]
    return np.concatenate(pieces) if pieces else np.zeros(0, np.float32)


async def heard_into(heard: list[int], speaking: Speaking) -> None:
    async for chunk in speaking.chunks():
        heard.append(len(chunk.pcm))


async def spoken(engine: OmniEngine, asked: Utterance = ASKED) -> bytes:
    """The sound as the server's own bytes."""
    samples = await samples_of(await engine.open(asked))
    return (samples * 32_768).astype("<i2").tobytes()


WHOLE = voiced(ASKED.text, ASKED.seed)


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


# ---------------------------------------------------------------- failures
BEFORE: list[Way] = ["die_before", "hang", "fail_before", "refuse"]


@pytest.mark.parametrize("way", BEFORE)
async def test_a_failure_before_the_first_sample_is_not_heard(way: Way) -> None:
    one, other = FakeOmni(ways=[way]), FakeOmni(ways=[way])
    async with driving(one, other, answer_timeout_s=0.3) as engine:
        assert await spoken(engine) == WHOLE


async def test_a_unit_that_fails_is_asked_for_over_rest_which_tells_why() -> None:
    fake = FakeOmni(ways=["fail_before"], rest_ways=[(400, {"error": {"message": "/etc/x", "param": "body.voice"}})])
    async with driving(fake) as engine:
        with pytest.raises(UnknownVoice) as refused:
            await spoken(engine)
        assert "/etc" not in refused.value.message


@pytest.mark.parametrize(
    ("status", "param", "fault"),
    [
        (400, "language", UnsupportedLanguage),
        (400, "task_type", UnsupportedByEngine),
        (400, None, BadRequest),
        (429, None, EngineOverloaded),
        (503, None, EngineOverloaded),
        (500, None, EngineFault),
        (404, "model", EngineFault),
        (302, None, EngineFault),
    ],
)
async def test_refusals_over_rest_become_faults(status: int, param: str | None, fault: type[Exception]) -> None:
    fake = FakeOmni(sockets=False, rest_ways=[(status, {"error": {"message": "secret", "param": param}})] * 4)
    async with driving(fake) as engine:
        with pytest.raises(fault) as refused:
            await spoken(engine)
        assert "secret" not in str(refused.value)
        assert (await engine.health()).active_rows == 0


async def test_a_busy_server_is_passed_over() -> None:
    one = FakeOmni(sockets=False, rest_ways=[(503, {})])
    other = FakeOmni(sockets=False)
    async with driving(one, other) as engine:
        for _ in range(2):
            assert await spoken(engine) == WHOLE
        assert (await engine.health()).ok


@pytest.mark.parametrize("way", ["die_mid", "hang_mid"])
@pytest.mark.parametrize("sockets", [True, False])
async def test_a_break_in_mid_passage_goes_on_elsewhere(way: Way, sockets: bool) -> None:
    one, other = FakeOmni(sockets=sockets, ways=[way]), FakeOmni(sockets=sockets, ways=[way])
    async with driving(one, other, deterministic="yes", silent_after_s=0.3) as engine:
        assert await spoken(engine) == WHOLE
        assert len(one.asked + one.posts) + len(other.asked + other.posts) == 3


async def test_a_break_in_mid_passage_is_told_where_servers_do_not_repeat_themselves() -> None:
    fake = FakeOmni(ways=["die_mid"])
    async with driving(fake) as engine:
        heard: list[int] = []
        with pytest.raises(PassageLost):
            await heard_into(heard, await engine.open(ASKED))
        assert 0 < sum(heard) < FRAMES * FRAME
        assert await spoken(engine) == WHOLE


async def test_a_server_that_says_it_differently_after_all_is_found_out() -> None:
    one, other = FakeOmni(ways=["die_mid"]), FakeOmni(ways=["die_mid"], drift=1)
    async with driving(one, other, deterministic="yes") as engine:
        with pytest.raises(PassageLost):
            await spoken(engine)


@pytest.mark.parametrize(("way", "fault"), [("fail_mid", EngineFault), ("short", EngineFault), ("rate", EngineFault)])
async def test_sound_that_is_not_whole_is_a_fault(way: Way, fault: type[Exception]) -> None:
    fake = FakeOmni(ways=[way], rest_ways=[(500, {})])
    async with driving(fake) as engine:
        with pytest.raises(fault) as failed:
            await spoken(engine)
        assert "secret" not in str(failed.value)
        assert await spoken(engine) == WHOLE


async def test_half_a_sample_at_the_end_is_a_fault() -> None:
    async with driving(FakeOmni(sockets=False, ways=["odd"])) as engine:
        with pytest.raises(EngineFault):
            await spoken(engine)


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


# ---------------------------------------------------------------- health
async def test_an_utterance_waits_for_a_server_that_is_away_for_a_while() -> None:
    fake = FakeOmni()
    async with driving(fake, check_every_s=0.05) as engine:
        fake.healthy = False
        await until(engine, ok=False)
        asked = asyncio.ensure_future(engine.open(ASKED))
        await asyncio.sleep(0.02)
        assert not asked.done()
        fake.healthy = True
        assert len(await samples_of(await asked)) == FRAMES * FRAME


async def until(engine: OmniEngine, *, ok: bool) -> None:
    async with asyncio.timeout(10):
        while (await engine.health()).ok != ok:
            await asyncio.sleep(0.005)


async def test_a_server_that_comes_back_as_another_is_looked_at_anew() -> None:
    fake = FakeOmni("E")
    async with driving(fake, check_every_s=0.05) as engine:
        assert engine.server(0).abilities.cancels
        fake.healthy = False
        await until(engine, ok=False)
        fake.generation = "C"
        fake.healthy = True
        await until(engine, ok=True)
        assert not engine.server(0).abilities.cancels
        assert await spoken(engine) == WHOLE


async def test_without_any_server_there_is_no_start_and_with_one_there_is() -> None:
    fake = FakeOmni()
    async with serving(fake) as url:
        nobody = "http://127.0.0.1:1"
        lonely = OmniEngine(OmniSettings((nobody,), start_wait_s=0.2, connect_timeout_s=0.1), SystemClock())
        with pytest.raises(EngineFault, match=r"127\.0\.0\.1:1"):
            await lonely.start()
        with pytest.raises(EngineLost):
            await lonely.open(ASKED)
        engine = OmniEngine(OmniSettings((nobody, url), **QUICK), SystemClock())
        await engine.start()
        try:
            assert (await engine.health()).ok
            assert await spoken(engine) == WHOLE
        finally:
            await engine.close()


async def test_utterances_do_not_wait_for_ever_for_a_server() -> None:
    fake = FakeOmni()
    async with driving(fake, server_wait_s=0.05, check_every_s=0.02) as engine:
        fake.healthy = False
        await until(engine, ok=False)
        with pytest.raises(EngineLost):
            await engine.open(ASKED)
        assert (await engine.health()).active_rows == 0


async def test_load_is_spread() -> None:
    fakes = [FakeOmni(), FakeOmni(), FakeOmni()]
    async with driving(*fakes) as engine:
        all_of = await asyncio.gather(*(spoken(engine, replace(ASKED, seed=seed)) for seed in range(30)))
        assert all_of == [voiced(ASKED.text, seed) for seed in range(30)]
        assert [len(fake.asked) for fake in fakes] == [10, 10, 10]


# ---------------------------------------------------------------- cancel
@pytest.mark.parametrize("generation", ["C", "E"])
async def test_a_cancel_reaches_the_server(generation: Any) -> None:
    fake = FakeOmni(generation, ways=["hang_mid"])
    async with driving(fake) as engine:
        speaking = await engine.open(ASKED)
        stream = speaking.chunks()
        await anext(stream)
        speaking.cancel()
        assert [chunk async for chunk in stream] == []
        assert (await engine.health()).active_rows == 0
        assert await spoken(engine) == WHOLE


async def test_a_cancel_in_the_midst_of_many_others_disturbs_none() -> None:
    fake = FakeOmni("E")
    chance = random.Random(5)
    async with driving(fake) as engine:

        async def one(seed: int) -> None:
            asked = replace(ASKED, seed=seed)
            if seed % 2:
                assert await spoken(engine, asked) == voiced(ASKED.text, seed)
                return
            speaking = await engine.open(asked)
            stream = speaking.chunks()
            for _ in range(chance.randrange(3)):
                await anext(stream, None)
            speaking.cancel()
            assert [chunk async for chunk in stream] == []

        await asyncio.gather(*(one(seed) for seed in range(60)))
        assert (await engine.health()).active_rows == 0


async def test_whatever_happens_each_utterance_is_whole_or_told_and_nothing_is_left() -> None:
    chance = random.Random(11)
    some: list[Way] = ["speak", "speak", "die_before", "die_mid", "fail_before", "fail_mid", "short", "refuse", "rate"]
    fakes = [FakeOmni(generation, ways=chance.choices(some, k=30)) for generation in ("A", "C", "E")]
    async with driving(*fakes, deterministic="yes", max_rows=12, row_wait_ms=30_000, check_every_s=0.05) as engine:
        tasks = len(asyncio.all_tasks())

        async def one(seed: int) -> str:
            try:
                sound = await spoken(engine, replace(ASKED, seed=seed))
            except EngineFault:
                return "told"
            assert sound == voiced(ASKED.text, seed)
            return "whole"

        ends = await asyncio.gather(*(one(seed) for seed in range(80)))
        assert ends.count("whole") > 40
        assert "told" in ends
        assert (await engine.health()).active_rows == 0
        assert [engine._fleet.active(number) for number in range(3)] == [0, 0, 0]
        async with asyncio.timeout(10):
            while len(asyncio.all_tasks()) > tasks + 24:  # the fakes' own, of the sockets that are kept
                await asyncio.sleep(0.01)


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
