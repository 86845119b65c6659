"""Factories that a host process is told to call in tests; each is given the test's settings."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adapters.engines.qwen3_tts.engine import Qwen3TtsEngine
from adapters.engines.tone import ToneEngine, ToneSettings
from sidecar.clock import SystemClock
from sidecar.faults import EngineFault
from sidecar.ports import EngineHealth, Pcm, Utterance
from tests.adapters.engines.qwen3_tts.toy_engine import toy_engine
from voices.anchor import SpeakerAnchor


def tone(settings: Mapping[str, Any]) -> ToneEngine:
    return ToneEngine(ToneSettings(**settings), SystemClock())


def refuses(settings: Mapping[str, Any]) -> ToneEngine:
    raise EngineFault("The checkpoint is not there; look elsewhere.")


def raises(settings: Mapping[str, Any]) -> ToneEngine:
    raise RuntimeError("secret path")


def dies(settings: Mapping[str, Any]) -> ToneEngine:
    os._exit(3)


def prints(settings: Mapping[str, Any]) -> ToneEngine:
    print("a library that talks", flush=True)
    return tone({})


class Breaking(ToneEngine):
    """Does what the text of an utterance says to its own process."""

    async def open(self, utterance: Utterance) -> Any:
        if utterance.text.startswith("die"):
            os._exit(5)
        if utterance.text.startswith("stop the loop"):
            time.sleep(3_600)  # noqa: ASYNC251
        if utterance.text.startswith("be unwell"):
            self.unwell = True
        return await super().open(utterance)

    async def health(self) -> EngineHealth:
        return EngineHealth(False, "the loop failed") if getattr(self, "unwell", False) else await super().health()


def breaking(settings: Mapping[str, Any]) -> Breaking:
    return Breaking(ToneSettings(**settings), SystemClock())


class Forgetful(ToneEngine):
    """Its process dies over a recording whose transcript says so, for good or the first time."""

    mark = Path()

    async def encode_voice(self, pcm: Pcm, transcript: str | None) -> SpeakerAnchor:
        if transcript == "die" or (transcript == "die once" and not self.mark.exists()):
            self.mark.touch()
            os._exit(6)
        if transcript == "hang":
            await asyncio.Event().wait()
        return await super().encode_voice(pcm, transcript)


def forgetful(settings: Mapping[str, Any]) -> Forgetful:
    engine = Forgetful(ToneSettings(), SystemClock())
    engine.mark = Path(settings["mark"])
    return engine


def dies_later(settings: Mapping[str, Any]) -> Breaking:
    """Starts once; all later processes die at their start."""
    mark = Path(settings["mark"])
    if mark.exists():
        os._exit(4)
    mark.touch()
    return breaking({})


def live(settings: Mapping[str, Any]) -> Qwen3TtsEngine:
    return toy_engine(**settings)
