from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters.engines.host import HostedEngine, HostSettings
from adapters.engines.host_wire import MAX_HEADER_BYTES
from sidecar.clock import SystemClock
from sidecar.faults import EngineFault, EngineLost, EngineOverloaded, TooLarge, UnknownVoice, UnsupportedByEngine
from sidecar.ports import FRAME_SAMPLES, Utterance
from tests.adapters.engines.clocks import ManualClock
from tests.adapters.engines.hosted import FACTORIES, SAY, TEXT, Make, joined, killed, make, rest, said, started, until
from tests.adapters.engines.qwen3_tts.toy_engine import toy_engine

__all__ = ["make"]

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# ---------------------------------------------------------------- the same as without
async def test_it_says_what_the_engine_says_here(make: Make) -> None:
    engine = await started(make("live"))
    here = toy_engine()
    await here.start()
    asked = Utterance(TEXT, "eric", 9, "zh", instructions="Slowly.", max_frames=70, first_chunk_frames=3)
    there, local = await engine.open(asked), await here.open(asked)
    assert np.array_equal(await said(there), await said(local))
    assert (
        (there.language, there.text_tokens) == (local.language, local.text_tokens) == ("zh", 60 + 3)
    )  # and its instructions
    assert engine.traits == here.traits
    await here.close()


async def test_faults_keep_their_kind(make: Make) -> None:
    engine = await started(make(max_rows=1, row_wait_ms=0))
    with pytest.raises(UnknownVoice, match="alto") as unknown:
        await engine.open(Utterance("x", "nobody", 1))
    assert unknown.value.param == "voice"
    first = await engine.open(SAY)
    with pytest.raises(EngineOverloaded) as busy:
        await engine.open(SAY)
    assert busy.value.retry_after_s == 1.0
    first.cancel()
    with pytest.raises(UnsupportedByEngine) as lacking:
        await engine.open(replace(SAY, output="codes"))
    assert lacking.value.param == "output_mode"
    with pytest.raises(TooLarge):
        await engine.open(Utterance("x" * MAX_HEADER_BYTES, "alto", 1))
    assert (await engine.health()).active_rows == 0


async def test_a_fault_in_the_middle_comes_after_the_audio(make: Make) -> None:
    engine = await started(make(fault="mid"))
    stream = (await engine.open(SAY)).chunks()
    assert len((await anext(stream)).pcm) > 0
    with pytest.raises(EngineFault, match="half way"):
        await rest(stream)
    assert (await engine.health()).ok


async def test_what_libraries_print_harms_nothing(make: Make) -> None:
    engine = await started(make("prints"))
    assert len(await said(await engine.open(SAY))) > 0


async def test_odd_text_arrives_as_it_is(make: Make) -> None:
    engine = await started(make())
    speaking = await engine.open(Utterance("\ud800 a \x00 \u2028 ü🙂", "alto", 1))
    assert len(await said(speaking)) > 0


# ---------------------------------------------------------------- readers
async def test_a_slow_reader_is_not_sent_more_than_a_window(make: Make) -> None:
    engine = await started(make(host=HostSettings(window_frames=8)))
    speaking = await engine.open(Utterance(TEXT * 20, "alto", 3))
    stream = speaking.chunks()
    await anext(stream)
    await asyncio.sleep(0.3)
    waiting = sum(len(chunk.pcm) for chunk in speaking._waiting)
    assert 0 < waiting <= (8 + 25) * FRAME_SAMPLES
    other = await engine.open(SAY)
    assert len(await said(other)) > 0
    assert len(await rest(stream)) > 10


@linux
async def test_a_thousand_cancels_leave_nothing(make: Make) -> None:
    engine = await started(make("live", max_rows=8, max_waiting=1_000))
    pid = engine.pid
    here = Path(f"/proc/{pid}")
    asked = Utterance(TEXT, "vivian", 1, "en")
    before = await said(await engine.open(asked))

    def resident_kib() -> int:
        status = (here / "status").read_text()
        return int(status.split("VmRSS:")[1].split()[0])

    async def one(number: int) -> None:
        speaking = await engine.open(asked)
        stream = speaking.chunks()
        for _ in range(number % 4):
            await anext(stream)
        speaking.cancel()
        assert len(await rest(stream)) <= 1

    async def many(first: int, count: int) -> None:
        for start in range(first, first + count, 20):
            await asyncio.gather(*(one(number) for number in range(start, start + 20)))

    await many(0, 200)
    files, memory = len(list((here / "fd").iterdir())), resident_kib()
    await many(200, 800)
    assert engine._calls == {}
    assert len(list((here / "fd").iterdir())) == files
    assert resident_kib() <= memory + 32_768
    assert engine.pid == pid
    assert np.array_equal(await said(await engine.open(asked)), before)
    assert (await engine.health()).active_rows == 0


async def test_an_opening_that_is_given_up_is_given_up_there(make: Make) -> None:
    engine = await started(make(max_rows=1, row_wait_ms=60_000))
    first = await engine.open(SAY)
    second = asyncio.ensure_future(engine.open(SAY))
    await asyncio.sleep(0.05)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    assert len(await said(first)) > 0
    assert len(await said(await engine.open(SAY))) > 0


# ---------------------------------------------------------------- crashes
@pytest.mark.parametrize("after", [0, 1, 3])
async def test_an_utterance_goes_on_after_a_crash_where_it_broke_off(make: Make, after: int) -> None:
    engine = await started(make())
    whole = await said(await engine.open(SAY))
    stream = (await engine.open(SAY)).chunks()
    chunks = [await anext(stream) for _ in range(after)]
    killed(engine)
    chunks += await rest(stream)
    assert np.array_equal(joined(chunks), whole)
    assert (await engine.health()).ok


async def test_who_asks_while_it_restarts_waits(make: Make) -> None:
    engine = await started(make())
    old = killed(engine)
    await until(lambda: engine._state == "restarting")
    assert "restart" not in (await engine.health()).reason
    assert "killed by signal 9" in (await engine.health()).reason
    assert len(await said(await engine.open(SAY))) > 0
    assert engine.pid != old


async def test_waiting_for_a_restart_is_bounded(make: Make, tmp_path: Path) -> None:
    host = HostSettings(back_off_s=(0.0, 30.0), restart_wait_s=0.2, start_timeout_s=20)
    engine = await started(make("dies_later", host, mark=str(tmp_path / "mark")))
    killed(engine)
    await until(lambda: len(engine._crashes) == 2)
    opening = asyncio.ensure_future(engine.open(SAY))
    await asyncio.sleep(0.05)
    await engine.close()
    with pytest.raises(EngineLost):
        await opening


async def test_a_text_that_kills_the_process_is_not_tried_for_ever(make: Make) -> None:
    engine = await started(make("breaking"))
    innocent = (await engine.open(SAY)).chunks()
    await anext(innocent)
    with pytest.raises(EngineLost) as lost:
        await engine.open(Utterance("die now", "alto", 1))
    assert lost.value.retryable
    await until(lambda: engine._state == "running")
    assert len(await said(await engine.open(SAY))) > 0


async def test_three_crashes_and_it_is_down_with_the_reason(make: Make) -> None:
    engine = await started(make())
    for crash in range(1, 4):
        stream = (await engine.open(SAY)).chunks()
        await anext(stream)
        killed(engine)
        if crash == 3:
            with pytest.raises(EngineLost):
                await rest(stream)
        else:
            await rest(stream)
    health = await engine.health()
    assert not health.ok
    assert health.reason == (
        "down after 3 crashes, the last: killed by signal 9; tried again every 60 s when it is asked"
    )
    assert health.active_rows == 0
    with pytest.raises(EngineLost, match="down after 3 crashes") as lost:
        await engine.open(SAY)
    assert 0 < (lost.value.retry_after_s or 0) <= 60


async def down(clock: ManualClock) -> HostedEngine:
    """An engine that has crashed as often as it may."""
    host = HostSettings(back_off_s=(1,), max_crashes=2, retry_s=60, crash_window_s=60, ping_every_s=1e6)
    engine = HostedEngine(f"{FACTORIES}:tone", {}, clock, host)
    await engine.start()
    killed(engine)
    await until(lambda: engine._state == "restarting" and engine.pid is None)
    await clock.advance(1_000)
    await until(lambda: engine._state == "running")
    killed(engine)
    await until(lambda: engine._state == "down")
    return engine


async def test_what_is_down_is_tried_again_when_it_is_asked_and_once_only() -> None:
    clock = ManualClock()
    engine = await down(clock)
    await clock.advance(59_000)
    with pytest.raises(EngineLost, match="down after 2 crashes") as lost:
        await engine.open(SAY)
    assert lost.value.retry_after_s == 1.0
    await clock.advance(100_000)
    assert engine.pid is None, "nobody has asked"

    assert len(await said(await engine.open(SAY))) > 0
    assert (await engine.health()).ok

    killed(engine)
    await until(lambda: engine._state == "down")
    assert (await engine.health()).reason.startswith("down after 3 crashes, the last: killed by signal 9;")
    await clock.advance(59_000)
    assert engine.pid is None
    with pytest.raises(EngineLost):
        await engine.open(SAY)
    await clock.advance(1_000)
    assert len(await said(await engine.open(SAY))) > 0
    await engine.close()


async def test_whoever_asks_for_its_health_has_it_tried_again_and_a_quiet_minute_makes_it_good() -> None:
    clock = ManualClock()
    engine = await down(clock)
    await clock.advance(60_000)
    health = await engine.health()
    assert not health.ok
    assert health.reason.startswith("is tried again, was down after 2 crashes")
    await until(lambda: engine._state == "running")
    assert (await engine.health()).ok

    await clock.advance(61_000)
    killed(engine)
    await until(lambda: engine._state == "restarting" and engine.pid is None)
    await clock.advance(1_000)
    await until(lambda: engine._state == "running")
    await engine.close()


async def test_an_engine_that_does_not_start_again_is_down_again(tmp_path: Path) -> None:
    clock = ManualClock()
    host = HostSettings(max_crashes=1, retry_s=60, ping_every_s=1e6)
    engine = HostedEngine(f"{FACTORIES}:dies_later", {"mark": str(tmp_path / "mark")}, clock, host)
    await engine.start()
    killed(engine)
    await until(lambda: engine._state == "down")
    await clock.advance(60_000)
    with pytest.raises(EngineLost):
        await engine.open(SAY)
    health = await engine.health()
    assert (engine._state, health.ok) == ("down", False)
    assert health.reason.startswith("down after 2 crashes")
    await engine.close()


async def test_pauses_between_restarts_grow_and_begin_anew_after_a_quiet_minute() -> None:
    pauses: list[float] = []

    class Clock(SystemClock):
        now = 0.0

        def now_ms(self) -> float:
            return self.now * 1e3

        async def sleep(self, ms: float) -> None:
            if ms >= 1e6:
                await asyncio.Event().wait()
            pauses.append(ms / 1e3)

    clock = Clock()
    host = HostSettings(ping_every_s=1e6, restart_wait_s=1e6, max_crashes=100, back_off_s=(1, 2, 4, 8))
    engine = HostedEngine(f"{FACTORIES}:tone", {}, clock, host)
    await engine.start()
    for number in range(6):
        clock.now += 10
        if number == 5:
            clock.now += 100
        killed(engine)
        await until(lambda: engine._state == "restarting")
        await until(lambda: engine._state == "running")
    assert pauses == [1, 2, 4, 8, 8, 1]
    await engine.close()


# ---------------------------------------------------------------- hangs
@pytest.mark.parametrize(
    ("text", "reason", "limit"),
    [
        ("stop the loop", "no answer for 0.4 s", {"hang_after_s": 0.4}),
        ("be unwell", "not well: the loop failed", {}),
    ],
)
async def test_a_process_that_does_not_answer_is_killed(make: Make, text: str, reason: str, limit: Any) -> None:
    engine = await started(make("breaking", HostSettings(back_off_s=(0.01,), ping_every_s=0.05, **limit)))
    old = engine.pid
    opening = asyncio.ensure_future(engine.open(Utterance(text, "alto", 1)))
    await until(lambda: engine._state == "restarting")
    assert reason in (await engine.health()).reason
    opening.cancel()
    await asyncio.wait({opening})
    assert old is not None
    assert not running(old)


async def test_an_engine_that_gives_nothing_is_killed_and_the_listener_hears_the_rest(make: Make) -> None:
    host = HostSettings(back_off_s=(0.01,), ping_every_s=0.05, silent_after_s=0.4, max_crashes=2)
    engine = await started(make("tone", host, fault="hang"))
    stream = (await engine.open(SAY)).chunks()
    await anext(stream)
    with pytest.raises(EngineLost):  # it hangs again
        await rest(stream)
    assert "no sound for 0.4 s" in (await engine.health()).reason


# ---------------------------------------------------------------- start and end
@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("refuses", "The checkpoint is not there; look elsewhere."),
        ("raises", "could not be started \\(RuntimeError\\)"),
        ("dies", "ended while it started: exit status 3"),
        ("unknown", "could not be started \\(AttributeError\\)"),
    ],
)
async def test_a_start_that_fails_says_why_and_leaves_nothing(make: Make, factory: str, message: str) -> None:
    engine = make(factory)
    with pytest.raises(EngineFault, match=message):
        await engine.start()
    assert engine.pid is None
    assert not (await engine.health()).ok
    with pytest.raises(EngineLost):
        await engine.open(SAY)


async def test_a_start_that_takes_too_long(make: Make) -> None:
    engine = make(host=HostSettings(start_timeout_s=0.001))
    with pytest.raises(EngineFault, match="not ready after"):
        await engine.start()
    assert engine.pid is None


async def test_a_start_that_is_given_up_ends_the_process(make: Make) -> None:
    engine = make()
    starting = asyncio.ensure_future(engine.start())
    await until(lambda: engine.pid is not None)
    pid = engine.pid
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert pid is not None
    assert not running(pid)


async def test_close_ends_the_process(make: Make) -> None:
    engine = await started(make("live"))
    pid = engine.pid
    stream = (await engine.open(Utterance(TEXT, "eric", 1))).chunks()
    await anext(stream)
    await engine.close()
    assert pid is not None
    assert not running(pid)
    with pytest.raises(EngineLost):
        await rest(stream)


@linux
@pytest.mark.parametrize("stuck", [False, True])
async def test_no_orphan_when_the_server_is_killed(tmp_path: Path, stuck: bool) -> None:
    script = f"""
import asyncio
from adapters.engines import host, host_child
from sidecar.clock import SystemClock
from sidecar.ports import Utterance
async def main():
    engine = host.HostedEngine("{FACTORIES}:breaking", {{}}, SystemClock())
    await engine.start()
    opening = asyncio.ensure_future(engine.open(Utterance("{"stop the loop" if stuck else TEXT}", "alto", 1)))
    await asyncio.sleep(0.2)
    print(engine.pid, flush=True)
    await asyncio.sleep(3600)
asyncio.run(main())
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry or os.getcwd() for entry in sys.path)}
    command = [sys.executable, "-c", script]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)  # noqa: ASYNC220
    assert server.stdout is not None
    pid = int(await asyncio.to_thread(server.stdout.readline))
    assert running(pid)
    server.kill()
    server.wait()
    server.stdout.close()
    await until(lambda: not running(pid))


async def test_signals_of_the_terminal_are_for_the_server(make: Make) -> None:
    engine = await started(make())
    assert engine.pid is not None
    stream = (await engine.open(SAY)).chunks()
    await anext(stream)
    os.kill(engine.pid, signal.SIGINT)
    os.kill(engine.pid, signal.SIGTERM)
    assert len(await rest(stream)) > 0
    assert engine._crashes == type(engine._crashes)()


def test_settings_that_make_no_sense() -> None:
    for wrong in ({"back_off_s": ()}, {"max_crashes": 0}, {"retry_s": 0}, {"ping_every_s": 0}, {"max_replays": -1}):
        with pytest.raises(ValueError):
            HostSettings(**wrong)
    with pytest.raises(ValueError):
        HostedEngine("no.function", {}, SystemClock())
    with pytest.raises(TypeError):
        HostedEngine("a:b", {"x": object()}, SystemClock())
