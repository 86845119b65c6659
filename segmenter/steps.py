"""What the rules for mark-up answer."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass


class Act(enum.Enum):
    """What the cleaner does with a step."""

    SAY = enum.auto()
    """Speak ``say`` for the characters up to ``end``."""
    DROP = enum.auto()
    """Something with content that is not spoken: no blank stays before a following comma or full stop."""
    MARK = enum.auto()
    """Mark-up only; closing marks belong to the character before."""
    LINK = enum.auto()
    """The text of a link up to ``end`` (at the "]") is spoken, its target is not."""
    BREAK = enum.auto()
    """A tag that ends a line."""
    REGION = enum.auto()
    """Not spoken until the region closes."""
    CODE = enum.auto()
    """A code span opens: ``end - at`` back-ticks close it."""


@dataclass(frozen=True, slots=True)
class Region:
    """A stretch that is not spoken. ``close`` ends it, at most ``hold`` characters long; ``inline``: the sentence
    goes on behind it. A match of ``close`` with the group ``open`` nests; one that begins with a new line is left to
    be read."""

    close: re.Pattern[str]
    hold: int
    inline: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """The outcome of a rule: ``end`` is the position behind what was understood."""

    act: Act
    end: int
    say: str = ""
    region: Region | None = None
    opens: bool = False
