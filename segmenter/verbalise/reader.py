"""The step itself: language by tag, one pass over the text, blanks where words meet."""

from __future__ import annotations

import re
import threading
import unicodedata
from functools import lru_cache

from segmenter.verbalise.east_asian import Chinese, Japanese, Korean
from segmenter.verbalise.english import English
from segmenter.verbalise.french import French
from segmenter.verbalise.german import German
from segmenter.verbalise.iberian import Portuguese, Spanish
from segmenter.verbalise.italian import Italian
from segmenter.verbalise.language import GLUE, Language
from segmenter.verbalise.roman import say_roman
from segmenter.verbalise.rules import VULGAR, Rules
from segmenter.verbalise.russian import Russian

LANGUAGES = ("en", "de", "fr", "es", "it", "pt", "ru", "zh", "ja", "ko")
"""Languages whose text is rewritten; all others are left as they are."""

_TRIGGER = re.compile(rf"[\d{''.join(VULGAR)}²³]")
_FOREIGN_DIGIT = re.compile(r"(?![0-9])\d")
_WIDE = re.compile(r"(?<=[0-9])[．：％／－](?=[0-9]|\Z|[^0-9])")
_WIDE_MARKS = str.maketrans("．：％／－", ".:%/-")
_BUILDING = threading.Lock()


def verbalise(text: str, lang: str) -> str:
    """The text with numbers and what belongs to them written as the words a person would say.

    ``lang`` is a language tag such as ``de`` or ``pt-PT`` (case and the kind of dash do not matter); a language that
    is not in ``LANGUAGES``, ``auto`` included, leaves the text unchanged, and so does a text without digits, fraction
    characters and Roman numerals. The result holds no decimal digits, is its own verbalisation, and is at most
    fifteen times as long. Offsets are not kept: map whole segments. Pure, thread-safe, never raises; time is linear
    in the length of the text.
    """
    code, region = _tag(lang)
    if code not in LANGUAGES:
        return text
    if _TRIGGER.search(text):
        with _BUILDING:
            rules, language = _rules(code, region)
        text = _said(text, rules, language)
    return say_roman(text, code)


def _tag(lang: str) -> tuple[str, str]:
    code, *rest = lang.replace("_", "-").lower().split("-")
    region = next((part.upper() for part in rest if len(part) == 2), "")
    return code, region if region in _REGIONS.get(code, ()) else ""


_REGIONS = {
    "en": ("GB", "US", "CA", "PH", "AU", "NZ", "IE", "IN", "ZA"),
    "fr": ("CH", "BE"),
    "es": ("MX", "US", "PR", "DO", "GT", "HN", "NI", "SV", "PA", "PE", "AR", "CL", "CO", "UY"),
    "pt": ("PT",),
}
"""Regions that make a difference, by language."""


@lru_cache(maxsize=64)
def _rules(code: str, region: str) -> tuple[Rules, Language]:
    language = _language(code, region)
    return Rules(code, region, language), language


def _language(code: str, region: str) -> Language:
    match code:
        case "en":
            return English("en", region)
        case "es":
            return Spanish("es", region)
        case "fr":
            return French(f"fr_{region}" if region else "fr")
        case "pt":
            return Portuguese(f"pt_{region}" if region else "pt")
        case "de":
            return German("de")
        case "it":
            return Italian("it")
        case "ru":
            return Russian("ru")
        case "zh":
            return Chinese("zh")
        case "ja":
            return Japanese("ja")
        case _:
            return Korean("ko")


def _said(text: str, rules: Rules, language: Language) -> str:
    text = _FOREIGN_DIGIT.sub(lambda digit: str(unicodedata.decimal(digit[0])), text)
    text = _WIDE.sub(lambda mark: mark[0].translate(_WIDE_MARKS), text)
    out = _Out(language)
    at = 0
    while found := rules.anchor.search(text, at):
        start = found.start()
        out.copy(text[at:start])
        reading = rules.read(text, start)
        if reading:
            at = reading[0]
            out.say(reading[1], text[at : at + 1])
        else:
            at = start + 1
            out.copy(text[start:at])
    out.copy(text[at:])
    return "".join(out.parts)


class _Out:
    """What has been written so far, with blanks between words that would run together."""

    def __init__(self, language: Language) -> None:
        self.parts: list[str] = []
        self._language = language
        self._last = " "

    def copy(self, text: str) -> None:
        if text:
            self.parts.append(text)
            self._last = text[-1]

    def say(self, words: str, following: str) -> None:
        glued = words.endswith(GLUE)
        words = words.removesuffix(GLUE)
        if not words:
            return
        if self._joins(self._last) and words[0].isalnum() and self._last not in self._language.no_blank_after:
            words = f" {words}"
        self.copy(words)
        apart = following.isalpha() and following not in self._language.no_blank_before
        if not glued and apart and self._joins(following) and words[-1].isalnum():
            self.copy(" ")

    def _joins(self, neighbour: str) -> bool:
        return neighbour.isalnum() and (self._language.spaced or neighbour.isascii())
