"""Lists inside of a line: "1. First 2. Second", "• one • two"."""

from __future__ import annotations

import re
from collections.abc import Callable

from segmenter.calendar import ORDINAL_NOUNS
from segmenter.languages import Language
from segmenter.marks import BULLETS, NO, WAIT, next_word

_NUMBER = re.compile(rf"(?:^|(?<=\s))[{BULLETS}]?\s?(\(?)(\d{{1,3}}|[a-z]|[ivx]{{2,4}})(\.?)$")
_ROMAN = ("i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x", "xi", "xii")
_DIGITS = frozenset("0123456789.")
_ENDS_VALUE = frozenset("abcdefghijklmnopqrstuvwxyz") | _DIGITS
_BEFORE_LETTER = frozenset(" (ivx" + BULLETS)
_LOOK_BACK_CHARS = 10
_GOES_ON = (",", ";", " and", " or", " und", " oder", " et", " ou", " y", " o", " e", "，", "、", "；")


def item_start(text: str, at: int, speaks: Callable[[], Language], *, final: bool) -> int:
    """Whether the "." or ")" at ``text[at]`` belongs to the mark of a further item of a list in this line.

    Returns the position of the blank before the item's mark, ``NO``, or ``WAIT``. An item counts as one if the item
    before it opens the sentence or stands behind a colon.
    """
    if (
        at < 3
        or text[at - 1] not in _ENDS_VALUE
        or (text[at - 1] not in _DIGITS and text[at - 2] not in _BEFORE_LETTER)
    ):
        return NO
    first = max(0, at - _LOOK_BACK_CHARS)
    found = _NUMBER.search(text[first:at])
    if found is None or first + found.start() < 2:
        return NO
    opening, value, stop = found.groups()
    mark = (stop + text[at]) if text[at] == ")" else "."
    start = first + found.start() - 1
    end = at + 1
    mark = text[at]
    if stop:
        mark = ".)"
    elif text.startswith(".)", at):
        mark, end = ".)", at + 2
    if text[:start].endswith(_GOES_ON) or not _follows_item(text[:start], opening, value, mark):
        return NO
    rest = text[end : end + 2]
    if len(rest.strip()) == 0:
        return NO if final else WAIT
    if not rest.startswith(" ") or not (rest[1].isalnum() or rest[1] in "\"“„«(*'"):
        return NO
    if not (value.isdigit() and mark == "." and speaks().ordinals):
        return start
    word = next_word(text, end + 1, final=final)
    if word is None:
        return WAIT
    return NO if word.rstrip(".").lower() in ORDINAL_NOUNS else start


def _follows_item(text: str, opening: str, value: str, mark: str) -> bool:
    """Whether the item before ``value`` is in ``text``."""
    for before in _values_before(value):
        item = f"{opening}{before}{mark} "
        at = text.find(item)
        while at >= 0:
            lead = text[:at].rstrip(BULLETS + " ")
            if not lead or lead.endswith(":"):
                return True
            at = text.find(item, at + 1)
    return False


def _values_before(value: str) -> list[str]:
    if value.isdigit():
        return [str(int(value) - 1)] if int(value) > 1 else []
    before = [chr(ord(value) - 1)] if len(value) == 1 and value > "a" else []
    if value in _ROMAN[1:]:
        before.append(_ROMAN[_ROMAN.index(value) - 1])
    return before


def bullet_start(text: str, at: int, *, listing: bool) -> int:
    """Position of the blank before the bullet at ``text[at]`` if that opens a further item, or ``NO``."""
    if at < 2 or text[at - 1] != " ":
        return NO
    return at - 1 if listing or text[at - 2] == ":" else NO
