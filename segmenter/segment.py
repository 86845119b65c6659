"""What comes out of the segmenter: a speakable piece of a text stream."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class SegmentKind(enum.StrEnum):
    """What a segment is in the text.

    ``CLAUSE`` is a part of a sentence (cut for early sound or by the length limit). ``CODE`` and ``SILENT``
    segments are never spoken; ``SILENT`` covers tables, rules, reasoning, formulas and lone marks or white space.
    """

    SENTENCE = "sentence"
    CLAUSE = "clause"
    HEADING = "heading"
    LIST_ITEM = "list_item"
    QUOTE = "quote"
    CODE = "code"
    SILENT = "silent"


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment.

    ``index`` counts 0, 1, 2, ... within the stream. ``text`` is raw: the texts of all segments joined are what was
    fed, to the letter, and ``[start, end)`` is its span there in characters. ``spoken`` is what a voice should say,
    without mark-up and with single blanks; it holds a letter or digit or is ``""`` (then there is nothing to say).
    ``pause_after_ms`` is a suggestion, in milliseconds.
    """

    index: int
    text: str
    spoken: str
    start: int
    end: int
    kind: SegmentKind
    pause_after_ms: int
