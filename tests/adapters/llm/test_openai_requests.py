from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from adapters.llm.openai_chat import OpenAiChat, OpenAiChatSettings
from sidecar.faults import (
    BadRequest,
    ConfigError,
    UpstreamFault,
    UpstreamRefused,
)
from tests.adapters.llm.helpers import answer, ask, take
from tests.upstream import Upstream


async def test_what_is_sent(llm: OpenAiChat, up: Upstream) -> None:
    request = ask("fake-echo", "Grüße 👩‍👩‍👧", top_k=5, stream_options={"other": 1}, temperature=0.5)
    assert (await take(await llm.stream(request, {}))).text == "Grüße 👩‍👩‍👧"
    (seen,) = up.requests
    assert seen.path == "/v1/chat/completions"
    assert seen.body == {**request, "stream": True, "stream_options": {"other": 1, "include_usage": True}}
    assert seen.headers["content-type"] == "application/json"
    assert seen.headers["accept-encoding"] == "identity"
    assert seen.headers["authorization"] == "Bearer sk-canary"


async def test_usage_need_not_be_asked_for(up: Upstream) -> None:
    llm = OpenAiChat(OpenAiChatSettings(up.base_url, include_usage=False))
    assert (await answer(llm, "plain")).usage == []
    assert "stream_options" not in up.requests[0].body
    await llm.close()


GIVEN = {
    "openai-organization": "org",
    "OpenAI-Project": "proj",
    "idempotency-key": "k1",
    "X-Request-Id": "r1",
    "traceparent": "00-ab-cd-01",
    "Authorization": "Bearer client",
    "Cookie": "a=b",
    "X-Other": "x",
}


async def test_only_some_headers_travel(llm: OpenAiChat, up: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    await take(await llm.stream(ask("fake-short"), GIVEN))
    seen = up.requests[0].headers
    names = ("openai-organization", "openai-project", "idempotency-key", "x-request-id", "traceparent")
    assert [seen[name] for name in names] == ["org", "proj", "k1", "r1", "00-ab-cd-01"]
    assert seen["authorization"] == "Bearer sk-canary"
    assert not {"cookie", "x-other"} & set(seen)
    await take(await llm.stream(ask("fake-short"), {"x-request-id": "a\r\nX-Evil: 1", "traceparent": "x" * 5_000}))
    assert not {"x-request-id", "x-evil", "traceparent", "openai-organization"} & set(up.requests[1].headers)


async def test_the_environment_adds_nothing(up: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, "canary")
    llm = OpenAiChat(OpenAiChatSettings(up.base_url))
    await take(await llm.stream(ask("fake-short"), GIVEN | {"openai-organization": "", "OpenAI-Project": ""}))
    assert "canary" not in str(up.requests[0].headers)
    assert not {"authorization", "openai-organization", "openai-project"} & set(up.requests[0].headers)
    await llm.close()


@pytest.mark.parametrize(("own", "sent"), [(None, "Bearer client"), ("sk-own", "Bearer sk-own")])
async def test_the_clients_key_travels_only_if_wanted(up: Upstream, own: str | None, sent: str) -> None:
    llm = OpenAiChat(OpenAiChatSettings(up.base_url, api_key=own, forward_authorization=True))
    await take(await llm.stream(ask("fake-short"), GIVEN))
    assert up.requests[0].headers["authorization"] == sent
    await llm.close()


@pytest.mark.parametrize("value", [float("nan"), object(), {1, 2}])
async def test_what_is_no_json_is_not_sent(llm: OpenAiChat, up: Upstream, value: Any) -> None:
    with pytest.raises(BadRequest):
        await llm.stream(ask("fake-plain", x=value), {})
    assert up.requests == []


@pytest.mark.parametrize(
    "settings",
    [
        {"base_url": "ftp://host/v1"},
        {"base_url": "host/v1"},
        {"base_url": "http://host/v1?a=b"},
        {"base_url": "http://[bad"},
        {"base_url": "http://host:port/v1"},
        {"base_url": "http://user:pass@host/v1"},
        {"base_url": None},
        {"base_url": "http://host/v1", "idle_timeout_s": 0},
        {"base_url": "http://host/v1", "api_key": "a\nb"},
        {"base_url": "http://host/v1", "max_chars": -1},
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        OpenAiChatSettings(**settings)


class Listing:
    """A server whose GET /models answers with ``body``."""

    def __init__(self, body: bytes, status: int = 200) -> None:
        self._answer = b"HTTP/1.1 %d X\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % (status, len(body)) + body

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(self._answer)
        writer.close()


async def models(body: object, status: int = 200) -> Any:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    server = await asyncio.start_server(Listing(raw, status), "127.0.0.1", 0)
    async with server:
        llm = OpenAiChat(OpenAiChatSettings(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"))
        try:
            return await llm.models()
        finally:
            await llm.close()


async def test_models_in_every_form() -> None:
    card = {"id": "a", "object": "model"}
    assert await models({"object": "list", "data": [card]}) == [card]
    assert await models({"models": [card]}) == [card]
    assert await models([card]) == [card]
    assert await models({"models": [{"name": "b"}, {"name": "c", "model": "c:1"}, {}]}) == [
        {"id": "b", "name": "b"},
        {"id": "c:1", "name": "c", "model": "c:1"},
    ]


@pytest.mark.parametrize("body", [b"", b"<html>", {"data": 5}, {"data": [5]}, {}, 5, b"[" * 100_000])
async def test_other_listings_are_faults(body: object) -> None:
    with pytest.raises(UpstreamFault):
        await models(body)


async def test_a_refused_listing_is_told() -> None:
    with pytest.raises(UpstreamRefused) as caught:
        await models({"error": {"message": "no"}}, 403)
    assert (caught.value.upstream_status, caught.value.upstream_error["type"]) == (403, "permission_error")
