"""The socket below the application."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from sidecar.config import ServerConfig
from sidecar.faults import ConfigError
from sidecar.server import BackgroundServer, bind, url_of


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answers with whether its connection waits to fill packets (Nagle)."""
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    connection = scope["state"]["sidecar.transport"].get_extra_info("socket")
    body = str(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


async def test_small_writes_leave_at_once() -> None:
    async with BackgroundServer(app, ServerConfig(port=0)) as server:
        host, port = server.listener.getsockname()
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
    assert answer.split(b"\r\n\r\n")[1] != b"0", "TCP_NODELAY is set"


def test_a_port_that_is_taken_is_a_configuration_error() -> None:
    with bind(ServerConfig(port=0)) as listener:
        listener.listen()
        with pytest.raises(ConfigError, match="cannot listen"):
            bind(ServerConfig(port=listener.getsockname()[1]))


@pytest.mark.parametrize(("host", "start"), [("127.0.0.1", "http://127.0.0.1:"), ("0.0.0.0", "http://127.0.0.1:")])
def test_the_address_is_one_that_a_client_can_use(host: str, start: str) -> None:
    with bind(ServerConfig(host=host, port=0)) as listener:
        assert url_of(listener).startswith(start)
