"""Stored voices on two servers: over one Redis, and over one file whose changes nobody tells."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.stores.redis_server import RedisServer, needs_redis, redis_server
from tests.e2e.conftest import Running, running
from tests.e2e.voice_tools import VOICES, listed, recording, said, upload, vector

API = "/api/voice-vectors"
EVENTUALLY_S = 30


@asynccontextmanager
async def pair(url: str) -> AsyncIterator[tuple[Running, Running]]:
    async with running(store__url=url) as one, running(store__url=url) as two:
        yield one, two


async def status(server: Running, voice: str) -> int:
    body = {"input": "Hello.", "voice": voice, "response_format": "pcm"}
    return (await server.http.post("/v1/audio/speech", json=body)).status_code


async def until(wanted: int, server: Running, voice: str) -> None:
    async with asyncio.timeout(EVENTUALLY_S):
        while await status(server, voice) != wanted:
            await asyncio.sleep(0.05)


@pytest.fixture(params=["redis", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "file":
        yield f"local:{tmp_path / 'voices.db'}"
        return
    with redis_server(tmp_path) as server:
        yield server.url


pytestmark = needs_redis


async def test_a_voice_is_known_replaced_and_gone_everywhere(url: str) -> None:
    async with pair(url) as (one, two):
        assert await status(two, "anna") == 400
        assert (await upload(one, "anna", seed="3")).status_code == 200
        await until(200, two, "anna")
        assert await said(one, voice="anna") == await said(two, voice="anna")
        assert "anna" in (await listed(two))["voices"]
        before = await said(two, voice="anna")
        assert (await upload(one, "anna", recording(hz=320, seed=5), seed="3")).status_code == 200
        async with asyncio.timeout(EVENTUALLY_S):
            while await said(two, voice="anna") == before:
                await asyncio.sleep(0.05)
        assert await said(one, voice="anna") == await said(two, voice="anna")
        assert (await two.http.delete(f"{VOICES}/anna")).status_code == 200
        await until(400, one, "anna")
        assert (await one.http.delete(f"{VOICES}/anna")).status_code == 404


async def test_of_two_who_replace_one_version_one_wins(url: str) -> None:
    async with pair(url) as servers:
        await servers[0].http.post(API, json={"name": "v", "embedding": vector()})
        for version in range(1, 4):
            replacing = [
                servers[n % 2].http.put(
                    f"{API}/v", json={"description": f"{version}.{n}"}, headers={"if-match": f'"{version}"'}
                )
                for n in range(6)
            ]
            answers = await asyncio.gather(*replacing)
            assert sorted(answer.status_code for answer in answers) == [200, *[409] * 5]
            winner = next(answer.json() for answer in answers if answer.status_code == 200)
            assert (await servers[0].http.get(f"{API}/v")).json()["description"] == winner["description"]


async def test_without_the_store_what_was_used_speaks_on(tmp_path: Path) -> None:
    with redis_server(tmp_path) as redis:
        async with pair(redis.url) as (one, two):
            await upload(one, "anna", seed="3")
            await until(200, two, "anna")
            before = await said(two, voice="anna")
            await _away(redis.kill, two, before)
            assert (await upload(one, "bert")).status_code == 503
            assert await status(two, "never-seen") == 503
            assert await status(two, "alloy") == 200
            assert "alloy" in (await listed(two))["voices"]


async def test_a_frozen_store_holds_nothing_up(tmp_path: Path) -> None:
    with redis_server(tmp_path) as redis:
        async with pair(redis.url) as (one, two):
            await upload(one, "anna", seed="3")
            await until(200, two, "anna")
            before = await said(two, voice="anna")
            await _away(redis.freeze, two, before)
            redis.thaw()
            await _back(redis, one, two)


async def _away(stop: Callable[[], None], server: Running, before: bytes) -> None:
    """The store goes; what is cached is past its time, and serves all the same."""
    stop()
    await asyncio.sleep(1.2)
    for _ in range(3):
        assert await said(server, voice="anna") == before


async def _back(redis: RedisServer, one: Running, two: Running) -> None:
    async with asyncio.timeout(EVENTUALLY_S):
        while (await one.http.delete(f"{VOICES}/anna")).status_code == 503:
            await asyncio.sleep(0.1)
    await until(400, two, "anna")
