"""What the pronunciation rules of hibari (English) and Pico (German) drop or misread, written out for them.

Both read numbers, amounts, times, dates and units well; only what measurably went wrong is here.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_Rule = tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]

# Longer runs of digits are codes, not quantities; hibari also knows no name for such numbers.
_LONG_DIGITS = re.compile(r"\d{13,}")
_EURO_COMMA = re.compile(r"(?<![\w.,])(\d{1,3}(?:\.\d{3})*),(\d{2})(?=\s?€)")
_AMOUNT_AFTER = re.compile(r"(?<![\w.,€£$])(\d[\d,]*(?:\.\d+)?)\s?([€£$])(?![\d\w])")

_ENGLISH: tuple[_Rule, ...] = (
    (_EURO_COMMA, lambda m: f"{m[1].replace('.', ',')}.{m[2]}"),
    (_AMOUNT_AFTER, r"\2\1"),
    (re.compile(r"\be\.\s?g\.", re.I), "for example"),
    (re.compile(r"\bi\.\s?e\.", re.I), "that is"),
)
_GERMAN: tuple[_Rule, ...] = (
    (re.compile(r"\bz\.\s?B\."), "zum Beispiel"),
    (re.compile(r"\bZ\.\s?B\."), "Zum Beispiel"),
    (re.compile(r"\bd\.\s?h\."), "das heißt"),
    (re.compile(r"\bD\.\s?h\."), "Das heißt"),
    (re.compile(r"\bu\.\s?a\."), "unter anderem"),
    (re.compile(r"\b[oO]\.\s?[ÄäÖö]\."), "oder Ähnliches"),
    (re.compile(r"\bNr\.(?=\s?\d)"), "Nummer"),
    (re.compile(r"(?<![\d./])1/2(?![\d./])"), "ein halb"),
    (re.compile(r"(?<![\d./])1/4(?![\d./])"), "ein viertel"),
    (re.compile(r"(?<![\d./])3/4(?![\d./])"), "drei viertel"),
    (re.compile(r"(?<!\S)[-–](?=\d)"), "minus "),
    (re.compile(r"(?<=\d)\s?–\s?(?=\d)"), " bis "),
    (re.compile(r"(?<![\d:])(\d{1,2}):(\d)(?![\d:])"), r"\1 zu \2"),
)
_RULES = {"en": _ENGLISH, "de": _GERMAN}


def written_out(text: str, language: str) -> str:
    """The same text with those readings replaced by words."""
    for pattern, reading in _RULES.get(language, ()):
        text = pattern.sub(reading, text)
    return _LONG_DIGITS.sub(lambda digits: " ".join(digits[0]), text)
