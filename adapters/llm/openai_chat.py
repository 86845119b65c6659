"""The LanguageModel port on any OpenAI-compatible server."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakSet

import httpx2

from adapters.llm.chat_events import ChatReader
from adapters.llm.chat_stream import OpenAiChatStream
from adapters.llm.openai_errors import loads, refusal
from adapters.llm.upstream_body import Body, PassedThrough
from adapters.llm.upstream_http import (
    OpenAiChatSettings,
    UpstreamHttp,
    answer_headers,
    retry_after_s,
)
from sidecar.faults import (
    BadRequest,
    UpstreamFault,
    UpstreamRefused,
    UpstreamTimeout,
)
from sidecar.ports import ChatStream, RawAnswer

__all__ = ["OpenAiChat", "OpenAiChatSettings"]

_MODELS_TIMEOUT_S = 10.0
_MAX_MODELS_BYTES = 8 << 20

_log = logging.getLogger(__name__)


class OpenAiChat:
    """An OpenAI-compatible server as a language model.

    Its own errors before the first byte are raised as ``UpstreamRefused``. Nothing but a connection that could not
    be made is tried again. A stream or answer holds its connection until it has been read to its end, has failed,
    was cancelled while waiting, or is closed with ``aclose``.
    """

    def __init__(self, settings: OpenAiChatSettings) -> None:
        self._settings = settings
        self._http = UpstreamHttp(settings)
        self._open: WeakSet[Body] = WeakSet()

    async def stream(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> ChatStream:
        """POST /chat/completions with ``stream: true``; see ``LanguageModel.stream``."""
        settings = self._settings
        clock = asyncio.get_running_loop()
        begun_s = clock.time()
        response = await self._send("/chat/completions", self._request(body), headers, settings.first_token_timeout_s)
        if response.status_code >= 300:
            raise self._refused(response)
        kind = response.headers.get("content-type", "").lower()
        if "text/html" in kind or response.headers.get("content-encoding", "identity").lower() != "identity":
            await response.aclose()
            raise UpstreamFault("The language model's address answers with something that is not a chat completion.")
        choices = body.get("n")
        reader = ChatReader(
            model=str(body.get("model", "")),
            choices=choices if isinstance(choices, int) and choices > 0 else 1,
            max_chars=settings.max_chars,
            secret=settings.api_key,
        )
        stream = OpenAiChatStream(response, reader, settings, waited_s=clock.time() - begun_s)
        self._open.add(stream.body)
        return stream

    async def forward(self, path: str, body: bytes | None, headers: Mapping[str, str]) -> RawAnswer:
        """Pass a request through byte for byte; see ``LanguageModel.forward``."""
        response = await self._http.send(path, body, headers, read_timeout_s=self._settings.forward_timeout_s)
        answer = PassedThrough(response)
        self._open.add(answer.body)
        return answer

    async def models(self) -> Sequence[Mapping[str, Any]]:
        """The upstream's model cards, each with an ``id``; raises ``UpstreamFault``."""
        response = await self._send("/models", None, {}, _MODELS_TIMEOUT_S)
        if response.status_code >= 300:
            raise self._refused(response)
        body = Body(response)
        try:
            async with asyncio.timeout(_MODELS_TIMEOUT_S):
                content = await body.read_all(_MAX_MODELS_BYTES)
        except TimeoutError:
            raise UpstreamTimeout("The language model did not list its models in time.") from None
        finally:
            await body.aclose()
        try:
            return _cards(loads(content))
        except ValueError:
            raise UpstreamFault("The language model's list of models is unreadable.") from None

    async def close(self) -> None:
        """Close every connection; streams still open end. Idempotent."""
        for body in list(self._open):
            await body.aclose()
        await self._http.close()

    def _request(self, body: Mapping[str, Any]) -> bytes:
        wanted = {**body, "stream": True}
        if self._settings.include_usage:
            options = body.get("stream_options")
            wanted["stream_options"] = {**(options if isinstance(options, Mapping) else {}), "include_usage": True}
        try:
            return json.dumps(wanted, allow_nan=False, separators=(",", ":")).encode()
        except (TypeError, ValueError, RecursionError):
            raise BadRequest("The request cannot be written as JSON.") from None

    async def _send(
        self, path: str, body: bytes | None, headers: Mapping[str, str], timeout_s: float
    ) -> httpx2.Response:
        try:
            async with asyncio.timeout(timeout_s):
                return await self._http.send(
                    path, body, headers, read_timeout_s=max(timeout_s, self._settings.idle_timeout_s)
                )
        except TimeoutError:
            raise UpstreamTimeout("The language model did not answer in time.") from None

    def _refused(self, response: httpx2.Response) -> UpstreamFault:
        status = response.status_code
        headers = answer_headers(response.headers)
        found = refusal(status, response.content, secret=self._settings.api_key) if status >= 400 else None
        if found is None:
            fault = UpstreamFault(
                f"The language model answered with status {status} and something that is not an OpenAI error.",
                retry_after_s=retry_after_s(headers),
            )
            _log.warning("language model answered %d without an error object", status)
            return fault
        status, error = found
        return UpstreamRefused(error["message"], upstream_status=status, upstream_error=error, headers=headers)


def _cards(listing: object) -> list[Mapping[str, Any]]:
    if isinstance(listing, Mapping):
        listing = listing.get("data", listing.get("models"))
    if not isinstance(listing, list):
        raise ValueError("no list")
    cards: list[Mapping[str, Any]] = []
    for card in listing:
        if not isinstance(card, Mapping):
            raise ValueError("not a card")
        name = next((card[key] for key in ("id", "model", "name") if isinstance(card.get(key), str)), None)
        if name:
            cards.append({**card, "id": name})
    return cards
