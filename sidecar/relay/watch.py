"""Reads along: the bytes of both directions of one connection become facts. Nothing here can hold up the traffic.

What cannot be read (broken, or longer than ``MAX_MESSAGE_BYTES``) is told once per direction and not looked at again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import cast

import httptools
from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol, State
from websockets.protocol import Side as WsSide

from sidecar.relay.seen import (
    Answer,
    Binary,
    BodyEnd,
    BodyPart,
    CloseFrame,
    Ended,
    Fact,
    Over,
    Ping,
    Request,
    Seen,
    Side,
    Text,
    Unseen,
)

MAX_MESSAGE_BYTES = 32 * 1024 * 1024
"""Longer messages are passed on unseen."""

_NO_CODE = 1005

_silent = logging.Logger("silent")
_silent.disabled = True


class FrameReader:
    """WebSocket messages of one direction, from its bytes (RFC 6455, without extensions)."""

    def __init__(self, side: Side, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
        # The library's protocol object stands where the receiver stands; what it would send is thrown away.
        receiver = WsSide.SERVER if side is Side.CLIENT else WsSide.CLIENT
        self._protocol = Protocol(receiver, state=State.OPEN, max_size=max_bytes, logger=_silent)
        self._parts: list[bytes] = []
        self._frames = 0
        self._is_text = False
        self._over = False

    def feed(self, data: bytes) -> list[Fact]:
        """What these bytes complete."""
        if self._over:
            return []
        self._protocol.receive_data(data)
        self._protocol.data_to_send()
        facts: list[Fact] = []
        for event in self._protocol.events_received():
            if isinstance(event, Frame):
                facts += self._frame(event)
        if self._protocol.parser_exc is not None and not self._over:
            self._over = True
            facts.append(Unseen(type(self._protocol.parser_exc).__name__))
        return facts

    def _frame(self, frame: Frame) -> list[Fact]:
        if frame.opcode is Opcode.PING or frame.opcode is Opcode.PONG:
            return [Ping(len(frame.data), frame.opcode is Opcode.PONG)]
        if frame.opcode is Opcode.CLOSE:
            self._over = True
            received = self._protocol.close_rcvd
            return [CloseFrame(received.code, received.reason) if received is not None else CloseFrame(_NO_CODE)]
        if frame.opcode is not Opcode.CONT:
            self._parts, self._frames, self._is_text = [], 0, frame.opcode is Opcode.TEXT
        self._parts.append(bytes(frame.data))
        self._frames += 1
        if not frame.fin:
            return []
        whole, frames = b"".join(self._parts), self._frames
        self._parts = []
        return [Text(whole.decode("utf-8", "replace"), frames) if self._is_text else Binary(whole, frames)]


class _HttpReader:
    """Bodies of one direction, through httptools, which calls the ``on_`` methods."""

    def __init__(self, make: Callable[[object], httptools.HttpRequestParser | httptools.HttpResponseParser]) -> None:
        self.facts: list[Fact] = []
        self._parser = make(self)

    def feed(self, data: bytes) -> bytes | None:
        """Read on. Returns what follows the head that switched to WebSocket, else None."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as switched:
            return data[switched.args[0] :]
        except httptools.HttpParserError as error:
            self.facts.append(Unseen(type(error).__name__))
        return None

    def on_body(self, data: bytes) -> None:
        self.facts.append(BodyPart(data))

    def on_message_complete(self) -> None:
        self.facts.append(BodyEnd())

    def taken(self) -> list[Fact]:
        facts, self.facts = self.facts, []
        return facts


class _AnswerReader(_HttpReader):
    def __init__(self) -> None:
        self._media_type = ""
        super().__init__(httptools.HttpResponseParser)

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"content-type":
            self._media_type = value.partition(b";")[0].strip().lower().decode("latin-1")

    def on_headers_complete(self) -> None:
        self.facts.append(Answer(self.status, self._media_type))
        self._media_type = ""

    @property
    def status(self) -> int:
        return int(cast(httptools.HttpResponseParser, self._parser).get_status_code())


class Watch:
    """One connection: told what was read from each side, it says what that was."""

    def __init__(self, connection: int, request: Request, head: bytes) -> None:
        """``head`` are the bytes of the request's head."""
        self._connection = connection
        self._request = request
        self._frames: dict[Side, FrameReader] = {}
        self._broken: set[Side] = set()
        self._body = _HttpReader(httptools.HttpRequestParser)
        self._body.feed(head)
        self._answer = _AnswerReader()

    def opened(self) -> list[Seen]:
        """The first fact of every connection."""
        facts = [fact for fact in self._body.taken() if not self._request.socket]
        return self._seen(0.0, Side.CLIENT, [self._request, *facts])

    def data(self, side: Side, data: bytes, at_ms: float) -> list[Seen]:
        """``side`` sent these bytes."""
        if side in self._broken:
            return []
        facts = self._client(data) if side is Side.CLIENT else self._server(data)
        if any(isinstance(fact, Unseen) for fact in facts):
            self._broken.add(side)
        return self._seen(at_ms, side, facts)

    def ended(self, side: Side, how: str, at_ms: float) -> list[Seen]:
        """``side`` sends no more."""
        return self._seen(at_ms, side, [Ended(how)])

    def over(self, at_ms: float) -> list[Seen]:
        """The last fact."""
        return self._seen(at_ms, Side.SERVER, [Over()])

    def _client(self, data: bytes) -> list[Fact]:
        if self._request.socket:
            # A client may speak before the server has agreed; it then means the socket it asked for.
            return self._frames.setdefault(Side.CLIENT, FrameReader(Side.CLIENT)).feed(data)
        self._body.feed(data)
        return self._body.taken()

    def _server(self, data: bytes) -> list[Fact]:
        if (frames := self._frames.get(Side.SERVER)) is not None:
            return frames.feed(data)
        rest = self._answer.feed(data)
        facts = self._answer.taken()
        if rest is None:
            return facts
        frames = self._frames[Side.SERVER] = FrameReader(Side.SERVER)
        heads = [fact for fact in facts if not isinstance(fact, BodyEnd)]
        return heads + (frames.feed(rest) if rest else [])

    def _seen(self, at_ms: float, side: Side, facts: list[Fact]) -> list[Seen]:
        return [Seen(self._connection, at_ms, side, fact) for fact in facts]
