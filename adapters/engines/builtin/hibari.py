"""English by hibari-tts: 8 MB of weights in its wheel, about a hundred times faster than speech on one core."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from adapters.engines.builtin.synthesis import Stop, VoiceEntry
from adapters.engines.builtin.text import split_phonemes
from sidecar.ports import EngineVoice, Pcm

_MAX_PHONEMES = 400  # the longest sentence the model was made for
_GAIN_DB = 6.2  # to -20 LUFS: pyloudnorm over ten trimmed sentences, with no gain


class HibariSynthesiser:
    """The voice "heart". See ``Synthesiser``."""

    piece_characters = 300

    def __init__(self) -> None:
        self._tts: Any = None
        self._lock = threading.Lock()

    def voices(self) -> list[VoiceEntry]:
        """Its part of the catalogue."""
        heart = EngineVoice("heart", ("en",), "American English, female (hibari)")
        return [VoiceEntry(heart, self, "heart", ("en",), _GAIN_DB)]

    def load(self) -> None:
        """Load the network and the pronunciation lexicon from the installed package."""
        with self._lock:
            if self._tts is None:
                from hibari import Hibari

                tts = Hibari(voice="heart", threads=1)
                tts.g2p("Zorblax.")  # a word in no lexicon: loads the network that guesses pronunciations
                self._tts = tts

    def speak(self, text: str, voice: str, language: str, seed: int, stop: Stop) -> Sequence[Pcm]:
        """See ``Synthesiser``; ``voice`` and ``language`` have only one value here."""
        self.load()
        phonemes = self.phonemes(text)
        parts: list[Pcm] = []
        for position, part in enumerate(split_phonemes(phonemes, _MAX_PHONEMES)):
            if stop.requested:
                return []
            parts.append(self._tts.from_phonemes(part, seed=[seed & (2**64 - 1), position]))
        return parts

    def phonemes(self, text: str) -> str:
        """American English phonemes in the alphabet that Kokoro shares."""
        with self._lock:  # its tokenizer keeps state while it reads
            phonemes: str = self._tts.g2p(text)
        return phonemes

    def close(self) -> None:
        """Forget the model."""
        self._tts = None
