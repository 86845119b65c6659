from __future__ import annotations

import asyncio
import gzip
import json

import pytest

from adapters.llm.openai_chat import OpenAiChat, OpenAiChatSettings
from sidecar.faults import NotFound, UpstreamBroken, UpstreamTimeout
from tests.adapters.llm.helpers import ask, read
from tests.upstream import Upstream
from tests.upstream_answer import Call
from tests.upstream_scripts import PLAIN, SCRIPTS

CHAT = "/chat/completions"


async def test_the_request_body_is_not_touched(llm: OpenAiChat, up: Upstream) -> None:
    raw = b'{ "model":"fake-plain" , "messages":[{"role":"user","content":"\\u0041 \xc3\xa9"}],\n"top_k" :5.0}'
    answer = await llm.forward(CHAT, raw, {"x-request-id": "r1", "Cookie": "a=b"})
    assert json.loads(await read(answer))["choices"][0]["message"]["content"] == PLAIN
    (seen,) = up.requests
    assert (seen.method, seen.raw) == ("POST", raw)
    assert seen.headers["x-request-id"] == "r1"
    assert seen.headers["accept-encoding"] == "identity"
    assert "cookie" not in seen.headers


@pytest.mark.parametrize(
    "script", ["plain", "keepalive", "crlf", "bytes", "malformed", "error_object", "gzip", "parts"]
)
async def test_streams_pass_byte_for_byte(llm: OpenAiChat, up: Upstream, script: str) -> None:
    body = ask(f"fake-{script}", stream=True)
    expected = b"".join(part for part in Call(body, {}, SCRIPTS[script]).frames() if isinstance(part, bytes))
    answer = await llm.forward(CHAT, json.dumps(body).encode(), {})
    assert await read(answer) == expected
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers.get("content-encoding") == ("gzip" if script == "gzip" else None)


async def test_a_stream_passes_while_it_is_being_written(llm: OpenAiChat, up: Upstream) -> None:
    answer = await llm.forward(CHAT, json.dumps(ask("fake-gate", stream=True)).encode(), {})
    raw = b""
    chunks = aiter(answer)
    while b" for" not in raw:
        raw += await anext(chunks)
    assert b"[DONE]" not in raw
    up.gate.set()
    raw += b"".join([chunk async for chunk in chunks])
    assert raw.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("script", "status", "kind"),
    [
        ("http400", 400, "application/json"),
        ("http422", 422, "application/json"),
        ("http429", 429, "application/json"),
        ("http502html", 502, "text/html"),
        ("http503empty", 503, "text/html"),
        ("http200html", 200, "text/html"),
        ("redirect", 301, "text/html"),
    ],
)
async def test_every_status_is_an_answer(llm: OpenAiChat, script: str, status: int, kind: str) -> None:
    body = ask(f"fake-{script}")
    whole = SCRIPTS[script].whole
    assert whole is not None
    answer = await llm.forward(CHAT, json.dumps(body).encode(), {})
    assert (answer.status, answer.headers["content-type"]) == (status, kind)
    assert await read(answer) == whole(Call(body, {}, SCRIPTS[script])).content
    assert "location" not in answer.headers
    await answer.aclose()


async def test_useful_headers_pass_and_others_do_not(llm: OpenAiChat) -> None:
    answer = await llm.forward(CHAT, json.dumps(ask("fake-http429")).encode(), {})
    assert answer.headers == {
        "content-type": "application/json",
        "retry-after": "7",
        "x-ratelimit-remaining-requests": "0",
        "x-request-id": "req_test",
    }


async def test_compressed_errors_pass_byte_for_byte() -> None:
    body = gzip.compress(b'{"error": {"message": "no"}}')

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = b"HTTP/1.1 400 Bad\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
        writer.write(head + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with server:
        llm = OpenAiChat(OpenAiChatSettings(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"))
        answer = await llm.forward("/models", None, {})
        assert answer.status == 400
        assert answer.headers["content-encoding"] == "gzip"
        assert await read(answer) == body
        await llm.close()


async def test_endless_errors_are_not_swallowed(llm: OpenAiChat) -> None:
    with pytest.raises(UpstreamBroken):
        await llm.forward(CHAT, json.dumps(ask("fake-http500huge")).encode(), {})


async def test_paths_and_queries_pass(llm: OpenAiChat, up: Upstream) -> None:
    await read(await llm.forward("/models/org%2Fname:1", None, {}))
    await read(await llm.forward("/models?limit=2&after=a", None, {}))
    assert [seen.path for seen in up.requests] == ["/v1/models/org%2Fname:1", "/v1/models?limit=2&after=a"]
    assert [(seen.method, seen.raw) for seen in up.requests] == [("GET", b"")] * 2


@pytest.mark.parametrize(
    "path",
    [
        "",
        "models",
        "//evil/models",
        "http://evil/models",
        "/../admin",
        "/a/../../b",
        "/a b",
        "/a\r\nX: y",
        "/a#b",
        "/.",
    ],
)
async def test_paths_that_lead_elsewhere_do_not_pass(llm: OpenAiChat, up: Upstream, path: str) -> None:
    with pytest.raises(NotFound):
        await llm.forward(path, None, {})
    assert up.requests == []


async def test_closing_is_seen_by_the_upstream(llm: OpenAiChat, up: Upstream) -> None:
    answer = await llm.forward(CHAT, json.dumps(ask("fake-stall", stream=True)).encode(), {})
    await anext(aiter(answer))
    await answer.aclose()
    await up.until(lambda up: up.aborted == 1, timeout_s=1)


async def test_a_stall_is_a_timeout(up: Upstream) -> None:
    llm = OpenAiChat(OpenAiChatSettings(up.base_url, forward_timeout_s=0.1))
    answer = await llm.forward(CHAT, json.dumps(ask("fake-stall", stream=True)).encode(), {})
    with pytest.raises(UpstreamTimeout):
        await read(answer)
    with pytest.raises(UpstreamTimeout):
        await llm.forward(CHAT, json.dumps(ask("fake-gate_status")).encode(), {})
    await up.until(lambda up: up.aborted == 2)
    await llm.close()


async def test_a_cut_is_a_fault_after_what_came(llm: OpenAiChat) -> None:
    answer = await llm.forward(CHAT, json.dumps(ask("fake-reset", stream=True)).encode(), {})
    raw = b""
    chunks = aiter(answer)
    while b" for" not in raw:
        raw += await anext(chunks)
    with pytest.raises(UpstreamBroken):
        await anext(chunks)
    assert await anext(chunks, None) is None
