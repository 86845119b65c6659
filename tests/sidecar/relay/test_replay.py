"""Recordings of real conversations, played against real servers, the same and others."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from sidecar.cli import commands
from sidecar.clock import SystemClock
from sidecar.faults import ConfigError, EngineFault
from sidecar.relay.commands import Printer, RelayOptions, ReplayCommand, Shown, read_members, run_replay
from sidecar.relay.compare import Comparison, compare, ending_of, steps_of, tally_of
from sidecar.relay.recording import RecordedSocket, RecordingOptions, read_recording
from sidecar.relay.replay import ReplayOptions, replay
from sidecar.relay.seen import CloseFrame, Request, Seen, Side, Unseen
from tests.e2e.conftest import Running, running
from tests.e2e.ws_client import LONG, STREAMED, SpeechSocket
from tests.sidecar.relay import helpers
from tests.sidecar.relay.helpers import relayed, talk

PATH = "/v1/audio/speech/stream"
FAST = ReplayOptions(speed=0, patience_s=20)
SENTENCES = {**STREAMED, "seed": 7, "split_granularity": "sentence"}
Scene = Callable[[SpeechSocket], Awaitable[None]]


@pytest.fixture
async def server() -> AsyncIterator[Running]:
    async with running() as server:
        yield server


async def recorded(server: Running, scene: Scene, **options: Any) -> RecordedSocket:
    """A scene played through a relay."""
    async with relayed(server.url) as (address, facts):
        async with connect(f"ws://{address}{PATH}", proxy=None) as connection:
            await scene(SpeechSocket(connection))
        await facts.over()
    (socket,) = read_recording(facts.recorded(**options)).sockets
    return socket


async def played(socket: RecordedSocket, url: str, options: ReplayOptions = FAST) -> Comparison:
    tally = await replay(url, steps_of(socket), ending_of(socket), SystemClock(), options)
    return compare(tally_of(socket), tally)


# ---------------------------------------------------------------- scenes
async def two_utterances(client: SpeechSocket) -> None:
    await client.configure(**SENTENCES)
    await client.spoken("Good morning. The train leaves. ", "Mind the gap.")
    await client.configure(**{**SENTENCES, "split_granularity": "none"})
    await client.spoken("One. Two. Three.")
    await client.send("session.close")
    assert await client.close_code() == 1000


async def empty_flush_and_errors(client: SpeechSocket) -> None:
    await client.configure(**STREAMED)
    await client.raw("{no json")
    await client.error()
    await client.send("input.unknown")
    await client.error()
    await client.raw(b"binary")
    await client.error()
    await client.say()
    await client.expect("session.done")


async def a_cancel(client: SpeechSocket) -> None:
    await client.configure(**STREAMED)
    await client.text(LONG)
    await client.send("input.done")
    unit = await client.begun()
    await client.send("input.cancel")
    assert (await client.finished(unit)).done["cancelled"]
    await client.expect("session.done")
    await client.spoken("Something else.")


async def whole_files(client: SpeechSocket) -> None:
    await client.configure(response_format="wav")
    await client.spoken("As one file.")


async def left_without_a_word(client: SpeechSocket) -> None:
    await client.configure(**STREAMED)
    await client.spoken("Hello.")
    await client.vanish("fin")


async def no_config(client: SpeechSocket) -> None:
    await client.text("too early")
    await client.error()
    assert await client.close_code() == 1008


@pytest.mark.parametrize(
    "scene", [two_utterances, empty_flush_and_errors, a_cancel, whole_files, left_without_a_word, no_config]
)
async def test_the_same_server_answers_the_same(scene: Scene, server: Running) -> None:
    socket = await recorded(server, scene, whole_frames=True)
    result = await played(socket, server.ws_url)
    assert result.same, "\n".join(result.lines)


async def test_a_server_that_is_slower_is_given_its_time(server: Running) -> None:
    socket = await recorded(server, a_cancel)
    async with running(engine__tone_realtime_factor=0.5, engine__tone_first_chunk_delay_ms=300) as slow:
        result = await played(socket, slow.ws_url)
    assert result.same, "\n".join(result.lines)


async def test_lengths_are_compared_from_lengths_alone(server: Running) -> None:
    socket = await recorded(server, two_utterances)
    recorded_tally = tally_of(socket)
    tally = await replay(server.ws_url, steps_of(socket), ending_of(socket), SystemClock(), FAST)
    assert [one.clock.sound_ms for one in tally.spoken] == pytest.approx(
        [one.clock.sound_ms for one in recorded_tally.spoken], abs=0.01
    )
    assert [one.frame_bytes for one in tally.spoken] == [one.frame_bytes for one in recorded_tally.spoken]
    assert all(one.first_audio_ms is not None and one.first_audio_ms >= 0 for one in tally.spoken)


async def test_a_server_that_fails_is_a_mismatch(server: Running) -> None:
    socket = await recorded(server, two_utterances)
    async with running(engine__tone_fault="mid", engine__tone_fault_every=3) as failing:
        result = await played(socket, failing.ws_url)
    assert not result.same
    assert any("error" in line for line in result.lines)


async def test_a_server_that_says_nothing_is_a_mismatch_in_bounded_time(server: Running) -> None:
    async def silent(connection: ServerConnection) -> None:
        await connection.wait_closed()

    socket = await recorded(server, two_utterances)
    async with serve(silent, "127.0.0.1", 0) as made:
        url = f"ws://127.0.0.1:{made.sockets[0].getsockname()[1]}"
        result = await played(socket, url, ReplayOptions(speed=0, patience_s=0.05))
    assert not result.same
    assert any("nothing more" in line for line in result.lines)


async def test_a_server_that_never_stops_is_stopped(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    async def endless(connection: ServerConnection) -> None:
        while True:
            await connection.send('{"type": "audio.start"}')
            await asyncio.sleep(0)

    monkeypatch.setattr("sidecar.relay.replay.MAX_EVENTS", 100)
    socket = await recorded(server, two_utterances)
    async with serve(endless, "127.0.0.1", 0) as made:
        with pytest.raises(EngineFault, match="100 events"):
            await played(socket, f"ws://127.0.0.1:{made.sockets[0].getsockname()[1]}")


async def test_a_server_that_hangs_up_in_between(server: Running) -> None:
    async def short(connection: ServerConnection) -> None:
        await connection.recv()
        await connection.close(1011)

    socket = await recorded(server, two_utterances)
    async with serve(short, "127.0.0.1", 0) as made:
        result = await played(socket, f"ws://127.0.0.1:{made.sockets[0].getsockname()[1]}")
    assert not result.same
    assert any("close 1011" in line for line in result.lines)


async def test_the_pace_is_kept(server: Running) -> None:
    class Paced(SystemClock):
        slept: list[float] = []  # noqa: RUF012

        async def sleep(self, ms: float) -> None:
            self.slept.append(ms)

    entries = talk(
        (100.0, Side.CLIENT, {"type": "session.config", **STREAMED}),
        (500.0, Side.CLIENT, {"type": "input.text", "text": "Hi."}),
        (1_500.0, Side.CLIENT, {"type": "session.close"}),
    )
    facts = helpers.Facts()
    facts(entries)
    (socket,) = read_recording(facts.recorded()).sockets
    clock = Paced()
    await replay(server.ws_url, steps_of(socket), ending_of(socket), clock, ReplayOptions(speed=2, patience_s=5))
    first, second, third = clock.slept
    assert first <= 0
    assert 150 < second <= 200
    assert 450 < third <= 500


@pytest.mark.parametrize("what", ["nobody", "refused"])
async def test_a_server_that_cannot_be_reached_is_a_clear_error(what: str, server: Running) -> None:
    url = "ws://127.0.0.1:1/?key=canary" if what == "nobody" else f"{server.ws_url}/not-there?key=canary"
    with pytest.raises(ConfigError, match=r"cannot be reached|status 4|status 5") as failed:
        await replay(url, [], ending_of(RecordedSocket(1, "/", 101, [])), SystemClock(), FAST)
    assert "canary" not in str(failed.value)


# ---------------------------------------------------------------- the commands
async def test_replaying_a_file(server: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with relayed(server.url) as (address, facts):
        for scene in (two_utterances, empty_flush_and_errors):
            async with connect(f"ws://{address}{PATH}", proxy=None) as connection:
                await scene(SpeechSocket(connection))
        with pytest.raises(Exception, match="rejected"):
            await connect(f"ws://{address}/not-there", proxy=None)
        await facts.over(3)
    file = tmp_path / "talk.jsonl"
    file.write_text("".join(facts.recorded(whole_frames=True, mask_text=True)))
    assert await run_replay(ReplayCommand(file, server.url, None, [], FAST))
    out = capsys.readouterr().out
    assert out.count("the same sequence") == 2
    assert "masked" in out
    assert "left out" in out
    assert not await run_replay(ReplayCommand(file, server.url, 1, ["voice=nobody"], FAST))
    out = capsys.readouterr().out
    assert "socket 2" not in out
    assert "on differ" in out


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot read"),
        ("junk\n", "no recording"),
        ('{"sidecar_recording":1}\n', "no such socket"),
        ("ü", "cannot read"),
    ],
)
def test_a_file_that_cannot_be_replayed(content: str | None, says: str, tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    done = CliRunner().invoke(commands, ["replay", str(file), "--to", "ws://127.0.0.1:1"])
    assert done.exit_code != 0
    assert says in str(done.exception)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--listen", "nonsense"], "HOST:PORT"),
        (["--to", "ws://u:canary@h"], "leave out"),
        (["--record", "/no/such/folder/x"], "cannot write"),
    ],
)
def test_a_relay_that_cannot_be_had_says_why(words: list[str], says: str) -> None:
    done = CliRunner().invoke(commands, ["relay", "--to", "ws://h", "--listen", "127.0.0.1:0", *words])
    assert done.exit_code != 0
    assert says in str(done.exception)
    assert "canary" not in str(done.exception)


async def test_a_socket_that_cannot_be_replayed_is_told_and_the_others_are(
    server: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def cloned(client: SpeechSocket) -> None:
        await client.configure(**STREAMED, ref_audio="data:audio/wav;base64,AAAA")

    async with relayed(server.url) as (address, facts):
        for scene in (cloned, two_utterances):
            async with connect(f"ws://{address}{PATH}", proxy=None) as connection:
                await scene(SpeechSocket(connection))
        await facts.over(2)
    file = tmp_path / "talk.jsonl"
    file.write_text("".join(facts.recorded()))
    assert not await run_replay(ReplayCommand(file, server.url, None, [], FAST))
    out = capsys.readouterr().out
    assert "cannot be replayed: ref_audio: never recorded" in out
    assert "the same sequence" in out
    assert await run_replay(ReplayCommand(file, server.url, None, ["ref_audio=null"], FAST))


def test_members_are_json_or_words() -> None:
    assert read_members(["voice=vivian", "seed=7", "ref_audio=null", 'a={"b": 1}', "c=x=y"]) == {
        "voice": "vivian", "seed": 7, "ref_audio": None, "a": {"b": 1}, "c": "x=y",
    }  # fmt: skip
    with pytest.raises(ConfigError, match="NAME=JSON"):
        read_members(["voice"])


# ---------------------------------------------------------------- showing
def options(**members: Any) -> RelayOptions:
    return RelayOptions("0", "ws://h", None, False, RecordingOptions(**members))


def test_a_full_recording_is_told_once_and_lines_go_on(tmp_path: Path) -> None:
    out: list[str] = []
    with Printer(out.append) as printer, (tmp_path / "r").open("w") as file:
        shown = Shown(printer, options(max_bytes=300), file)
        for _ in range(5):
            shown(talk((1.0, Side.CLIENT, {"type": "input.text", "text": "x"})))
    assert sum("largest size" in line for line in out) == 1
    assert sum("input.text" in line for line in out) == 5
    assert read_recording((tmp_path / "r").read_text().splitlines()).full


def test_a_terminal_that_stands_still_costs_lines_and_never_the_traffic() -> None:
    import threading

    stuck, out = threading.Event(), list[str]()

    def write(text: str) -> None:
        stuck.wait()
        out.append(text)

    with Printer(write) as printer:
        for number in range(11_000):
            printer.line(str(number))
        stuck.set()
        while len(out) < 10_000:
            pass
        printer.line("after")
    assert out[-1] == "after\n"
    assert any("lines lost" in line for line in out)


def test_a_reader_that_is_gone_ends_the_printing_only() -> None:
    def write(text: str) -> None:
        raise BrokenPipeError

    with Printer(write) as printer:
        printer.line("one")
        printer.line("two")


def test_every_fact_has_lines() -> None:
    with Printer(lambda text: None) as printer:
        shown = Shown(printer, options(), None)
        shown([Seen(1, 0.0, Side.CLIENT, fact) for fact in (Request("GET", "/"), Unseen("x"), CloseFrame(1000))])


# ---------------------------------------------------------------- real processes
async def test_serve_relay_record_replay(tmp_path: Path) -> None:
    plain = {k: v for k, v in os.environ.items() if not k.startswith("SIDECAR_")} | {"HOME": str(tmp_path)}
    file = tmp_path / "talk.jsonl"

    async def begin(*words: str) -> tuple[asyncio.subprocess.Process, str]:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "sidecar", *words, env=plain, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout is not None
        return process, (await process.stdout.readline()).decode().split()[2]

    server, url = await begin("serve", "--engine", "tone", "--port", "0")
    try:
        relay, address = await begin("relay", "--listen", "127.0.0.1:0", "--to", url, "--record", str(file))
        async with connect(f"{address}{PATH}?key=canary", proxy=None) as connection:
            await two_utterances(SpeechSocket(connection))
        relay.send_signal(signal.SIGTERM)
        out, err = await relay.communicate()
        assert (relay.returncode, err) == (0, b"")
        assert b"session.done" in out
        assert b"canary" not in out
        assert b"Mind" not in out
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert json.loads(file.read_text().splitlines()[0])["sidecar_recording"] == 1
        for more, code in ([], 0), (["--set", "voice=nobody", "--patience", "2"], 1):
            again = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "sidecar", "replay", str(file), "--to", url, "--speed", "0", *more,
                env=plain, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip
            out, err = await again.communicate()
            assert (again.returncode, err) == (code, b""), out.decode()
    finally:
        server.kill()
        await server.communicate()
