"""Stored voices: uploaded, listed, spoken with, deleted; over real sockets with the tone engine."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest
import pytest_asyncio
from openai import AsyncOpenAI

from tests.e2e.conftest import Running, running
from tests.e2e.speech_tools import events, omni_error, overheard
from tests.e2e.voice_tools import VOICES, listed, recording, said, upload, vector, wav_file
from tests.e2e.ws_client import opened
from voices.seeds import segment_seed

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = "Hello there, this is me."


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def talker() -> AsyncIterator[Running]:
    async with running(voices__aliases={"narrator": "tenor", "boss": "carl"}) as server:
        yield server


# ---------------------------------------------------------------- upload and list
async def test_an_uploaded_voice_is_listed_and_speaks(talker: Running) -> None:
    answer = await upload(talker, " Anna ", ref_text="What is said here.", speaker_description="Warm.", language="de")
    body = answer.json()
    assert answer.status_code == 200, body
    assert body["success"] is True
    voice = body["voice"]
    assert voice == {
        "name": "anna",
        "consent": "consent-1",
        "created_at": voice["created_at"],
        "mime_type": "audio/wav",
        "file_size": len(wav_file(recording())),
        "ref_text": "What is said here.",
        "speaker_description": "Warm.",
    }
    names = await listed(talker)
    assert "anna" in names["voices"]
    assert names["voices"] == sorted(set(names["voices"]))
    assert {"id": "anna", "name": "Warm."} in names["details"]
    entry = next(e for e in names["uploaded_voices"] if e["name"] == "anna")
    assert voice.items() <= entry.items()
    assert (entry["embedding_source"], entry["embedding_dim"]) == ("audio", None)
    with overheard(talker) as asked:
        pcm = await said(talker, voice="ANNA")
    assert asked[0].anchor is not None
    assert asked[0].language == "de"
    assert pcm != await said(talker, voice="alto", seed=asked[0].seed, language="de")


async def test_the_same_recording_is_the_same_voice_and_another_is_another(talker: Running) -> None:
    await upload(talker, "one", recording(hz=120), seed="7")
    await upload(talker, "same", recording(hz=120), seed="7")
    await upload(talker, "other", recording(hz=300, seed=3), seed="7")
    assert await said(talker, voice="one") == await said(talker, voice="same")
    assert await said(talker, voice="one") != await said(talker, voice="other")


async def test_a_vector_is_a_voice_too(talker: Running) -> None:
    form = {"name": "vec", "consent": "c", "speaker_embedding": json.dumps(vector()), "ref_text": "ignored"}
    answer = await talker.http.post(VOICES, data=form)
    assert answer.status_code == 200, answer.text
    voice = answer.json()["voice"]
    assert voice == {
        "name": "vec",
        "consent": "c",
        "created_at": voice["created_at"],
        "embedding_source": "direct",
        "embedding_dim": 1_024,
    }
    assert await said(talker, voice="vec", seed=3) == await said(talker, speaker_embedding=vector(), seed=3)


async def test_dates_always_rise(talker: Running) -> None:
    dates = [(await upload(talker, f"dated-{n}")).json()["voice"]["created_at"] for n in range(3)]
    assert dates == sorted(set(dates))


async def test_what_a_form_must_have(talker: Running) -> None:
    good: dict[str, Any] = {"name": "x", "consent": "c"}
    file = {"audio_sample": ("v.wav", wav_file(recording()), "audio/wav")}
    numbers = json.dumps(vector())
    cases: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        ({"consent": "c"}, file, "name"),
        ({"name": "  ", "consent": "c"}, file, "name"),
        ({"name": "x"}, file, "consent"),
        (good, {}, "audio_sample"),
        (good | {"speaker_embedding": numbers}, file, "audio_sample"),
        (good | {"type": "prompt", "prompt": "A deep voice."}, {}, "type"),
        (good | {"ref_text": "x" * 2_001}, file, "ref_text"),
        (good | {"seed": "-1"}, file, "seed"),
        (good | {"seed": str(2**63)}, file, "seed"),
        (good | {"language": "Klingon"}, file, "language"),
        (good | {"audition": "1"}, file, "audition"),
        (good | {"audition": "17"}, file, "audition"),
        (good | {"audition": "many"}, file, "audition"),
    ]
    for name in ("..", ".", "a/b", "../x", "a\\b", "a\0b", "n" * 65, "alto", "ALTO", "default", "alto+bass", "a\r\nb"):
        cases.append(({"name": name, "consent": "c"}, file, "name"))
    for data, files, param in cases:
        answer = await talker.http.post(VOICES, data=data, files=files or {"other": ("a.txt", b"a", "text/plain")})
        assert omni_error(answer)["param"] == param, data
    assert "x" not in (await listed(talker))["voices"]


@pytest.mark.parametrize(
    "numbers",
    [
        "",
        "[]",
        "x",
        "{}",
        "[" * 50_000,
        json.dumps(vector()[:-1]),
        json.dumps([*vector()[:-1], "1"]),
        "[" + ",".join(["NaN"] * 1_024) + "]",
        "[" + ",".join(["Infinity"] * 1_024) + "]",
        "[" + ",".join(["1e300"] * 1_024) + "]",
        json.dumps([0.0] * 1_024),
        json.dumps([True] * 1_024),
        json.dumps([[0.1] * 512, [0.1] * 512]),
    ],
)
async def test_numbers_that_are_no_vector(talker: Running, numbers: str) -> None:
    form = {"name": "bad", "consent": "c", "speaker_embedding": numbers}
    assert omni_error(await talker.http.post(VOICES, data=form))["param"] in ("speaker_embedding", "audio_sample")


@pytest.mark.parametrize(
    ("file", "status"),
    [
        (("v.wav", b"RIFF garbage", "audio/wav"), 400),
        (("v.wav", b"", "audio/wav"), 400),
        (("v.wav", wav_file(recording(0.4)), "audio/wav"), 400),
        (("v.wav", wav_file(recording(31.0)), "audio/wav"), 400),
        (("v.wav", wav_file(0 * recording(4.0)), "audio/wav"), 400),
        (("v.txt", b"hello", "text/plain"), 400),
        (("v.wav", bytes((10 << 20) + 1), "audio/wav"), 400),
        (("v.wav", bytes(12 << 20), "audio/wav"), 413),
    ],
    ids=["garbage", "empty", "short", "long", "silent", "type", "large", "too-large"],
)
async def test_a_bad_upload_leaves_the_old_voice(talker: Running, file: Any, status: int) -> None:
    assert (await upload(talker, "kept", seed="5")).status_code == 200
    before = await said(talker, voice="kept")
    error = omni_error(await upload(talker, "kept", file=file), status)
    assert not any(word in error["message"] for word in ("/tmp", "Traceback", "/home", "/root"))
    assert await said(talker, voice="kept") == before


async def test_stereo_and_types_by_their_ending(talker: Running) -> None:
    stereo = ("v.WAV", wav_file(recording(), channels=2), "application/octet-stream")
    assert (await upload(talker, "stereo", file=stereo)).json()["voice"]["mime_type"] == "audio/wav"


async def test_a_transcript_that_nobody_can_have_said(talker: Running) -> None:
    assert omni_error(await upload(talker, "fast", ref_text="word " * 200))["param"] == "ref_text"


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"{}", "application/json"),
        (b"", "multipart/form-data"),
        (b"--x", "multipart/form-data; boundary=x"),
        (b"--x\r\n\r\n", "multipart/form-data; boundary=y"),
        (b"\xff\xfe", "application/x-www-form-urlencoded"),
        (b"&".join(b"a%d=1" % n for n in range(100)), "application/x-www-form-urlencoded"),
    ],
)
async def test_bodies_that_are_no_form(talker: Running, content: bytes, kind: str) -> None:
    omni_error(await talker.http.post(VOICES, content=content, headers={"content-type": kind}))


async def test_too_many_parts(talker: Running) -> None:
    files = {f"f{n}": ("a.wav", b"x", "audio/wav") for n in range(40)}
    omni_error(await talker.http.post(VOICES, data={"name": "many", "consent": "c"}, files=files))


# ---------------------------------------------------------------- audition
async def test_an_audition_tells_its_progress_and_keeps_the_best_seed(talker: Running) -> None:
    with overheard(talker) as asked:
        answer = await upload(talker, "heard", audition="3", seed="4", language="de")
    assert answer.headers["content-type"].startswith("text/event-stream")
    found = events(answer.text)
    assert [kind for kind, _ in found] == ["voice.stored", *["voice.audition.progress"] * 3, "voice.audition.done"]
    assert all(body["type"] == kind for kind, body in found)
    stored, *progress, done = [body for _, body in found]
    assert stored["voice"]["name"] == "heard"
    assert [one["done"] for one in progress] == [1, 2, 3]
    assert progress[0]["seed"] == 4
    top = max(progress, key=lambda one: (one["worst"], one["mean"]))
    assert (done["seed"], done["worst"]) == (top["seed"], top["worst"])
    assert [u.seed for u in asked[:3]] == [segment_seed(4, 0, n) for n in range(3)]
    assert {u.language for u in asked} == {"de"}
    card = (await talker.http.get("/api/voice-vectors/heard")).json()
    assert (card["seed"], card["version"]) == (done["seed"], done["version"])


async def test_an_audition_that_fails_leaves_the_voice(start: Any) -> None:
    async with start(engine__tone_fault="first_chunk", engine__warm_up=False) as server:
        answer = await upload(server, "heard", audition="2", seed="4")
        kinds = [kind for kind, _ in events(answer.text)]
        assert kinds == ["voice.stored", *["voice.audition.progress"] * 2, "voice.audition.error"]
        assert (await server.http.get("/api/voice-vectors/heard")).json()["seed"] == 4


async def test_who_leaves_an_audition_ends_it() -> None:
    async with running(engine__tone_realtime_factor=0.5) as server:
        files = {"audio_sample": ("v.wav", wav_file(recording()), "audio/wav")}
        form = {"name": "left", "consent": "c", "audition": "16"}
        async with server.http.stream("POST", VOICES, data=form, files=files) as answer:
            async for line in answer.aiter_lines():
                if line == "event: voice.stored":
                    break
        async with asyncio.timeout(30):
            await server.rows_free()
        assert "left" in (await listed(server))["voices"]


# ---------------------------------------------------------------- use
async def test_a_voice_without_a_seed_in_the_request_speaks_with_its_own(talker: Running) -> None:
    await upload(talker, "seeded", seed="42")
    with overheard(talker) as asked:
        first = await said(talker, voice="seeded")
        assert await said(talker, voice={"id": "seeded"}) == first
        assert await said(talker, voice="seeded", seed=1) != first
    assert [u.seed for u in asked] == [segment_seed(42, 0, 0)] * 2 + [1]


async def test_a_stored_voice_goes_before_an_alias_and_an_alias_may_name_one(talker: Running) -> None:
    await upload(talker, "nova", recording(hz=300))
    await upload(talker, "carl", recording(hz=100))
    with overheard(talker) as asked:
        for name in ("nova", "carl", "boss", "shimmer", "narrator"):
            await said(talker, voice=name)
    nova, carl, boss, shimmer, narrator = asked
    assert nova.anchor is not None
    assert carl.anchor is not None
    assert boss.anchor is not None
    assert carl.anchor.same_as(boss.anchor)
    assert not nova.anchor.same_as(carl.anchor)
    assert (shimmer.voice, narrator.voice) == ("alto", "tenor")
    assert (shimmer.anchor, narrator.anchor) == (None, None)


async def test_a_task_type_does_not_keep_a_stored_voice_from_speaking(talker: Running) -> None:
    await upload(talker, "typed", seed="1")
    assert await said(talker, voice="typed", task_type="CustomVoice") == await said(talker, voice="typed")


async def test_an_unknown_voice_lists_the_stored_ones(talker: Running) -> None:
    await upload(talker, "findme")
    answer = await talker.http.post("/v1/audio/speech", json={"input": "x", "voice": "findmee"})
    assert "findme," in omni_error(answer)["message"] or "findme." in answer.text


async def test_the_socket_speaks_with_it(talker: Running) -> None:
    await upload(talker, "wsvoice", seed="9")
    with overheard(talker) as asked:
        async with opened(talker) as client:
            await client.configure(voice="wsvoice", split_granularity="sentence")
            assert (await client.spoken("First one. Second one.")).failed == [False, False]
    assert [u.anchor is not None for u in asked] == [True] * len(asked)
    assert [u.seed for u in asked] == [segment_seed(9, 0, n) for n in range(len(asked))]


async def test_a_chat_answer_is_spoken_with_it(talker: Running) -> None:
    await upload(talker, "chatvoice", seed="11", language="fr")
    with overheard(talker) as asked:
        for voice in ("chatvoice", {"id": "ChatVoice"}):
            body = {
                "model": "scripted-echo",
                "messages": [{"role": "user", "content": "Say something nice."}],
                "modalities": ["text", "audio"],
                "audio": {"voice": voice, "format": "pcm16"},
            }
            answer = await talker.http.post("/v1/chat/completions", json=body)
            assert base64.b64decode(answer.json()["choices"][0]["message"]["audio"]["data"])
    half = len(asked) // 2
    assert [u.seed for u in asked[:half]] == [u.seed for u in asked[half:]]
    assert asked[0].seed == segment_seed(11, 0, 0)
    assert {u.language for u in asked} == {"fr"}
    assert all(u.anchor is not None for u in asked)


async def test_a_chat_with_a_voice_that_is_not_there(talker: Running) -> None:
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "x"}],
        "modalities": ["text", "audio"],
        "audio": {"voice": "nobody", "format": "wav"},
    }
    answer = await talker.http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "audio.voice"


async def test_a_recording_in_the_request(talker: Running) -> None:
    url = "data:audio/wav;base64," + base64.b64encode(wav_file(recording())).decode()
    await upload(talker, "fromfile", seed="1")
    with overheard(talker) as asked:
        inline = await said(talker, ref_audio=url, x_vector_only_mode=True, seed=3)
        bare = await said(talker, ref_audio=[url.partition(",")[2]], ref_text="Words.", seed=3)
        stored = await said(talker, voice="fromfile", seed=3)
    assert inline == bare == stored
    assert all(u.anchor is not None for u in asked)


async def test_a_recording_is_encoded_once(talker: Running) -> None:
    url = "data:audio/wav;base64," + base64.b64encode(wav_file(recording(seed=8))).decode()
    engine = talker.service.engine
    real, encoded = engine.encode_voice, []

    async def counted(pcm: Any, transcript: str | None) -> Any:
        encoded.append(transcript)
        return await real(pcm, transcript)

    engine.encode_voice = counted  # type: ignore[method-assign]
    try:
        for _ in range(3):
            await said(talker, ref_audio=url, x_vector_only_mode=True)
        async with opened(talker) as client:
            await client.configure(ref_audio=url, x_vector_only_mode=True, split_granularity="sentence")
            assert (await client.spoken("First one. Second one.")).failed == [False, False]
    finally:
        engine.encode_voice = real  # type: ignore[method-assign]
    assert len(encoded) == 1


@pytest.mark.parametrize(
    "source", ["file:///etc/passwd", "ftp://a.example/x.wav", "/etc/passwd", "https://127.0.0.1/x", "%%%", "data:,x"]
)
async def test_recordings_that_are_not_fetched(talker: Running, source: str) -> None:
    answer = await talker.http.post(
        "/v1/audio/speech", json={"input": TEXT, "ref_audio": source, "x_vector_only_mode": True}
    )
    assert omni_error(answer)["param"] == "ref_audio"


# ---------------------------------------------------------------- delete
async def test_a_deleted_voice_is_gone(talker: Running) -> None:
    await upload(talker, "gone")
    await said(talker, voice="gone")
    answer = await talker.http.delete(f"{VOICES}/GONE")
    assert answer.status_code == 200
    assert answer.json()["success"] is True
    assert answer.json()["message"] == "Voice 'gone' deleted successfully"
    assert "gone" not in (await listed(talker))["voices"]
    await said(talker, status=400, voice="gone")
    for name in ("gone", "alto", "default", "never", "x" * 65, "%00", "%C3%BC"):
        omni_error(await talker.http.delete(f"{VOICES}/{name}"), 404)
    for name in ("%2e%2e", "a%2Fb"):
        assert (await talker.http.delete(f"{VOICES}/{name}")).status_code == 404


async def test_what_was_kept_of_a_deleted_voices_recording_goes_too(talker: Running) -> None:
    url = "data:audio/wav;base64," + base64.b64encode(wav_file(recording(seed=21))).decode()
    await said(talker, ref_audio=url, x_vector_only_mode=True)
    await upload(talker, "traced", recording(seed=21))
    store = talker.service.store
    before = set(await store.keys("local", "clip"))
    await talker.http.delete(f"{VOICES}/traced")
    assert len(before - set(await store.keys("local", "clip"))) == 1


# ---------------------------------------------------------------- other clients
async def test_openais_client_creates_and_deletes(talker: Running) -> None:
    made = await talker.openai.audio.voices.create(
        name="Custom One", consent="cons_1", audio_sample=("v.wav", wav_file(recording()), "audio/wav")
    )
    assert (made.object, made.name, made.type, made.id) == ("audio.voice", "custom one", "audio_sample", "custom one")
    speech = await talker.openai.audio.speech.create(
        model="tts-1",
        voice={"id": made.id},
        input=TEXT,
        response_format="pcm",
    )
    assert speech.content
    gone = await talker.openai.audio.voices.delete(made.id)
    assert (gone.deleted, gone.object, gone.id) == (True, "audio.voice.deleted", made.id)
    with pytest.raises(openai.NotFoundError):
        await talker.openai.audio.voices.delete(made.id)


async def test_lists_as_open_webui_reads_them() -> None:
    async with running(voices__list_as="objects") as server:
        await upload(server, "anna")
        voices = (await listed(server))["voices"]
        assert {voice["id"]: voice["name"] for voice in voices}["anna"] == "anna"
        assert "alloy" in {voice["id"] for voice in voices}


# ---------------------------------------------------------------- privacy
async def test_nothing_of_an_upload_or_a_recording_reaches_log_or_metrics(caplog: pytest.LogCaptureFixture) -> None:
    texts: dict[str, Any] = {
        "ref_text": "canary transcript",
        "speaker_description": "canary description",
        "consent": "canary-consent",
    }
    url = "data:audio/wav;base64," + base64.b64encode(wav_file(recording())).decode()
    with caplog.at_level(logging.DEBUG):
        async with running(server__log_level="debug") as server:
            assert (await upload(server, "quiet", **texts)).status_code == 200
            await upload(server, "quiet", **texts, file=("canary.wav", b"canary bytes", "audio/wav"))
            await upload(server, "quiet", **texts, file=("canary.wav", b"canary bytes", "canary/type"))
            await upload(server, "a/b", **texts)
            await said(server, voice="quiet", input="canary input")
            await said(server, ref_audio=url, ref_text="canary reference", input="canary input")
            await said(server, status=400, ref_audio="canary:source", ref_text="canary reference")
            await server.http.delete(f"{VOICES}/quiet")
            metrics = (await server.http.get("/metrics")).text
    shown = caplog.text + metrics
    assert "canary" not in shown
    assert url[30:60] not in shown


# ---------------------------------------------------------------- tenants and bounds
async def test_every_tenant_has_voices_of_its_own() -> None:
    keys = ("anna-tenant:key-one-0123456789abc", "bob-tenant:key-two-0123456789abc")
    async with running(auth__api_keys=keys) as server:
        headers = [{"authorization": f"Bearer {entry.partition(':')[2]}"} for entry in keys]
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
            file = {"audio_sample": ("v.wav", wav_file(recording()), "audio/wav")}
            answer = await http.post(VOICES, data={"name": "v", "consent": "c"}, files=file, headers=headers[0])
            assert answer.status_code == 200
            names = [(await http.get(VOICES, headers=h)).json()["voices"] for h in (*headers, {})]
            assert ["v" in listed for listed in names] == [True, False, False]
            spoken = [
                (await http.post("/v1/audio/speech", json={"input": "x", "voice": "v"}, headers=h)).status_code
                for h in headers
            ]
            assert spoken == [200, 400]
            assert (await http.delete(f"{VOICES}/v", headers=headers[1])).status_code == 404
            refused = await http.post(VOICES, data={"name": "w", "consent": "c"}, files=file)
            assert refused.status_code == 401
            client = AsyncOpenAI(base_url=f"{server.url}/v1", api_key=keys[0].partition(":")[2], max_retries=0)
            async with client:
                assert (await client.audio.voices.delete("v")).deleted


async def test_no_more_voices_than_allowed() -> None:
    async with running(voices__max_stored=2) as server:
        statuses = [(await upload(server, f"v{n}")).status_code for n in range(3)]
        assert statuses == [200, 200, 400]
        assert (await upload(server, "v1")).status_code == 200
        await server.http.delete(f"{VOICES}/v0")
        assert (await upload(server, "v2")).status_code == 200
