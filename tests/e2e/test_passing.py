"""What the language model's server offers beside chat passes through."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import Running, Start


async def test_other_paths_reach_the_upstream_as_they_are(proxied: Running) -> None:
    assert proxied.upstream is not None
    raw = b'{"input": "x",  "model": "m"}'
    answer = await proxied.http.post("/v1/embeddings", content=raw, headers={"content-type": "application/json"})
    seen = proxied.upstream.requests[-1]
    assert (seen.method, seen.path, seen.raw) == ("POST", "/v1/embeddings", raw)
    assert answer.status_code == 404, "this upstream knows no embeddings, and its own answer comes back"
    assert answer.headers["content-type"].startswith("application/json")
    assert "x-request-id" in answer.headers


@pytest.mark.parametrize("path", ["/v1/audio/nothing", "/v1/realtime/x", "/v1/%2e%2e/secrets", "/other"])
async def test_what_is_ours_or_nowhere_is_not_forwarded(path: str, proxied: Running) -> None:
    assert proxied.upstream is not None
    before = len(proxied.upstream.requests)
    answer = await proxied.http.get(path)
    assert answer.status_code == 404
    assert answer.json()["error"]["message"]
    assert len(proxied.upstream.requests) == before


async def test_a_body_that_is_not_json_is_refused(proxied: Running) -> None:
    answer = await proxied.http.post("/v1/embeddings", content=b"x", headers={"content-type": "text/plain"})
    assert answer.status_code == 400


async def test_keys_are_checked(start: Start) -> None:
    async with start(upstream=True, auth__api_keys=("another-key-0123456789",)) as server:
        answer = await server.http.post("/v1/embeddings", json={"input": "x"})
        assert answer.status_code == 401
        assert server.upstream.requests == []
