"""A fresh process that speaks writes no file and opens no connection."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import asyncio, json, os, sys

seen = {"written": [], "network": []}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

def watch(event, arguments):
    if event == "open":
        path, mode, flags = arguments
        if isinstance(path, str) and flags & WRITING and path != os.devnull:
            seen["written"].append(path)
    elif event in ("socket.connect", "socket.getaddrinfo", "socket.bind"):
        seen["network"].append(event)

sys.addaudithook(watch)

from adapters.engines.builtin import BuiltinEngine
from sidecar.ports import Utterance

async def main():
    engine = BuiltinEngine()
    await engine.start()
    names = {voice.name for voice in engine.traits.voices}
    samples = {}
    wanted = {"heart": "Zorblax is ready.", "pico-de": "Bitte warten.", "im_nicola": "Ja.", "bf_emma": "Yes."}
    for voice, text in wanted.items():
        if voice in names:
            speaking = await engine.open(Utterance(text, voice, 1))
            samples[voice] = sum([len(chunk.pcm) async for chunk in speaking.chunks()])
    await engine.close()
    print(json.dumps({**seen, "samples": samples}))

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX home folders")
def test_speaking_leaves_no_trace(tmp_path: Path) -> None:
    home, cache, scratch = (tmp_path / name for name in ("home", "cache", "scratch"))
    for folder in (home, cache, scratch):
        folder.mkdir()
    environment = {
        **{name: value for name, value in os.environ.items() if name not in ("ORT_DISABLE_TELEMETRY", "HIBARI_HOME")},
        "HOME": str(home),
        "XDG_CACHE_HOME": str(cache),
        "TMPDIR": str(scratch),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=environment,
        cwd=Path(__file__).parents[4],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["samples"]["heart"] > 0
    assert report["network"] == []
    # Python's tempfile tries its folder once; nothing may be left there.
    assert [path for path in report["written"] if not path.startswith(str(scratch))] == []
    assert [path for folder in (home, cache, scratch) for path in folder.rglob("*")] == []
