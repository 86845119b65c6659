"""The engine that drives speech servers, against servers that misbehave."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import Any

import pytest

from adapters.engines.omni import OmniEngine, OmniSettings
from sidecar.clock import SystemClock
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
from tests.adapters.engines.omni_driving import ASKED, QUICK, WHOLE, driving, heard_into, samples_of, spoken, until
from tests.adapters.engines.omni_fake import FRAME, FRAMES, FakeOmni, Way, serving, voiced

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
