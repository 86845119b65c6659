"""A chat completion arriving from an upstream: bytes, events, patience."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping

import httpx2

from adapters.llm.chat_events import ChatReader
from adapters.llm.sse import SseEvent, SseParser
from adapters.llm.upstream_body import Body
from adapters.llm.upstream_http import OpenAiChatSettings, answer_headers
from sidecar.faults import Fault, UpstreamBroken, UpstreamTimeout
from sidecar.ports import ChatDelta, ChatEvent

_AFTER_FINISH_S = 2.0


class OpenAiChatStream:
    """A chat completion being read. Iterate it once, from one task; ``aclose`` may come from another."""

    def __init__(
        self, response: httpx2.Response, reader: ChatReader, settings: OpenAiChatSettings, *, waited_s: float
    ) -> None:
        self.headers: Mapping[str, str] = answer_headers(response.headers)
        self.body = Body(response)
        self._reader = reader
        self._settings = settings
        self._parser = SseParser(max_line_bytes=settings.max_line_bytes)
        self._sniffed = bytearray()
        self._is_sse: bool | None = None
        self._ready: deque[ChatEvent] = deque()
        self._fault: Fault | None = None
        self._ended = False
        self._spoke = False
        self._quiet_s = waited_s

    def __aiter__(self) -> AsyncIterator[ChatEvent]:
        return self

    async def __anext__(self) -> ChatEvent:
        while not self._ready:
            if self._fault is not None:
                fault, self._fault = self._fault, None
                raise fault
            if self._ended:
                raise StopAsyncIteration
            await self._read_on()
        return self._ready.popleft()

    async def aclose(self) -> None:
        """Stop the upstream at once; what has not been taken is dropped. Idempotent."""
        self._ended = True
        self._fault = None
        self._ready.clear()
        await self.body.aclose()

    async def _read_on(self) -> None:
        try:
            chunk = await self._next_chunk()
        except Fault as fault:
            # What is missing after the last finish reason is no loss.
            await self._end(None if self._reader.finished else fault)
            return
        except BaseException:
            self._ended = True
            raise
        if self.body.closed:
            self._ended = True
            return
        try:
            if chunk is None:
                self._take_rest()
            else:
                self._take(chunk)
            if chunk is None or self._reader.done:
                self._gather(self._reader.end())
        except Fault as fault:
            await self._end(fault)
        else:
            if chunk is None or self._reader.done:
                await self._end(None)

    async def _next_chunk(self) -> bytes | None:
        clock = asyncio.get_running_loop()
        limit_s = self._settings.idle_timeout_s if self._spoke else self._settings.first_token_timeout_s
        if self._reader.finished:
            limit_s = min(limit_s, _AFTER_FINISH_S)
        begun_s = clock.time()
        try:
            async with asyncio.timeout(limit_s - self._quiet_s):
                chunk = await self.body.next()
        except TimeoutError:
            raise UpstreamTimeout("The language model sent nothing for too long.") from None
        self._quiet_s += clock.time() - begun_s
        # Chunks that have already arrived are read without a wait; others must get their turn between them.
        await asyncio.sleep(0)
        return chunk

    def _take(self, chunk: bytes) -> None:
        if self._is_sse is None:
            self._sniffed += chunk
            start = self._sniffed.lstrip(b" \t\r\n\xef\xbb\xbf")
            if not start and len(self._sniffed) <= self._settings.max_line_bytes:
                return
            if start.startswith(b"<"):
                raise UpstreamBroken("The language model's address answers with something that is not JSON.")
            self._is_sse = not start.startswith((b"{", b"["))
            chunk = bytes(self._sniffed) if self._is_sse else b""
        if not self._is_sse:
            self._sniffed += chunk
            if len(self._sniffed) > self._settings.max_line_bytes:
                raise UpstreamBroken("The language model's answer is too long.")
            return
        self._take_events(self._parser.feed(chunk))

    def _take_events(self, events: Iterable[SseEvent]) -> None:
        for event in events:
            if self._spoke:
                self._quiet_s = 0.0
            self._gather(self._reader.take(event))
            if self._reader.done:
                return

    def _take_rest(self) -> None:
        if self._is_sse is False:
            self._gather(self._reader.take_answer(bytes(self._sniffed)))
        else:
            self._take_events(self._parser.finish())

    def _gather(self, events: Iterable[ChatEvent]) -> None:
        for event in events:
            if isinstance(event, ChatDelta) and not self._spoke:
                self._spoke = True
                self._quiet_s = 0.0
            self._ready.append(event)

    async def _end(self, fault: Fault | None) -> None:
        """No more will be read; ``fault`` is raised when everything read before it has been taken."""
        self._ended = True
        self._fault = fault
        self._ready.extend(self._reader.usage())
        if fault is None:
            await self.body.drain()
        else:
            await self.body.aclose()
