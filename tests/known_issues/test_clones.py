"""Known issues of clones, decoder and sampling, on a tiny checkpoint with random weights."""

from __future__ import annotations

import asyncio
import base64
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.adapters.engines.qwen3_tts import tiny
from tests.e2e.conftest import Running, running
from tests.e2e.speech_tools import SPEECH, omni_error
from tests.e2e.voice_tools import recording, wav_file
from tests.e2e.ws_client import STREAMED, opened
from tests.known_issues.conftest import WORDS

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

TEXT = "Hello there, this is me."
FRAME_BYTES = 3_840
SHORT: dict[str, Any] = {"max_new_tokens": 10, "seed": 5, "response_format": "pcm"}
TINY_INPUTS = ["Ok.", "1次", "Huh?", "嗯？", "A."]


async def said(server: Running, text: str = TEXT, **fields: Any) -> bytes:
    answer = await server.http.post(SPEECH, json={"input": text, **SHORT, **fields})
    assert answer.status_code == 200, answer.text[:300]
    return answer.content


def samples(body: bytes) -> NDArray[np.float64]:
    return np.frombuffer(body, "<i2") / 32_768


def snr_db(one: bytes, other: bytes) -> float:
    """How far ``other`` is from ``one``; infinite when they are equal."""
    a, b = samples(one), samples(other)
    assert len(a) == len(b)
    noise = float(np.square(a - b).mean())
    return float("inf") if noise == 0 else 10 * float(np.log10(np.square(a).mean() / noise))


def clip_url(seconds: float = 2.0) -> str:
    return "data:audio/wav;base64," + base64.b64encode(wav_file(recording(seconds))).decode()


async def test_k02_the_text_may_be_given_whole(base: Running) -> None:
    """The layout that gives a clone its brake back."""
    default, streaming, whole = [
        await said(base, voice="bare", non_streaming_mode=value) for value in (None, False, True)
    ]
    assert default == streaming
    assert whole != streaming


async def test_k03_nobody_hears_anothers_reference(base: Running) -> None:
    alone = {voice: await said(base, voice=voice) for voice in ("anna", "bare")}
    assert alone["anna"] != alone["bare"]
    order = ["anna", "bare"] * 4
    together = await asyncio.gather(*(said(base, voice=voice) for voice in order))
    for voice, body in zip(order, together, strict=True):
        assert snr_db(alone[voice], body) >= 40


async def test_k04_the_reference_is_not_spoken(base: Running) -> None:
    """Exactly the frames that were drawn, though the reference has more; half a second of silence parts the two."""
    answer = await base.http.post(SPEECH, json={"input": TEXT, **SHORT, "voice": "anna"})
    drawn, reference = (int(answer.headers[f"x-vllm-omni-{name}-tokens"]) for name in ("output", "input-audio"))
    assert len(answer.content) == drawn * FRAME_BYTES
    assert drawn <= SHORT["max_new_tokens"] < reference
    assert reference * 0.08 >= 2.0, "silence has been appended"


async def test_k05_and_k10_a_stream_has_the_decoder_state_of_the_whole(base: Running) -> None:
    for voice in ("anna", "bare"):
        whole = await said(base, voice=voice, max_new_tokens=30)
        assert snr_db(whole, await said(base, voice=voice, max_new_tokens=30, stream_format="audio")) >= 60


async def test_k06_a_transcript_must_cover_its_recording(base: Running) -> None:
    url = clip_url(10.0)
    short = {"input": TEXT, **SHORT, "ref_audio": url, "ref_text": "Two words."}
    assert omni_error(await base.http.post(SPEECH, json=short))["param"] == "ref_text"
    assert await said(base, ref_audio=url, x_vector_only_mode=True, ref_text="Two words.")
    assert await said(base, ref_audio=url, ref_text="This one is said in ten seconds, slowly, word for word.")


async def test_k08_a_vector_does_not_stand_in_for_a_reference(base: Running) -> None:
    url = clip_url()
    vector_only = {"input": TEXT, **SHORT, "ref_audio": url, "x_vector_only_mode": True}
    first = await base.http.post(SPEECH, json=vector_only)
    second = await base.http.post(SPEECH, json={"input": TEXT, **SHORT, "ref_audio": url, "ref_text": WORDS})
    assert first.headers["x-vllm-omni-input-audio-tokens"] == "0"
    audio, text, total = (
        int(second.headers[f"x-vllm-omni-{name}-tokens"]) for name in ("input-audio", "input-text", "input")
    )
    assert audio > 0
    assert total == audio + text
    assert first.content != second.content


async def test_k09_and_k16_nothing_is_lost_or_added_at_chunk_borders(base: Running) -> None:
    whole = await said(base, voice="bare", max_new_tokens=30)
    assert len(whole) % FRAME_BYTES == 0
    for first in (1, 3, 25):
        streamed = await said(
            base, voice="bare", max_new_tokens=30, stream_format="audio", initial_codec_chunk_frames=first
        )
        assert np.abs(samples(whole) - samples(streamed)).max() <= 1.5 / 32_768


async def test_k15_every_frame_that_was_drawn_is_heard(base: Running) -> None:
    """The rest is flushed after the end: frames as codec tokens are the frames of the samples."""
    pcm = await said(base, voice="bare", max_new_tokens=None)
    async with opened(base, {**STREAMED, "voice": "bare", "seed": 5, "output_mode": "codec_tokens"}) as client:
        await client.say(TEXT)
        await client.expect("codec.start")
        while isinstance(message := await client.message(), bytes):
            pass
    assert message["type"] == "codec.done"
    assert message["total_frames"] * FRAME_BYTES == len(pcm)


async def test_k18_a_clone_that_never_ends_is_an_error(tmp_path: Path) -> None:
    """Tried once more; what must be this very reading is not."""
    folder = tiny.write(tmp_path / "endless", kind="base", eos_gain=0.0)
    flags: dict[str, Any] = {
        "engine__kind": "qwen3_tts",
        "engine__checkpoint": str(folder),
        "engine__max_positions": 512,
    }
    vector = np.random.default_rng(1).standard_normal(64).tolist()
    body = {"input": "Hi.", "speaker_embedding": vector, "extra_params": {"top_k": 5}}
    async with running(**flags, engine__warm_up=False) as endless:
        for members in ({}, {"seed": 5}):
            error = omni_error(await endless.http.post(SPEECH, json={**body, **members}), 500)
            assert "end" in error["message"]
        capped = await endless.http.post(SPEECH, json={**body, **SHORT})
        assert len(capped.content) == SHORT["max_new_tokens"] * FRAME_BYTES
        await endless.rows_free()


async def test_k20_no_answer_is_empty(tmp_path: Path) -> None:
    """Even from a model that wants to end at once."""
    folder = tiny.write(tmp_path / "curt", kind="base", eos_gain=60.0)
    flags: dict[str, Any] = {
        "engine__kind": "qwen3_tts",
        "engine__checkpoint": str(folder),
        "engine__max_positions": 512,
    }
    vector = np.random.default_rng(1).standard_normal(64).tolist()
    async with running(**flags, engine__warm_up=False) as curt:
        for text in TINY_INPUTS:
            for delivery in ({}, {"stream_format": "audio"}):
                assert len(await said(curt, text, speaker_embedding=vector, **delivery)) >= 2 * FRAME_BYTES


async def test_k21_a_seed_decides_whatever_else_is_spoken(base: Running) -> None:
    alone = await said(base, voice="bare")
    assert alone == await said(base, voice="bare")
    assert alone != await said(base, voice="bare", seed=6)
    others = [said(base, f"Another text, number {n}.", voice="anna", seed=n) for n in range(7)]
    crowded, *_ = await asyncio.gather(said(base, voice="bare"), *others)
    assert snr_db(alone, crowded) >= 40
    async with opened(base, {**STREAMED, "voice": "bare", "seed": 5, "max_new_tokens": 10}) as client:
        units = [(await client.spoken(TEXT)).units[0].audio for _ in range(2)]
    assert units[0] == units[1]
    assert snr_db(alone, units[0]) >= 60


async def test_k22_only_the_seed_beside_the_text_counts(base: Running) -> None:
    vector = np.random.default_rng(1).standard_normal(64).tolist()
    twice = [await said(base, speaker_embedding=vector, seed=None, extra_params={"seed": 1}) for _ in range(2)]
    assert twice[0] != twice[1]


async def test_k27_a_cap_is_a_cap(base: Running) -> None:
    for cap in (1, 2, 25):
        body = await said(base, TEXT * 3, voice="bare", max_new_tokens=cap)
        assert 0 < len(body) <= cap * FRAME_BYTES


async def test_k38_a_packet_holds_its_own_frames_only(base: Running) -> None:
    """Wire and memory grow with the frames, not with their square."""
    async with opened(base, {**STREAMED, "voice": "bare", "seed": 5, "output_mode": "codec_tokens"}) as client:
        await client.say(TEXT * 2)
        await client.expect("codec.start")
        packets = []
        while isinstance(message := await client.message(), bytes):
            packets.append(message)
    frames = [int.from_bytes(packet[4:6], "little") for packet in packets]
    assert [len(packet) for packet in packets] == [7 + 32 * count for count in frames]
    assert sum(frames) == message["total_frames"]
    numbers = [int.from_bytes(packet[:4], "little") for packet in packets]
    assert all(after == before + 1 for before, after in pairwise(numbers))
