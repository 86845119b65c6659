"""Recordings are encoded beside speech, one at a time, and bounded."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest

from adapters.engines.qwen3_tts.encoding import MAX_WAITING
from adapters.engines.qwen3_tts.engine import Loaded, Qwen3TtsEngine, Qwen3TtsSettings
from sidecar.faults import BadRequest, EngineFault, EngineLost, EngineOverloaded, UnsupportedByEngine
from sidecar.ports import Pcm, Utterance
from tests.adapters.engines.qwen3_tts.toy import stages
from tests.adapters.engines.qwen3_tts.toy_engine import model, toy_engine
from voices.anchor import SpeakerAnchor

CLIP = np.ones(2_400, np.float32)
SAY = Utterance(" ".join(f"word{number}" for number in range(40)), "anna", 3, "en")


class Listener:
    """Hears a recording once it is let; a transcript says what is to go wrong."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.let = threading.Semaphore(0)
        self.at_once = 0
        self.most_at_once = 0

    def encode(self, pcm: Pcm, transcript: str | None) -> SpeakerAnchor:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.begun.release()
        self.let.acquire()
        self.at_once -= 1
        if transcript == "refuse":
            raise BadRequest("no", param="ref_audio")
        if transcript == "break":
            raise RuntimeError("/secret")
        return SpeakerAnchor(pcm[:8])


async def engine_with(listener: Listener) -> Qwen3TtsEngine:
    engine = Qwen3TtsEngine(Qwen3TtsSettings(), lambda: Loaded(model("base"), stages(), encoder=listener))
    await engine.start()
    return engine


async def begun(listener: Listener) -> None:
    await asyncio.to_thread(listener.begun.acquire)


async def test_a_whole_utterance_is_spoken_while_a_recording_is_heard() -> None:
    listener = Listener()
    engine = await engine_with(listener)
    encoding = asyncio.ensure_future(engine.encode_voice(CLIP, None))
    await begun(listener)
    chunks = [chunk async for chunk in (await engine.open(SAY)).chunks()]
    assert len(chunks) > 3
    assert not encoding.done()
    listener.let.release()
    assert (await encoding).width == 8
    await engine.close()


async def test_one_at_a_time_and_not_too_many() -> None:
    listener = Listener()
    engine = await engine_with(listener)
    asked = [asyncio.ensure_future(engine.encode_voice(CLIP, None)) for _ in range(MAX_WAITING + 1)]
    await begun(listener)
    with pytest.raises(EngineOverloaded):
        await engine.encode_voice(CLIP, None)
    asked[3].cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked.pop(3)
    asked.append(asyncio.ensure_future(engine.encode_voice(CLIP, None)))
    for _ in asked:
        listener.let.release()
    await asyncio.gather(*asked)
    assert listener.most_at_once == 1
    await engine.close()


async def test_a_caller_that_goes_away_does_not_let_two_in() -> None:
    listener = Listener()
    engine = await engine_with(listener)
    first = asyncio.ensure_future(engine.encode_voice(CLIP, "refuse"))
    await begun(listener)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    second = asyncio.ensure_future(engine.encode_voice(CLIP, None))
    await asyncio.sleep(0)
    assert not listener.begun.acquire(blocking=False)
    listener.let.release(2)
    assert (await second).width == 8
    assert listener.most_at_once == 1
    await engine.close()


@pytest.mark.parametrize(("how", "fault"), [("refuse", BadRequest), ("break", EngineFault)])
async def test_what_goes_wrong_is_a_fault_of_this_recording_alone(how: str, fault: type[Exception]) -> None:
    listener = Listener()
    engine = await engine_with(listener)
    listener.let.release(2)
    with pytest.raises(fault) as broken:
        await engine.encode_voice(CLIP, how)
    assert "secret" not in str(broken.value)
    assert (await engine.encode_voice(CLIP, None)).width == 8
    assert (await engine.health()).ok
    await engine.close()


async def test_close_waits_for_what_is_heard_and_ends_what_waits() -> None:
    listener = Listener()
    engine = await engine_with(listener)
    first, second = [asyncio.ensure_future(engine.encode_voice(CLIP, None)) for _ in range(2)]
    await begun(listener)
    closing = asyncio.ensure_future(engine.close())
    with pytest.raises(EngineLost):
        await second
    assert not closing.done()
    listener.let.release()
    assert (await first).width == 8
    await closing
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("qwen3-tts")]
    with pytest.raises(EngineLost):
        await engine.encode_voice(CLIP, None)


async def test_a_checkpoint_without_an_encoder_says_so() -> None:
    engine = toy_engine("custom_voice")
    await engine.start()
    with pytest.raises(UnsupportedByEngine):
        await engine.encode_voice(CLIP, None)
    await engine.close()
