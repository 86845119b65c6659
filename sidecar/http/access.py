"""One log line for every answered request and every closed socket: who asked what, how it ended, how long it took."""

from __future__ import annotations

import logging
import time
from typing import Any

from litestar.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger(__name__)

_QUIET = ("/health", "/live", "/ready", "/metrics")
"""Asked every few seconds by machines; logged at debug level only."""


class AccessLog:
    """ASGI middleware. Paths are logged without their query; nothing of a body ever is."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass everything through and note how it ends."""
        kind: str = scope["type"]
        if kind not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        seen: dict[str, Any] = {"status": None, "finished": kind == "websocket"}
        started_s = time.monotonic()

        async def noting(message: Message) -> None:
            _note(message, seen)
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            self._write(scope, seen, (time.monotonic() - started_s) * 1000)

    def _write(self, scope: Any, seen: dict[str, Any], took_ms: float) -> None:
        path = scope["path"][:200]
        level = logging.DEBUG if path in _QUIET else logging.INFO
        fields = {
            "method": scope.get("method", "WS"),
            "path": path,
            "status": seen["status"],
            "whole": seen["finished"],
            "took_ms": round(took_ms, 1),
            "request_id": seen.get("request_id"),
        }
        log.log(level, "served", extra={name: value for name, value in fields.items() if value is not None})


def _note(message: Any, seen: dict[str, Any]) -> None:
    kind = message["type"]
    if kind in ("http.response.start", "websocket.http.response.start"):
        seen["status"] = message["status"]
        ids = [value for name, value in message.get("headers", ()) if name == b"x-request-id"]
        if ids:
            seen["request_id"] = ids[0].decode("latin-1")
    elif kind == "http.response.body":
        seen["finished"] = not message.get("more_body", False)
    elif kind == "websocket.accept":
        seen["status"] = 101
    elif kind == "websocket.close":
        seen["status"] = message.get("code", 1000)
