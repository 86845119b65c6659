"""The voice-vector API: made, replaced, spoken with, mixed, compared, exported and imported."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import httpx
import numpy as np
import pytest
import pytest_asyncio
from safetensors.numpy import load, save

from tests.e2e.conftest import Running, running
from tests.e2e.speech_tools import openai_error, overheard
from tests.e2e.voice_tools import listed, recording, said, upload, vector, wav_file
from voices.vectors import cosine

pytestmark = pytest.mark.asyncio(loop_scope="module")

API = "/api/voice-vectors"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def talker() -> AsyncIterator[Running]:
    async with running() as server:
        yield server


async def make(server: Running, name: str, numbers: list[float] | None = None, **members: Any) -> httpx.Response:
    body = {"name": name, "embedding": vector() if numbers is None else numbers} | members
    return await server.http.post(API, json=body)


# ---------------------------------------------------------------- one vector
async def test_made_listed_read_spoken_deleted(talker: Running) -> None:
    answer = await make(talker, "Anna", description="Warm.", language="German", consent="c-1", seed=7)
    assert answer.status_code == 201, answer.text
    card = answer.json()
    assert (card["name"], card["description"], card["dim"], card["language"]) == ("anna", "Warm.", 1_024, "de")
    assert answer.headers["etag"] == '"1"'
    assert card in (await talker.http.get(API)).json()["vectors"]
    assert (await talker.http.get(f"{API}/ANNA")).json() == card
    assert "anna" in (await listed(talker))["voices"]
    body = {"input": "Hello there, this is me.", "response_format": "pcm", "seed": 3}
    spoken = await talker.http.post(f"{API}/anna/speech", json=body)
    assert spoken.status_code == 200
    assert spoken.content == await said(talker, speaker_embedding=vector(), seed=3, language="de")
    gone = await talker.http.delete(f"{API}/anna")
    assert gone.json() == {"name": "anna", "deleted": True}
    for method, path in (("GET", "anna"), ("DELETE", "anna"), ("GET", "never"), ("GET", "x" * 65)):
        openai_error(await talker.http.request(method, f"{API}/{path}"), 404)
    assert (await talker.http.post(f"{API}/anna/speech", json=body)).status_code == 404
    assert "anna" not in (await listed(talker))["voices"]


async def test_numbers_are_in_no_list_and_in_no_log(talker: Running, caplog: pytest.LogCaptureFixture) -> None:
    numbers = [0.123456789 + n / 7 for n in range(1_024)]
    with caplog.at_level(logging.DEBUG):
        await make(talker, "quiet", numbers)
        texts = [(await talker.http.get(path)).text for path in (API, f"{API}/quiet", "/v1/audio/voices")]
        await talker.http.post(f"{API}/quiet/speech", json={"input": "x"})
        await make(talker, "quiet-bad", [*numbers[:-1], "x"])  # type: ignore[list-item]
        shown = (await talker.http.get(f"{API}/quiet?embedding=true")).json()
    assert np.allclose(shown["embedding"], numbers, rtol=1e-6)
    assert shown["embeddings"] == {"1024": shown["embedding"]}
    for text in (*texts, caplog.text):
        assert "0.1234567" not in text
        assert "143.123" not in text


async def test_the_voice_of_the_request_does_not_take_over(talker: Running) -> None:
    await make(talker, "only", vector(seed=5))
    members = {"voice": "alto", "task_type": "CustomVoice", "ref_text": "x", "speaker_embedding": [1.0]}
    with overheard(talker) as asked:
        answer = await talker.http.post(f"{API}/only/speech", json={"input": "Hello."} | members)
    assert answer.status_code == 200, answer.text
    assert asked[0].anchor is not None
    assert asked[0].anchor.embedding.tolist() == vector(seed=5)


async def test_a_vector_of_another_width_is_kept_and_says_why_it_cannot_speak(talker: Running) -> None:
    assert (await make(talker, "wide", vector(2_048))).status_code == 201
    answer = await talker.http.post(f"{API}/wide/speech", json={"input": "x"})
    assert answer.status_code == 400
    assert "2048" in answer.text
    assert "1024" in answer.text


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"name": None}, "name"),
        ({"name": 5}, "name"),
        ({"name": "a/b"}, "name"),
        ({"name": "alto"}, "name"),
        ({"name": "export"}, "name"),
        ({"embedding": None}, "embedding"),
        ({"embedding": []}, "embedding"),
        ({"embedding": [0.0] * 1_024}, "embedding"),
        ({"embedding": [1e-9] * 1_024}, "embedding"),
        ({"embedding": [1e5] * 1_024}, "embedding"),
        ({"embedding": [0.1] * 1_000}, "embedding"),
        ({"embedding": [[0.1] * 1_024, [0.1] * 1_024]}, "embedding"),
        ({"embedding": {"0": 1}}, "embedding"),
        ({"embedding": [float("nan")] * 1_024}, "embedding"),
        ({"embedding": [1e30] * 1_024}, "embedding"),
        ({"description": 5}, "description"),
        ({"description": "x" * 501}, None),
        ({"consent": "x" * 129}, None),
        ({"language": "Klingon"}, "language"),
        ({"seed": -1}, "seed"),
        ({"seed": True}, "seed"),
    ],
)
async def test_what_a_vector_must_be(talker: Running, members: dict[str, Any], param: str | None) -> None:
    body = json.dumps({"name": "wrong", "embedding": vector()} | members)
    answer = await talker.http.post(API, content=body, headers={"content-type": "application/json"})
    assert openai_error(answer)["param"] == param


@pytest.mark.parametrize("body", ["{", "[]", "null", "[" * 100_000])
async def test_bodies_that_are_no_object(talker: Running, body: str) -> None:
    headers = {"content-type": "application/json"}
    for method, path in (("POST", API), ("PUT", f"{API}/x"), ("POST", f"{API}/mix"), ("POST", f"{API}/nearest")):
        openai_error(await talker.http.request(method, path, content=body, headers=headers))


async def test_replacing_keeps_what_is_left_out_and_versions_protect(talker: Running) -> None:
    await make(talker, "there", description="First.", seed=5)
    openai_error(await make(talker, "there"), 409)
    url = f"{API}/there"
    changed = await talker.http.put(url, json={"description": "Second."}, headers={"if-match": '"1"'})
    assert changed.status_code == 200, changed.text
    assert (changed.json()["seed"], changed.json()["description"], changed.json()["version"]) == (5, "Second.", 2)
    openai_error(await talker.http.put(url, json={"description": "Third."}, headers={"if-match": '"1"'}), 409)
    assert (await talker.http.put(url, json={"embedding": vector(seed=9)})).json()["version"] == 3
    assert (await talker.http.get(f"{url}?embedding=1")).json()["embedding"] == vector(seed=9)
    assert (await talker.http.put(f"{API}/fresh", json={"embedding": vector()})).status_code == 201
    openai_error(await talker.http.put(f"{API}/none", json={"embedding": vector()}, headers={"if-match": "*"}), 404)
    openai_error(await talker.http.put(f"{API}/none", json={"description": "x"}))


# ---------------------------------------------------------------- mixing and comparing
async def test_a_mixture_lies_between_and_is_as_long(talker: Running) -> None:
    a, b = np.array(vector(seed=11), np.float32), np.array(vector(seed=12), np.float32) * 2
    await make(talker, "ma", a.tolist(), consent="c-a")
    await make(talker, "mb", b.tolist(), consent="c-b")
    parts = [{"name": "ma", "weight": 3}, {"name": "MB", "weight": 1}]
    answer = await talker.http.post(f"{API}/mix", json={"name": "mm", "voices": parts})
    assert answer.status_code == 201, answer.text
    assert answer.json()["consent"] == "c-a,c-b"
    mixture = np.array((await talker.http.get(f"{API}/mm?embedding=true")).json()["embedding"], np.float32)
    lengths = np.linalg.norm([a, b], axis=1)
    assert np.isclose(np.linalg.norm(mixture), lengths.mean(), rtol=1e-5)
    assert cosine(mixture, 3 * a + b) > 0.99999
    assert len(await said(talker, voice="mm")) > 0


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"name": "x"}, 400, "voices"),
        ({"name": "x", "voices": []}, 400, "voices"),
        ({"name": "x", "voices": [{"name": "m1"}] * 17}, 400, "voices"),
        ({"name": "x", "voices": ["m1"]}, 400, "voices"),
        ({"name": "x", "voices": [{"name": "m1", "weight": "1"}]}, 400, "voices"),
        ({"name": "x", "voices": [{"name": "m1", "weight": True}]}, 400, "voices"),
        ({"name": "x", "voices": [{"name": "m1", "weight": float("nan")}]}, 400, "voices"),
        ({"name": "x", "voices": [{"name": "m1", "weight": 0}]}, 400, "voices"),
        ({"name": "x", "voices": [{"name": "m1", "weight": 1}, {"name": "m1", "weight": -1}]}, 400, "voices"),
        ({"name": "x", "voices": [{"name": "m1"}, {"name": "m2"}]}, 400, "voices"),
        ({"name": "x", "voices": [{"name": "nobody"}]}, 404, "name"),
        ({"voices": [{"name": "m1"}]}, 400, "name"),
        ({"name": "m2", "voices": [{"name": "m1"}]}, 409, "name"),
    ],
)
async def test_what_cannot_be_mixed(talker: Running, body: dict[str, Any], status: int, param: str) -> None:
    await make(talker, "m1")
    await make(talker, "m2", vector(2_048))
    headers = {"content-type": "application/json"}
    answer = await talker.http.post(f"{API}/mix", content=json.dumps(body), headers=headers)
    assert openai_error(answer, status)["param"] == param


async def test_the_nearest_by_vector_name_and_recording() -> None:
    async with running() as server:
        for n, hz in enumerate((100, 180, 320)):
            await upload(server, f"v{n}", recording(hz=hz, seed=n))
        await make(server, "wide", vector(2_048))
        near = (await server.http.get(f"{API}/v1?embedding=true")).json()["embedding"]
        url = "data:audio/wav;base64," + base64.b64encode(wav_file(recording(hz=180, seed=1))).decode()
        for body in ({"embedding": near}, {"voice": "V1"}, {"ref_audio": url}):
            found = (await server.http.post(f"{API}/nearest", json=body | {"k": 2})).json()["nearest"]
            assert found[0]["name"] == "v1"
            assert len(found) == 2
            assert found[0]["similarity"] > 0.9999 > found[1]["similarity"]
        file = {"audio_sample": ("v.wav", wav_file(recording(hz=320, seed=2)), "audio/wav")}
        found = (await server.http.post(f"{API}/nearest", files=file, data={"k": "1"})).json()["nearest"]
        assert [one["name"] for one in found] == ["v2"]
        openai_error(await server.http.post(f"{API}/nearest", json={"voice": "nobody"}), 404)
        for wrong in ({}, {"voice": "v1", "embedding": near}, {"voice": 5}, {"voice": "v1", "k": 0}, {"k": "x"}):
            openai_error(await server.http.post(f"{API}/nearest", json=wrong))
        openai_error(await server.http.post(f"{API}/nearest", data={"k": "1"}))


# ---------------------------------------------------------------- sets
async def test_a_set_comes_back_on_another_server(talker: Running) -> None:
    async with running() as one, running() as two:
        await upload(one, "anna", recording(hz=200), speaker_description="Warm.", language="de", seed="77")
        await make(one, "wide", vector(2_048), consent="c-2")
        file = await one.http.get(f"{API}/export")
        assert file.status_code == 200
        assert set(load(file.content)) == {"anna/1024", "wide/2048"}
        answer = await two.http.post(f"{API}/import", content=file.content)
        assert answer.json() == {"imported": ["anna", "wide"], "refused": []}
        cards = [(await server.http.get(API)).json()["vectors"] for server in (one, two)]
        for mine, theirs in zip(*cards, strict=True):
            assert {**mine, "created_at": 0} == {**theirs, "created_at": 0}
        assert await said(one, voice="anna") == await said(two, voice="anna")
        again = (await two.http.post(f"{API}/import", content=file.content)).json()
        assert again["imported"] == []
        assert {one["name"] for one in again["refused"]} == {"anna", "wide"}
        replaced = (await two.http.post(f"{API}/import?replace=true", content=file.content)).json()
        assert replaced["imported"] == ["anna", "wide"]
        some = await one.http.get(f"{API}/export", params={"name": "ANNA"})
        assert set(load(some.content)) == {"anna/1024"}
        openai_error(await one.http.get(f"{API}/export", params={"name": "nobody"}), 404)


async def test_damaged_voices_say_so_and_are_counted_where_they_are_left_out() -> None:
    async with running() as server:
        store = server.service.store
        await make(server, "whole")
        for name in ("torn", "cut"):
            await make(server, name)
            await store.put("local", "voice", name, b"hello")
        fault = openai_error(await server.http.get(f"{API}/torn"), 500)
        assert fault["code"] == "voice_damaged"
        assert "'torn'" in fault["message"]
        speech = await server.http.post("/v1/audio/speech", json={"input": "x", "voice": "torn", "model": "tts-1"})
        assert (speech.status_code, speech.json()["error"]["code"]) == (500, "voice_damaged")
        openai_error(await server.http.get(f"{API}/nobody"), 404)

        file = await server.http.get(f"{API}/export")
        assert set(load(file.content)) == {"whole/1024"}
        assert file.headers["x-sidecar-left-out"] == "2"
        one = await server.http.get(f"{API}/export", params={"name": "whole"})
        assert (set(load(one.content)), one.headers["x-sidecar-left-out"]) == ({"whole/1024"}, "0")
        fault = openai_error(await server.http.get(f"{API}/export", params={"name": ["whole", "cut"]}), 500)
        assert fault["code"] == "voice_damaged"

        body = {"embedding": vector(seed=4)}
        assert (await server.http.put(f"{API}/torn", json=body)).status_code == 200
        assert (await server.http.get(f"{API}/torn")).status_code == 200
        assert (await server.http.delete(f"{API}/cut")).status_code == 200
        assert (await server.http.get(f"{API}/export")).headers["x-sidecar-left-out"] == "0"


async def test_each_voice_of_a_foreign_file_stands_for_itself(talker: Running) -> None:
    good = np.array(vector(seed=31), np.float32)
    bad = good.copy()
    bad[3] = np.nan
    tensors: dict[str, Any] = {
        "f-good": good,
        "f-half": good.astype(np.float16),
        "f-nan": bad,
        "f-short": good[:100].copy(),
        "f-zero": np.zeros(1_024, np.float32),
        "f-rows": np.stack([good, good]),
        "f-codes": np.ones(1_024, np.int16),
        "alto": good,
        "a/b": good,
        "f-long" * 20: good,
    }
    answer = await talker.http.post(f"{API}/import?consent=c-9", content=save(tensors))
    assert answer.status_code == 200
    assert sorted(answer.json()["imported"]) == ["f-good", "f-half"]
    assert len(answer.json()["refused"]) == len(tensors) - 2
    assert (await talker.http.get(f"{API}/f-good")).json()["consent"] == "c-9"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"x" * 7,
        b"x" * 100,
        (1 << 60).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"[]",
        (2).to_bytes(8, "little") + b"{}" + b"left over",
        (50_000).to_bytes(8, "little") + b"[" * 50_000,
        save({"a": np.ones(1_024, np.float32)})[:-1],
        save({"a/1024": np.ones(1_024, np.float32)}, {"format": "sidecar-voices-1", "voices": "[]"}),
        save({"a/1024": np.ones(1_024, np.float32)}, {"format": "sidecar-voices-1", "voices": "{"}),
        save({"a/1024": np.ones(1_024, np.float32)}, {"format": "sidecar-voices-1"}),
    ],
)
async def test_files_that_are_no_set_change_nothing(talker: Running, content: bytes) -> None:
    before = (await talker.http.get(API)).json()
    assert openai_error(await talker.http.post(f"{API}/import", content=content))["param"] == "file"
    assert (await talker.http.get(API)).json() == before


@pytest.mark.parametrize(
    "about",
    [
        {"d-one": 5},
        {"d-one": {"anchors": 5}},
        {"d-one": {"anchors": {"1024": 5}}},
        {"d-one": {"base_seed": "x"}},
        {"d-one": {"level_db": "x"}},
        {"d-one": {"description": ["x"]}},
        {"d-one": {"base_voice": 5}},
        {"d-one": {"media_type": 5}},
        {"d-one": {"recording_bytes": 1.5}},
        {"d-other": {}},
    ],
)
async def test_damaged_heads_refuse_their_voice(talker: Running, about: dict[str, Any]) -> None:
    file = save({"d-one/1024": np.ones(1_024, np.float32)}, {"format": "sidecar-voices-1", "voices": json.dumps(about)})
    answer = await talker.http.post(f"{API}/import", content=file)
    assert answer.status_code == 200, answer.text
    assert answer.json()["refused"]
    await talker.http.delete(f"{API}/d-one")


# ---------------------------------------------------------------- who may
async def test_scopes() -> None:
    keys = {
        "plain": "t:plain-key-0123456789",
        "export": "t+voices:export:export-key-0123456789",
        "admin": "t+admin:admin-key-0123456789abc",
        "other": "o+admin:other-key-0123456789abc",
    }
    calls: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", API, {"json": {"name": "v", "embedding": vector()}}),
        ("GET", API, {}),
        ("GET", f"{API}/v", {}),
        ("GET", f"{API}/v?embedding=true", {}),
        ("GET", f"{API}/export", {}),
        ("POST", f"{API}/v/speech", {"json": {"input": "x"}}),
        ("PUT", f"{API}/v", {"json": {"description": "x"}}),
        ("POST", f"{API}/nearest", {"json": {"voice": "v"}}),
        ("POST", f"{API}/mix", {"json": {"name": "w", "voices": [{"name": "v"}]}}),
        ("DELETE", f"{API}/v", {}),
    ]
    wanted = {
        "admin": [201, 200, 200, 200, 200, 200, 200, 200, 201, 200],
        "plain": [403, 200, 404, 403, 403, 404, 403, 403, 403, 403],
        "export": [403, 200, 404, 404, 200, 404, 403, 403, 403, 403],
    }
    async with running(auth__api_keys=tuple(keys.values())) as server:
        for who, statuses in wanted.items():
            headers = {"authorization": f"Bearer {keys[who].rpartition(':')[2]}"}
            async with httpx.AsyncClient(base_url=server.url, timeout=60, headers=headers) as http:
                got = [(await http.request(method, path, **more)).status_code for method, path, more in calls]
            assert got == statuses, who
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
            for method, path, more in calls:
                assert (await http.request(method, path, **more)).status_code == 401
        headers = {"authorization": f"Bearer {keys['other'].rpartition(':')[2]}"}
        async with httpx.AsyncClient(base_url=server.url, timeout=60, headers=headers) as http:
            assert (await http.get(API)).json() == {"vectors": []}
            assert (await http.get(f"{API}/w")).status_code == 404
