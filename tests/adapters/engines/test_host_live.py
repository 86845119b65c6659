"""Live text and recordings across the engine's process, crashes included."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from adapters.engines.host import MAX_CLIPS, HostSettings
from sidecar.faults import EngineLost, EngineOverloaded
from sidecar.ports import MAX_UNREAD_CHARS, AudioChunk, Pcm, Utterance
from tests.adapters.engines.hosted import TEXT, Make, joined, killed, make, rest, said, started, until

__all__ = ["make"]


# ---------------------------------------------------------------- live text
async def test_live_text_says_the_same_as_the_whole_text(make: Make) -> None:
    engine = await started(make("live", layout="streaming"))
    whole = await said(await engine.open(Utterance(TEXT, "vivian", 4, "en")))
    speaking = await engine.open(Utterance(TEXT[:7], "vivian", 4, "en", live=True))
    reader = asyncio.ensure_future(said(speaking))
    for at in range(7, len(TEXT), 11):
        speaking.append(TEXT[at : at + 11])
        await asyncio.sleep(0)
    speaking.finish()
    speaking.finish()
    assert np.array_equal(await reader, whole)
    assert speaking.text_tokens == 60
    with pytest.raises(RuntimeError):
        speaking.append("more")


async def test_live_text_survives_a_crash(make: Make) -> None:
    engine = await started(make("live", layout="streaming"))
    whole = await said(await engine.open(Utterance(TEXT, "vivian", 4, "en")))
    speaking = await engine.open(Utterance("", "vivian", 4, "en", live=True))
    stream = speaking.chunks()
    speaking.append(TEXT[:200])
    chunks = [await anext(stream) for _ in range(3)]
    killed(engine)
    speaking.append(TEXT[200:300])
    await asyncio.sleep(0.05)
    speaking.append(TEXT[300:])
    speaking.finish()
    assert np.array_equal(joined(chunks + await rest(stream)), whole)


async def test_a_long_live_text_is_told_again_no_faster_than_it_may_wait(make: Make) -> None:
    engine = await started(make(chunk_ramp_frames=(25,)))
    pieces = [f"word{number} " * 400 for number in range(7)]
    asked = Utterance("", "alto", 4, "en", live=True)

    async def say(crash: bool) -> Pcm:
        speaking = await engine.open(asked)
        chunks: list[AudioChunk] = []
        stream = speaking.chunks()
        for piece in pieces:
            speaking.append(piece)
            while (chunks[-1].text_chars or 0) < speaking._count.chars - 1_000 if chunks else True:
                chunks.append(await anext(stream))
        assert speaking._count.chars > MAX_UNREAD_CHARS
        if crash:
            killed(engine)
        speaking.finish()
        return joined(chunks + await rest(stream))

    assert np.array_equal(await say(crash=True), await say(crash=False))


# ---------------------------------------------------------------- recordings
CLIP = np.sin(np.arange(24_000) * 0.05).astype(np.float32)


async def test_a_recording_is_encoded_after_a_crash(make: Make, tmp_path: Path) -> None:
    engine = await started(make("forgetful", mark=str(tmp_path / "mark")))
    before = await engine.encode_voice(CLIP, None)
    killed(engine)
    assert (await engine.encode_voice(CLIP, None)).same_as(before)
    assert (await engine.encode_voice(CLIP, "die once")).same_as(before)
    with pytest.raises(EngineLost):
        await engine.encode_voice(CLIP, "die")
    assert engine._calls == {}


async def test_recordings_are_bounded_in_number_and_time(make: Make, tmp_path: Path) -> None:
    host = HostSettings(back_off_s=(0.01,), ping_every_s=0.05, silent_after_s=0.4)
    engine = await started(make("forgetful", host, mark=str(tmp_path / "mark")))
    waiting = [asyncio.ensure_future(engine.encode_voice(CLIP, "hang")) for _ in range(MAX_CLIPS)]
    await until(lambda: len(engine._calls) == MAX_CLIPS)
    with pytest.raises(EngineOverloaded):
        await engine.encode_voice(CLIP, None)
    assert (await engine.health()).active_rows == 0
    waiting[0].cancel()
    for one in waiting[1:]:
        with pytest.raises(EngineLost, match="too long"):
            await one
    assert engine._calls == {}
    assert (await engine.encode_voice(CLIP, None)).width == 1_024
    last = asyncio.ensure_future(engine.encode_voice(CLIP, "hang"))
    await until(lambda: len(engine._calls) == 1)
    await engine.close()
    with pytest.raises(EngineLost):
        await last
