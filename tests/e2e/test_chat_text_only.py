"""Requests without audio: the model's answer to the letter, whatever it is, and no voice is touched."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest
import pytest_asyncio

from tests.e2e.chat_helpers import CHAT, body_of, last_seen, upstream_of
from tests.e2e.conftest import Running, running
from tests.upstream_scripts import LETTERS, PLAIN

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEPT = ("content-type", "retry-after", "x-ratelimit-remaining-requests", "content-encoding", "openai-processing-ms")
ODD_BODY = (
    '{ "messages":[{"role":"user","content":"Gr\\u00fc\\u00df dich \U0001f44b"}],\r\n\t"model" :"fake-%s", "top_k": 5,'
    ' "temperature":1.0e0, "chat_template_kwargs":{"x":[1,2.50]}, "modalities": ["text"],'
    ' "audio": {"voice":"nobody"}, "unheard_of": null%s}'
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[Running]:
    """One server for all: nothing of a text-only request stays in it."""
    async with running(upstream=True) as server:
        yield server


def raw_body(script: str, more: str = "") -> bytes:
    return (ODD_BODY % (script, more)).encode()


async def both(server: Running, body: bytes) -> tuple[httpx.Response, httpx.Response]:
    """The sidecar's answer and the upstream's own, for the same bytes; neither is decoded."""
    headers = {"content-type": "application/json", "accept-encoding": "identity"}
    answers = []
    for url in (f"{server.url}{CHAT}", upstream_of(server).base_url + "/chat/completions"):
        async with server.http.stream("POST", url, content=body, headers=headers) as answer:
            answer._content = b"".join([piece async for piece in answer.aiter_raw()])
            answers.append(answer)
    return answers[0], answers[1]


def mute(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks the engine to speak fails."""

    async def refuse(utterance: Any) -> Any:
        raise AssertionError("the engine was touched")

    monkeypatch.setattr(server.service.engine, "open", refuse)


async def test_request_and_answer_are_the_same_bytes(shared: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    mute(shared, monkeypatch)
    for script in ("plain", "letters", "tools2", "json", "refusal", "reasoning"):
        for more in ("", ', "stream": true', ', "stream": true, "stream_options": {"include_usage": true}'):
            body = raw_body(script, more)
            ours, theirs = await both(shared, body)
            assert [seen.raw for seen in upstream_of(shared).requests[-2:]] == [body, body]
            assert ours.status_code == 200
            assert ours.content == theirs.content
            assert {name: ours.headers.get(name) for name in KEPT} == {name: theirs.headers.get(name) for name in KEPT}


async def test_odd_framings_are_passed_on_as_they_are(shared: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    mute(shared, monkeypatch)
    for script in ("crlf", "keepalive", "fields", "split", "mislabelled", "gzip", "until_close"):
        ours, theirs = await both(shared, raw_body(script, ', "stream": true'))
        assert ours.content == theirs.content
        assert ours.headers["content-type"] == theirs.headers["content-type"]


@pytest.mark.parametrize(
    "script",
    ["http400", "http401", "http403", "http404", "http422", "http429", "http500", "http502html", "http503",
     "http503empty", "http200html", "http200empty", "http200other", "redirect", "never_there"],
)  # fmt: skip
async def test_whatever_the_status_it_comes_through(shared: Running, script: str) -> None:
    ours, theirs = await both(shared, raw_body(script))
    assert ours.status_code == theirs.status_code
    assert ours.content == theirs.content
    assert {name: ours.headers.get(name) for name in KEPT} == {name: theirs.headers.get(name) for name in KEPT}
    assert "set-cookie" not in ours.headers
    assert ours.headers["x-request-id"]


async def test_the_sdk_reads_text_as_from_the_model_itself(shared: Running) -> None:
    messages: Any = [{"role": "user", "content": "Say hello."}]
    create: Any = shared.openai.chat.completions.create
    answer = await create(model="fake-plain", messages=messages)
    assert answer.choices[0].message.content == PLAIN
    assert answer.choices[0].message.audio is None
    text = ""
    async for chunk in await create(model="fake-letters", messages=messages, stream=True, modalities=["text"]):
        text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
    assert text == LETTERS
    for modalities in (None, ["text"]):
        body = {"model": "fake-short", "messages": messages, "modalities": modalities}
        assert (await shared.http.post(CHAT, json=body)).json()["choices"][0]["message"]["content"] == "Hi."
        assert last_seen(shared).body == body


async def test_a_stream_of_text_is_not_kept_back_by_proxies(shared: Running) -> None:
    ours, _ = await both(shared, raw_body("plain", ', "stream": true'))
    assert ours.headers["x-accel-buffering"] == "no"
    assert ours.headers["cache-control"] == "no-cache"


async def test_few_headers_travel_on(shared: Running) -> None:
    sent = {"openai-organization": "org-1", "idempotency-key": "once", "cookie": "mine=1", "x-forwarded-for": "1.2.3.4"}
    body = body_of("short", modalities=["text"])
    await shared.http.post(CHAT, json=body, headers={**sent, "x-request-id": "mine-3"})
    seen = last_seen(shared).headers
    assert (seen["openai-organization"], seen["idempotency-key"], seen["x-request-id"]) == ("org-1", "once", "mine-3")
    assert "x-forwarded-for" not in seen
    assert "authorization" not in seen
    assert "mine=1" not in str(seen)


@pytest.mark.parametrize("script", ["cut", "reset", "until_close_cut"])
async def test_an_answer_that_breaks_off_breaks_off_here_too(shared: Running, script: str) -> None:
    body = {**body_of(script, stream=True), "modalities": ["text"]}
    raw = b""
    async with shared.http.stream("POST", CHAT, json=body) as answer:
        assert answer.status_code == 200
        try:
            async for piece in answer.aiter_raw():
                raw += piece
        except httpx.RemoteProtocolError:
            assert script != "until_close_cut"
        else:
            # Without a length and chunks nobody can tell this end from a tidy one.
            assert script == "until_close_cut"
    assert b"Hello" in raw
    assert b"[DONE]" not in raw


async def test_nobody_behind_is_an_error_object(start: Any) -> None:
    async with start(llm__url="http://127.0.0.1:9/v1", llm__kind="openai") as server:
        for modalities in (["text"], ["text", "audio"]):
            create: Any = server.openai.chat.completions.create
            with pytest.raises(openai.InternalServerError) as caught:
                await create(**body_of("plain", modalities=modalities))
            assert caught.value.status_code == 502
            assert caught.value.code == "upstream_unreachable"
            assert caught.value.request_id
