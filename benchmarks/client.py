"""A client that costs next to nothing: one request on a bare socket, looked at only until what it waits for came."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

AUDIO = b'"data":"'
WORDS = b'"transcript":"'
CONTENT = b'"content":"'
DONE = b"data: [DONE]"

_LOOKED_AT_BYTES = 64 * 1024


@dataclass(slots=True)
class Heard:
    """What came back, with times since the request in ms (None: it did not come)."""

    status: int = 0
    words_ms: float | None = None
    audio_ms: float | None = None
    whole_ms: float | None = None
    received_bytes: int = 0
    complete: bool = False


class _Listener(asyncio.Protocol):
    """Counts bytes and notes when ``words`` (with something in them) and ``audio`` first appear."""

    def __init__(self, heard: Heard, words: bytes, audio: bytes) -> None:
        self._heard = heard
        self._words = words
        self._audio = audio
        self._begin = b""
        self._tail = b""
        self._started_s = time.monotonic()
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        heard = self._heard
        heard.received_bytes += len(data)
        if heard.audio_ms is None or heard.words_ms is None:
            self._look(data)
        self._tail = (self._tail + data[-32:])[-32:]
        if self._tail.endswith(b"\r\n0\r\n\r\n"):
            self._end(True)

    def _look(self, data: bytes) -> None:
        now_ms = (time.monotonic() - self._started_s) * 1000
        heard = self._heard
        self._begin = (self._begin + data)[-_LOOKED_AT_BYTES:]
        if not heard.status and len(self._begin) > 12:
            heard.status = int(self._begin[9:12])
        if heard.words_ms is None and self._holds_text():
            heard.words_ms = now_ms
        if heard.audio_ms is None and self._audio in self._begin:
            heard.audio_ms = now_ms

    def _holds_text(self) -> bool:
        at = self._begin.find(self._words)
        while at >= 0:
            begin = at + len(self._words)
            if self._begin[begin : begin + 1] not in (b"", b'"'):
                return True
            at = self._begin.find(self._words, begin)
        return False

    def _end(self, complete: bool) -> None:
        if not self.over.done():
            self._heard.complete = complete
            self._heard.whole_ms = (time.monotonic() - self._started_s) * 1000
            self.over.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        self._end(False)


async def ask(
    host: str,
    port: int,
    path: str,
    body: Mapping[str, Any],
    *,
    words: bytes = WORDS,
    audio: bytes = AUDIO,
    until: asyncio.Event | None = None,
) -> Heard:
    """POST ``body`` and listen to the end of the answer, or hang up when ``until`` is set.

    ``words`` and ``audio`` are the bytes whose first appearance is timed.
    """
    heard = Heard()
    payload = json.dumps(body).encode()
    loop = asyncio.get_running_loop()
    transport, listener = await loop.create_connection(lambda: _Listener(heard, words, audio), host, port)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(payload)}\r\n\r\n"
    )
    transport.write(head.encode() + payload)
    waits: set[asyncio.Future[Any]] = {listener.over}
    hang_up = asyncio.ensure_future(until.wait()) if until is not None else None
    if hang_up is not None:
        waits.add(hang_up)
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if hang_up is not None:
            hang_up.cancel()
        transport.abort()
    return heard


def chat(text: str, *, spoken: bool = True) -> dict[str, Any]:
    """A streamed chat request to the scripted model, which answers with ``text``."""
    body: dict[str, Any] = {"model": "scripted-echo", "stream": True, "messages": [{"role": "user", "content": text}]}
    if spoken:
        body |= {"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "pcm16"}}
    return body
