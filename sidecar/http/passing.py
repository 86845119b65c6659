"""Every other path under /v1: what the language model's server offers beside chat passes through as it is."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import unquote

from litestar import Request, route
from litestar.enums import HttpMethod
from litestar.params import FromPath
from litestar.types import ASGIApp

from sidecar.faults import Fault, NotFound, UpstreamBroken
from sidecar.http.service import Injected, Service
from sidecar.http.wire import (
    BodyStream,
    fault_response,
    openai_error,
    read_body,
    request_id,
    require_json,
    unless_gone,
)
from sidecar.ports import RawAnswer

_OURS = ("audio", "realtime")
"""What stands under these is spoken here or nowhere."""

_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")

SSE_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}
"""No proxy may keep events back."""


@route("/v1/{rest:path}", http_method=list(HttpMethod))
async def other(request: Request[Any, Any, Any], service: Injected, rest: FromPath[str]) -> ASGIApp:
    """Embeddings, completions, responses and the like: JSON in, whatever comes back out, byte for byte."""
    named = request_id(request)
    try:
        path = upstream_path(request.scope)
        if path is None or request.method not in ("GET", "POST"):
            raise NotFound(f"Unknown request URL: {request.method} {request.url.path[:200]}")
        service.authenticate(request)
        body: bytes | None = None
        if request.method == "POST":
            require_json(request)
            server = service.config.server
            body = await read_body(request, server.max_body_bytes, server.body_timeout_s)
        headers = {**dict(request.headers), "x-request-id": named}
        answer = await unless_gone(request, service.llm.forward(path, body, headers))
        return await passed_through(service, answer, named)
    except Fault as fault:
        service.answered(fault)
        return fault_response(fault, openai_error).to_asgi_response(app=None, request=request)


def upstream_path(scope: Any) -> str | None:
    """Path and query below ``/v1`` as the client wrote them; None for what is ours or would leave ``/v1``."""
    raw = scope["raw_path"].partition(b"?")[0].decode("latin-1").removeprefix("/v1")
    plain = raw
    while (decoded := unquote(plain)) != plain:
        plain = decoded
    parts = plain.replace("\\", "/").split("/")[1:]
    if not parts or parts[0] in _OURS or any(part in (".", "..") for part in parts):
        return None
    query = scope.get("query_string", b"").decode("latin-1")
    return f"{raw}?{query}" if query else raw


async def passed_through(service: Service, answer: RawAnswer, named: str) -> ASGIApp:
    """An upstream's answer, status and body as they are."""
    cleanup = AsyncExitStack()
    cleanup.push_async_callback(answer.aclose)
    if not 200 <= answer.status <= 599:
        await cleanup.aclose()
        raise UpstreamBroken("The language model's server answered with an impossible status.")
    is_sse = answer.headers.get("content-type", "").startswith("text/event-stream")
    given = {name: value for name, value in answer.headers.items() if _HEADER_VALUE.fullmatch(value)}
    headers: Mapping[str, str] = {"x-request-id": named, **given, **(SSE_HEADERS if is_sse else {})}
    return BodyStream(
        _pieces(answer),
        status=answer.status,
        headers=headers,
        slow_consumer_s=service.config.server.slow_consumer_s,
        cleanup=cleanup,
    )


async def _pieces(answer: RawAnswer) -> AsyncGenerator[bytes, None]:
    async for piece in answer:
        yield piece
