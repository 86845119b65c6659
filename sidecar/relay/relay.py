"""The relay's sockets: every connection is passed on byte for byte, and read along.

Passing bytes on keeps what a pair of WebSocket endpoints would swallow: pings, close codes, fragments, a connection
that is cut. Each direction holds one read and one write buffer; a side that does not read pauses the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from sidecar.faults import BadRequest, ConfigError
from sidecar.ports import Clock
from sidecar.relay.heads import RequestHead, Target
from sidecar.relay.seen import Request, Seen, Side
from sidecar.relay.watch import Watch

READ_BYTES = 64 * 1024
HEAD_MAX_BYTES = 64 * 1024
WRITE_HIGH_BYTES = 64 * 1024
KERNEL_BUFFER_BYTES = 128 * 1024
"""What the kernel may hold per socket: it would else take minutes of speech for a client that reads nothing."""

CLOSED = "closed"

log = logging.getLogger(__name__)

Sink = Callable[[list[Seen]], None]
"""Takes what was seen. Must not wait; a connection whose facts it raises at is not read along any more."""


@dataclass(frozen=True, slots=True)
class RelayLimits:
    """Connections at once, and how long things may take: a request's head, reaching the server, its answer to a client
    that has closed its side, and what is still to be sent to a client when the server is done."""

    max_connections: int = 256
    head_timeout_s: float = 30.0
    connect_timeout_s: float = 10.0
    half_open_s: float = 60.0
    flush_s: float = 30.0


class Relay:
    """Listens and passes connections on to ``target``.

    ``async with``: listening from entry to exit. Entry raises ``ConfigError`` if the address cannot be had.
    """

    def __init__(self, target: Target, sink: Sink, clock: Clock, limits: RelayLimits | None = None) -> None:
        self._target = target
        self._sink = sink
        self._clock = clock
        self._limits = limits or RelayLimits()
        self._ssl = ssl.create_default_context() if target.tls else None
        self._handlers: set[asyncio.Task[None]] = set()
        self._count = 0
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> str:
        """Listen (port 0 picks a free one). Returns ``host:port`` as it is."""
        try:
            self._server = await asyncio.start_server(self._accept, host, port, limit=HEAD_MAX_BYTES)
        except OSError as error:
            raise ConfigError([f"cannot listen on {host}:{port}: {error.strerror or 'unknown error'}"]) from None
        bound_host, bound_port = self._server.sockets[0].getsockname()[:2]
        return f"[{bound_host}]:{bound_port}" if ":" in bound_host else f"{bound_host}:{bound_port}"

    async def close(self) -> None:
        """Cut every connection and stop listening."""
        if self._server is not None:
            self._server.close()
        for task in list(self._handlers):
            task.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)

    # ------------------------------------------------------------ one connection
    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._handlers.add(task)
            task.add_done_callback(self._handlers.discard)
        _bound(writer)
        try:
            if len(self._handlers) > self._limits.max_connections:
                await _answer(writer, 503, "The relay has too many connections.")
                return
            await self._serve(reader, writer)
        except asyncio.CancelledError:
            writer.transport.abort()
        except (OSError, EOFError):
            writer.transport.abort()
        finally:
            await _finish(writer, self._limits.flush_s)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(self._limits.head_timeout_s):
                data = await reader.readuntil(b"\r\n\r\n")
            head = RequestHead.read(data)
        except asyncio.LimitOverrunError:
            await _answer(writer, 431, "The request's head is too large.")
            return
        except TimeoutError:
            return
        except BadRequest as fault:
            await _answer(writer, 400, fault.message)
            return
        self._count += 1
        peer = writer.get_extra_info("peername")
        request = Request(head.method, head.shown_path, _address(peer), head.keyed, head.is_socket)
        talk = _Talk(Watch(self._count, request, data), self._sink, self._clock)
        talk.opened()
        try:
            await self._connect(talk, head, (reader, writer))
        finally:
            talk.over()

    async def _connect(self, talk: _Talk, head: RequestHead, client: _Stream) -> None:
        target = self._target
        try:
            async with asyncio.timeout(self._limits.connect_timeout_s):
                server = await asyncio.open_connection(target.host, target.port, ssl=self._ssl, limit=READ_BYTES)
        except (OSError, TimeoutError) as error:
            talk.ended(Side.SERVER, f"cannot be reached ({_reason(error)})")
            await _answer(client[1], 502, "The server behind the relay cannot be reached.")
            return
        _bound(server[1])
        try:
            server[1].write(head.forwarded(target))
            await self._pass_on(talk, client, server)
        finally:
            await _finish(server[1], 0.0)

    async def _pass_on(self, talk: _Talk, client: _Stream, server: _Stream) -> None:
        """Both directions until the server's is over, or one side has broken off."""
        up = asyncio.create_task(_pump(client[0], server[1], talk, Side.CLIENT))
        down = asyncio.create_task(_pump(server[0], client[1], talk, Side.SERVER))
        try:
            await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
            # Over TLS there is no half-closed connection: a client that is gone ends it.
            if not down.done() and up.result() == CLOSED and server[1].can_write_eof():
                with contextlib.suppress(OSError, RuntimeError):
                    server[1].write_eof()
                await asyncio.wait({down}, timeout=self._limits.half_open_s)
            if any(task.done() and task.result() != CLOSED for task in (up, down)):
                client[1].transport.abort()
                server[1].transport.abort()
        finally:
            for task in (up, down):
                task.cancel()
            await asyncio.gather(up, down, return_exceptions=True)


_Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Talk:
    """One connection's watch, its clock and where its facts go."""

    def __init__(self, watch: Watch, sink: Sink, clock: Clock) -> None:
        self._watch = watch
        self._blind = False
        self._sink = sink
        self._clock = clock
        self._start_ms = clock.now_ms()

    def now_ms(self) -> float:
        """Since the connection began."""
        return self._clock.now_ms() - self._start_ms

    def opened(self) -> None:
        self._tell(self._watch.opened)

    def data(self, side: Side, data: bytes, at_ms: float) -> None:
        self._tell(lambda: self._watch.data(side, data, at_ms))

    def ended(self, side: Side, how: str) -> None:
        self._tell(lambda: self._watch.ended(side, how, self.now_ms()))

    def over(self) -> None:
        self._blind = False
        self._tell(lambda: self._watch.over(self.now_ms()))

    def _tell(self, look: Callable[[], list[Seen]]) -> None:
        if self._blind:
            return
        try:
            if seen := look():
                self._sink(seen)
        except Exception:
            # Reading along must never cost anybody the connection.
            self._blind = True
            log.exception("a connection is passed on without being read any more")


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, talk: _Talk, side: Side) -> str:
    """Pass bytes on until this side ends, or the other takes no more. Returns how it ended."""
    how = CLOSED
    while True:
        try:
            data = await reader.read(READ_BYTES)
        except OSError:
            how = "reset"
            break
        if not data:
            break
        at_ms = talk.now_ms()
        try:
            writer.write(data)
            talk.data(side, data, at_ms)
            await writer.drain()
        except OSError:
            how = "cut off, as the other side is gone"
            break
    talk.ended(side, how)
    return how


def _bound(writer: asyncio.StreamWriter) -> None:
    writer.transport.set_write_buffer_limits(WRITE_HIGH_BYTES)
    real: socket.socket | None = writer.get_extra_info("socket")
    if real is not None:
        real.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL_BUFFER_BYTES)
        real.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BUFFER_BYTES)


async def _finish(writer: asyncio.StreamWriter, flush_s: float) -> None:
    """Close; what is still to be sent has ``flush_s`` to go out."""
    writer.close()
    try:
        async with asyncio.timeout(flush_s):
            await writer.wait_closed()
    except (OSError, TimeoutError):
        writer.transport.abort()


async def _answer(writer: asyncio.StreamWriter, status: int, message: str) -> None:
    reason = {400: "Bad Request", 431: "Request Header Fields Too Large", 502: "Bad Gateway"}
    head = f"HTTP/1.1 {status} {reason.get(status, 'Service Unavailable')}\r\nContent-Type: text/plain\r\n"
    body = message.encode()
    writer.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
    await writer.drain()


def _address(peer: object) -> str:
    return f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) and len(peer) >= 2 else "somewhere"


def _reason(error: BaseException) -> str:
    return "timeout" if isinstance(error, TimeoutError) else type(error).__name__


def split_address(address: str) -> tuple[str, int]:
    """``HOST:PORT``, ``[v6]:PORT`` or ``PORT`` (loopback). Raises ``ConfigError``."""
    host, _, port = address.strip().rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > 65_535:
        _refuse(address)
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if ":" in bare and bare == host:
        _refuse(address)
    return bare or "127.0.0.1", int(port)


def _refuse(address: str) -> NoReturn:
    raise ConfigError([f"'{address}' is no address: give HOST:PORT, such as 127.0.0.1:8094"])
