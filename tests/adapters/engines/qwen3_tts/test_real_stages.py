"""The whole runtime on tiny checkpoints: scheduler, talker, decoder, engine, host process and command together."""

from __future__ import annotations

import json
import queue
import wave
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters.engines.host import HostedEngine
from adapters.engines.qwen3_tts.__main__ import arguments, main, run, speak
from adapters.engines.qwen3_tts.code2wav import Code2Wav
from adapters.engines.qwen3_tts.decoding import Stages
from adapters.engines.qwen3_tts.engine import Qwen3TtsEngine, Qwen3TtsSettings
from adapters.engines.qwen3_tts.requests import Ask, Ended, Event, Failed, Limits, Samples
from adapters.engines.qwen3_tts.runtime import Runtime
from adapters.engines.qwen3_tts.stages import Frames, Prompt, Sampling
from sidecar.clock import SystemClock
from sidecar.faults import EngineFault, UnsupportedLanguage
from sidecar.ports import FRAME_SAMPLES, Pcm, Speaking, Utterance
from tests.adapters.engines.qwen3_tts.loaded import cases, checkpoint, golden, prompt_of, stage0

KINDS = [(size, kind) for size in ("tiny", "tiny17") for kind in ("base", "custom_voice", "voice_design")]
MAX_NEW = 40
TEXT = "Hello world, this is a small test."


def stages(size: str, kind: str, rows: int) -> Stages:
    opened = checkpoint(size, kind)
    decoder = Code2Wav(opened.codec.decoder, opened.codec_weights)
    return Stages(stage0(size, kind, rows=rows, positions=512, fill_to=2), decoder)


def together(runtime: Runtime, asks: Sequence[Ask]) -> list[tuple[Frames, Pcm]]:
    """All of these at once through one runtime."""
    inboxes: list[queue.SimpleQueue[Event]] = [queue.SimpleQueue() for _ in asks]
    tickets = [runtime.submit(ask, inbox.put) for ask, inbox in zip(asks, inboxes, strict=True)]
    results = []
    for ticket, inbox in zip(tickets, inboxes, strict=True):
        codes: list[Frames] = []
        pcm: list[Pcm] = []
        while not isinstance(event := inbox.get(timeout=60), Ended):
            assert not isinstance(event, Failed), event
            if isinstance(event, Samples):
                assert event.first == sum(map(len, pcm))
                assert event.codes is not None
                codes.append(event.codes)
                pcm.append(event.pcm)
                ticket.took(len(event.pcm))
        results.append((np.concatenate(codes), np.concatenate(pcm)))
    return results


@pytest.mark.parametrize(("size", "kind"), KINDS)
def test_a_batch_says_what_the_reference_says_alone(size: str, kind: str) -> None:
    chosen = [case for case in cases() if (case["size"], case["kind"]) == (size, kind) and "seed" not in case]
    assert chosen
    runtime = Runtime(lambda: stages(size, kind, 3), Limits(guard=None))
    runtime.start().result()
    asks = [Ask(prompt_of(case), max_frames=MAX_NEW - 1, output="both") for case in chosen for _ in range(2)]
    spoken = together(runtime, asks)
    runtime.close()
    runtime.join()
    for place, (codes, pcm) in enumerate(spoken):
        expected = golden(chosen[place // 2], "codes")
        assert expected is not None
        assert np.array_equal(codes, expected)
        assert len(pcm) == len(codes) * FRAME_SAMPLES
        assert np.abs(pcm - spoken[place - place % 2][1]).max() <= 1e-5


def test_sampled_rows_are_the_same_alone_and_together() -> None:
    prompt = prompt_of(next(case for case in cases() if case["kind"] == "custom_voice" and case["size"] == "tiny"))
    asks = [Ask(replace(prompt, sampling=Sampling(seed=seed % 3)), max_frames=30, output="both") for seed in range(7)]
    runtime = Runtime(lambda: stages("tiny", "custom_voice", 4), Limits())
    runtime.start().result()
    alone = [together(runtime, [ask])[0] for ask in asks[:3]]
    crowd = together(runtime, asks)
    runtime.close()
    runtime.join()
    assert not np.array_equal(alone[0][0], alone[1][0])
    for place, (codes, pcm) in enumerate(crowd):
        assert np.array_equal(codes, alone[place % 3][0])
        assert np.abs(pcm - alone[place % 3][1]).max() <= 1e-5


# ---------------------------------------------------------------- the engine
async def said(speaking: Speaking) -> Pcm:
    return np.concatenate([chunk.pcm async for chunk in speaking.chunks()])


def settings(kind: str = "custom_voice", **more: Any) -> dict[str, Any]:
    return {
        "checkpoint": str(checkpoint("tiny", kind).folder),
        "threads": 1,
        "max_rows": 2,
        "max_positions": 512,
        **more,
    }


async def test_the_engine_speaks_here_and_in_a_process_of_its_own() -> None:
    here = Qwen3TtsEngine(Qwen3TtsSettings(**settings()))
    there = HostedEngine("adapters.engines.qwen3_tts.engine:make", settings(), SystemClock())
    asked = Utterance(TEXT, "ryan", 11, "en", max_frames=30)
    await here.start()
    try:
        await there.start()
        assert there.traits == here.traits
        assert "ryan" in [voice.name for voice in here.traits.voices]
        local = await said(await here.open(asked))
        assert len(local) > FRAME_SAMPLES
        assert np.array_equal(await said(await there.open(asked)), local)
        with pytest.raises(UnsupportedLanguage, match="languages: de, en"):
            await there.open(replace(asked, language="sv"))
    finally:
        await there.close()
        await here.close()


@pytest.mark.parametrize("size", [1, 4, 100])
async def test_live_text_gives_the_samples_of_the_whole_text(size: int) -> None:
    engine = Qwen3TtsEngine(Qwen3TtsSettings(**settings(layout="streaming")))
    await engine.start()
    asked = Utterance(TEXT, "ryan", 5, "en", max_frames=40)
    whole = await said(await engine.open(asked))
    speaking = await engine.open(replace(asked, text="", live=True))
    for at in range(0, len(TEXT), size):
        speaking.append(TEXT[at : at + size])
    speaking.finish()
    live = await said(speaking)
    await engine.close()
    # A row that knows its text may draw its end earlier than one that must hear it out.
    shared = min(len(live), len(whole))
    assert np.abs(live[:shared] - whole[:shared]).max() <= 1e-5


async def test_a_broken_checkpoint_says_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    engine = Qwen3TtsEngine(Qwen3TtsSettings(checkpoint=str(tmp_path)))
    with pytest.raises(EngineFault, match=r"config\.json"):
        await engine.start()


# ---------------------------------------------------------------- the command
def command(kind: str, *more: str) -> list[str]:
    return [str(checkpoint("tiny", kind).folder), "--text", TEXT, "--max-new", "20", *more]


def test_the_command_writes_codes_and_audio(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    codes, audio = tmp_path / "codes.npy", tmp_path / "audio.wav"
    argv = command("custom_voice", "--speaker", "Ryan", "--language", "English", "--greedy", "--chunk-frames", "7")
    assert main([*argv, "--codes", str(codes), "--wav", str(audio)]) == 0
    facts = json.loads(capsys.readouterr().out)
    written = np.load(codes, allow_pickle=False)
    assert written.dtype == np.int64
    assert written.shape == (facts["frames"], 16)
    assert facts["frames"] <= 19
    with wave.open(str(audio)) as file:
        assert (file.getframerate(), file.getnframes()) == (24_000, facts["samples"])


def test_the_command_clones(tmp_path: Path) -> None:
    time = np.arange(24_000) / 16_000
    tone = (np.sin(time * 900) * np.sin(time * 7) * 9_000).astype("<i2")
    clip = tmp_path / "clip.wav"
    with wave.open(str(clip), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(np.repeat(tone, 2).tobytes())
    in_context = speak(
        arguments().parse_args(command("base", "--ref-audio", str(clip), "--ref-text", "Hi.", "--greedy"))
    )
    vector = speak(arguments().parse_args(command("base", "--ref-audio", str(clip), "--x-vector-only", "--greedy")))
    assert len(in_context.pcm) == len(in_context.codes) * FRAME_SAMPLES
    assert not np.array_equal(in_context.codes, vector.codes)


@pytest.mark.parametrize(
    ("kind", "more", "message"),
    [
        ("base", (), "needs reference voice"),
        ("custom_voice", ("--speaker", "nobody"), "speakers: serena"),
        ("custom_voice", ("--language", "sv"), "languages: auto, chinese"),
        ("voice_design", ("--ref-audio", "x.wav", "--x-vector-only"), "cannot clone"),
        ("base", ("--ref-audio", "none.wav", "--x-vector-only"), "cannot be read as audio"),
    ],
)
def test_the_command_says_what_is_wrong(
    kind: str, more: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(kind, *more)) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("argv", [["x", "--text", "t", "--max-new", "1"], ["x", "--text", "t", "--ref-audio", "a"]])
def test_a_command_line_that_makes_no_sense(argv: list[str]) -> None:
    with pytest.raises(SystemExit):
        main(argv)


def test_a_checkpoint_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["./nowhere", "--text", "t"]) == 1
    assert "no such folder" in capsys.readouterr().err


def test_a_prompt_that_cannot_fit_is_a_fault() -> None:
    prompt = Prompt(tuple(range(50)), speaker="ryan", language="english")
    small = Runtime(lambda: stages("tiny", "custom_voice", 1), Limits(frames_per_token=100))
    with pytest.raises(EngineFault.__bases__[0], match="too long"):
        run(small, Ask(prompt))
