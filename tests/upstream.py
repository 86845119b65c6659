"""An OpenAI-compatible language model for tests, on raw sockets, that can misbehave in every way seen in the wild.

What it says is chosen by the model name: ``fake-<script>``, or ``fake-<script>?key=value&...``; the scripts are in
``tests.upstream_scripts``. Every script takes ``header_ms`` (pause before the status line), ``first_ms`` (before
the first byte of the body), ``delay_ms`` (between steps) and ``text`` (other words).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote, urlsplit

from tests.upstream_answer import Act, Call, Script, Whole, error_body, parse_model
from tests.upstream_scripts import SCRIPTS

REASONS = {200: "OK", 301: "Moved", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 429: "Slow Down"}


@dataclass
class Seen:
    """One request as it arrived, and how its answer ended.

    ``ended`` is None while it runs, then "ok", "cut" (by script), "client_left", or the status of an error answer.
    """

    method: str
    path: str
    headers: dict[str, str]
    raw: bytes
    body: Any = None
    script: str = ""
    ended: str | None = None
    steps_sent: int = 0
    began: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)


class _Left(Exception):
    """The client is gone."""


class _Cut(Exception):
    """The script ended the connection."""


class Upstream:
    """``async with Upstream() as up``: ``up.base_url``, ``up.requests``, ``up.active``, ``up.aborted``.

    ``gate`` is what scripts with ``Act.HOLD`` wait for. With ``api_key``, requests without it get a 401.
    """

    def __init__(self, *, port: int = 0, api_key: str | None = None) -> None:
        self.port = port
        self.api_key = api_key
        self.requests: list[Seen] = []
        self.connections = 0
        self.active = 0
        self.aborted = 0
        self.gate = asyncio.Event()
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=1 << 26)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def until(self, condition: Callable[[Upstream], bool], timeout_s: float = 10.0) -> None:
        """Wait until ``condition(self)`` holds; it is looked at whenever a request begins, goes on or ends."""
        async with asyncio.timeout(timeout_s), self._changed:
            await self._changed.wait_for(lambda: condition(self))

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        connection = _Connection(reader, writer)
        try:
            while (seen := await connection.request()) is not None:
                self.requests.append(seen)
                await self._answer(connection, seen)
                if seen.ended in ("client_left", "cut", "closed"):
                    return
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            await connection.close()
            self._tasks.discard(task)

    async def _answer(self, connection: _Connection, seen: Seen) -> None:
        self.active += 1
        work = asyncio.create_task(self._route(connection, seen))
        gone = asyncio.create_task(connection.gone())
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                seen.ended = "client_left"
        finally:
            for task in (work, gone):
                task.cancel()
            results = await asyncio.gather(work, gone, return_exceptions=True)
            if isinstance(results[0], _Cut):
                seen.ended = "cut"
            elif isinstance(results[0], _Left | ConnectionError):
                seen.ended = "client_left"
            elif isinstance(results[0], Exception):
                seen.ended = f"bug: {results[0]!r}"
            self.active -= 1
            self.aborted += seen.ended == "client_left"
            seen.over.set()
            await self._tell()

    async def _route(self, connection: _Connection, seen: Seen) -> None:
        path = urlsplit(seen.path).path
        if self.api_key and seen.headers.get("authorization") != f"Bearer {self.api_key}":
            text = f"Incorrect API key provided: {seen.headers.get('authorization', '')}"
            return await self._whole(
                connection, seen, error_body(401, text, "invalid_request_error", "invalid_api_key")
            )
        if path.endswith("/models"):
            cards = [{"id": f"fake-{name}", "object": "model", "created": 1, "owned_by": "test"} for name in SCRIPTS]
            return await self._whole(connection, seen, Whole.json(200, {"object": "list", "data": cards}))
        if "/models/" in path:
            card = {"id": unquote(path.split("/models/")[1]), "object": "model", "created": 1, "owned_by": "test"}
            return await self._whole(connection, seen, Whole.json(200, card))
        if not path.endswith("/chat/completions"):
            return await self._whole(connection, seen, error_body(404, "Unknown request URL", "invalid_request_error"))
        return await self._chat(connection, seen)

    async def _chat(self, connection: _Connection, seen: Seen) -> None:
        body = seen.body
        if not isinstance(body, dict) or not isinstance(body.get("messages"), list) or not body.get("model"):
            bad = error_body(400, "model and messages are needed", "invalid_request_error", param="messages")
            return await self._whole(connection, seen, bad)
        for message in body["messages"]:
            if message.get("role") == "assistant" and not (message.get("content") or message.get("tool_calls")):
                bad = error_body(400, "assistant message must have content or tool_calls", "invalid_request_error")
                return await self._whole(connection, seen, bad)
        if "audio" in (body.get("modalities") or []):
            bad = error_body(400, "This model does not support audio output.", "invalid_request_error")
            return await self._whole(connection, seen, bad)
        seen.script, options = parse_model(str(body["model"]))
        script = SCRIPTS.get(seen.script)
        if script is None:
            text = f"The model `{body['model']}` does not exist"
            return await self._whole(
                connection, seen, error_body(404, text, "invalid_request_error", "model_not_found", "model")
            )
        call = Call(body, options, script)
        await _pause(options, "header_ms")
        if script.hold_headers:
            await self._held(seen)
        if script.whole is not None:
            return await self._whole(connection, seen, script.whole(call))
        if not body.get("stream") or script.never_streams:
            return await self._whole(connection, seen, Whole.json(200, call.completion()))
        return await self._stream(connection, seen, call, script)

    async def _whole(self, connection: _Connection, seen: Seen, answer: Whole) -> None:
        seen.ended = str(answer.status) if answer.status >= 300 else "ok"
        await connection.whole(answer)

    async def _held(self, seen: Seen) -> None:
        seen.began.set()
        await self._tell()
        await self.gate.wait()

    async def _stream(self, connection: _Connection, seen: Seen, call: Call, script: Script) -> None:
        await connection.head(script.content_type, chunked=not script.until_close, extra=script.headers)
        await _pause(call.options, "first_ms")
        frames: list[bytes] = []
        for step in call.frames():
            if isinstance(step, bytes):
                frames.append(step)
                if script.write == "whole":
                    continue
                for piece in script.pieces(step):
                    await connection.body(piece)
                seen.steps_sent += 1
                seen.began.set()
                await self._tell()
                await _pause(call.options, "delay_ms", script.delay_ms)
            elif step is Act.HOLD:
                await self._held(seen)
            elif step is Act.FIN:
                await connection.flush()
                raise _Cut
            elif step is Act.RST:
                await connection.reset()
                raise _Cut
            else:
                seen.began.set()
                await self._tell()
                await asyncio.Event().wait()
        if script.write == "whole":
            await connection.body(b"".join(frames))
        seen.ended = "closed" if script.until_close else "ok"
        await connection.end()


async def _pause(options: dict[str, str], key: str, default_ms: float = 0) -> None:
    ms = float(options.get(key, default_ms))
    if ms:
        await asyncio.sleep(ms / 1000)


class _Connection:
    """HTTP/1.1 by hand on one socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._chunked = True
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    async def request(self) -> Seen | None:
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
        method, path, _ = first.split(" ", 2)
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        raw = b""
        if "content-length" in headers:
            raw = await self._reader.readexactly(int(headers["content-length"]))
        elif headers.get("transfer-encoding", "").lower() == "chunked":
            while size := int(await self._reader.readline(), 16):
                raw += (await self._reader.readexactly(size + 2))[:-2]
            await self._reader.readline()
        seen = Seen(method, path, headers, raw)
        with contextlib.suppress(ValueError):
            seen.body = json.loads(raw) if raw else None
        return seen

    async def gone(self) -> None:
        """Return when the client has closed its side; nothing is pipelined, so nothing else can arrive."""
        with contextlib.suppress(ConnectionError):
            while await self._reader.read(1):
                pass

    async def whole(self, answer: Whole) -> None:
        lines = [f"HTTP/1.1 {answer.status} {REASONS.get(answer.status, 'Status')}", f"Content-Type: {answer.kind}"]
        lines += [f"Content-Length: {len(answer.content)}", "x-request-id: req_test"]
        lines += [f"{name}: {value}" for name, value in answer.headers.items()]
        self._writer.write("\r\n".join([*lines, "", ""]).encode() + answer.content)
        await self._writer.drain()

    async def head(self, kind: str, *, chunked: bool, extra: dict[str, str]) -> None:
        self._chunked = chunked
        framing = "Transfer-Encoding: chunked" if chunked else "Connection: close"
        lines = ["HTTP/1.1 200 OK", f"Content-Type: {kind}", "x-request-id: req_test", "openai-processing-ms: 5"]
        lines += [framing, *(f"{name}: {value}" for name, value in extra.items())]
        self._writer.write("\r\n".join([*lines, "", ""]).encode())
        await self._writer.drain()

    async def body(self, data: bytes) -> None:
        if self._writer.is_closing() or self._reader.at_eof():
            raise _Left
        self._writer.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)
        await self._writer.drain()
        await asyncio.sleep(0)

    async def end(self) -> None:
        if self._chunked:
            self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    async def flush(self) -> None:
        self._writer.transport.set_write_buffer_limits(0)
        await self._writer.drain()

    async def reset(self) -> None:
        await self.flush()
        sock = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()
