"""The engine on toy stages: a whole checkpoint's worth of voices and languages, no weights."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from adapters.engines.qwen3_tts.engine import Loaded, Qwen3TtsEngine, Qwen3TtsSettings
from adapters.engines.qwen3_tts.stages import Reference
from adapters.engines.qwen3_tts.utterances import ISO, Kind, Model
from tests.adapters.engines.qwen3_tts.toy import stages


class ToyTokens:
    """One id for every word; a word ends where the next one begins."""

    def body_ids(self, text: str) -> tuple[int, ...]:
        return tuple(sum(map(ord, word)) % 50_000 for word in text.split())

    def reference_ids(self, text: str) -> tuple[int, ...]:
        return self.body_ids(text)

    def instruct_ids(self, text: str) -> tuple[int, ...]:
        return (1, *self.body_ids(text), 2) if text else ()

    def live(self) -> ToyLive:
        return ToyLive(self)


class ToyLive:
    def __init__(self, tokens: ToyTokens) -> None:
        self.ends: list[int] = []
        self._tokens = tokens
        self._held = ""
        self._at = 0

    def feed(self, text: str) -> Sequence[int]:
        words, space, held = (self._held + text).rpartition(" ")
        self._held = held
        return self._ids(words + space)

    def finish(self) -> Sequence[int]:
        return self._ids(self._held)

    def _ids(self, text: str) -> Sequence[int]:
        self.ends += [self._at + found.end() for found in re.finditer(r"\S+", text)]
        self._at += len(text)
        return self._tokens.body_ids(text)


def model(kind: Kind = "custom_voice", *, instructions: bool = True) -> Model:
    voice = Reference(np.arange(8, dtype=np.float32), np.zeros((3, 16), np.int16), (1, 2, 3, 4))
    return Model(
        name="toy",
        kind=kind,
        languages=(*ISO, "klingon"),
        speakers=("vivian", "eric") if kind == "custom_voice" else (),
        takes_instructions=instructions and kind != "base",
        width=8,
        tokens=ToyTokens(),
        dialects={"eric": "sichuan_dialect"} if kind == "custom_voice" else {},
        references={"anna": voice} if kind == "base" else {},
    )


def toy_engine(kind: Kind = "custom_voice", **settings: Any) -> Qwen3TtsEngine:
    wanted = Qwen3TtsSettings(**settings)
    return Qwen3TtsEngine(wanted, lambda: Loaded(model(kind), stages(wanted.max_rows, wanted.max_positions)))


def make(settings: Mapping[str, Any]) -> Qwen3TtsEngine:
    """The factory for a host process."""
    return toy_engine(**settings)
