"""Requests that cannot be served: what is wrong is named, and neither the model nor the engine hears of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest
import pytest_asyncio

from tests.e2e.chat_helpers import CHAT, body_of, streamed, upstream_of, whole
from tests.e2e.conftest import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[Running]:
    """One server for all: a request that is refused changes nothing."""
    async with running(upstream=True, server__max_body_bytes=8_192) as server:
        yield server


def error_of(answer: httpx.Response, status: int) -> dict[str, Any]:
    """The error object, after the checks that hold for every one."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"]
    body = answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    error: dict[str, Any] = body["error"]
    assert error["message"]
    return error


def audio(**members: Any) -> dict[str, Any]:
    return {"audio": {"voice": "alloy", "format": "mp3", **members}}


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"audio": None}, "audio", "invalid_value"),
    ({"audio": "alloy"}, "audio", "invalid_value"),
    ({"audio": []}, "audio", "invalid_value"),
    ({"audio": {"format": "mp3"}}, "audio.voice", "invalid_value"),
    ({"audio": {"voice": "alloy"}}, "audio.format", "unsupported_format"),
    ({"audio": {}}, "audio.voice", "invalid_value"),
    (audio(voice=5), "audio.voice", "invalid_value"),
    (audio(voice=""), "audio.voice", "invalid_value"),
    (audio(voice=None), "audio.voice", "invalid_value"),
    (audio(voice={}), "audio.voice", "invalid_value"),
    (audio(voice={"id": 7}), "audio.voice", "invalid_value"),
    (audio(voice={"id": "voice_1234"}), "audio.voice", "voice_not_found"),
    (audio(voice="nobody"), "audio.voice", "voice_not_found"),
    (audio(voice="../etc/passwd"), "audio.voice", "voice_not_found"),
    (audio(format="ogg"), "audio.format", "unsupported_format"),
    (audio(format="pcm"), "audio.format", "unsupported_format"),
    (audio(format=3), "audio.format", "unsupported_format"),
    (audio(format=["mp3"]), "audio.format", "unsupported_format"),
    (audio(seed=-1), "audio.seed", "invalid_value"),
    (audio(seed=2**63), "audio.seed", "invalid_value"),
    (audio(seed="1"), "audio.seed", "invalid_value"),
    (audio(seed=True), "audio.seed", "invalid_value"),
    (audio(seed=1.5), "audio.seed", "invalid_value"),
    (audio(language=5), "audio.language", "invalid_value"),
    (audio(language="x" * 41), "audio.language", "invalid_value"),
    (audio(instructions=[]), "audio.instructions", "invalid_value"),
    (audio(instructions="x" * 501), "audio.instructions", "invalid_value"),
    ({"n": 0}, "n", "invalid_value"),
    ({"n": 9}, "n", "invalid_value"),
    ({"n": -1}, "n", "invalid_value"),
    ({"n": "2"}, "n", "invalid_value"),
    ({"n": 1.0}, "n", "invalid_value"),
    ({"n": True}, "n", "invalid_value"),
    ({"stream": "yes"}, "stream", "invalid_value"),
    ({"stream": 1}, "stream", "invalid_value"),
    ({"stream_options": "usage"}, "stream_options", "invalid_value"),
    ({"stream_options": [1]}, "stream_options", "invalid_value"),
    ({"response_format": {"type": "json_object"}}, "response_format", "invalid_value"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}, "response_format", "invalid_value"),
]


async def test_every_member_that_is_wrong_is_named(shared: Running) -> None:
    before = len(upstream_of(shared).requests)
    for patch, param, code in BAD:
        answer = await shared.http.post(CHAT, json=body_of("plain", **{**audio(), **patch}))
        error = error_of(answer, 400)
        assert (error["param"], error["code"], error["type"]) == (param, code, "invalid_request_error"), patch
        assert answer.headers["x-should-retry"] == "false"
    assert len(upstream_of(shared).requests) == before
    assert (await shared.service.engine.health()).active_rows == 0


async def test_an_unknown_language_is_named(shared: Running) -> None:
    error = error_of(await shared.http.post(CHAT, json=body_of("plain", **audio(language="klingonish"))), 400)
    assert error["code"] == "unsupported_language"
    for language in ("de", "German", "auto", "", "pt-BR", None):
        await whole(shared, "short", **audio(language=language))


async def test_the_sentence_that_clients_look_for(shared: Running) -> None:
    for format in ("wav", "mp3", "flac", "opus", "aac"):
        create: Any = shared.openai.chat.completions.create
        with pytest.raises(openai.BadRequestError) as caught:
            await create(**body_of("plain", stream=True, **audio(format=format)))
        assert isinstance(caught.value.body, dict)
        assert caught.value.body["message"] == (
            f"'audio.format' does not support '{format}' when stream=true. Supported values are: 'pcm16'."
        )
        assert caught.value.param == "audio.format"


async def test_voices_by_name_by_object_and_in_any_case(shared: Running) -> None:
    bytes_of = set()
    for voice in ("alloy", {"id": "alloy"}, "ALLOY", " alto ", "default", "cedar"):
        said = (await whole(shared, "short", **audio(voice=voice, format="pcm16", seed=1))).choices[0].message.audio
        assert said is not None
        bytes_of.add(said.data)
    assert len(bytes_of) == 1
    said = (await whole(shared, "short", **audio(voice="bass", format="pcm16", seed=1))).choices[0].message.audio
    assert said is not None
    assert said.data not in bytes_of


async def test_an_unknown_voice_is_told_the_known_ones(shared: Running) -> None:
    with pytest.raises(openai.BadRequestError, match="alto") as caught:
        await whole(shared, "plain", **audio(voice="nobody"))
    assert caught.value.code == "voice_not_found"


async def test_null_stands_for_absent(shared: Running) -> None:
    nothing: dict[str, Any] = dict.fromkeys(
        ("n", "stream", "stream_options", "response_format", "tools", "seed", "stop")
    )
    members: dict[str, Any] = dict.fromkeys(("seed", "language", "instructions", "segments"))
    answer = await shared.http.post(CHAT, json=body_of("short", **nothing, **audio(**members)))
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["message"]["audio"]["transcript"] == "Hi."


async def test_bodies_that_are_no_json_object(shared: Running) -> None:
    headers = {"content-type": "application/json"}
    huge = b'{"n": ' + b"9" * 5_000 + b"}"
    for body in (b"", b"{", b"[]", b'"text"', b"5", b"null", b"\xff\xfe{}", b"[" * 4_000, b"{}x", b'{"a"' * 900, huge):
        error = error_of(await shared.http.post(CHAT, content=body, headers=headers), 400)
        assert error["code"] == "invalid_value"


async def test_only_json_is_read(shared: Running) -> None:
    body = json.dumps(body_of("short")).encode()
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "json"):
        error = error_of(await shared.http.post(CHAT, content=body, headers={"content-type": kind}), 400)
        assert "application/json" in error["message"]
    for kind in ("application/json", "Application/JSON; charset=utf-8"):
        answer = await shared.http.post(CHAT, content=body, headers={"content-type": kind})
        assert answer.status_code == 200


async def test_a_body_that_is_too_large_is_413(shared: Running) -> None:
    body = json.dumps(body_of("short", "x" * 9_000)).encode()

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(body), 500):
            yield body[at : at + 500]
            await asyncio.sleep(0)

    headers = {"content-type": "application/json"}
    for content in (body, pieces()):
        error = error_of(await shared.http.post(CHAT, content=content, headers=headers), 413)
        assert error["code"] == "request_too_large"
    with pytest.raises(openai.APIStatusError) as caught:
        await whole(shared, "short", "x" * 9_000)
    assert caught.value.status_code == 413


async def test_a_body_that_does_not_arrive_is_not_waited_for(start: Any) -> None:
    async with start(upstream=True, server__body_timeout_s=0.1) as server:
        never = asyncio.Event()

        async def pieces() -> AsyncIterator[bytes]:
            yield b'{"model"'
            await never.wait()

        asking = asyncio.create_task(
            server.http.post(CHAT, content=pieces(), headers={"content-type": "application/json"})
        )
        counted = 'sidecar_faults_total{code="invalid_value"} 1.0'
        async with asyncio.timeout(20):
            while counted not in (await server.http.get("/metrics")).text:
                await asyncio.sleep(0.01)
        never.set()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


async def test_other_methods_and_paths(shared: Running) -> None:
    for answer, status in (
        (await shared.http.get(CHAT), 405),
        (await shared.http.post("/v1/chat/completion", json={}), 404),
        (await shared.http.post("/v1/responses", json={}), 404),
    ):
        assert answer.status_code == status
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


# ---------------------------------------------------------------- keys
async def test_a_key_is_needed_where_keys_are_set(start: Any) -> None:
    async with start(upstream=True, auth__api_keys=("sk-right", "acme:sk-other")) as server:
        for modalities in (["text"], ["text", "audio"]):
            for key in ("sk-wrong", "sk-righ", "acme:sk-other"):
                with pytest.raises(openai.AuthenticationError) as caught:
                    await whole(
                        server, "short", modalities=modalities, extra_headers={"authorization": f"Bearer {key}"}
                    )
                assert (caught.value.code, caught.value.type) == ("invalid_api_key", "invalid_request_error")
                assert key not in str(caught.value.body)
        for header in ({"authorization": ""}, {"authorization": "Basic sk-right"}):
            error = error_of(await server.http.post(CHAT, json=body_of("short"), headers=header), 401)
            assert error["code"] == "invalid_api_key"
        bare = httpx.AsyncClient(base_url=server.url)
        error_of(await bare.post(CHAT, json=body_of("short")), 401)
        await bare.aclose()
        assert not upstream_of(server).requests
        for key in ("sk-right", "sk-other"):
            await whole(server, "short", extra_headers={"authorization": f"Bearer {key}"})


async def test_a_key_in_the_address_counts_for_nothing(start: Any) -> None:
    async with start(upstream=True, auth__api_keys=("sk-right",)) as server, httpx.AsyncClient() as bare:
        for query in ("api_key=sk-right", "key=sk-right", "authorization=Bearer%20sk-right"):
            error_of(await bare.post(f"{server.url}{CHAT}?{query}", json=body_of("short")), 401)


async def test_whoever_guesses_keys_is_turned_away(start: Any) -> None:
    async with start(upstream=True, auth__api_keys=("sk-right",)) as server:
        for number in range(10):
            with pytest.raises(openai.AuthenticationError):
                await whole(server, "short", extra_headers={"authorization": f"Bearer guess-{number}"})
        for key in ("guess-11", "sk-right"):
            with pytest.raises(openai.RateLimitError) as caught:
                await whole(server, "short", extra_headers={"authorization": f"Bearer {key}"})
            assert int(caught.value.response.headers["retry-after"]) >= 1
        assert not upstream_of(server).requests


async def test_without_keys_everybody_may_speak(shared: Running) -> None:
    async with httpx.AsyncClient(base_url=shared.url) as bare:
        assert (await bare.post(CHAT, json=body_of("short"))).status_code == 200
    await streamed(shared, "short")
