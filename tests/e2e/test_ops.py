"""What operators, load balancers and voice pickers ask: health, readiness, metrics, lists, and wrong routes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import pytest_asyncio

from sidecar.http.app import create_app
from sidecar.server import BackgroundServer
from sidecar.wiring import build
from tests.e2e.conftest import KEY, Running, config_with, running
from tests.e2e.speech_tools import OPENAI_VOICES, SPEECH, metric, openai_error, tone_s
from tests.e2e.ws_client import LONG, STREAMED, opened

pytestmark = pytest.mark.asyncio(loop_scope="module")

LISTS = ("/v1/models", "/v1/audio/models", "/v1/audio/voices", "/v1/", "/v1/models/tts-1")
READ = ("/health", "/live", "/ready", "/metrics", *LISTS)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def talker() -> AsyncIterator[Running]:
    async with running(voices__aliases={"narrator": "tenor"}) as server:
        yield server


@asynccontextmanager
async def unready(**flags: Any) -> AsyncIterator[tuple[Any, httpx.AsyncClient]]:
    """A server that nobody has waited for."""
    service = build(config_with(**flags))
    async with (
        BackgroundServer(create_app(service), service.config.server) as server,
        httpx.AsyncClient(base_url=server.url, timeout=60) as http,
    ):
        yield service, http


# ---------------------------------------------------------------- health and readiness
async def test_a_server_that_can_speak(talker: Running) -> None:
    health = await talker.http.get("/health")
    assert health.status_code == 200
    assert health.headers["content-type"] == "application/json"
    assert health.json() == {"status": "healthy", "engine": "tone"}
    assert (await talker.http.get("/ready")).json() == {"status": "ready"}
    assert (await talker.http.get("/live")).json() == {"status": "alive"}


async def test_not_ready_before_the_warm_up() -> None:
    async with unready(engine__tone_first_chunk_delay_ms=600_000) as (service, http):
        for path, status in (("/health", "unhealthy"), ("/ready", "not ready")):
            answer = await http.get(path)
            assert answer.status_code == 503
            assert answer.json() == {"status": status, "reason": "warming up"}
        assert (await http.get("/ready")).headers["retry-after"] == "1"
        assert (await http.get("/live")).status_code == 200
        assert (await http.get("/v1/models")).status_code == 200
        assert not service.ready.is_set()


@pytest.mark.parametrize("fault", ["open", "nan", "hang"])
async def test_not_ready_when_the_warm_up_fails(fault: str) -> None:
    async with unready(engine__tone_fault=fault, engine__chunk_timeout_s=0.1) as (service, http):
        await asyncio.wait_for(service.warmed.wait(), 30)
        for path in ("/health", "/ready"):
            answer = await http.get(path)
            assert answer.status_code == 503
            assert answer.json()["reason"].startswith("the warm-up failed: ")
        assert (await http.get("/live")).status_code == 200
        assert (await service.engine.health()).active_rows == 0


async def test_ready_once_warm() -> None:
    async with unready(engine__tone_first_chunk_delay_ms=300) as (service, http):
        assert (await http.get("/ready")).status_code == 503
        await asyncio.wait_for(service.until_ready(), 30)
        assert (await http.get("/ready")).status_code == 200
        assert (await http.get("/health")).status_code == 200


async def test_a_dead_engine_is_unhealthy(start: Any) -> None:
    async with start() as server:
        await server.service.engine.close()
        for path in ("/health", "/ready"):
            answer = await server.http.get(path)
            assert answer.status_code == 503
            assert answer.json()["reason"] == "not running"
        assert (await server.http.post(SPEECH, json={"input": "Hi."})).status_code == 503


# ---------------------------------------------------------------- metrics
async def test_metrics_are_there_and_move(start: Any) -> None:
    text = "A sentence of some length, to be measured."
    async with start(engine__warm_up=False) as server:
        answer = await server.http.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        for endpoint in ("speech", "stream"):
            assert await metric(server, "sidecar_time_to_first_audio_seconds_count", endpoint=endpoint) == 0
        assert await metric(server, "sidecar_realtime_factor_count") == 0

        await server.http.post(SPEECH, json={"input": text})
        await server.http.post(SPEECH, json={"input": text, "voice": "nobody"})
        async with opened(server, STREAMED) as client:
            await client.spoken(text)
            await client.send("input.cancel")
            await client.expect("input.cancelled")

        for endpoint in ("speech", "stream"):
            assert await metric(server, "sidecar_time_to_first_audio_seconds_count", endpoint=endpoint) == 1
            assert await metric(server, "sidecar_replies_total", endpoint=endpoint, outcome="completed") == 1
        assert await metric(server, "sidecar_realtime_factor_count") == 2
        assert await metric(server, "sidecar_realtime_factor_sum") > 0
        assert await metric(server, "sidecar_audio_seconds_total") == pytest.approx(2 * tone_s(text))
        assert await metric(server, "sidecar_cancels_total") == 1
        assert await metric(server, "sidecar_faults_total", code="voice_not_found") == 1


async def test_what_speaks_now(start: Any) -> None:
    async with start(engine__tone_fault="hang", engine__warm_up=False) as server:
        assert await metric(server, "sidecar_active_replies") == 0
        asked = {"input": LONG, "response_format": "pcm", "stream_format": "audio"}
        async with opened(server, STREAMED) as client, server.http.stream("POST", SPEECH, json=asked) as answer:
            assert answer.status_code == 200
            await client.say(LONG)
            await client.begun()
            assert await metric(server, "sidecar_active_replies") == 2
            assert await metric(server, "sidecar_engine_rows") == 2
        await server.rows_free()
        while await metric(server, "sidecar_active_replies"):
            await asyncio.sleep(0.005)
        assert await metric(server, "sidecar_engine_rows") == 0


async def test_underruns(start: Any) -> None:
    """An engine slower than speech leaves its listener without sound; a whole file has no listener yet."""
    async with start(engine__tone_realtime_factor=1.5, engine__warm_up=False) as slow:
        await slow.http.post(SPEECH, json={"input": "Slow."})
        assert await metric(slow, "sidecar_underruns_total") == 0
        await slow.http.post(SPEECH, json={"input": "Slow.", "response_format": "pcm", "stream_format": "audio"})
        assert await metric(slow, "sidecar_underruns_total") > 0


async def test_metrics_tell_nothing_of_the_texts(talker: Running) -> None:
    await talker.http.post(SPEECH, json={"input": "Confidential words.", "voice": "secretname"})
    text = (await talker.http.get("/metrics")).text
    assert "Confidential" not in text
    assert "secretname" not in text
    assert KEY not in text


# ---------------------------------------------------------------- lists
async def test_voices(talker: Running) -> None:
    body = (await talker.http.get("/v1/audio/voices")).json()
    names = body["voices"]
    assert names == sorted({name.lower() for name in names})
    assert set(names) >= {"default", "alto", "bass", "tenor", "soprano", "narrator", *OPENAI_VOICES}
    assert body["uploaded_voices"] == []
    assert [entry["id"] for entry in body["details"]] == names
    assert all(entry["name"] for entry in body["details"])
    for name in ("narrator", "default", "soprano"):
        assert (await talker.http.post(SPEECH, json={"input": "Hi.", "voice": name})).status_code == 200


@pytest.mark.parametrize("path", ["/v1/models", "/v1/", "/v1"])
async def test_models(talker: Running, path: str) -> None:
    body = (await talker.http.get(path)).json()
    assert body["object"] == "list"
    ids = [card["id"] for card in body["data"]]
    assert ids[0] == "sidecar-tts"
    assert set(ids) >= {"tts-1", "tts-1-hd", "gpt-4o-mini-tts"}
    assert len(ids) == len(set(ids))
    assert all(card["object"] == "model" for card in body["data"])
    assert (await talker.http.get(path)).json() == body, "the same at every call"


async def test_the_sdk_lists_models(talker: Running) -> None:
    listed = [model.id async for model in talker.openai.models.list()]
    assert "tts-1" in listed
    assert (await talker.openai.models.retrieve("sidecar-tts")).id == "sidecar-tts"


async def test_audio_models(talker: Running) -> None:
    body = (await talker.http.get("/v1/audio/models")).json()
    assert [card["id"] for card in body["models"]] == ["sidecar-tts", "tts-1", "tts-1-hd", "gpt-4o-mini-tts"]
    for card in body["models"]:
        assert (await talker.http.post(SPEECH, json={"input": "Hi.", "model": card["id"]})).status_code == 200


async def test_an_unknown_model(talker: Running) -> None:
    for name in ("nope", "no/such/model", "%20"):
        error = openai_error(await talker.http.get(f"/v1/models/{name}"), 404)
        assert (error["code"], error["param"]) == ("model_not_found", "model")


# ---------------------------------------------------------------- keys
async def test_lists_need_no_key(start: Any) -> None:
    async with start(auth__api_keys=[KEY]) as locked, httpx.AsyncClient(base_url=locked.url) as stranger:
        for path in READ:
            assert (await stranger.get(path)).status_code == 200
        refused = await stranger.post(SPEECH, json={"input": "Hi."})
        assert refused.status_code == 401
        assert refused.json()["error"]["message"]
        assert (await locked.http.post(SPEECH, json={"input": "Hi."})).status_code == 200


async def test_lists_can_be_closed(start: Any) -> None:
    flags = {"auth__api_keys": [KEY], "auth__open_lists": False}
    async with start(**flags) as locked, httpx.AsyncClient(base_url=locked.url) as stranger:
        for path in LISTS:
            assert openai_error(await stranger.get(path), 401)["code"] == "invalid_api_key"
            assert (await locked.http.get(path)).status_code == 200
        for path in ("/health", "/live", "/ready"):
            assert (await stranger.get(path)).status_code == 200


# ---------------------------------------------------------------- routes
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "PUT"])
@pytest.mark.parametrize("path", ["/", "/nope", "/v1/audio/nope", "/v1/audio/speech/nope", "/v2/audio/speech"])
async def test_unknown_routes(talker: Running, method: str, path: str) -> None:
    error = openai_error(await talker.http.request(method, path), 404)
    assert error["code"] == "not_found"
    assert path in error["message"]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", SPEECH, "POST"),
        ("PUT", SPEECH, "POST"),
        ("DELETE", SPEECH, "POST"),
        ("HEAD", SPEECH, "POST"),
        ("POST", "/health", "GET"),
        ("POST", "/metrics", "GET"),
        ("PATCH", "/v1/models", "GET"),
        ("POST", "/v1/audio/models", "GET"),
    ],
)
async def test_wrong_methods(talker: Running, method: str, path: str, allowed: str) -> None:
    answer = await talker.http.request(method, path)
    assert answer.status_code == 405
    assert allowed in answer.headers["allow"]
    if method != "HEAD":
        openai_error(answer, 405)


async def test_a_socket_is_no_page(talker: Running) -> None:
    answer = await talker.http.get(f"{SPEECH}/stream")
    assert openai_error(answer, 426)["message"]
    assert answer.headers["upgrade"] == "websocket"


@pytest.mark.parametrize("path", READ)
async def test_head_is_get_without_its_body(talker: Running, path: str) -> None:
    head = await talker.http.head(path)
    assert head.status_code == 200
    assert head.content == b""
    assert head.headers["content-type"] == (await talker.http.get(path)).headers["content-type"]


@pytest.mark.parametrize(("path", "method"), [(SPEECH, "POST"), ("/v1/models", "GET"), ("/health", "HEAD")])
async def test_options(talker: Running, path: str, method: str) -> None:
    answer = await talker.http.options(path)
    assert answer.status_code == 204
    assert method in answer.headers["allow"]
    assert "access-control-allow-origin" not in answer.headers


async def test_pages_of_allowed_origins(start: Any) -> None:
    async with start(server__cors_origins=["https://app.example"]) as server:
        asked = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
        allowed = await server.http.options(SPEECH, headers={"origin": "https://app.example", **asked})
        assert allowed.headers["access-control-allow-origin"] == "https://app.example"
        other = await server.http.options(SPEECH, headers={"origin": "https://evil.example", **asked})
        assert "access-control-allow-origin" not in other.headers
        spoken = await server.http.post(SPEECH, json={"input": "Hi."}, headers={"origin": "https://app.example"})
        assert spoken.headers["access-control-allow-origin"] == "https://app.example"
