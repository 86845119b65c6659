"""A relay before a server, and what it saw."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from websockets.frames import Frame, Opcode

from sidecar.clock import SystemClock
from sidecar.relay.heads import Target
from sidecar.relay.lines import ConnectionLines
from sidecar.relay.recording import Recorder, RecordingOptions
from sidecar.relay.relay import Relay, RelayLimits
from sidecar.relay.seen import Over, Request, Seen, Side, Text
from sidecar.relay.watch import Watch

HEAD = (
    b"GET /v1/audio/speech/stream HTTP/1.1\r\nHost: relay:1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"


class Facts:
    """What a relay saw. ``until`` waits for it."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self._more = asyncio.Event()

    def __call__(self, facts: list[Seen]) -> None:
        self.seen += facts
        self._more.set()

    async def until(self, reached: Callable[[list[Seen]], bool]) -> list[Seen]:
        while not reached(self.seen):
            self._more.clear()
            await self._more.wait()
        return self.seen

    async def over(self, connections: int = 1) -> list[Seen]:
        """Wait until so many connections are over."""
        return await self.until(lambda seen: sum(isinstance(one.fact, Over) for one in seen) >= connections)

    def of(self, kind: type, side: Side | None = None) -> list[Any]:
        """The facts of a kind."""
        return [one.fact for one in self.seen if isinstance(one.fact, kind) and side in (None, one.side)]

    def types(self, side: Side) -> list[str]:
        """The types of the JSON messages of a side."""
        return [json.loads(fact.text)["type"] for fact in self.of(Text, side)]

    def lines(self, *, show_text: bool = False) -> list[str]:
        """As a terminal would show them."""
        shown: dict[int, ConnectionLines] = {}
        return [
            line
            for one in self.seen
            for line in shown.setdefault(one.connection, ConnectionLines(show_text=show_text)).of(one)
        ]

    def recorded(self, **options: Any) -> list[str]:
        """As a recording would keep them."""
        recorder = Recorder(RecordingOptions(**options), 0.0)
        return [recorder.header(), *(line for one in self.seen if (line := recorder.of(one)))]


@asynccontextmanager
async def relayed(url: str, limits: RelayLimits | None = None) -> AsyncIterator[tuple[str, Facts]]:
    """A relay before the server at ``url``: its ``host:port``, and its facts."""
    facts = Facts()
    relay = Relay(Target.of(url), facts, SystemClock(), limits)
    address = await relay.start("127.0.0.1", 0)
    try:
        yield address, facts
    finally:
        await relay.close()


def watch_socket() -> Watch:
    """A watch on a socket whose handshake is done."""
    watch = Watch(1, Request("GET", "/v1/audio/speech/stream", socket=True), HEAD)
    watch.opened()
    watch.data(Side.SERVER, SWITCH, 0.0)
    return watch


def frame(data: str | bytes, side: Side, *, fin: bool = True, opcode: Opcode | None = None) -> bytes:
    """The bytes of a frame."""
    kind = opcode if opcode is not None else Opcode.TEXT if isinstance(data, str) else Opcode.BINARY
    payload = data.encode() if isinstance(data, str) else data
    return Frame(kind, payload, fin).serialize(mask=side is Side.CLIENT)


def talk(*said: tuple[float, Side, dict[str, Any] | str | bytes]) -> list[Seen]:
    """What a socket's conversation looks like to a relay."""
    watch = Watch(1, Request("GET", "/v1/audio/speech/stream?key=***", "c:1", socket=True), HEAD)
    seen = watch.opened() + watch.data(Side.SERVER, SWITCH, 1.0)
    for at_ms, side, what in said:
        data = json.dumps(what) if isinstance(what, dict) else what
        seen += watch.data(side, frame(data, side), at_ms)
    return seen
