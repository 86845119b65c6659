"""What is known of a language, and which language a text is in."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Final

from segmenter.words import WORDS

AUTO: Final = "auto"
"""The language is to be told from the text."""

_MAIN = ("en", "de", "fr", "es", "it", "pt", "ru", "uk", "el", "ar", "hi", "mr")


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_HONORIFICS = _set(
    "mr mrs ms mx dr drs prof profs capt cmdr sgt cpl pvt msgr messrs frl hrn sr sra srta sres sras srtas srs dra "
    "profa exmo exma sig sigg dott avv mme mmes mlle mgr dhr mevr supt insp doc ing hr skt ud uds vd vds г-н г-жа "
    "проф акад"
)
_ORDINALS = _set("de da no fi cs sk pl hu hr sl et lv is sr tr")
_VOWELLESS = _set("cs sk hr sl sr mk bg")
_ALL_NOTED = 8
_SCRIPTS = re.compile(
    "(?P<ko>[\uac00-\ud7a3])|(?P<ja>[\u3040-\u30ff])|(?P<zh>[\u3400-\u9fff])|(?P<el>[\u0370-\u03ff])"
    "|(?P<hy>[\u0530-\u058f])|(?P<hi>[\u0900-\u097f])|(?P<he>[\u0590-\u05ff])|(?P<ar>[\u0600-\u06ff])"
    "|(?P<uk>[іїєґІЇЄҐ])|(?P<kk>[әғқңөұүһӘҒҚҢӨҰҮҺ])|(?P<ru>[\u0400-\u04ff])|(?P<th>[\u0e00-\u0e7f])"
)
_WORD = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True, slots=True)
class Language:
    """The word lists of a language (see ``segmenter.words``).

    ``ordinals``: "3. Mai" may be an ordinal. ``needs_vowels``: a token without a vowel is an abbreviation.
    """

    never: frozenset[str]
    titles: frozenset[str]
    names: frozenset[str]
    numbers: frozenset[str]
    numbers_as_written: frozenset[str]
    starters: frozenset[str]
    ordinals: bool
    needs_vowels: bool

    def is_honorific(self, lower: str) -> bool:
        """Whether a name follows, whatever it looks like ("Mr. Will")."""
        return lower in self.never and lower in _HONORIFICS

    def is_abbreviation(self, token: str) -> bool:
        """Whether ``token``, without its last full stop, is a listed abbreviation."""
        lower = token.lower()
        return lower in self.never or lower in self.names or token in self.titles

    def is_before_number(self, token: str) -> bool:
        """Whether ``token`` and a number belong together."""
        lower = token.lower()
        return lower in self.numbers or token in self.numbers_as_written or lower in self.never


@cache
def language(code: str) -> Language:
    """The lists for a language code such as ``de`` or ``pt-BR``; with those of English, which all texts borrow from.

    ``auto`` and codes that are not known give the lists of the main languages at once.
    """
    base = code.lower().replace("_", "-").partition("-")[0]
    base = {"nb": "no", "nn": "no"}.get(base, base)
    known = base in WORDS
    codes = dict.fromkeys(("en", base) if known else _MAIN)

    def union(name: str) -> frozenset[str]:
        return frozenset(word for part in codes for word in WORDS[part][name].split())

    return Language(
        union("never"),
        union("titles"),
        union("names"),
        union("numbers"),
        union("numbers_as_written"),
        union("starters"),
        ordinals=base in _ORDINALS or not known,
        needs_vowels=base not in _VOWELLESS,
    )


def _codes_of_words() -> dict[str, tuple[str, ...]]:
    codes: dict[str, tuple[str, ...]] = {}
    for code, lists in WORDS.items():
        for word in lists["function"].split():
            codes[word] = (*codes.get(word, ()), code)
    return codes


_CODES: Final = _codes_of_words()


class LanguageGuess:
    """Tells the language of a text from its letters and small words, as it comes.

    ``note`` is called with the text of each segment. Two small words and a lead tell a main language, four any other;
    what has been seen counts less and less, so that the guess follows a text that changes its language.
    """

    def __init__(self) -> None:
        self._hits: dict[str, float] = {}
        self._noted = 0

    def note(self, text: str) -> None:
        """Count one more piece of the text; of a long text every fourth will do."""
        self._noted += 1
        if self._noted > _ALL_NOTED and self._noted % 4:
            return
        for code in self._hits:
            self._hits[code] *= 0.9
        for code, count in _count(text).items():
            self._hits[code] = self._hits.get(code, 0.0) + count

    def code(self, more: str = "") -> str:
        """The language of what was noted and ``more``, or ``auto``."""
        hits = dict(self._hits)
        if more:
            for code, count in _count(more).items():
                hits[code] = hits.get(code, 0.0) + count
        main = {code: count for code, count in hits.items() if code in _MAIN or code not in WORDS}
        for chosen, needed, lead in ((main, 2, 1.6), (hits, 4, 1.3)):
            if chosen:
                best = max(chosen, key=lambda code: hits[code])
                rival = max((count for code, count in chosen.items() if code != best), default=0.0)
                if hits[best] >= needed and hits[best] >= lead * rival and 2 * hits[best] >= max(hits.values()):
                    return best
        return AUTO


def _count(text: str) -> dict[str, float]:
    hits: dict[str, float] = {}
    for script in _SCRIPTS.finditer(text):
        code = script.lastgroup or ""
        hits[code] = hits.get(code, 0.0) + 0.5
    if "ja" in hits:
        hits["ja"] += hits.pop("zh", 0.0)
    if "ru" in hits:
        for rare in ("uk", "kk"):
            if rare in hits:
                hits[rare] += hits["ru"]
    for word in _WORD.findall(text.lower()):
        for code in _CODES.get(word, ()):
            hits[code] = hits.get(code, 0.0) + 1.0
    return hits
