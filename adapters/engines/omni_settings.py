"""Where the speech servers are and how patient to be with them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from sidecar.ports import Pcm

SOCKET_PATH = "/v1/audio/speech/stream"
SPEECH_PATH = "/v1/audio/speech"
MAX_SERVERS = 64

_KEY = re.compile(r"[\x21-\x7e]{1,4096}")


class CodesDecoder(Protocol):
    """Codec frames to samples, with a state that is passed in. Used by one thread at a time."""

    decoder_id: str

    def new_state(self) -> Any:
        """The state before the first frame of a passage."""

    def decode(self, state: Any, codes: NDArray[np.int16]) -> Pcm:
        """The next frames ``(frames, 16)`` as ``frames * 1920`` samples; the state goes on."""


class Packet(Protocol):
    """One packet of codec frames."""

    @property
    def codes(self) -> NDArray[np.int16]:
        """Shape ``(frames, 16)``."""

    @property
    def resets(self) -> bool:
        """True if the decoder starts anew with these frames."""


class CodesBracket(Protocol):
    """Reads the packets between ``codec.start`` and ``codec.done``. Raises ``EngineFault`` for what is broken."""

    def packet(self, data: bytes) -> Packet:
        """The next packet."""

    def done(self, message: Mapping[str, Any]) -> None:
        """The end, which says how much should have come."""


@dataclass(frozen=True, slots=True)
class CodesHere:
    """Codec tokens are decoded on this side: with ``decoder``, each passage read by what ``open`` makes of its start.

    ``open`` raises ``EngineFault`` for a ``codec.start`` that is not understood.
    """

    decoder: CodesDecoder
    open: Callable[[Mapping[str, Any]], CodesBracket]


@dataclass(frozen=True, slots=True)
class OmniSettings:
    """Speech servers and how to deal with them; raises ``ValueError`` for values that make no sense.

    ``urls``: base addresses such as ``http://10.0.0.7:8091`` (``/v1`` at the end is taken off). ``key`` is sent as
    bearer key, ``model`` as the model of each request. ``voices`` are offered beside those that the servers list.
    ``deterministic``: whether a server says the same again for the same seed, so that a passage that broke off can be
    continued; ``auto`` believes what the server says of itself. ``codes``: take codec tokens where a server has them.

    ``max_rows`` utterances at once, ``max_waiting`` more wait, each ``row_wait_ms``. ``server_wait_s``: how long an
    utterance waits for a server while all are away; ``start_wait_s`` the same for the start. ``connect_timeout_s`` for
    a connection, ``answer_timeout_s`` from a request to its first answer, ``silent_after_s`` between two pieces of
    audio. ``check_every_s``: how often each server is asked for its health; one that is away is asked after
    ``back_off_s``, twice that, and so on up to ``back_off_max_s``, each pause shortened by chance by up to a half.
    ``idle_socket_s``: how long an unused socket is kept, ``idle_sockets`` how many of each server. ``ahead_s``: seconds
    of sound that are taken from a server ahead of the reader. ``max_attempts``: how often an utterance is asked for
    without getting anywhere.
    """

    urls: tuple[str, ...]
    key: str | None = field(default=None, repr=False)
    model: str | None = None
    voices: tuple[str, ...] = ()
    deterministic: Literal["auto", "yes", "no"] = "auto"
    codes: CodesHere | None = None
    max_rows: int = 64
    max_waiting: int = 256
    row_wait_ms: float = 2_000.0
    server_wait_s: float = 15.0
    start_wait_s: float = 60.0
    connect_timeout_s: float = 5.0
    answer_timeout_s: float = 30.0
    silent_after_s: float = 20.0
    check_every_s: float = 5.0
    back_off_s: float = 0.25
    back_off_max_s: float = 15.0
    idle_socket_s: float = 15.0
    idle_sockets: int = 8
    ahead_s: float = 30.0
    max_attempts: int = 4

    def __post_init__(self) -> None:
        if not 1 <= len(self.urls) <= MAX_SERVERS:
            raise ValueError(f"1 to {MAX_SERVERS} servers are needed")
        for url in self.urls:
            base_url(url)
        if len({base_url(url) for url in self.urls}) < len(self.urls):
            raise ValueError("a server is given twice")
        if self.key is not None and not _KEY.fullmatch(self.key):
            raise ValueError("the key has characters that cannot be sent in a header")
        times = (self.connect_timeout_s, self.answer_timeout_s, self.silent_after_s, self.check_every_s)
        if min(*times, self.back_off_s, self.idle_socket_s, self.ahead_s, self.start_wait_s) <= 0:
            raise ValueError("times must be positive")
        if self.back_off_max_s < self.back_off_s or self.server_wait_s < 0 or self.row_wait_ms < 0:
            raise ValueError("back_off_max_s is at least back_off_s, waiting times are not negative")
        if min(self.max_rows, self.max_attempts) < 1 or min(self.max_waiting, self.idle_sockets) < 0:
            raise ValueError("max_rows and max_attempts must be at least 1, max_waiting and idle_sockets not negative")

    @property
    def headers(self) -> dict[str, str]:
        """What every request carries."""
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}


def base_url(url: str) -> str:
    """``http(s)://host[:port][/path]`` without ``/v1`` and slashes at its end. Raises ``ValueError`` for anything else.

    ``ws`` and ``wss`` stand for ``http`` and ``https``.
    """
    parts = urlsplit(url)
    scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
    if scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
        raise ValueError("expected the address of a speech server, such as http://127.0.0.1:8091")
    if parts.query or parts.fragment or parts.username is not None or parts.password is not None:
        raise ValueError("the address of a speech server has no user, query or fragment")
    path = parts.path.rstrip("/")
    path = path.removesuffix(SOCKET_PATH).removesuffix("/v1").rstrip("/")
    return f"{scheme}://{parts.netloc}{path}"


def socket_url(base: str) -> str:
    """The speech socket of a server by its base address."""
    return "ws" + base.removeprefix("http") + SOCKET_PATH
