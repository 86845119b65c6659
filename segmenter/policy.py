"""How eager the segmenter is: options, minimum and maximum lengths, waiting limits, pauses."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import Literal, get_args

from segmenter.segment import SegmentKind

Granularity = Literal["none", "sentence", "clause"]

RefereeName = Literal["none", "pysbd"]

MIN_MAX_CHARS = 40
"""Smallest length limit that can be asked for."""

CLAUSE_MIN_WEIGHT = 12
"""A clause is cut off once it is this long; an ideograph, kana or hangul counts as two characters."""

JOIN_WEIGHT = 12
"""Sentences up to this weight are very short."""

JOIN_COVER_WEIGHT = 40
"""What must have been said before a very short sentence may wait for the next one: about three seconds of speech."""

NESTED_LIMIT_CHARS = 200
"""An open quote or bracket holds back a sentence end for at most this many clean characters."""

GAP_LIMIT_CHARS = 500
"""So many raw characters in a row without anything to say end a segment."""

SILENT_LIMIT_CHARS = 2_000
"""Text that is not spoken leaves in silent segments of at most this many raw characters."""

_WIDE = re.compile(r"[\u1100-\u11ff\u3040-\u30ff\u3130-\u318f\u3400-\u9fff\uac00-\ud7a3\U00020000-\U0003ffff]")


class Break(enum.IntEnum):
    """How hard the text breaks behind a segment."""

    NONE = 0
    LINE = 1
    PARAGRAPH = 2


@dataclass(frozen=True, slots=True)
class SegmentOptions:
    """How to cut.

    ``granularity``: ``sentence``; ``clause`` also cuts at clause marks; ``none`` only where the layout (paragraph,
    list item, code block) or ``max_chars`` demands it. ``language``: a code such as ``de`` or ``pt-BR``, or ``auto``:
    told from the text as it comes. ``first_by_clause``: the first spoken segment may end at a clause mark, for early
    sound (not with ``none``). ``join_short``: very short sentences join the next one of their line, while what was
    said before still sounds. ``max_chars``: no ``spoken`` is longer, before it is verbalised. ``verbalise``: numbers,
    dates, units and the like are written as words in ``spoken``, if the language is known. ``referee``: who decides
    where the word lists do not know. When the writer pauses for ``decide_after_ms``, a sentence end that only waits
    for its next character is taken; after ``fragment_after_ms`` an unfinished sentence is spoken up to its last soft
    boundary. ``starts_in_think``: the prompt already opened a reasoning block.
    Raises ``ValueError`` for an unknown granularity or referee, or a ``max_chars`` under ``MIN_MAX_CHARS``.
    """

    granularity: Granularity = "sentence"
    language: str = "auto"
    first_by_clause: bool = True
    join_short: bool = False
    max_chars: int = 300
    verbalise: bool = False
    referee: RefereeName = "none"
    starts_in_think: bool = False
    decide_after_ms: float = 100.0
    fragment_after_ms: float = 400.0

    def __post_init__(self) -> None:
        if self.granularity not in get_args(Granularity):
            raise ValueError("granularity must be none, sentence or clause")
        if self.referee not in get_args(RefereeName):
            raise ValueError("referee must be none or pysbd")
        if self.max_chars < MIN_MAX_CHARS:
            raise ValueError(f"max_chars must be at least {MIN_MAX_CHARS}")


def clause_weight(text: str) -> int:
    """Length of ``text`` in characters, wide ones counted twice."""
    return len(text) + len(_WIDE.findall(text))


def pause_ms(kind: SegmentKind, level: Break, spoken: str) -> int:
    """The pause suggested after a segment, in milliseconds; 0 after what is not spoken."""
    if not spoken:
        return 0
    if kind is SegmentKind.HEADING or level is Break.PARAGRAPH:
        return 400
    if kind is SegmentKind.CLAUSE and level is Break.NONE:
        return 0
    return 250 if level is Break.LINE else 150
