"""What stands around a number: the words that decide case, gender and kind."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

WINDOW = 40
"""Characters looked at on each side."""

_LAST = re.compile(r"([^\W\d_]+)(\.?)[ \u00a0\u202f]+\Z")
_LAST_TWO = re.compile(r"([^\W\d_]+)[ \u00a0\u202f]+[^\W\d_]+\.?[ \u00a0\u202f]+\Z")
_NEXT = re.compile(r"[ \u00a0\u202f]+([^\W\d_][^\W\d_’'-]*)")
_NEXT_TWO = re.compile(r"[ \u00a0\u202f]+[^\W\d_][^\W\d_’'-]*[ \u00a0\u202f]+([^\W\d_][^\W\d_’'-]*)")


@dataclass(frozen=True)
class Around:
    """At most ``WINDOW`` characters before and after a number, as they are in the text."""

    before: str
    after: str

    @cached_property
    def last(self) -> str:
        """The word before, parted by blanks only; lower case; empty if there is none."""
        found = _LAST.search(self.before)
        return found[1].lower() if found else ""

    @cached_property
    def last_but_one(self) -> str:
        """The word before the last one, likewise."""
        found = _LAST_TWO.search(self.before)
        return found[1].lower() if found else ""

    @cached_property
    def next(self) -> str:
        """The word after, parted by blanks only; in its own case; empty if there is none."""
        found = _NEXT.match(self.after)
        return found[1] if found else ""

    @cached_property
    def next_but_one(self) -> str:
        """The word after the next one, likewise."""
        found = _NEXT_TWO.match(self.after)
        return found[1] if found else ""

    @property
    def opens(self) -> bool:
        """True if nothing but marks stands before."""
        return not any(map(str.isalnum, self.before))


def around(text: str, start: int, end: int) -> Around:
    """The context of ``text[start:end]``."""
    return Around(text[max(0, start - WINDOW) : start], text[end : end + WINDOW])
