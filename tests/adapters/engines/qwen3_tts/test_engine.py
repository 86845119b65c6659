from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from adapters.engines.qwen3_tts.decoding import Stages
from adapters.engines.qwen3_tts.engine import Loaded, Qwen3TtsEngine, Qwen3TtsSettings, make
from adapters.engines.qwen3_tts.requests import Ask, Ended, Event, Failed, Limits, Placed, Samples
from adapters.engines.qwen3_tts.runtime import Runtime
from adapters.engines.qwen3_tts.stages import FRAME_SAMPLES, Prompt, Sampling, Stepped
from adapters.engines.qwen3_tts.utterances import Kind, prompt_of
from sidecar.faults import (
    BadRequest,
    ConfigError,
    EngineFault,
    EngineLost,
    TooLarge,
    UnknownVoice,
    UnsupportedByEngine,
    UnsupportedLanguage,
)
from sidecar.ports import AudioChunk, Pcm, Speaking, Utterance
from tests.adapters.engines.qwen3_tts.toy import LOOPING_ID, ToyDecoder, ToyTalker, alone, samples_of, stages
from tests.adapters.engines.qwen3_tts.toy_engine import ToyTokens, model, toy_engine
from voices.anchor import SpeakerAnchor
from voices.carry import Carry

TEXT = " ".join(f"word{number}" for number in range(40))
SAY = Utterance(TEXT, "vivian", 3, "en")


async def started(engine: Qwen3TtsEngine) -> Qwen3TtsEngine:
    await engine.start()
    return engine


async def said(speaking: Speaking) -> Pcm:
    return np.concatenate([chunk.pcm async for chunk in speaking.chunks()])


# ---------------------------------------------------------------- what a checkpoint can do
def test_traits_come_from_the_checkpoint() -> None:
    from adapters.engines.qwen3_tts.utterances import traits_of

    custom = traits_of(model("custom_voice"), rows=3, deterministic=True)
    assert [voice.name for voice in custom.voices] == ["vivian", "eric"]
    assert "sichuan dialect" in custom.voices[1].description
    assert custom.default_voice == "vivian"
    assert custom.languages == ("de", "en", "es", "fr", "it", "ja", "ko", "pt", "ru", "zh")
    assert (custom.clone_widths, custom.live_text, custom.instructions, custom.max_rows) == ((), True, True, 3)
    base = traits_of(model("base"), rows=1, deterministic=False)
    assert (base.clone_widths, base.instructions, base.deterministic) == ((8,), False, False)
    assert base.default_voice == "anna"
    design = traits_of(model("voice_design"), rows=1, deterministic=True)
    assert (design.default_voice, design.instructions) == ("designed", True)
    bare = traits_of(replace(model("base"), references={}), rows=1, deterministic=True)
    assert (bare.voices, bare.default_voice) == ((), "")


def test_settings_come_from_json_and_are_checked() -> None:
    assert make({"checkpoint": "x", "chunk_ramp_frames": [2, 4]})._settings.chunk_ramp_frames == (2, 4)
    for wrong in (
        {"colour": 1},
        {"precision": "int3"},
        {"layout": "round"},
        {"max_rows": 0},
        {"row_wait_ms": -1},
        {"chunk_ramp_frames": [50]},
    ):
        with pytest.raises(ValueError):
            make(wrong)


# ---------------------------------------------------------------- utterance to prompt
@pytest.mark.parametrize(
    ("kind", "voice", "layout"),
    [("custom_voice", "Vivian", "whole"), ("voice_design", "designed", "whole"), ("base", "anna", "streaming")],
)
def test_layouts_are_those_of_the_reference(kind: Kind, voice: str, layout: str) -> None:
    asked = Utterance("one two", voice, 2**63 + 1, "en", "Calmly.")
    prompt = prompt_of(model(kind), asked)
    assert prompt.layout == layout
    assert prompt.text_ids == ToyTokens().body_ids("one two")
    assert prompt.speaker == ("vivian" if kind == "custom_voice" else None)
    assert prompt.language == "english"
    assert bool(prompt.instruct_ids) == (kind != "base")
    assert (prompt.reference is not None) == (kind == "base")
    assert prompt.sampling == Sampling(seed=2**63 + 1)
    assert prompt.closed
    assert prompt_of(model(kind), asked, layout="streaming").layout == "streaming"
    live = prompt_of(model(kind), replace(asked, live=True), layout="whole")
    assert (live.layout, live.closed, live.text_ids) == ("streaming", False, ())


def test_instructions_are_left_out_where_the_checkpoint_takes_none() -> None:
    asked = Utterance("one", "eric", 1, None, "Calmly.")
    assert prompt_of(model(instructions=False), asked).instruct_ids == ()
    assert prompt_of(model(), asked).language is None


@pytest.mark.parametrize(
    ("asked", "fault", "message"),
    [
        ({"voice": "nobody"}, UnknownVoice, "there are: vivian, eric"),
        ({"language": "sv"}, UnsupportedLanguage, "'sv'; languages: de, en, es"),
        ({"language": "klingon"}, UnsupportedLanguage, "languages: de"),
        ({"text": " \n"}, BadRequest, "no text"),
        ({"text": "x " * 5_000}, BadRequest, "too long .* 5000 tokens"),
    ],
)
async def test_what_is_impossible_is_refused_with_what_is_possible(
    asked: dict[str, Any], fault: type[BadRequest], message: str
) -> None:
    engine = await started(toy_engine())
    with pytest.raises(fault, match=message):
        await engine.open(replace(SAY, **asked))
    assert (await engine.health()).active_rows == 0
    assert len(await said(await engine.open(SAY))) > 0
    await engine.close()


def test_cloning_needs_a_base_checkpoint_and_the_right_width() -> None:
    asked = replace(SAY, voice="", anchor=SpeakerAnchor(np.ones(8, np.float32), np.ones((2, 16), np.int16), "so said"))
    reference = prompt_of(model("base"), asked).reference
    assert reference is not None
    assert reference.codes is not None
    assert (reference.embedding.tolist(), reference.codes.shape) == ([1.0] * 8, (2, 16))
    assert reference.text_ids == ToyTokens().body_ids("so said")
    with pytest.raises(UnsupportedByEngine, match="cannot clone voices; there are: vivian, eric"):
        prompt_of(model(), asked)
    with pytest.raises(BadRequest, match="has 9 values; 8 are needed"):
        prompt_of(model("base"), replace(SAY, anchor=SpeakerAnchor(np.ones(9, np.float32))))
    with pytest.raises(UnknownVoice, match="clones voices and brings none"):
        prompt_of(replace(model("base"), references={}), SAY)


@pytest.mark.parametrize(
    ("text", "asked", "language"),
    [("Guten Tag und auf Wiedersehen, liebe Freunde.", None, "de"), ("你好，世界。", None, "zh"), ("...", None, "en"),
     ("Hello.", "fr-CA", "fr"), ("Hej, hur mår du idag min vän?", None, "en")],
)  # fmt: skip
async def test_the_language_is_named(text: str, asked: str | None, language: str) -> None:
    engine = await started(toy_engine())
    speaking = await engine.open(Utterance(text, "vivian", 1, asked))
    assert speaking.language == language
    await engine.close()


# ---------------------------------------------------------------- speaking
async def test_in_context_references_are_heard_before_the_first_frame() -> None:
    engine = await started(toy_engine("base"))
    prompt = prompt_of(model("base"), replace(SAY, voice="anna"))
    assert prompt.reference is not None
    assert prompt.reference.codes is not None
    expected = samples_of(np.concatenate([prompt.reference.codes, alone(prompt)]))[3 * FRAME_SAMPLES :]
    for _ in range(2):
        assert np.array_equal(await said(await engine.open(replace(SAY, voice="anna"))), expected)
    await engine.close()


async def test_the_first_audio_takes_one_prefill_one_step_one_frame_decoded() -> None:
    calls: list[tuple[str, int]] = []

    def trace(what: str, ids: Sequence[int], frames: int) -> None:
        calls.append((what, frames))

    loaded = Loaded(model(), stages())
    engine = await started(Qwen3TtsEngine(Qwen3TtsSettings(), lambda: loaded, trace=trace))
    await said(await engine.open(SAY))
    assert calls[:3] == [("admit", 0), ("step", 1), ("decode", 1)]
    await engine.close()


async def test_codes_alone_are_not_decoded_nor_is_a_reference_listened_to() -> None:
    calls: list[str] = []
    decoder = ToyDecoder()
    engine = Qwen3TtsEngine(
        Qwen3TtsSettings(),
        lambda: Loaded(model("base"), Stages(ToyTalker(), decoder)),
        trace=lambda what, ids, frames: calls.append(what),
    )
    await engine.start()
    asked = replace(SAY, voice="anna", output="codes", carry=Carry(np.ones((3, 16), np.int16), "just said"))
    chunks = [chunk async for chunk in (await engine.open(asked)).chunks()]
    prompt = prompt_of(model("base"), asked)
    spoken = np.concatenate([chunk.codes for chunk in chunks if chunk.codes is not None])
    assert np.array_equal(spoken, alone(prompt))
    assert "decode" not in calls
    assert decoder.calls == []
    await engine.close()


async def test_a_mixed_batch_gives_each_what_it_asked_for() -> None:
    engine = await started(toy_engine())
    asked = [replace(SAY, output=output, seed=seed) for seed in (1, 2) for output in ("pcm", "codes", "both")]
    rows = [await engine.open(one) for one in asked]
    heard = await asyncio.gather(*(_all(row) for row in rows))
    for one, chunks in zip(asked, heard, strict=True):
        codes = alone(prompt_of(model(), one))
        if one.output != "codes":
            assert np.array_equal(np.concatenate([chunk.pcm for chunk in chunks]), samples_of(codes))
        if one.output != "pcm":
            assert np.array_equal(np.concatenate([chunk.codes for chunk in chunks]), codes)
    await engine.close()


async def test_characters_read_follow_the_talker() -> None:
    engine = await started(toy_engine(layout="streaming", chunk_ramp_frames=(1,)))
    ends = [found.end() for found in re.finditer(r"\S+", TEXT)]
    for asked, ahead in ((SAY, 0), (replace(SAY, carry=Carry(np.ones((5, 16), np.int16), "two words")), 3)):
        read = [chunk.text_chars for chunk in await _all(await engine.open(asked))]
        assert read[: len(ends) - ahead] == ends[ahead:]
        assert set(read[len(ends) - ahead :]) <= {ends[-1]}
    await engine.close()
    whole = await started(toy_engine())
    assert {chunk.text_chars for chunk in await _all(await whole.open(SAY))} == {None}
    await whole.close()


async def _all(speaking: Speaking) -> list[AudioChunk]:
    return [chunk async for chunk in speaking.chunks()]


@pytest.mark.parametrize("size", [1, 5, 17, 1_000])
async def test_live_text_says_what_the_whole_text_says(size: int) -> None:
    engine = await started(toy_engine(layout="streaming"))
    whole = await said(await engine.open(SAY))
    speaking = await engine.open(replace(SAY, text=TEXT[:3], live=True))
    reader = asyncio.ensure_future(said(speaking))
    for at in range(3, len(TEXT), size):
        speaking.append(TEXT[at : at + size])
        await asyncio.sleep(0)
    assert not reader.done()
    speaking.finish()
    assert np.array_equal(await reader, whole)
    assert speaking.text_tokens == 40
    with pytest.raises(RuntimeError):
        speaking.append("more")
    await engine.close()


async def test_live_text_that_never_comes_costs_nobody_else_and_nothing_is_said() -> None:
    engine = await started(toy_engine(max_rows=2))
    speaking = await engine.open(replace(SAY, text="", live=True))
    assert len(await said(await engine.open(SAY))) > 0
    while (await engine.health()).active_rows != 1:
        await asyncio.sleep(0.01)
    speaking.finish()
    with pytest.raises(BadRequest, match="no text"):
        await said(speaking)
    await engine.close()


@pytest.mark.parametrize("finished", [False, True])
async def test_a_live_text_that_outgrows_its_row_does_not_end_tidily(finished: bool) -> None:
    engine = await started(toy_engine(max_positions=64))
    speaking = await engine.open(replace(SAY, text="", live=True))
    speaking.append(TEXT + " " + TEXT + " and more")
    if finished:
        speaking.finish()
    heard: list[int] = []

    async def listen() -> None:
        async for chunk in speaking.chunks():
            heard.append(chunk.samples)

    with pytest.raises(TooLarge):
        await listen()
    assert sum(heard) == 54 * FRAME_SAMPLES
    await engine.close()


# ---------------------------------------------------------------- trouble
class Failing(ToyTalker):
    def step(self, rows: Sequence[int]) -> list[Stepped]:
        if len(self.steps) == 5:
            raise RuntimeError("a kernel failed")
        return super().step(rows)


async def test_a_stage_that_fails_loses_the_engine_and_says_so() -> None:
    engine = await started(Qwen3TtsEngine(Qwen3TtsSettings(), lambda: Loaded(model(), Stages(Failing(), ToyDecoder()))))
    with pytest.raises(EngineLost, match="started anew"):
        await said(await engine.open(SAY))
    health = await engine.health()
    assert (health.ok, health.active_rows) == (False, 0)
    with pytest.raises(EngineLost):
        await engine.open(SAY)
    await engine.close()


class NotANumber(ToyDecoder):
    def decode(self, pieces: Any) -> Any:
        return [np.full_like(pcm, np.nan) for pcm in super().decode(pieces)]


async def test_samples_that_are_no_numbers_are_a_fault() -> None:
    engine = await started(
        Qwen3TtsEngine(Qwen3TtsSettings(), lambda: Loaded(model(), Stages(ToyTalker(), NotANumber())))
    )
    with pytest.raises(EngineFault, match="not numbers"):
        await said(await engine.open(SAY))
    assert (await engine.health()).ok
    await engine.close()


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ConfigError(["config.json: a", "config.json: b"]), "config.json: a; config.json: b"),
        (EngineFault("model.safetensors: cut"), "model.safetensors: cut"),
        (RuntimeError("/secret"), "could not be loaded \\(RuntimeError\\)"),
    ],
)
async def test_a_checkpoint_that_cannot_be_loaded(error: Exception, message: str) -> None:
    def load() -> Loaded:
        raise error

    engine = Qwen3TtsEngine(Qwen3TtsSettings(), load)
    with pytest.raises(EngineFault, match=message):
        await engine.start()
    assert not [thread for thread in threading.enumerate() if thread.name == "qwen3-tts-steps"]
    with pytest.raises(EngineLost):
        await engine.start()


async def test_traits_before_the_start() -> None:
    with pytest.raises(EngineLost):
        _ = toy_engine().traits


class Stuck(ToyTalker):
    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Event()

    def step(self, rows: Sequence[int]) -> list[Stepped]:
        self.go_on.wait(30)
        return super().step(rows)


async def test_a_computation_that_does_not_return_shows_in_the_health() -> None:
    talker = Stuck()
    engine = Qwen3TtsEngine(Qwen3TtsSettings(stuck_after_s=0.05), lambda: Loaded(model(), Stages(talker, ToyDecoder())))
    await engine.start()
    speaking = await engine.open(SAY)
    while (await engine.health()).ok:
        await asyncio.sleep(0.01)
    assert "stuck" in (await engine.health()).reason
    talker.go_on.set()
    assert len(await said(speaking)) > 0
    await engine.close()


# ---------------------------------------------------------------- the step loop by itself
def events_of(runtime: Runtime, ask: Ask) -> list[Event]:
    done = threading.Event()
    events: list[Event] = []

    def sink(event: Event) -> None:
        events.append(event)
        if isinstance(event, Ended | Failed):
            done.set()
        elif isinstance(event, Samples):
            ticket.took(len(event.pcm))

    with runtime._lock:
        ticket = runtime.submit(ask, sink)
    assert done.wait(30)
    return events


def test_a_runtime_tells_what_happens_in_order() -> None:
    runtime = Runtime(stages, Limits())
    runtime.start().result()
    prompt = Prompt((5, 6, 7, 8, 9), sampling=Sampling(seed=1))
    events = events_of(runtime, Ask(prompt))
    assert isinstance(events[0], Placed)
    assert isinstance(events[-1], Ended)
    pieces = [event for event in events if isinstance(event, Samples)]
    assert np.array_equal(np.concatenate([piece.pcm for piece in pieces]), samples_of(alone(prompt)))
    looping = events_of(runtime, Ask(Prompt((LOOPING_ID,))))
    assert isinstance(looping[-1], Failed)
    assert "repeats itself" in looping[-1].fault.message
    runtime.close()
    runtime.close()
    runtime.join()
    with pytest.raises(EngineLost):
        runtime.submit(Ask(prompt), events.append)


def test_a_thousand_cancelled_requests_leave_nothing_in_the_loop() -> None:
    talker = ToyTalker(4)
    runtime = Runtime(lambda: Stages(talker, ToyDecoder()), Limits(max_waiting=2_000))
    runtime.start().result()
    prompt = Prompt(tuple(range(50)))
    tickets = [
        runtime.submit(Ask(replace(prompt, sampling=Sampling(seed=n))), lambda event: None) for n in range(1_000)
    ]
    for ticket in tickets:
        ticket.cancel()
    assert isinstance(events_of(runtime, Ask(prompt))[-1], Ended)
    for ticket in tickets:
        ticket.cancel()
        ticket.took(1)
    assert isinstance(events_of(runtime, Ask(prompt))[-1], Ended)
    runtime.close()
    runtime.join()
    assert talker.rows == {}
    assert (runtime._live, runtime._sinks, runtime._notes) == ({}, {}, {})
