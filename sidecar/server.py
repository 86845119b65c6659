"""Runs the application on a socket: uvicorn, with what it leaves out."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from sidecar.config import ServerConfig
from sidecar.faults import ConfigError
from sidecar.http.wire import GOING_AWAY, TRANSPORT

WS_FRAME_MAX_BYTES = 16 * 1024 * 1024 + 4096
"""Larger frames close the socket with 1009 before they are read; smaller limits answer with an error event."""

BACKLOG = 128

HEAD_MAX_BYTES = 64 * 1024
HEAD_TIMEOUT_S = 30.0
"""Bounds of a request's line and headers. A connection that idles between requests is uvicorn's business."""

_HEAD_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"

SEND_BUFFER_BYTES = 128 * 1024

WRITE_HIGH_BYTES = 32 * 1024
WRITE_LOW_BYTES = 24 * 1024
"""A connection takes more once it has sent 8 kB of what waits: a slow client that makes progress is not cut off."""


class _Http(HttpToolsProtocol):
    """Leaves the transport in the scope's state, so that a broken answer can be cut off, and bounds what comes before
    a request: its line and headers in bytes and time."""

    _head_bytes = 0
    _in_head = True
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Called for each connection."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(WRITE_HIGH_BYTES, WRITE_LOW_BYTES)
        self.app_state = {**self.app_state, TRANSPORT: transport}
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called once."""
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Called with what arrived."""
        super().data_received(data)
        self._count(len(data) if self._in_head else 0)

    def on_message_begin(self) -> None:
        """The parser has seen the first byte of a request."""
        super().on_message_begin()
        self._head_bytes = 0
        if not self._in_head:
            self._expect_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called for each header and trailer."""
        super().on_header(name, value)
        self._count(len(name) + len(value))

    def on_headers_complete(self) -> None:
        """The request's head is there."""
        self._in_head = False
        self._head_bytes = 0
        self._stop_timer()
        super().on_headers_complete()

    def _should_upgrade(self) -> bool:
        """Only a GET can become a WebSocket (RFC 6455, 4.1); anything else is answered as the request it is."""
        return bool(super()._should_upgrade() and self.parser.get_method() == b"GET")

    def _expect_head(self) -> None:
        self._in_head = True
        self._stop_timer()
        self._head_timer = self.loop.call_later(HEAD_TIMEOUT_S, self._give_up)

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > HEAD_MAX_BYTES:
            self._give_up()

    def _give_up(self) -> None:
        self._stop_timer()
        if not self.transport.is_closing():
            if self._in_head and self._head_bytes > HEAD_MAX_BYTES:
                self.transport.write(_HEAD_TOO_LARGE)
            self.transport.close()

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class _WebSocket(WebSocketsSansIOProtocol):
    """The same for WebSockets; a shutdown lets what was accepted be spoken first."""

    def connection_made(self, transport: Any) -> None:
        """Called for each connection."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(WRITE_HIGH_BYTES, WRITE_LOW_BYTES)
        self.app_state = {**self.app_state, TRANSPORT: transport}

    def handle_ping(self) -> None:
        """Answer, unless the client takes nothing: pongs must not pile up."""
        output = self.conn.data_to_send()
        if self.writable.is_set():
            self.transport.write(b"".join(output))

    def shutdown(self) -> None:
        """The server stops: the application ends the socket when it has spoken what it took."""
        if self.handshake_complete and not self.close_sent and not self.disconnected:
            self.queue.put_nowait(cast(Any, {"type": "websocket.receive", GOING_AWAY: True}))
        else:
            super().shutdown()


class _BrokenBodies(logging.Filter):
    """uvicorn's complaint about an unfinished body: breaking it is how a failure is told to the client."""

    def filter(self, record: logging.LogRecord) -> bool:
        """False for that one message."""
        return record.getMessage() != "ASGI callable returned without completing response."


def bind(config: ServerConfig) -> socket.socket:
    """A listening socket; port 0 picks a free one. Raises ``ConfigError`` if the address cannot be had."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    # With the protocol named, asyncio switches Nagle's algorithm off on every connection: 40 ms less per answer.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Inherited by every connection: the kernel would else take minutes of speech for a client that reads nothing.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    try:
        listener.bind((config.host, config.port))
    except OSError as error:
        listener.close()
        reason = error.strerror or "unknown error"
        raise ConfigError(
            [f"cannot listen on {config.host}:{config.port}: {reason} (choose another --port; 0 picks a free one)"]
        ) from None
    listener.setblocking(False)
    return listener


def url_of(listener: socket.socket) -> str:
    """``http://host:port`` of a listening socket, as a client on this machine would write it."""
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):  # noqa: S104 - compared with, not bound to
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class SidecarServer(uvicorn.Server):
    """A uvicorn server that says when it accepts connections and leaves signals to its caller."""

    def __init__(self, app: Any, config: ServerConfig, on_listening: Callable[[], None] | None = None) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=_Http,
                ws=_WebSocket,
                ws_max_size=WS_FRAME_MAX_BYTES,
                ws_per_message_deflate=False,
                ws_ping_interval=20.0,
                ws_ping_timeout=20.0,
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                backlog=BACKLOG,
                timeout_keep_alive=30,
                timeout_graceful_shutdown=int(config.shutdown_grace_s),
            )
        )
        self._on_listening = on_listening
        logging.getLogger("uvicorn.error").addFilter(_BrokenBodies())

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing: uvicorn would kill the process with the signal again after a clean stop."""
        yield

    def stop(self) -> None:
        """First call: accept nothing more, let speaking replies finish. Second call: end at once."""
        self.force_exit = self.should_exit
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, then tells that connections are accepted."""
        await super().startup(sockets)
        if self.started and self._on_listening is not None:
            self._on_listening()


class BackgroundServer:
    """The server in a task of the running loop, for the demo and for tests."""

    def __init__(self, app: Any, config: ServerConfig) -> None:
        self.listener = bind(config)
        self.url = url_of(self.listener)
        self._listening = asyncio.Event()
        self._server = SidecarServer(app, config, self._listening.set)
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> BackgroundServer:
        self._task = asyncio.create_task(self._server.serve([self.listener]))
        waiting = asyncio.create_task(self._listening.wait())
        await asyncio.wait({self._task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not self._listening.is_set():
            await self._task
            raise RuntimeError("the server did not start")
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.stop()
        if self._task is not None:
            await self._task
        self.listener.close()
