"""``sidecar voices`` against a running server and against a store of this machine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from sidecar.cli import commands
from sidecar.voices_cli import Refused
from tests.e2e.conftest import KEY, Running, running
from tests.e2e.voice_tools import recording, upload, vector, wav_file

ADDED = ["--consent", "c-1", "--language", "de", "--description", "Warm.", "--seed", "5"]


@pytest.fixture
def clip(tmp_path: Path) -> str:
    file = tmp_path / "clip.wav"
    file.write_bytes(wav_file(recording()))
    return str(file)


@pytest.fixture
def numbers(tmp_path: Path) -> str:
    file = tmp_path / "numbers.json"
    file.write_text(json.dumps(vector()))
    return str(file)


def invoke(*words: str) -> Result:
    return CliRunner().invoke(commands, ["voices", *words], standalone_mode=False)


def test_the_server_may_be_named_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(server: Running) -> None:
        monkeypatch.setenv("SPEECH_URL", server.url)
        monkeypatch.setenv("SPEECH_API_KEY", KEY)
        assert invoke("list").output == "no stored voices\n"
        monkeypatch.setenv("SPEECH_API_KEY", f"{KEY}x")
        assert isinstance(invoke("list").exception, Refused)

    with_server(work, auth__api_keys=(f"acme:{KEY}",))


def with_server(work: Callable[[Running], None], **flags: Any) -> None:
    """Run ``work`` in a thread beside a running server."""

    async def both() -> None:
        async with running(**flags) as server:
            await asyncio.to_thread(work, server)

    asyncio.run(both())


def test_a_running_server(clip: str, numbers: str, tmp_path: Path) -> None:
    set_file = str(tmp_path / "set.safetensors")

    def work(server: Running) -> None:
        at = ["--url", f"{server.url}/v1/"]
        assert invoke("list", *at).output == "no stored voices\n"
        added = invoke("add", "Anna", clip, *ADDED, *at)
        assert (added.exception, added.output) == (None, "stored anna\n")
        assert invoke("add", "vec", numbers, "--consent", "c", *at).exception is None
        auditioned = invoke("add", "tried", clip, "--consent", "c", "--audition", "2", *at).output.splitlines()
        assert auditioned[0] == "stored tried"
        assert [line[:9] for line in auditioned[1:3]] == ["seed 1/2 ", "seed 2/2 "]
        assert auditioned[3].startswith("keeps seed ")
        lines = invoke("list", *at).output.splitlines()
        assert [line.split()[0] for line in lines] == ["anna", "tried", "vec"]
        assert "Warm." in lines[0]
        cards = json.loads(invoke("list", "--json", *at).output)
        assert (cards[0]["seed"], cards[0]["language"]) == (5, "de")
        assert "bytes" in invoke("export", set_file, *at).output
        assert invoke("delete", "anna", "TRIED", *at).output == "deleted anna\ndeleted TRIED\n"
        assert "not found" in str(invoke("delete", "anna", *at).exception)
        back = invoke("import", set_file, *at)
        assert sorted(back.output.splitlines()) == [
            "imported anna",
            "imported tried",
            "refused vec: The name is taken.",
        ]
        assert isinstance(back.exception, SystemExit)
        assert invoke("import", set_file, "--replace", *at).exit_code == 0
        assert "reserved" in str(invoke("add", "alto", clip, "--consent", "c", *at).exception)

    with_server(work)


def test_a_set_that_is_not_whole_says_so(numbers: str, tmp_path: Path) -> None:
    def work(server: Running) -> None:
        at = ["--url", server.url]
        for name in ("anna", "bert"):
            assert invoke("add", name, numbers, "--consent", "c", *at).exception is None
        store = server.service.store
        asyncio.run_coroutine_threadsafe(store.put("local", "voice", "bert", b"hello"), loops[0]).result(30)
        exported = invoke("export", str(tmp_path / "set"), *at)
        assert exported.exception is None
        assert exported.output.splitlines()[1:] == ["left out, because they are damaged: 1"]

    loops: list[asyncio.AbstractEventLoop] = []

    async def both() -> None:
        async with running() as server:
            loops.append(asyncio.get_running_loop())
            await asyncio.to_thread(work, server)

    asyncio.run(both())


def test_a_key_is_needed_where_there_are_keys(clip: str) -> None:
    def work(server: Running) -> None:
        assert "API key" in str(invoke("list", "--url", server.url).exception)
        key = ["--api-key", "admin-key-0123456789abc"]
        assert invoke("add", "anna", clip, "--consent", "c", "--url", server.url, *key).exception is None
        assert invoke("list", "--url", server.url, *key).output.startswith("anna ")

    with_server(work, auth__api_keys=("t+admin:admin-key-0123456789abc",))


def test_the_store_of_this_machine(clip: str, tmp_path: Path) -> None:
    store = ["--engine", "tone", "--store", f"local:{tmp_path / 'voices.db'}"]
    assert invoke("add", "anna", clip, "--consent", "c", *store).output == "stored anna\n"

    async def served() -> None:
        async with running(store__url=store[-1]) as server:
            assert (await server.http.get("/api/voice-vectors/anna")).status_code == 200
            await upload(server, "bert")

    asyncio.run(served())
    lines = invoke("list", *store).output.splitlines()
    assert [line.split()[0] for line in lines] == ["anna", "bert"]


def test_what_cannot_be_done_is_one_clear_line(clip: str, tmp_path: Path) -> None:
    assert "cannot be reached" in str(invoke("list", "--url", "http://127.0.0.1:9").exception)
    assert invoke("add", "anna", str(tmp_path / "none.wav"), "--consent", "c").exception is not None
    assert "consent" in str(invoke("add", "anna", clip).exception)
    assert "no such folder" in str(invoke("export", str(tmp_path / "none" / "x"), "--engine", "tone").exception)
