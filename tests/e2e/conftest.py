"""A real server on a real socket, for the tests of this folder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI

from sidecar.config import Config, load
from sidecar.http.app import create_app
from sidecar.http.service import Service
from sidecar.server import BackgroundServer
from sidecar.wiring import build
from tests.upstream import Upstream

KEY = "sk-test"


@dataclass
class Running:
    """A server, its parts, and clients for it."""

    url: str
    service: Service
    openai: AsyncOpenAI
    http: httpx.AsyncClient
    upstream: Upstream | None

    @property
    def ws_url(self) -> str:
        return "ws" + self.url[4:] + "/v1/audio/speech/stream"

    async def rows_free(self) -> None:
        """Wait until the engine has no row in use."""
        while (await self.service.engine.health()).active_rows:
            await asyncio.sleep(0.005)


def config_with(**flags: Any) -> Config:
    """A configuration for tests: the tone engine, a store in memory, a free port."""
    plain = {
        "server.port": 0,
        "engine.kind": "tone",
        "engine.threads": 1,
        "store.url": "memory:",
        "server.log_level": "error",
        "server.shutdown_grace_s": 2,
    }
    return load(None, {}, plain | {k.replace("__", "."): v for k, v in flags.items()})


@asynccontextmanager
async def running(upstream: bool = False, **flags: Any) -> AsyncIterator[Running]:
    """A server that is ready; ``upstream``: with a scripted OpenAI-compatible server behind it."""
    async with AsyncExitStack() as stack:
        up = await stack.enter_async_context(Upstream()) if upstream else None
        if up is not None:
            flags["llm__url"] = up.base_url
        service = build(config_with(**flags))
        await service.start()
        stack.push_async_callback(service.close)
        server = await stack.enter_async_context(BackgroundServer(create_app(service), service.config.server))
        await service.until_ready()
        client = AsyncOpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0, timeout=60)
        http = httpx.AsyncClient(base_url=server.url, timeout=60, headers={"authorization": f"Bearer {KEY}"})
        stack.push_async_callback(client.close)
        stack.push_async_callback(http.aclose)
        yield Running(server.url, service, client, http, up)


Start = Callable[..., Any]


@pytest.fixture
def start() -> Start:
    """``async with start(upstream=True, chat__idle_flush_ms=50) as server``."""
    return running


@pytest.fixture
async def server() -> AsyncIterator[Running]:
    """The tone engine and the scripted language model."""
    async with running() as server:
        yield server


@pytest.fixture
async def proxied() -> AsyncIterator[Running]:
    """The tone engine before an upstream that can misbehave."""
    async with running(upstream=True) as server:
        yield server
