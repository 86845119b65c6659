"""The command line as a stranger uses it: real processes, real files, real signals."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import pytest

SIDECAR = [sys.executable, "-m", "sidecar"]
FAST = {"SIDECAR_LLM__SCRIPTED_TOKENS_PER_S": "2000", "SIDECAR_LLM__SCRIPTED_FIRST_TOKEN_MS": "0"}


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment of its own: nothing of this user's settings or data."""
    plain = {k: v for k, v in os.environ.items() if not k.startswith("SIDECAR_")}
    return plain | {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data"), "PYTHONUNBUFFERED": "1"}


def run(
    *words: str, env: dict[str, str], cwd: Path | None = None, text: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*SIDECAR, *words], env=env, cwd=cwd, input=text, capture_output=True, timeout=100, check=False
    )


def one_line(stderr: bytes) -> str:
    lines = stderr.decode().strip().splitlines()
    assert len(lines) == 1, lines
    return lines[0]


def seconds_of(path: Path) -> float:
    with av.open(str(path)) as container:
        stream = container.streams.audio[0]
        return sum(frame.samples for frame in container.decode(audio=0)) / stream.rate


# ---------------------------------------------------------------- demo
def test_the_demo_speaks_with_the_built_in_voice(home: dict[str, str], tmp_path: Path) -> None:
    done = run("demo", env=home | FAST, cwd=tmp_path)
    out = done.stdout.decode()
    assert done.returncode == 0, done.stderr.decode()
    assert done.stderr == b""
    assert "engine builtin" in out
    segments = re.findall(r"segment \d+ +([\d.]+) s +seed (\d+) +en .*'(.+)'", out)
    assert len(segments) >= 3
    assert len({seed for _, seed, _ in segments}) == len(segments), "every segment has a seed of its own"
    for line in ("first token", "first audio", "last audio", "real-time factor", "wrote demo.wav"):
        assert line in out, line
    with wave.open(str(tmp_path / "demo.wav")) as heard:
        assert (heard.getframerate(), heard.getnchannels(), heard.getsampwidth()) == (24_000, 1, 2)
        spoken = sum(float(seconds) for seconds, _, _ in segments)
        assert spoken <= heard.getnframes() / 24_000 + 0.1, "the file holds every segment"


def test_the_demo_writes_where_it_is_told(home: dict[str, str], tmp_path: Path) -> None:
    target = tmp_path / "other.wav"
    done = run("demo", "--engine", "tone", "--model", "scripted-de", "-o", str(target), env=home | FAST)
    assert done.returncode == 0, done.stderr.decode()
    assert seconds_of(target) > 1


def test_the_demo_can_be_live(home: dict[str, str], tmp_path: Path) -> None:
    done = run("demo", "--engine", "tone", "--live", env=home | FAST, cwd=tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    assert b"mode live" in done.stdout
    assert seconds_of(tmp_path / "demo.wav") > 1


@pytest.mark.parametrize(
    ("words", "says"),
    [(("--model", "no-such-model"), "no-such-model"), (("-o", "/no/such/folder/x.wav"), "no such folder")],
)
def test_a_demo_that_cannot_be_given_says_why(words: tuple[str, ...], says: str, home: dict[str, str]) -> None:
    done = run("demo", "--engine", "tone", *words, env=home | FAST)
    assert done.returncode != 0
    assert says in one_line(done.stderr)


# ---------------------------------------------------------------- say
@pytest.mark.parametrize("name", ["a.wav", "a.mp3", "a.ogg", "a.opus", "a.flac", "a.aac"])
def test_say_writes_the_format_of_the_ending(name: str, home: dict[str, str], tmp_path: Path) -> None:
    done = run("say", "Hello there, friend.", "--engine", "tone", "-o", str(tmp_path / name), env=home)
    assert done.returncode == 0, done.stderr.decode()
    assert seconds_of(tmp_path / name) > 0.5


def test_say_speaks_a_stream_to_a_pipe(home: dict[str, str]) -> None:
    text = "# Hi\n\nFirst **sentence**. Zweiter Satz mit ü.".encode()
    done = run("say", "-", "--engine", "tone", "--seed", "5", "-o", "-", "--format", "pcm", env=home, text=text)
    again = run("say", "--engine", "tone", "--seed", "5", "-o", "-", "--format", "pcm", env=home, text=text)
    assert done.returncode == 0, done.stderr.decode()
    assert len(done.stdout) > 24_000
    assert len(done.stdout) % 2 == 0
    assert done.stdout == again.stdout, "the same seed gives the same samples"


def test_say_joins_sentences_as_the_settings_say(home: dict[str, str]) -> None:
    words = ("say", "The first sentence is here. And this is the second.", "--engine", "tone", "--seed", "5", "-o", "-")
    shaped = run(*words, "--format", "pcm", env=home)
    plain = run(*words, "--format", "pcm", env=home | {"SIDECAR_VOICES__SHAPE_PAUSES": "false"})
    assert shaped.returncode == plain.returncode == 0, plain.stderr.decode()
    assert len(plain.stdout) > len(shaped.stdout) > 24_000


def test_say_begins_before_the_stream_ends(home: dict[str, str]) -> None:
    process = subprocess.Popen(
        [*SIDECAR, "say", "-", "--engine", "tone", "-o", "-", "--format", "pcm"],
        env=home, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"The first sentence is here. And")
    process.stdin.flush()
    assert process.stdout.read(1_000), "heard while the writer still holds the pipe open"
    process.stdin.close()
    process.stdout.read()
    process.stdout.close()
    assert process.wait(30) == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("你好，世界。",), "Chinese"),
        (("x", "--voice", "nobody"), "nobody"),
        (("x", "-o", "x.xyz"), "known format"),
        (("x", "--language", "Klingon"), "Klingon"),
        (("x", "-o", "/no/such/folder/x.wav"), "/no/such/folder"),
    ],
)
def test_what_cannot_be_said_is_one_clear_line(
    words: tuple[str, ...], says: str, home: dict[str, str], tmp_path: Path
) -> None:
    done = run("say", *words, env=home, cwd=tmp_path)
    assert done.returncode != 0
    assert says in one_line(done.stderr)
    assert list(tmp_path.glob("*.wav")) == [], "no empty file is left behind"


@pytest.mark.parametrize("text", ["", "  ", "```\ncode\n```"])
def test_nothing_to_say_is_an_error_and_replaces_nothing(text: str, home: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "say.wav").write_bytes(b"precious")
    done = run("say", "-", "--engine", "tone", env=home, cwd=tmp_path, text=text.encode())
    assert done.returncode == 1
    assert "nothing to say" in one_line(done.stderr)
    assert [f.read_bytes() for f in tmp_path.iterdir()] == [b"precious"]


# ---------------------------------------------------------------- doctor
def test_doctor_lists_what_can_speak(home: dict[str, str]) -> None:
    done = run("doctor", env=home)
    out = done.stdout.decode()
    assert done.returncode == 0, out
    for line in ("engine builtin", "voice heart", "language model", "store", "formats"):
        assert line in out, line


def test_doctor_says_what_is_wrong(home: dict[str, str]) -> None:
    done = run("doctor", env=home | {"SIDECAR_ENGINE__KIND": "nonsense"})
    assert done.returncode == 1
    assert "engine.kind" in done.stdout.decode()


# ---------------------------------------------------------------- serve
@pytest.fixture
def served(home: dict[str, str]) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    process = subprocess.Popen(
        [*SIDECAR, "serve", "--engine", "tone", "--port", "0", "--llm-api-key", "canary-upstream-key"],
        env=home | {"SIDECAR_AUTH__API_KEYS": "canary-client-key-0123456789"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    line = process.stdout.readline().decode()
    assert re.fullmatch(r"listening on http://127\.0\.0\.1:\d+\n", line)
    yield process, line.split()[-1]
    process.kill()
    process.communicate()


def test_serve_tells_its_address_and_stops_on_a_signal(served: tuple[subprocess.Popen[bytes], str]) -> None:
    process, url = served
    with urllib.request.urlopen(f"{url}/live", timeout=10) as answer:
        assert json.load(answer) == {"status": "alive"}
    with urllib.request.urlopen(f"{url}/v1/models?canary-query=1", timeout=10) as answer:
        assert json.load(answer)["object"] == "list"
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0
    assert out == b""
    log = err.decode()
    assert "canary" not in log, "secrets stay out of the log"
    assert re.search(r"digest=[0-9a-f]{12}", log), "the resolved settings are logged with their hash"
    for setting in ("llm_scripted_tokens_per_s", "store_url", "stream_split_rules"):
        assert setting in log, setting
    assert re.search(r"msg=served method=GET path=/v1/models status=200", log), "requests are logged"


@pytest.mark.parametrize(
    ("env", "words", "says"),
    [
        ({}, ("--port", "99999"), ["server.port"]),
        ({"SIDECAR_SERVER__PROT": "1"}, (), ["did you mean SIDECAR_SERVER__PORT"]),
        ({"SIDECAR_CHAT__IDLE_FLUSH_MS": "x"}, ("--host", "0.0.0.0"), ["chat.idle_flush_ms", "server.host"]),
        ({}, ("--checkpoint", "somewhere"), ["engine.checkpoint"]),
        ({"SIDECAR_VOICES__DEFAULT": "nobody"}, ("--engine", "builtin"), ["voices.default"]),
        ({}, ("--store", "carrier-pigeon:"), ["store.url"]),
        ({}, ("--store", "local:/no/such/folder/x.db"), ["store.url"]),
    ],
)
def test_a_wrong_configuration_ends_with_78_and_every_problem(
    env: dict[str, str], words: tuple[str, ...], says: list[str], home: dict[str, str]
) -> None:
    done = run("serve", "--engine", "tone", *words, env=home | env)
    assert done.returncode == 78
    for part in says:
        assert part in done.stderr.decode()
    assert b"Traceback" not in done.stderr


def test_a_port_in_use_is_a_clear_error(served: tuple[subprocess.Popen[bytes], str], home: dict[str, str]) -> None:
    port = served[1].rpartition(":")[2]
    done = run("serve", "--engine", "tone", "--port", port, env=home)
    assert done.returncode == 78
    assert "cannot listen" in one_line(done.stderr)


def test_every_setting_is_listed(home: dict[str, str]) -> None:
    done = run("serve", "--help-config", env=home)
    assert done.returncode == 0
    listed: dict[str, Any] = dict(re.findall(r"^([a-z_]+\.[a-z_]+) = (.*?)  #", done.stdout.decode(), re.M))
    assert listed["server.port"] == "8800"
    assert len(listed) > 50
