"""Starts ``benchmarks.served`` in a process of its own and talks to it."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import psutil

START_TIMEOUT_S = 90.0
REPORT_TIMEOUT_S = 30.0

_LINE_LIMIT_BYTES = 1 << 20


class Server:
    """A server under measurement; an async context manager. ``host`` and ``port`` are set inside."""

    def __init__(self, settings: Mapping[str, object], profile: str | None = None) -> None:
        self._settings = {"server.port": 0, "store.url": "memory:", "server.log_level": "error", **settings}
        self._profile = profile
        self._process: Process | None = None
        self.host, self.port = "", 0

    async def __aenter__(self) -> Server:
        arguments = [json.dumps(self._settings), *([self._profile] if self._profile else [])]
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "benchmarks.served", *arguments, stdin=PIPE, stdout=PIPE, limit=_LINE_LIMIT_BYTES
        )
        url = urlsplit((await self._line(START_TIMEOUT_S))["url"])
        self.host, self.port = url.hostname or "", url.port or 0
        return self

    async def __aexit__(self, *exc: object) -> None:
        process = self._running()
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(REPORT_TIMEOUT_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    async def mark(self) -> dict[str, Any]:
        """Let it forget what was measured so far."""
        return await self._ask(b"mark\n")

    async def report(self) -> dict[str, Any]:
        """What was measured since the last ``mark``."""
        return await self._ask(b"report\n")

    def rss_bytes(self) -> int:
        """The memory that the process holds now."""
        return int(psutil.Process(self._running().pid).memory_info().rss)

    async def _ask(self, command: bytes) -> dict[str, Any]:
        process = self._running()
        assert process.stdin is not None
        process.stdin.write(command)
        return await self._line(REPORT_TIMEOUT_S)

    async def _line(self, timeout_s: float) -> dict[str, Any]:
        process = self._running()
        assert process.stdout is not None
        async with asyncio.timeout(timeout_s):
            line = await process.stdout.readline()
        if not line:
            raise RuntimeError("the server under measurement ended; see its log above")
        return dict(json.loads(line))

    def _running(self) -> Process:
        if self._process is None:
            raise RuntimeError("the server under measurement is not running")
        return self._process
