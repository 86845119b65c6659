"""HTTP to an OpenAI-compatible server: settings, which headers travel, one request, its failures as faults."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from http.cookiejar import DefaultCookiePolicy
from typing import Any, cast
from urllib.parse import urlsplit

import httpx2
import openai

from sidecar.faults import (
    ConfigError,
    Fault,
    NotFound,
    UpstreamBroken,
    UpstreamFault,
    UpstreamTimeout,
    UpstreamUnreachable,
)

MAX_ERROR_BYTES = 256 * 1024
"""An error answer may be this long."""

UNDECODED = "sidecar_content_encoding"
"""The extension of a response that holds the content encoding its ``content`` is still in."""

_KEEPALIVE_EXPIRY_S = 3.0
_MAX_HEADER_CHARS = 1_024
_REQUEST_HEADERS = ("OpenAI-Organization", "OpenAI-Project", "Idempotency-Key", "x-request-id", "traceparent")
_ANSWER_HEADERS = re.compile(
    r"x-request-id|openai-[a-z-]+|retry-after(-ms)?|x-ratelimit-[a-z0-9-]+|x-should-retry", re.IGNORECASE
)
_HEADER_VALUE = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")
_PATH = re.compile(r"(/[A-Za-z0-9._~%:@+-]+)+(\?[A-Za-z0-9._~%:@+=&,/-]*)?")


@dataclass(frozen=True, slots=True)
class OpenAiChatSettings:
    """Where the language model is and how long to wait for it.

    ``base_url`` ends where ``/chat/completions`` begins. Without an ``api_key`` no key is sent, or the client's own
    if ``forward_authorization``. ``first_token_timeout_s`` runs from the request to the first delta,
    ``idle_timeout_s`` from one delta to the next (comments do not count), ``forward_timeout_s`` between the bytes
    of an answer that is passed through. ``max_chars`` caps text and refusals of one answer, ``max_line_bytes`` one
    SSE line, one SSE event, and an answer that comes as one JSON object. ``include_usage`` can be switched off for
    servers that refuse ``stream_options``. Raises ``ConfigError``.
    """

    base_url: str
    api_key: str | None = field(default=None, repr=False)
    first_token_timeout_s: float = 30.0
    idle_timeout_s: float = 10.0
    connect_timeout_s: float = 5.0
    forward_timeout_s: float = 600.0
    max_chars: int = 64_000
    max_line_bytes: int = 1 << 20
    forward_authorization: bool = False
    include_usage: bool = True

    def __post_init__(self) -> None:
        problems = []
        if not _is_base_url(self.base_url):
            problems.append("llm.base_url must be a plain http or https URL, such as http://localhost:8000/v1")
        if self.api_key and not _HEADER_VALUE.fullmatch(self.api_key):
            problems.append("llm.api_key has characters that cannot be sent in a header")
        problems += [
            f"llm.{name} must be greater than 0"
            for name in (
                "first_token_timeout_s",
                "idle_timeout_s",
                "connect_timeout_s",
                "forward_timeout_s",
                "max_chars",
                "max_line_bytes",
            )
            if not getattr(self, name) > 0
        ]
        if problems:
            raise ConfigError(problems)


def _is_base_url(text: str) -> bool:
    try:
        url = urlsplit(text)
        httpx2.URL(text)
        return (
            url.scheme in ("http", "https")
            and bool(url.hostname)
            and url.port != 0
            and not (url.query or url.fragment or url.username or url.password)
        )
    except (ValueError, TypeError, httpx2.InvalidURL):
        return False


def answer_headers(headers: Mapping[str, str], *also: str) -> dict[str, str]:
    """Those of an upstream's ``headers`` that clients read, and those named in ``also`` (lower case)."""
    return {
        name.lower(): value
        for name, value in headers.items()
        if name.lower() in also or _ANSWER_HEADERS.fullmatch(name)
    }


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """The ``Retry-After`` of lower-cased ``headers`` if it is a number of seconds."""
    value = headers.get("retry-after", "")
    return float(value) if re.fullmatch(r"\d{1,6}(\.\d+)?", value) else None


class UpstreamHttp:
    """Sends requests to one OpenAI-compatible server through the ``openai`` client, without its retries."""

    def __init__(self, settings: OpenAiChatSettings) -> None:
        self._settings = settings
        self._http = openai.DefaultAsyncHttpx2Client(
            # A redirect would turn the POST into a GET, or send the prompt somewhere nobody configured.
            follow_redirects=False,
            # Shorter than the 5 s after which many servers hang up: no request may meet a connection just closed.
            limits=httpx2.Limits(
                max_connections=1_000, max_keepalive_connections=100, keepalive_expiry=_KEEPALIVE_EXPIRY_S
            ),
            event_hooks={"response": [_bound_error_body]},
        )
        # One client serves everybody: a cookie set for one request must not travel with another.
        self._http.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        # Values given here keep the SDK from taking its own from the environment; see _request_headers.
        self._client = openai.AsyncOpenAI(
            api_key=settings.api_key or "none",
            admin_api_key="",
            organization="",
            project="",
            base_url=settings.base_url,
            max_retries=0,
            http_client=self._http,
        )

    async def send(
        self, path: str, body: bytes | None, headers: Mapping[str, str], *, read_timeout_s: float
    ) -> httpx2.Response:
        """POST ``body``, or GET if it is None; returns when status and headers are there.

        Below 400 the body is still to be read, and the response to be closed; an error's body (at most
        ``MAX_ERROR_BYTES``) is in ``content`` undecoded. A connection that could not be made is tried once more.
        Raises ``UpstreamUnreachable``, ``UpstreamTimeout``, ``UpstreamBroken`` (cut within an error's body).
        """
        if self._http.is_closed:
            raise UpstreamUnreachable("The connection to the language model has been shut down.")
        if not _PATH.fullmatch(path) or any(part in (".", "..") for part in path.split("?")[0].split("/")):
            raise NotFound("There is no such path.")
        try:
            return await self._send_once(path, body, headers, read_timeout_s)
        except _NotConnected:
            await asyncio.sleep(random.uniform(0.05, 0.25))
        try:
            return await self._send_once(path, body, headers, read_timeout_s)
        except _NotConnected as error:
            raise UpstreamUnreachable("The language model cannot be reached.") from error

    async def close(self) -> None:
        """Close pooled connections. Idempotent."""
        await self._client.close()

    async def _send_once(
        self, path: str, body: bytes | None, headers: Mapping[str, str], read_timeout_s: float
    ) -> httpx2.Response:
        options: dict[str, Any] = {
            "headers": self._request_headers(headers),
            "timeout": openai.Timeout(read_timeout_s, connect=self._settings.connect_timeout_s, pool=read_timeout_s),
        }
        # With stream=True the SDK leaves the body unread, and casts to the response class of its HTTP library
        # by handing over the response itself.
        kind: dict[str, Any] = {
            "cast_to": httpx2.Response,
            "options": options,
            "stream": True,
            "stream_cls": openai.AsyncStream[object],
        }
        try:
            if body is None:
                return cast(httpx2.Response, await self._client.get(path, **kind))
            return cast(httpx2.Response, await self._client.post(path, content=body, **kind))
        except openai.APIStatusError as error:
            return error.response
        except openai.APIConnectionError as error:
            raise _before_status(error) from error
        except (httpx2.HTTPError, OSError) as error:
            raise body_fault(error) from error

    def _request_headers(self, headers: Mapping[str, str]) -> dict[str, str | openai.Omit]:
        given = {
            name.lower(): value
            for name, value in headers.items()
            if len(value) <= _MAX_HEADER_CHARS and _HEADER_VALUE.fullmatch(value)
        }
        out: dict[str, str | openai.Omit] = {name: given.get(name.lower(), openai.omit) for name in _REQUEST_HEADERS}
        out["Accept-Encoding"] = "identity"
        out["Authorization"] = openai.omit
        if self._settings.api_key:
            out["Authorization"] = f"Bearer {self._settings.api_key}"
        elif self._settings.forward_authorization and "authorization" in given:
            out["Authorization"] = given["authorization"]
        return out


def body_fault(error: Exception) -> Fault:
    """What broke the reading of a body, as a fault."""
    if isinstance(error, httpx2.TimeoutException):
        return UpstreamTimeout("The language model sent nothing for too long.")
    return UpstreamBroken("The connection to the language model broke off.")


class _NotConnected(UpstreamUnreachable):
    """Nothing has been sent yet."""


def _before_status(error: openai.APIConnectionError) -> UpstreamFault:
    cause = error.__cause__
    if isinstance(cause, httpx2.ConnectError):
        return _NotConnected("The language model cannot be reached.")
    if isinstance(cause, httpx2.ConnectTimeout | httpx2.PoolTimeout):
        return UpstreamUnreachable("The language model cannot be reached: connecting takes too long.")
    if isinstance(cause, httpx2.TimeoutException):
        return UpstreamTimeout("The language model did not answer in time.")
    return UpstreamUnreachable("The language model closed the connection without an answer.")


async def _bound_error_body(response: httpx2.Response) -> None:
    """Keep the SDK, which reads an error's body whole and decoded, from reading more than a bounded body."""
    if response.status_code >= 300:
        encoding = response.headers.pop("content-encoding", None)
        if encoding:
            response.extensions[UNDECODED] = encoding
        response.stream = _Bounded(cast(httpx2.AsyncByteStream, response.stream))


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = MAX_ERROR_BYTES
        async for chunk in self._stream:
            left -= len(chunk)
            if left < 0:
                raise httpx2.ReadError(f"an error answer of over {MAX_ERROR_BYTES} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
