"""The voices that this machine can offer, and which of them says a given text."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.util import find_spec

from adapters.engines.builtin import kokoro, languages
from adapters.engines.builtin.hibari import HibariSynthesiser
from adapters.engines.builtin.kokoro import KokoroSynthesiser
from adapters.engines.builtin.languages import Languages
from adapters.engines.builtin.pico import PICO_LANGUAGES, PicoSynthesiser
from adapters.engines.builtin.synthesis import Synthesiser, VoiceEntry
from adapters.engines.builtin.text import has_letter, sayable
from sidecar.faults import UnknownVoice, UnsupportedLanguage
from sidecar.ports import EngineVoice

AUTO = "auto"
"""The voice that changes with the language of the text."""

# What Qwen3-TTS speaks, for the advice that goes with a refusal.
_QWEN3_TTS = frozenset(["zh", "en", "ja", "ko", "de", "fr", "ru", "pt", "es", "it"])


@dataclass(frozen=True, slots=True)
class Choice:
    """Who says a text, in which language, and what is left of the text for this voice (may be empty)."""

    entry: VoiceEntry
    language: str
    text: str


class Catalogue:
    """All voices of this machine by name. ``auto`` stands for the first voice of each language."""

    def __init__(self) -> None:
        self.synthesisers: list[Synthesiser] = []
        self._entries: dict[str, VoiceEntry] = {}
        hibari = HibariSynthesiser()
        self._add(hibari)
        if sys.platform == "linux" and find_spec("py_nanotts") is not None:
            self._add(PicoSynthesiser())
        self._kokoro = KokoroSynthesiser(hibari) if kokoro.installed() else None
        if self._kokoro is not None:
            self._add(self._kokoro)
        self._languages = Languages()
        self._first: dict[str, VoiceEntry] = {}
        for entry in self._entries.values():
            self._first.setdefault(entry.voice.languages[0], entry)

    def _add(self, synthesiser: HibariSynthesiser | PicoSynthesiser | KokoroSynthesiser) -> None:
        self.synthesisers.append(synthesiser)
        self._entries.update((entry.voice.name, entry) for entry in synthesiser.voices())

    @property
    def voices(self) -> tuple[EngineVoice, ...]:
        """``auto`` first, then every single voice."""
        auto = EngineVoice(AUTO, tuple(self._first), "the first voice of the language of the text")
        return (auto, *(entry.voice for entry in self._entries.values()))

    @property
    def languages(self) -> tuple[str, ...]:
        """Every language that some voice speaks."""
        return tuple(dict.fromkeys(code for entry in self._entries.values() for code in entry.voice.languages))

    def load(self, voice: str) -> None:
        """Load the language identifier and a voice (``auto``: the English one); blocks for a second or two."""
        self._languages.load()
        (self.entry(voice) or self._first["en"]).synthesiser.load()

    def entry(self, name: str) -> VoiceEntry | None:
        """The voice of that name, None for ``auto``. Raises ``UnknownVoice``."""
        if name == AUTO:
            return None
        if name in self._entries:
            return self._entries[name]
        mixture = self._kokoro.mixture(name) if self._kokoro is not None else None
        if mixture is not None:
            return mixture
        raise UnknownVoice(f"Unknown voice; there are: {', '.join([AUTO, *self._entries])}.", param="voice")

    def choose(self, text: str, voice: str, language: str | None) -> Choice:
        """Raises ``UnknownVoice``, or ``UnsupportedLanguage`` when nothing of the text can be said."""
        entry = self.entry(voice)
        hint = languages.normal_code(language)
        if hint is not None and not languages.script_fits(hint, text):
            hint = None
        guess = None if hint is not None else self._languages.guess(text, frozenset(self._first))
        code = hint if hint is not None else guess.language if guess and guess.sure else None
        kept = sayable(text)
        if entry is None:
            entry = self._first.get(code or "en")
            if entry is None:
                raise self._unsupported(code or "und")
        if has_letter(text) and not has_letter(kept):
            raise self._unsupported(code or (guess.language if guess else "und"))
        return Choice(entry, code if code in entry.speaks else entry.speaks[0], kept)

    @property
    def more_voices(self) -> str:
        """What to install for more voices, or "" if everything is installed."""
        if self._kokoro is not None:
            return ""
        return "More voices (af_heart, am_michael, ...) come with: pip install 'sidecar-speech[kokoro]'"

    def _unsupported(self, code: str) -> UnsupportedLanguage:
        what = f"{languages.NAMES[code]} ({code})" if code in languages.NAMES else "the language of this text"
        spoken = ", ".join(languages.NAMES.get(known, known) for known in self._first)
        return UnsupportedLanguage(
            f"The built-in voices cannot speak {what}. They speak: {spoken}. {_way_out(code)}", param="language"
        )


def _way_out(code: str) -> str:
    ways: list[str] = []
    if code in PICO_LANGUAGES:
        ways.append("install py-nanotts (Linux)")
    if code == "de":
        ways.append("pip install 'sidecar-speech[kokoro]'")
    if code in _QWEN3_TTS:
        ways.append("use a Qwen3-TTS checkpoint (sidecar pull 0.6b)")
    ways = ways or ["let a speech server that does speak (engine.urls)"]
    return f"To speak it, {' or '.join(ways)}."
