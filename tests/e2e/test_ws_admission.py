"""Who may open a speech socket: keys, subprotocols, origins, and how many."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.e2e.conftest import KEY, Running, running
from tests.e2e.ws_client import opened

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY_PROTOCOL = "openai-insecure-api-key."


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def locked() -> AsyncIterator[Running]:
    async with running(auth__api_keys=[KEY, "shop:sk-other"], server__cors_origins=["https://app.example"]) as server:
        yield server


async def refusal(server: Running, **how: Any) -> tuple[int, dict[str, Any], Any]:
    """The HTTP answer that comes instead of the handshake: status, error object, headers."""
    with pytest.raises(InvalidStatus) as refused:
        async with connect(server.ws_url, proxy=None, **how):
            pass
    response = refused.value.response
    assert response.headers["content-type"] == "application/json"
    return response.status_code, json.loads(response.body or b"")["error"], response.headers


async def admitted(server: Running, **how: Any) -> str | None:
    """It speaks; the subprotocol that was chosen."""
    async with opened(server, {}, **how) as client:
        assert (await client.spoken("Ok.")).failed == [False]
        return client.connection.subprotocol


def bearer(key: str) -> dict[str, Any]:
    return {"additional_headers": {"Authorization": f"Bearer {key}"}}


@pytest.mark.parametrize("key", [KEY, "sk-other"])
async def test_a_key_in_the_header(locked: Running, key: str) -> None:
    assert await admitted(locked, **bearer(key)) is None


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        ([KEY_PROTOCOL + KEY], None),
        (["realtime", KEY_PROTOCOL + KEY], "realtime"),
        ([KEY_PROTOCOL + KEY, "speech", "other"], "speech"),
    ],
)
async def test_a_key_as_a_subprotocol(locked: Running, offered: list[str], chosen: str | None) -> None:
    """As browsers do; the key itself is never sent back."""
    assert await admitted(locked, subprotocols=offered) == chosen


@pytest.mark.parametrize(
    "how",
    [
        {},
        bearer("sk-wrong"),
        bearer(""),
        {"additional_headers": {"Authorization": f"Basic {KEY}"}},
        {"subprotocols": ["realtime"]},
        {"subprotocols": [KEY_PROTOCOL + "sk-wrong"]},
        {**bearer("sk-wrong"), "subprotocols": [KEY_PROTOCOL + KEY]},
    ],
    ids=["none", "wrong", "empty", "basic", "protocol", "wrong-protocol", "header-first"],
)
async def test_a_wrong_key_is_refused_before_the_handshake(locked: Running, how: dict[str, Any]) -> None:
    status, error, _ = await refusal(locked, **how)
    assert (status, error["code"], error["type"]) == (401, "invalid_api_key", "invalid_request_error")
    assert "sk-" not in error["message"]


async def test_an_address_that_guesses_is_turned_away(start: Any) -> None:
    async with start(auth__api_keys=[KEY]) as server:
        statuses = [(await refusal(server, **bearer(f"sk-{guess}")))[0] for guess in range(12)]
        assert statuses[0] == 401
        assert statuses[-1] == 429
        status, error, headers = await refusal(server, **bearer(KEY))
        assert (status, error["code"]) == (429, "overloaded")
        assert int(headers["retry-after"]) >= 1


async def test_without_keys_everybody_is_let_in(start: Any) -> None:
    async with start() as server:
        assert await admitted(server) is None
        assert await admitted(server, subprotocols=["speech"]) == "speech"


@pytest.mark.parametrize("origin", ["https://app.example", "own"])
async def test_pages_that_may(locked: Running, origin: str) -> None:
    await admitted(locked, origin=locked.url if origin == "own" else origin, **bearer(KEY))


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "https://app.example.evil.example", "null", "http://localhost:1"]
)
async def test_pages_of_other_origins_may_not(locked: Running, origin: str) -> None:
    status, error, _ = await refusal(locked, origin=origin, **bearer(KEY))
    assert (status, error["code"]) == (403, "forbidden")


async def test_all_origins(start: Any) -> None:
    async with start(server__cors_origins=["*"]) as server:
        await admitted(server, origin="https://any.example")


async def test_so_many_sockets_and_no_more(start: Any) -> None:
    async with start(stream__max_sockets=2) as server:
        async with opened(server), opened(server, {}) as second:
            status, error, headers = await refusal(server)
            assert (status, error["code"]) == (429, "overloaded")
            assert int(headers["retry-after"]) >= 1
            await second.send("session.close")
            assert await second.close_code() == 1000
            while server.service.sockets > 1:
                await second.connection.wait_closed()
            await admitted(server)
        assert (await server.http.get("/health")).status_code == 200


async def test_another_path_is_no_socket(locked: Running) -> None:
    with pytest.raises(InvalidStatus) as refused:
        async with connect(locked.ws_url + "/nope", proxy=None):
            pass
    assert refused.value.response.status_code in (403, 404)
