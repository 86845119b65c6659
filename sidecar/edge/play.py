"""Playing samples as they come, through a player that the system has."""

from __future__ import annotations

import asyncio
import contextlib
import shutil

from sidecar.faults import ConfigError, EngineFault
from sidecar.ports import SAMPLE_RATE_HZ

_RATE = str(SAMPLE_RATE_HZ)
PLAYERS: dict[str, tuple[str, ...]] = {
    "pw-cat": ("--playback", "--rate", _RATE, "--channels", "1", "--format", "s16", "-"),
    "pacat": ("--playback", f"--rate={_RATE}", "--channels=1", "--format=s16le", "--latency-msec=60"),
    "aplay": ("-q", "-t", "raw", "-f", "S16_LE", "-c", "1", "-r", _RATE, "-"),
    "play": ("-q", "-t", "raw", "-r", _RATE, "-e", "signed", "-b", "16", "-c", "1", "-"),
    "ffplay": ("-v", "error", "-nodisp", "-autoexit", "-f", "s16le", "-ar", _RATE, "-i", "-"),
}
"""Programs that play raw samples from standard input: PipeWire, PulseAudio, ALSA, SoX, FFmpeg."""


def player_command() -> list[str]:
    """The first player there is. Raises ``ConfigError`` that names them all."""
    for name, words in PLAYERS.items():
        if path := shutil.which(name):
            return [path, *words]
    raise ConfigError([f"--play needs one of these programs: {', '.join(PLAYERS)}; --wav writes a file instead"])


class Player:
    """A player process, fed with little-endian 16-bit samples. ``async with``: it plays to its end on exit."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Player:
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
            )
        except OSError as error:
            raise ConfigError([f"{self._command[0]} cannot be started: {error.strerror}"]) from None
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        process = self._process
        if process is None or process.stdin is None:
            return
        if kind is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        process.stdin.close()
        await process.wait()

    async def feed(self, pcm16: bytes) -> None:
        """Hand over samples; waits while the player has enough. Raises ``EngineFault`` if it has gone."""
        if self._process is None or self._process.stdin is None:
            raise RuntimeError("not playing: use 'async with'")
        try:
            self._process.stdin.write(pcm16)
            await self._process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            raise EngineFault("The player ended before the speech did.") from None
