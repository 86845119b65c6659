"""The body of an upstream's answer while it is being read."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping

import httpx2

from adapters.llm.upstream_http import UNDECODED, answer_headers, body_fault
from sidecar.faults import UpstreamBroken, UpstreamFault

_TAIL_TIMEOUT_S = 0.05
_TAIL_BYTES = 64 * 1024


class Body:
    """The body of one response, and its connection."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response
        self._chunks: AsyncGenerator[bytes, None] = (
            _whole(response.content) if response.is_stream_consumed else response.aiter_raw()
        )
        self._closing: asyncio.Task[None] | None = None
        self.closed = False

    async def next(self) -> bytes | None:
        """The next bytes, or None at a tidy end, or when it has been closed.

        Raises ``UpstreamBroken`` or ``UpstreamTimeout``. Cancelling closes the connection.
        """
        if self.closed:
            return None
        try:
            return await anext(self._chunks, None)
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
            await self._broken(error)
            return None
        except BaseException:
            await self.aclose()
            raise

    async def read_all(self, max_bytes: int) -> bytes:
        """Everything; raises ``UpstreamBroken`` if that is over ``max_bytes``."""
        parts: list[bytes] = []
        left = max_bytes
        while (chunk := await self.next()) is not None:
            parts.append(chunk)
            left -= len(chunk)
            if left < 0:
                raise UpstreamBroken("The language model's answer is too long.")
        return b"".join(parts)

    async def drain(self) -> None:
        """Read the few bytes after the end of the answer, if they are there, so that the connection can be kept."""
        left = _TAIL_BYTES
        try:
            async with asyncio.timeout(_TAIL_TIMEOUT_S):
                while left > 0 and (chunk := await self.next()) is not None:
                    left -= len(chunk)
        except (TimeoutError, UpstreamFault):
            pass
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection at once, also under a ``next`` that waits in another task. Idempotent.

        Cancelling the caller does not stop the closing.
        """
        self.closed = True
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _broken(self, error: Exception) -> None:
        if not self.closed:
            await self.aclose()
            raise body_fault(error) from error

    async def _close(self) -> None:
        with contextlib.suppress(httpx2.HTTPError, OSError):
            await self._response.aclose()
        # Another task may be inside the generator; it then ends by itself, because its connection is gone.
        with contextlib.suppress(RuntimeError):
            await self._chunks.aclose()


async def _whole(content: bytes) -> AsyncGenerator[bytes, None]:
    yield content


class PassedThrough:
    """An answer passed through. Its bytes are those that came, still in the content encoding it names."""

    def __init__(self, response: httpx2.Response) -> None:
        self.status = response.status_code
        self.headers: Mapping[str, str] = answer_headers(response.headers, "content-type", "content-encoding")
        encoding = response.extensions.get(UNDECODED)
        if encoding:
            self.headers = {**self.headers, "content-encoding": encoding}
        self.body = Body(response)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        chunk = await self.body.next()
        if chunk is None:
            await self.body.aclose()
            raise StopAsyncIteration
        return chunk

    async def aclose(self) -> None:
        """Stop reading and close the connection. Idempotent."""
        await self.body.aclose()
