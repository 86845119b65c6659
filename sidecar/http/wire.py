"""How requests are read and answers written, whatever the endpoint."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, aclosing
from typing import Any, TypeVar, cast

import msgspec
from litestar import Request, Response
from litestar.exceptions import InternalServerException
from litestar.types import Message, Receive, Scope, Send

from sidecar.faults import BadRequest, ClientGone, Fault, SlowConsumer, TooLarge, UpstreamRefused

log = logging.getLogger(__name__)

_TOKEN = re.compile(r"[A-Za-z0-9._:\-]{1,128}")
_PATH_IN_ERROR = re.compile(r" - at `(key in )?\$(?P<path>[^`]*)`$")

TRANSPORT = "sidecar.transport"
"""Where the server leaves the connection's transport in an ASGI scope's ``state``."""

GOING_AWAY = "sidecar.going_away"
"""Key of the message by which the server tells a socket that it is shutting down."""

PIECE_BYTES = 16_384

ErrorBody = Callable[[Fault], dict[str, Any]]
"""Renders a fault as the endpoint's family writes it."""


# ---------------------------------------------------------------- errors
class WrongField(BadRequest):
    """A body that is no JSON object, or a field of the wrong type or out of its range: wrong whatever is served."""


def openai_error(fault: Fault) -> dict[str, Any]:
    """OpenAI's error object: ``code`` is a word."""
    if isinstance(fault, UpstreamRefused):
        return {"error": fault.upstream_error}
    return {"error": {"message": fault.message, "type": fault.type, "param": fault.param, "code": fault.code}}


_OMNI_TYPES = {400: "BadRequestError", 404: "NotFoundError", 500: "InternalServerError"}


def omni_error(fault: Fault) -> dict[str, Any]:
    """vLLM-Omni's error object: ``code`` is the HTTP status."""
    kind = "Bad Request" if isinstance(fault, WrongField) else _OMNI_TYPES.get(fault.status, fault.type)
    return {"error": {"message": fault.message, "type": kind, "param": fault.param, "code": fault.status}}


def fault_headers(fault: Fault) -> dict[str, str]:
    """``Retry-After`` where a retry can help, ``x-should-retry`` for the SDKs that retry by themselves."""
    if isinstance(fault, UpstreamRefused):
        return dict(fault.headers)
    headers = {"x-should-retry": "true" if fault.retryable else "false"}
    if fault.retry_after_s is not None:
        headers["retry-after"] = str(max(1, math.ceil(fault.retry_after_s)))
    return headers


def fault_response(fault: Fault, render: ErrorBody) -> Response[bytes]:
    """The answer for a fault before the first byte."""
    status = fault.upstream_status if isinstance(fault, UpstreamRefused) else fault.status
    return json_response(render(fault), status=status, headers=fault_headers(fault))


def json_response(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response[bytes]:
    """A JSON answer."""
    return Response(
        content=to_json(body), status_code=status, media_type="application/json", headers=dict(headers or {})
    )


def to_json(body: Any) -> bytes:
    """UTF-8 JSON; a lone surrogate becomes a replacement character instead of an error."""
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        return json.dumps(body, ensure_ascii=True).encode("ascii")


# ---------------------------------------------------------------- requests
def request_id(request: Request[Any, Any, Any]) -> str:
    """The client's ``x-request-id`` if it is a plain token, else a new one."""
    given = request.headers.get("x-request-id", "")
    return given if _TOKEN.fullmatch(given) else f"req_{secrets.token_hex(12)}"


async def read_body(request: Request[Any, Any, Any], max_bytes: int, timeout_s: float) -> bytes:
    """The whole body.

    Raises ``TooLarge`` as soon as it is too long, ``BadRequest`` if it does not arrive in time, ``ClientGone``.
    """
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > max_bytes:
        raise TooLarge(f"The body is larger than {max_bytes} bytes.")
    body = bytearray()
    try:
        async with asyncio.timeout(timeout_s):
            async for piece in request.stream():
                body += piece
                if len(body) > max_bytes:
                    raise TooLarge(f"The body is larger than {max_bytes} bytes.")
    except TimeoutError:
        raise BadRequest("The request body did not arrive in time.") from None
    except InternalServerException:
        raise ClientGone("The client hung up.") from None
    return bytes(body)


MAX_JSON_PARTS = 400_000
"""Brackets, braces and commas of a body: what it costs to read it grows with these, not with its bytes."""


def parse_object(body: bytes) -> dict[str, Any]:
    """The JSON object in a body (Python's dialect: NaN and Infinity pass here). Raises ``BadRequest``, ``TooLarge``."""
    if sum(body.count(mark) for mark in (b"[", b"{", b",")) > MAX_JSON_PARTS:
        raise TooLarge(f"The body has more than {MAX_JSON_PARTS} members, elements and commas.")
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise WrongField("The body is not valid JSON.") from None
    if not isinstance(value, dict):
        raise WrongField("The body must be a JSON object.")
    return cast(dict[str, Any], value)


def require_json(request: Request[Any, Any, Any]) -> None:
    """Raises ``BadRequest`` for any other content type."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise BadRequest("The Content-Type must be application/json.")


Result = TypeVar("Result")


async def unless_gone(request: Request[Any, Any, Any], work: Coroutine[Any, Any, Result]) -> Result:
    """The result of ``work``, which is cancelled when the client hangs up. Raises ``ClientGone`` then."""
    task = asyncio.create_task(work)
    gone = asyncio.create_task(_disconnected(request.receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGone("The client hung up.")
        return task.result()
    finally:
        for pending in (task, gone):
            pending.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


def field_fault(error: msgspec.ValidationError, prefix: str) -> BadRequest:
    """msgspec's message as a fault whose ``param`` is the dotted place, such as ``body.speed``."""
    text = str(error)
    found = _PATH_IN_ERROR.search(text)
    path = found["path"] if found else ""
    message = text[: found.start()] if found else text
    param = (prefix + path).strip(".") or None
    return WrongField(f"{param}: {message}" if param else message, param=param)


# ---------------------------------------------------------------- streamed answers
class BodyStream:
    """An ASGI answer whose body is produced while it is sent.

    The producer is closed the moment the client goes away. A fault in it breaks the body off (never a tidy end); a
    client that takes nothing for ``slow_consumer_s`` is cut off. ``idle_bytes`` are sent when nothing else was for
    ``idle_s`` (SSE comments keep proxies and clients awake). ``cleanup`` is closed at the end, whatever happened.
    """

    def __init__(
        self,
        source: AsyncIterator[bytes],
        *,
        headers: Mapping[str, str],
        status: int = 200,
        slow_consumer_s: float = 10.0,
        idle_bytes: bytes = b"",
        idle_s: float = 15.0,
        cleanup: AsyncExitStack | None = None,
    ) -> None:
        self._source = source
        self._cleanup = cleanup or AsyncExitStack()
        self._status = status
        self._headers = [(k.lower().encode("latin-1"), v.encode("latin-1")) for k, v in headers.items()]
        self._slow_consumer_s = slow_consumer_s
        self._idle_bytes = idle_bytes
        self._idle_s = idle_s
        self._sent_at = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send head and body; returns with the body unfinished if it broke."""
        async with self._cleanup:
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self._status, "headers": self._headers})
        whole = False
        body = asyncio.create_task(self._send_body(send))
        gone = asyncio.create_task(_disconnected(receive))
        idle = asyncio.create_task(self._keep_awake(send)) if self._idle_bytes else None
        tasks = [task for task in (body, gone, idle) if task is not None]
        try:
            await asyncio.wait({body, gone}, return_when=asyncio.FIRST_COMPLETED)
            if body.done() and not body.cancelled():
                whole = _outcome(body)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if whole:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        else:
            break_connection(scope, at_once=body.done() and isinstance(_error(body), SlowConsumer))

    async def _send_body(self, send: Send) -> None:
        loop = asyncio.get_running_loop()
        with _Patience(self._slow_consumer_s) as patience:
            async with aclosing(cast(Any, self._source)) as source:
                async for piece in source:
                    if piece:
                        patience.since_s = self._sent_at = loop.time()
                        await send(_piece(piece))
                        patience.since_s = None

    async def _keep_awake(self, send: Send) -> None:
        loop = asyncio.get_running_loop()
        self._sent_at = loop.time()
        while True:
            await asyncio.sleep(max(0.01, self._sent_at + self._idle_s - loop.time()))
            if loop.time() - self._sent_at >= self._idle_s:
                self._sent_at = loop.time()
                async with asyncio.timeout(self._slow_consumer_s):
                    await send(_piece(self._idle_bytes))


class _Patience:
    """A context that is left with ``SlowConsumer`` when something in it takes longer than ``limit_s``.

    ``since_s`` says since when (loop time), None that nothing is waited for. One timer for all of it: what is waited
    for comes with every token of every answer, and hardly ever takes time.
    """

    def __init__(self, limit_s: float) -> None:
        self.since_s: float | None = None
        self._limit_s = limit_s
        self._lost = False

    def __enter__(self) -> _Patience:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._timer = self._loop.call_later(self._limit_s, self._look)
        return self

    def _look(self) -> None:
        due_s = (self._loop.time() if self.since_s is None else self.since_s) + self._limit_s
        if due_s > self._loop.time():
            self._timer = self._loop.call_at(due_s, self._look)
        elif self._task is not None:
            self._lost = True
            self._task.cancel()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._timer.cancel()
        if self._lost:
            raise SlowConsumer("The client takes nothing.") from None


def _piece(body: bytes) -> Message:
    return cast(Message, {"type": "http.response.body", "body": body, "more_body": True})


async def in_pieces(content: bytes) -> AsyncGenerator[bytes, None]:
    """A whole answer bit by bit, so that a client that does not read it can be cut off."""
    for at in range(0, len(content), PIECE_BYTES):
        yield content[at : at + PIECE_BYTES]


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _error(task: asyncio.Task[None]) -> BaseException | None:
    return None if task.cancelled() else task.exception()


def _outcome(body: asyncio.Task[None]) -> bool:
    error = body.exception()
    if error is None:
        return True
    if isinstance(error, Fault):
        log.warning("a streamed answer broke off: %s", error.code)
    else:
        log.error("a streamed answer broke off", exc_info=error)
    return False


def break_connection(scope: Scope, *, at_once: bool) -> None:
    """Drop the connection, so that a client can never take a broken body for a whole one.

    What is already written still goes out (an error event, say), unless ``at_once``: a client that reads nothing
    would keep it for ever.
    """
    transport = scope.get("state", {}).get(TRANSPORT)
    if transport is not None:
        transport.abort() if at_once else transport.close()
