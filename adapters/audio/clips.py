"""Recordings of voices as users send them, decoded in a bounded child process."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import json
import os
import re
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np

from adapters.audio.fetch import PublicFetcher
from sidecar.faults import BadRequest, TooBusy, TooLarge
from sidecar.ports import SAMPLE_RATE_HZ, Pcm

_CHILD = Path(__file__).with_name("decode_child.py")
_DATA_URL = re.compile(r"data:(?P<type>[^;,]{0,100})(?P<rest>(?:;[^;,]{0,100}){0,8}),", re.IGNORECASE)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")


@dataclass(frozen=True, slots=True)
class ClipLimits:
    """Bounds of one recording. The first three count *decoded* sound; what a file says of itself is not believed."""

    max_s: float = 30.0
    max_rate_hz: int = 48_000
    max_channels: int = 2
    max_file_bytes: int = 20 << 20
    max_memory_bytes: int = 1 << 30
    timeout_s: float = 10.0
    at_once: int = 2
    max_waiting: int = 16


class Clips:
    """Implements ``sidecar.ports.ClipReader``. ``fetcher`` None: addresses are refused, data is taken."""

    def __init__(self, limits: ClipLimits | None = None, fetcher: PublicFetcher | None = None) -> None:
        self._limits = limits or ClipLimits()
        self._fetcher = fetcher
        self._turns = asyncio.Semaphore(self._limits.at_once)
        self._waiting = 0

    async def read(self, data: bytes, param: str) -> Pcm:
        """A file as 24 kHz mono float32.

        Raises ``TooLarge`` (bytes), ``BadRequest`` (not a recording, too many seconds, or it took too long),
        ``TooBusy``.
        """
        if len(data) > self._limits.max_file_bytes:
            raise TooLarge(f"The recording is larger than {self._limits.max_file_bytes >> 20} MiB.", param=param)
        if not data:
            raise BadRequest("The recording is empty.", param=param)
        if self._waiting >= self._limits.max_waiting:
            raise TooBusy("Too many recordings are being read; try again shortly.", retry_after_s=1.0)
        self._waiting += 1
        try:
            async with self._turns:
                answer = await self._decoded(data, param)
        finally:
            self._waiting -= 1
        head, _, body = answer.partition(b"\n")
        try:
            said = json.loads(head)
        except ValueError:
            said = {"ok": False, "why": "it cannot be read as a recording"}  # the child crashed or ran out of time
        if not said["ok"]:
            raise BadRequest(f"The recording is refused: {said['why']}.", param=param)
        pcm = np.frombuffer(body, "<f4").astype(np.float32)
        if not np.isfinite(pcm).all():
            raise BadRequest("The recording is refused: it holds samples that are not numbers.", param=param)
        return np.clip(pcm, -1.0, 1.0)

    async def load(self, source: str, param: str) -> Pcm:
        """From a data URL, bare base64, or an https URL where a fetcher was given.

        Raises what ``read`` raises, ``BadRequest`` for every other scheme and for paths.
        """
        source = source.strip()
        lower = source[:8].lower()
        if lower.startswith("data:"):
            return await self.read(self._inline(source, param), param)
        if lower.startswith(("http:", "https:")):
            if self._fetcher is None:
                raise BadRequest("Recordings are not fetched from addresses here; send a data: URL.", param=param)
            return await self.read(await self._fetcher.fetch(source, param), param)
        if _SCHEME.match(source):
            raise BadRequest("A recording is a data: URL, base64 or an https: URL.", param=param)
        return await self.read(self._from_base64(source, param), param)

    def _inline(self, source: str, param: str) -> bytes:
        match = _DATA_URL.match(source)
        if match is None or not match["rest"].lower().endswith(";base64"):
            raise BadRequest("A data: URL of a recording must be base64.", param=param)
        kind = match["type"].strip().lower()
        if (
            kind
            and not kind.startswith(("audio/", "video/"))
            and kind not in ("application/octet-stream", "application/ogg")
        ):
            raise BadRequest("The data: URL is not of a sound.", param=param)
        return self._from_base64(source[match.end() :], param)

    def _from_base64(self, text: str, param: str) -> bytes:
        if len(text) > self._limits.max_file_bytes * 4 // 3 + 4:
            raise TooLarge(f"The recording is larger than {self._limits.max_file_bytes >> 20} MiB.", param=param)
        try:
            return base64.b64decode("".join(text.split()), validate=True)
        except (binascii.Error, ValueError) as error:
            raise BadRequest("The recording is neither a data: URL nor base64.", param=param) from error

    async def _decoded(self, data: bytes, param: str) -> bytes:
        limits = self._limits
        arguments = (limits.max_s, limits.max_rate_hz, limits.max_channels, limits.max_memory_bytes, limits.timeout_s)
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            str(_CHILD),
            *(str(one) for one in arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(limits.timeout_s):
                return await self._exchange(child, data)
        except TimeoutError as error:
            raise BadRequest("The recording is refused: it takes too long to decode.", param=param) from error
        finally:
            await _ended(child)

    async def _exchange(self, child: asyncio.subprocess.Process, data: bytes) -> bytes:
        into, out = cast(asyncio.StreamWriter, child.stdin), cast(asyncio.StreamReader, child.stdout)
        most = int(self._limits.max_s * SAMPLE_RATE_HZ) * 4 + 1_024

        async def send(pipe: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError):  # refused before it was read to the end
                pipe.write(data)
                await pipe.drain()
            pipe.close()

        sending = asyncio.create_task(send(into))
        try:
            answer = b""
            while len(answer) <= most and (part := await out.read(1 << 16)):
                answer += part
            return answer
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)


async def _ended(child: asyncio.subprocess.Process) -> None:
    """Kill the child unless it ends by itself, which it does once its answer was read to the end."""
    out = cast(asyncio.StreamReader, child.stdout)
    if not out.at_eof():
        # Not ``child.kill``: that asks for the exit status, which then is missing where asyncio waits for it.
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, getattr(signal, "SIGKILL", signal.SIGTERM))
    await child.wait()
