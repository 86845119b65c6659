"""The lists: models and voices, as SDKs and pickers ask for them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest
import pytest_asyncio

from tests.e2e.conftest import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

OWN = ["sidecar-tts", "tts-1", "tts-1-hd", "gpt-4o-mini-tts"]
LISTS = ("/v1/models", "/v1/audio/models", "/v1/audio/voices", "/v1/models/tts-1")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[Running]:
    """One server for all: lists are only read."""
    async with running(upstream=True) as server:
        yield server


async def test_own_models_come_first_then_the_upstreams(shared: Running) -> None:
    models = [model async for model in shared.openai.models.list()]
    ids = [model.id for model in models]
    assert ids[: len(OWN)] == OWN
    assert "fake-plain" in ids
    assert len(ids) == len(set(ids))
    assert all(model.object == "model" and type(model.created) is int and model.owned_by for model in models)
    body = (await shared.http.get("/v1/models")).json()
    assert body["object"] == "list"
    assert body == (await shared.http.get("/v1/models")).json()


async def test_one_model_is_found_by_its_name(shared: Running) -> None:
    for name in ("fake-plain", *OWN):
        model = await shared.openai.models.retrieve(name)
        assert (model.id, model.object) == (name, "model")


async def test_names_may_contain_slashes(start: Any) -> None:
    async with start(upstream=True, speech__models=("org/family/voice-1",)) as server:
        for path in ("org/family/voice-1", "org%2Ffamily%2Fvoice-1"):
            answer = await server.http.get(f"/v1/models/{path}")
            assert answer.status_code == 200, path
            assert answer.json()["id"] == "org/family/voice-1"
        assert (await server.openai.models.retrieve("org/family/voice-1")).id == "org/family/voice-1"


async def test_an_unknown_model_is_404(shared: Running) -> None:
    for name in ("nobody", "fake-plain/extra", "x" * 300):
        with pytest.raises(openai.NotFoundError) as caught:
            await shared.openai.models.retrieve(name)
        assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


async def test_an_upstream_that_is_away_only_shortens_the_list(start: Any) -> None:
    async with start(llm__url="http://127.0.0.1:9/v1", llm__kind="openai") as server:
        assert [model.id async for model in server.openai.models.list()] == OWN
        with pytest.raises(openai.APIStatusError) as caught:
            await server.openai.models.retrieve("fake-plain")
        assert caught.value.code == "upstream_unreachable"


async def test_voices_are_listed_for_pickers(shared: Running) -> None:
    body = (await shared.http.get("/v1/audio/voices")).json()
    assert {"alloy", "cedar", "default", "alto", "bass"} <= set(body["voices"])
    assert body["voices"] == sorted(body["voices"])
    assert [entry["id"] for entry in body["details"]] == body["voices"]
    assert all(entry["name"] for entry in body["details"])
    models = (await shared.http.get("/v1/audio/models")).json()
    assert [model["id"] for model in models["models"]] == OWN


async def test_lists_are_open_unless_that_is_switched_off(start: Any) -> None:
    async with start(upstream=True, auth__api_keys=("sk-right",)) as server, httpx.AsyncClient() as bare:
        for path in LISTS:
            assert (await bare.get(server.url + path)).status_code == 200
    async with start(auth__api_keys=("sk-right",), auth__open_lists=False) as server, httpx.AsyncClient() as bare:
        for path in LISTS:
            refused = await bare.get(server.url + path)
            assert refused.status_code == 401
            assert refused.json()["error"]["code"] == "invalid_api_key"
            known = await bare.get(server.url + path, headers={"authorization": "Bearer sk-right"})
            assert known.status_code == 200
