"""The README's examples, executed as they stand (against a server on a free port)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import av
import pytest

from sidecar.config import load

README = (Path(__file__).parent.parent / "README.md").read_text()
ADDRESS = "127.0.0.1:8800"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.M | re.S)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    env = os.environ | {
        "XDG_DATA_HOME": str(tmp_path_factory.mktemp("data")),
        "SIDECAR_LLM__SCRIPTED_TOKENS_PER_S": "500",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "sidecar", "serve", "--port", "0"], env=env, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    yield process.stdout.readline().decode().strip().removeprefix("listening on http://")
    process.terminate()
    process.communicate(timeout=60)


def run_python(code: str, address: str, epilogue: str = "") -> str:
    code = code.replace(ADDRESS, address) + epilogue
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def test_the_two_commands_come_first() -> None:
    assert [block.strip() for block in blocks("sh")[:2]] == [
        "python3 -m pip install . && sidecar demo",
        "python3 -m pip install '.[test]' && python3 -m pytest",
    ]


def test_the_settings_example(tmp_path: Path) -> None:
    (toml,) = blocks("toml")
    file = tmp_path / "sidecar.toml"
    file.write_text(toml)
    config = load(file, {}, {})
    assert config.server.host == "0.0.0.0"
    assert config.voices.aliases["nova"] == "pico-de"


def test_the_chat_example(address: str) -> None:
    (code,) = [block for block in blocks("python") if "chat.completions" in block]
    out = run_python(code, address, "\nprint()\nprint(len(pcm) / 48000)\n")
    transcript, seconds = out.rsplit("\n", 2)[0], float(out.split()[-1])
    assert len(transcript) > 50
    assert seconds > 3


def test_the_socket_example(address: str) -> None:
    (code,) = [block for block in blocks("python") if "websockets" in block]
    assert float(run_python(code, address).split()[0]) > 1


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_curl_example(address: str, tmp_path: Path) -> None:
    (command,) = [block for block in blocks("sh") if block.startswith("curl")]
    command = command.replace(ADDRESS, address)
    done = subprocess.run(["sh", "-ec", command], cwd=tmp_path, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
    with av.open(str(tmp_path / "hello.mp3")) as heard:
        stream = heard.streams.audio[0]
        assert stream.codec_context.name.startswith("mp3")
        assert sum(frame.samples for frame in heard.decode(audio=0)) / stream.rate > 0.8


def test_the_say_example(tmp_path: Path) -> None:
    words = ["say", "Hello there.", "-o", "hello.wav"]
    assert f'sidecar say "{words[1]}" -o {words[3]}' in README
    done = subprocess.run([sys.executable, "-m", "sidecar", *words], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert (tmp_path / "hello.wav").stat().st_size > 10_000
