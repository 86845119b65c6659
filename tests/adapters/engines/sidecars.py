"""Other sidecars as processes of their own, for the engine that drives them: started, killed, started again."""

from __future__ import annotations

import atexit
import functools
import os
import socket
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path


def free_port() -> int:
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Sidecar:
    """One ``sidecar serve`` with the tone engine, always on the same port. ``settings`` are environment variables."""

    def __init__(self, folder: Path, **settings: object) -> None:
        self._folder = folder
        self._settings = {f"SIDECAR_{name.upper()}": str(value) for name, value in settings.items()}
        self._process: subprocess.Popen[str] | None = None
        self.port = free_port()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Until it listens."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("SIDECAR_")}
        env |= {"SIDECAR_DATA_DIR": str(self._folder), "SIDECAR_SPEECH__MAX_INPUT_CHARS": "1000000"} | self._settings
        command = (sys.executable, "-m", "sidecar", "serve", "--engine", "tone", "--store", "memory:")
        self._process = subprocess.Popen(
            (*command, "--port", str(self.port), "--log-level", "error"),
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith("listening on "), line

    def kill(self) -> None:
        """SIGKILL. Idempotent."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


@functools.cache
def shared() -> str:
    """The address of one that serves until the tests are over."""
    folder = tempfile.TemporaryDirectory(prefix="sidecar-behind-")
    sidecar = Sidecar(Path(folder.name))
    sidecar.start()
    atexit.register(folder.cleanup)
    atexit.register(sidecar.kill)
    return sidecar.url
