"""Which language a text is in: by script, by a statistical identifier, by a few words that give it away."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import Any

from adapters.engines.builtin.text import script

NAMES = {
    "ar": "Arabic", "bg": "Bulgarian", "cs": "Czech", "da": "Danish", "de": "German", "el": "Greek",
    "en": "English", "es": "Spanish", "fa": "Persian", "fi": "Finnish", "fr": "French", "he": "Hebrew",
    "hi": "Hindi", "hu": "Hungarian", "id": "Indonesian", "it": "Italian", "ja": "Japanese", "ko": "Korean",
    "nl": "Dutch", "no": "Norwegian", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian",
    "sv": "Swedish", "th": "Thai", "tr": "Turkish", "uk": "Ukrainian", "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip
"""The languages that are told apart."""

_SCRIPTS = {
    "ARABIC": ("ar", "fa"), "CYRILLIC": ("ru", "uk", "bg"), "DEVANAGARI": ("hi",), "GREEK": ("el",),
    "HANGUL": ("ko",), "HEBREW": ("he",), "HIRAGANA": ("ja",), "KATAKANA": ("ja",), "THAI": ("th",),
    "CJK": ("zh", "ja"),
}  # fmt: skip
_NOT_LATIN = {code: {name for name, codes in _SCRIPTS.items() if code in codes} for code in NAMES}
_NOT_LATIN["ja"] |= {"CJK"}
_NOT_LATIN["ko"] |= {"CJK"}
_LATIN = tuple(code for code in NAMES if not _NOT_LATIN[code])

# Short turns of a conversation give the identifier too little; these words settle them.
_MARKERS = {
    "de": " hallo guten tag morgen danke bitte ja nein gut ich und der die das ist nicht wie mit für sie wir auch ",
    "en": " hello hi the is and you yes please thanks thank of it to are i what good okay ",
    "es": " hola gracias buenos buenas días sí está qué usted el los una muy por para pero ",
    "fr": " bonjour merci salut oui non je vous est les une très bien pour avec c'est ",
    "it": " ciao grazie buongiorno buonasera sì sono che il gli una molto bene per non è ",
}
_READ_CHARACTERS = 1_000
_SURE = 0.75  # of a language that can be spoken
_VERY_SURE = 0.9  # of one that cannot: a refusal must not rest on a guess
_ENOUGH_LETTERS = 16


@dataclass(frozen=True, slots=True)
class Guess:
    """``language`` is an ISO 639-1 code; ``sure`` says whether one may act on it against a default."""

    language: str
    sure: bool


class Languages:
    """Tells languages apart. Thread-safe."""

    def load(self) -> None:
        """Load the model from the installed package (about 1 s, once per process)."""
        _identifier()

    def guess(self, text: str, spoken: frozenset[str]) -> Guess | None:
        """The language of a text, or None if it has no letters. ``spoken``: those somebody here can say."""
        text = text[:_READ_CHARACTERS]
        scripts = Counter(name for name in map(script, text) if name)
        if not scripts:
            return None
        main = scripts.most_common(1)[0][0]
        if main != "LATIN":
            return self._by_script(text, main, scripts)
        ranked = self._ranked(text, _LATIN)
        best, share = ranked[0]
        letters = scripts.total()
        needed = _SURE if best in spoken else _VERY_SURE
        if share >= needed and (best in spoken or letters >= _ENOUGH_LETTERS):
            return Guess(best, True)
        marked = _marked(text)
        return Guess(marked, True) if marked else Guess(best, False)

    def _by_script(self, text: str, main: str, scripts: Counter[str]) -> Guess:
        if scripts["HIRAGANA"] + scripts["KATAKANA"]:
            return Guess("ja", True)
        codes = _SCRIPTS.get(main, ())
        if len(codes) < 2 or main == "CJK":
            return Guess(codes[0] if codes else "und", True)
        return Guess(self._ranked(text, codes)[0][0], True)

    def _ranked(self, text: str, codes: tuple[str, ...]) -> list[tuple[str, float]]:
        shares = dict(_identifier().rank(text.encode("utf-8", "replace").decode()))
        total = sum(shares[code] for code in codes) or 1.0
        return sorted(((code, shares[code] / total) for code in codes), key=lambda pair: -pair[1])


@cache
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    identifier.set_languages(sorted(NAMES))
    return identifier


def normal_code(language: str | None) -> str | None:
    """``de`` for ``de-DE`` or ``DE``; None for nothing, ``auto`` or what is no language code."""
    code = re.split(r"[-_]", (language or "").strip().lower())[0]
    return code if 2 <= len(code) <= 3 and code.isascii() and code.isalpha() else None


def script_fits(language: str, text: str) -> bool:
    """False if the text has letters, but none of a script in which this language is written."""
    scripts = {name for name in map(script, text[:_READ_CHARACTERS]) if name}
    return not scripts or bool(scripts & (_NOT_LATIN.get(language) or {"LATIN"}))


def _marked(text: str) -> str | None:
    words = re.findall(r"[^\W\d_]+(?:'[^\W\d_]+)?", text.lower().replace("’", "'"))
    hits = {code: sum(f" {word} " in marks for word in words) for code, marks in _MARKERS.items()}
    best = max(hits, key=lambda code: hits[code])
    unique = sum(count == hits[best] for count in hits.values()) == 1
    return best if hits[best] and unique else None
