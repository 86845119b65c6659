"""What a relay can see on one connection, as facts without a socket."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Side(Enum):
    """Who said it."""

    CLIENT = "client"
    SERVER = "server"


@dataclass(frozen=True, slots=True)
class Request:
    """The head of a request. ``path`` is shown without secrets; ``keyed`` says that it carried a credential."""

    method: str
    path: str
    peer: str = ""
    keyed: bool = False
    socket: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """The head of an answer; 101 begins a WebSocket. ``media_type`` is lower case, without parameters."""

    status: int
    media_type: str = ""


@dataclass(frozen=True, slots=True)
class BodyPart:
    """Bytes of a plain HTTP body, chunked coding taken off."""

    data: bytes


@dataclass(frozen=True, slots=True)
class BodyEnd:
    """A plain HTTP body is complete."""


@dataclass(frozen=True, slots=True)
class Text:
    """A whole text message of a WebSocket, in so many frames."""

    text: str
    frames: int = 1


@dataclass(frozen=True, slots=True)
class Binary:
    """A whole binary message."""

    data: bytes
    frames: int = 1


@dataclass(frozen=True, slots=True)
class Ping:
    """A ping, or the pong that answers one."""

    size: int
    pong: bool = False


@dataclass(frozen=True, slots=True)
class CloseFrame:
    """A close frame; 1005 stands for one without a code (RFC 6455, 7.1.5)."""

    code: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Ended:
    """This side's end of the connection is over: ``closed`` in order, ``reset``, or what kept it from beginning."""

    how: str


@dataclass(frozen=True, slots=True)
class Unseen:
    """From here on this side's bytes are passed on without being understood."""

    why: str


@dataclass(frozen=True, slots=True)
class Over:
    """The connection is gone: the last fact of every one."""


Fact = Request | Answer | BodyPart | BodyEnd | Text | Binary | Ping | CloseFrame | Ended | Unseen | Over


@dataclass(frozen=True, slots=True)
class Seen:
    """One fact: on which connection, when (milliseconds since it opened), and from whom."""

    connection: int
    at_ms: float
    side: Side
    fact: Fact
