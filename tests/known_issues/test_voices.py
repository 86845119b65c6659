"""Known issues of stored voices: what is kept, what is refused, what is never told."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Running, running
from tests.e2e.speech_tools import SPEECH, omni_error
from tests.e2e.voice_tools import VOICES, listed, recording, said, upload, wav_file

pytestmark = pytest.mark.asyncio(loop_scope="module")

INSIDE = ("/tmp", "/root", "/home", "/usr", "Traceback", ".py")


async def delete(server: Running, name: str) -> None:
    assert (await server.http.delete(f"{VOICES}/{name}")).status_code == 200


async def test_k07_a_name_given_again_is_another_voice(tone: Running) -> None:
    one, other = recording(hz=140), recording(hz=330, seed=7)
    assert (await upload(tone, "anna", one)).status_code == 200
    first = await said(tone, voice="anna", seed=3)
    await delete(tone, "anna")
    assert (await upload(tone, "anna", other)).status_code == 200
    assert (await upload(tone, "berta", other)).status_code == 200
    second = await said(tone, voice="anna", seed=3)
    assert first != second
    assert second == await said(tone, voice="berta", seed=3)
    assert (await upload(tone, "anna", one)).status_code == 200
    assert await said(tone, voice="anna", seed=3) == first, "overwritten in place too"


async def test_k23_a_stored_voice_without_a_seed_has_its_own(tone: Running) -> None:
    """On purpose: a voice that is stored sounds the same every time; others are drawn anew."""
    assert (await upload(tone, "clara")).status_code == 200
    assert await said(tone, voice="clara") == await said(tone, voice="clara")
    assert await said(tone, voice="alto") != await said(tone, voice="alto")


async def test_k45_voices_outlive_the_server(tmp_path: Path) -> None:
    url = f"local:{tmp_path / 'voices.db'}"
    async with running(store__url=url) as server:
        assert (await upload(server, "anna", ref_text="What is said.")).status_code == 200
        before, sound = (await listed(server))["uploaded_voices"], await said(server, voice="anna", seed=3)
    async with running(store__url=url) as server:
        assert (await listed(server))["uploaded_voices"] == before
        assert await said(server, voice="anna", seed=3) == sound


async def test_k46_every_worker_knows_every_voice(tmp_path: Path) -> None:
    url = f"local:{tmp_path / 'voices.db'}"
    async with running(store__url=url) as one, running(store__url=url) as two:
        names = [f"voice{number}" for number in range(6)]
        for number, name in enumerate(names):
            assert (await upload((one, two)[number % 2], name)).status_code == 200
            for server in (one, two):
                assert name in (await listed(server))["voices"]
        lists = await asyncio.gather(*(listed(server) for server in (one, two) for _ in range(10)))
        assert all(set(names) <= set(body["voices"]) for body in lists)


@pytest.mark.parametrize(
    "file",
    [
        ("v.wav", b"no audio at all" * 100, "audio/wav"),
        ("v.wav", wav_file(recording(0.2)), "audio/wav"),
        ("v.txt", b"text", "text/plain"),
        ("v.mp3", b"\xff\xfb" + b"\x00" * 3_000, "audio/mpeg"),
    ],
)
async def test_k47_and_k50_a_bad_upload_changes_nothing_and_tells_nothing(tone: Running, file: Any) -> None:
    assert (await upload(tone, "kept")).status_code == 200
    before, entry = await said(tone, voice="kept", seed=3), (await listed(tone))["uploaded_voices"]
    refused = await upload(tone, "kept", file=file)
    omni_error(refused)
    assert not [word for word in INSIDE if word in refused.text]
    assert (await listed(tone))["uploaded_voices"] == entry
    assert await said(tone, voice="kept", seed=3) == before


@pytest.mark.parametrize("name", ["../x", "a/b", "a\\b", "x\x00y", "..", ".", " ", "n" * 300])
async def test_k48_names_are_no_paths(tone: Running, name: str) -> None:
    refused = await upload(tone, name)
    assert refused.status_code == 400
    omni_error(refused)
    assert name.strip() == "" or name not in (await listed(tone))["voices"]


async def test_k48_names_that_look_alike_when_cleaned_are_two(tone: Running) -> None:
    one, other = recording(hz=140), recording(hz=330, seed=7)
    assert (await upload(tone, "小明", one)).status_code == 200
    assert (await upload(tone, "小红", other)).status_code == 200
    assert {"小明", "小红"} <= set((await listed(tone))["voices"])
    assert await said(tone, voice="小明", seed=3) != await said(tone, voice="小红", seed=3)


@pytest.mark.parametrize(
    "source",
    [
        "file:///etc/passwd",
        "/etc/passwd",
        "http://127.0.0.1:22/",
        "https://127.0.0.1:22/",
        "http://169.254.169.254/latest/meta-data/",
        "https://169.254.169.254/latest/meta-data/",
        "https://[::1]/a.wav",
        "gopher://localhost/x",
        "data:text/plain;base64," + base64.b64encode(b"root:x:0:0").decode(),
    ],
)
async def test_k49_nothing_local_is_read_or_fetched(tone: Running, source: str) -> None:
    body = {"input": "Hi.", "ref_audio": source, "x_vector_only_mode": True}
    refused = await tone.http.post(SPEECH, json=body)
    assert omni_error(refused)["param"] == "ref_audio"
    assert "root" not in refused.text
    assert not [word for word in INSIDE if word in refused.text]


async def test_k51_an_uploaded_voice_speaks_by_any_name_for_it(tone: Running) -> None:
    assert (await upload(tone, "Dora")).status_code == 200
    by_voice = await said(tone, voice="dora", seed=3)
    for member in ({"speaker": "dora"}, {"voice": "DORA"}, {"voice": {"id": "Dora"}}):
        assert await said(tone, seed=3, **member) == by_voice
    assert by_voice != await said(tone, seed=3)
