"""POST /v1/audio/speech/batch, as vLLM-Omni's clients use it."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.e2e.conftest import Running, Start


async def batch(server: Running, status: int = 200, **members: Any) -> Any:
    answer = await server.http.post("/v1/audio/speech/batch", json=members)
    assert answer.status_code == status, answer.text[:300]
    return answer.json()


async def test_every_item_is_what_it_would_be_alone(server: Running) -> None:
    texts = [f"Text number {n}." for n in range(12)]
    body = await batch(server, items=[{"input": text} for text in texts], response_format="pcm", voice="bass")
    assert body["id"].startswith("speech-batch-")
    assert (body["total"], body["succeeded"], body["failed"]) == (12, 12, 0)
    assert [result["index"] for result in body["results"]] == list(range(12))
    for text, result in zip(texts, body["results"], strict=True):
        assert set(result) == {"index", "status", "audio_data", "media_type", "usage"}
        assert result["media_type"] == "audio/pcm"
        alone = await server.http.post(
            "/v1/audio/speech", json={"input": text, "response_format": "pcm", "voice": "bass"}
        )
        # No seed in a batch: another draw, the same words.
        assert len(base64.b64decode(result["audio_data"])) == len(alone.content)
        assert result["usage"]["output_tokens"] == int(alone.headers["x-vllm-omni-output-tokens"])
    await server.rows_free()


async def test_an_item_goes_before_the_defaults(server: Running) -> None:
    body = await batch(
        server,
        items=[{"input": "One."}, {"input": "Two.", "response_format": "flac"}, {"input": "Three.", "speed": None}],
        response_format="mp3",
    )
    assert [result["media_type"] for result in body["results"]] == ["audio/mpeg", "audio/flac", "audio/mpeg"]


async def test_the_default_format_is_wav_whatever_streams(server: Running) -> None:
    body = await batch(server, items=[{"input": "One.", "stream": True, "stream_format": "sse"}], stream=True)
    assert base64.b64decode(body["results"][0]["audio_data"])[:4] == b"RIFF"


async def test_one_bad_item_does_not_spoil_the_others(server: Running) -> None:
    items = [
        {"input": "Good."},
        {"input": "   "},
        {"input": "Bad.", "voice": "nobody"},
        {"input": "Bad.", "speed": 9},
        {"input": "Bad.", "ref_audio": ["a", "b"]},
        {"input": "Bad.", "language": "Klingon"},
        {"input": "Good."},
    ]
    body = await batch(server, items=items)
    assert [result["status"] for result in body["results"]] == ["success", *["error"] * 5, "success"]
    assert (body["succeeded"], body["failed"]) == (2, 5)
    for result in body["results"][1:6]:
        assert set(result) == {"index", "status", "error"}
        assert result["error"]
    assert "nobody" in body["results"][2]["error"]


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"items": []},
        {"items": "text"},
        {"items": ["text"]},
        {"items": [{"input": "One."}] * 33},
        {"items": [{"voice": "bass"}]},
        {"items": [{"input": "One."}, {"input": 5}]},
        {"items": [{"input": None}]},
        {"items": [{"input": "One."}], "model": 5},
    ],
)
async def test_what_is_wrong_with_the_whole_is_a_400(members: dict[str, Any], server: Running) -> None:
    body = await batch(server, status=400, **members)
    assert "items" in str(body) or "model" in str(body)


async def test_an_unknown_model_fails_its_items(server: Running) -> None:
    body = await batch(server, items=[{"input": "One."}], model="gpt-9")
    assert body["failed"] == 1
    assert "gpt-9" in body["results"][0]["error"]


async def test_seeds_and_embeddings_are_ignored(server: Running) -> None:
    body = await batch(server, items=[{"input": "One.", "seed": "x", "speaker_embedding": [1]}], seed=[])
    assert body["succeeded"] == 1


async def test_a_batch_waits_for_rows_and_frees_them(start: Start) -> None:
    async with start(engine__max_rows=2) as server:
        body = await batch(server, items=[{"input": f"Number {n}."} for n in range(8)])
        assert body["succeeded"] == 8
        await server.rows_free()


async def test_the_key_is_asked_for(start: Start) -> None:
    async with start(auth__api_keys=["sk-right"]) as server:
        await batch(server, status=401, items=[{"input": "One."}])
