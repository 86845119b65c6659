"""A client of the speech socket that checks the order of everything it is sent."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.e2e.conftest import Running

STREAMED = {"stream_audio": True, "response_format": "pcm"}
LONG = "This goes on and on and on. " * 8


@dataclass
class Unit:
    """One bracket: its start, its frames, its errors, its end."""

    start: dict[str, Any]
    frames: list[bytes] = field(default_factory=list)
    errors: list[dict[str, Any]] = field(default_factory=list)
    done: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return str(self.start["sentence_text"])

    @property
    def audio(self) -> bytes:
        return b"".join(self.frames)


@dataclass
class Utterance:
    """Everything up to ``session.done``."""

    units: list[Unit] = field(default_factory=list)
    errors: list[dict[str, Any]] = field(default_factory=list)
    done: dict[str, Any] = field(default_factory=dict)

    @property
    def texts(self) -> list[str]:
        return [unit.text for unit in self.units]

    @property
    def failed(self) -> list[bool]:
        return [unit.done["error"] for unit in self.units]


class SpeechSocket:
    """One open socket."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    # ------------------------------------------------------------ sending
    async def send(self, type: str, **members: Any) -> None:
        await self.raw(json.dumps({"type": type, **members}))

    async def raw(self, frame: str | bytes) -> None:
        await self.connection.send(frame)

    async def configure(self, **members: Any) -> None:
        await self.send("session.config", **members)

    async def text(self, text: str) -> None:
        await self.send("input.text", text=text)

    async def say(self, *texts: str) -> None:
        """An utterance in so many pieces, and its end."""
        for text in texts:
            await self.text(text)
        await self.send("input.done")

    # ------------------------------------------------------------ reading
    async def message(self) -> dict[str, Any] | bytes:
        """The next frame; text frames are JSON objects with a type."""
        frame = await self.connection.recv()
        if isinstance(frame, bytes):
            return frame
        message = json.loads(frame)
        assert isinstance(message["type"], str)
        return dict(message)

    async def expect(self, type: str) -> dict[str, Any]:
        message = await self.message()
        assert isinstance(message, dict), "a binary frame came instead"
        assert message["type"] == type, message
        return message

    async def error(self) -> str:
        """The message of the error that comes next."""
        error = await self.expect("error")
        assert error["message"]
        assert "Traceback" not in error["message"]
        return str(error["message"])

    async def unit(self, start: dict[str, Any] | None = None) -> Unit:
        """The next bracket, which nothing may interrupt."""
        return await self.finished(Unit(start if start is not None else await self.expect("audio.start")))

    async def begun(self) -> Unit:
        """The next bracket, once its first audio has come."""
        unit = Unit(await self.expect("audio.start"))
        first = await self.message()
        assert isinstance(first, bytes), first
        unit.frames.append(first)
        return unit

    async def finished(self, unit: Unit) -> Unit:
        """The rest of a bracket."""
        assert unit.start["type"] == "audio.start", unit.start
        while not unit.done:
            message = await self.message()
            if isinstance(message, bytes):
                unit.frames.append(message)
            elif message["type"] == "error":
                unit.errors.append(message)
            else:
                assert message["type"] == "audio.done", message
                unit.done = message
        for key in ("utterance_index", "sentence_index"):
            assert unit.done[key] == unit.start[key]
        assert unit.done["total_bytes"] == len(unit.audio)
        return unit

    async def utterance(self) -> Utterance:
        """Brackets and errors up to ``session.done``, whose counts must fit."""
        heard = Utterance()
        while not heard.done:
            message = await self.message()
            assert isinstance(message, dict), "a binary frame outside a bracket"
            if message["type"] == "error":
                heard.errors.append(message)
            elif message["type"] == "session.done":
                heard.done = message
            else:
                heard.units.append(await self.unit(message))
        assert {unit.start["utterance_index"] for unit in heard.units} <= {heard.done["utterance_index"]}
        return heard

    async def spoken(self, *texts: str) -> Utterance:
        """Say an utterance and hear it."""
        await self.say(*texts)
        return await self.utterance()

    async def silent(self) -> None:
        """Nothing has been sent: the next thing heard is the answer to a message that is none."""
        await self.raw("{")
        assert await self.error() == "Invalid JSON message."

    async def close_code(self) -> int:
        """How the server closes the socket; nothing may come before."""
        try:
            message = await self.message()
        except ConnectionClosed as closed:
            return closed.rcvd.code if closed.rcvd is not None else 1006
        raise AssertionError(f"expected a close, got {message!r}")

    # ------------------------------------------------------------ leaving
    async def vanish(self, how: str) -> None:
        """End the connection: ``rst``, ``fin`` without a close frame, or ``close`` as it should be."""
        if how == "close":
            await self.connection.close()
            return
        transport = self.connection.transport
        if how == "rst":
            real = transport.get_extra_info("socket")
            real.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()


@asynccontextmanager
async def opened(server: Running, config: dict[str, Any] | None = None, **how: Any) -> AsyncIterator[SpeechSocket]:
    """A socket; with a ``config`` it is configured already. ``how`` goes to ``websockets``."""
    async with connect(server.ws_url, max_size=None, proxy=None, **how) as connection:
        client = SpeechSocket(connection)
        if config is not None:
            await client.configure(**config)
        yield client
