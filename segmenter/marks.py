"""Characters and tokens that the rules for boundaries share."""

from __future__ import annotations

import re
from typing import Final

NO: Final = 0
"""No boundary."""

WAIT: Final = -1
"""More text is needed."""

SCRIPT_MARKS: Final = "。！？｡।॥؟۔։။።។"
"""End marks that need no blank behind them."""

END_MARKS: Final = ".!?…" + SCRIPT_MARKS
CLAUSE_MARKS: Final = ",;:—–"
SCRIPT_CLAUSE_MARKS: Final = "，；：،؛"
CLOSERS: Final = "'”’)]}』」】）›»"
QUOTES: Final = frozenset("\"'”’»“«›』」")
DASHES: Final = "-–—"
BULLETS: Final = "•◦▪‣●⁃"
NUMBER_SIGNS: Final = "§#№$€£¥~≈±"
"""Signs in front of a number: an abbreviation before them is one before a number."""

WORD_LIMIT_CHARS: Final = 24
"""So much of a word is looked at."""

_LOOK_BACK_CHARS = 48
_OPENERS = "\"'“„«‘(（[{「『【¿¡»›‹*`"
_LAST_TOKENS = re.compile(r"(?:(\S*)\s+)?(\S*)\s?$")
_NEXT_WORD = re.compile(rf"[\"'“„«»(\[¿¡‘]{{0,3}}([\w'’.-]{{0,{WORD_LIMIT_CHARS}}})")
_BEHIND_WIDE_MARK = re.compile(r"^.*[，。、；：！？（]")
_LAST_PART = re.compile(r"^.*[–/'’(-](?=.)")


def tokens_before(text: str, at: int) -> tuple[str, str]:
    """The token before the mark and the one before that, without opening marks."""
    found = _LAST_TOKENS.search(text[max(0, at - _LOOK_BACK_CHARS) : at])
    if found is None:
        return "", ""
    last, before = _BEHIND_WIDE_MARK.sub("", found[2]), found[1] or ""
    return last.lstrip(_OPENERS), before.lstrip(_OPENERS) if last == found[2] else ""


def last_part(token: str) -> str:
    """The last part of a compound: what stands behind a hyphen, slash, apostrophe or bracket."""
    return _LAST_PART.sub("", token)


def next_word(text: str, start: int, *, final: bool) -> str | None:
    """The word that begins at ``start``, opening marks skipped; None if it may still grow."""
    found = _NEXT_WORD.match(text, start)
    if found is None:
        return ""
    grows = found.end() == len(text) and not final and len(found[1]) < WORD_LIMIT_CHARS
    return None if grows else found[1]


def begun_word(text: str, start: int) -> str:
    """As much as has arrived of the word that begins at ``start``."""
    found = _NEXT_WORD.match(text, start)
    return found[1] if found else ""
