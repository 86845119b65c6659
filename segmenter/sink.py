"""What reads the clean text of a ``Cleaner``."""

from __future__ import annotations

from typing import Protocol

from segmenter.policy import Break
from segmenter.segment import SegmentKind


class Sink(Protocol):
    """Told in raw order of what is to be said; all positions are absolute and raw.

    ``last_char`` is the last clean character of the line, ``""`` at its begin.
    """

    last_char: str

    def text(self, text: str, ends: range | list[int]) -> None:
        """Clean text; ``ends``: the raw position behind each character."""

    def blank(self, end: int) -> None:
        """White space up to ``end``."""

    def last_letters(self) -> str:
        """The letters at the very end, at most 24."""

    def drop_blank(self) -> None:
        """Take the last blank back."""

    def extend(self, end: int) -> None:
        """Mark-up up to ``end`` belongs to the last character."""

    def skipped(self, end: int) -> None:
        """Nothing to say up to ``end``, inside of a line."""

    def silent(self, end: int, kind: SegmentKind) -> None:
        """A block up to ``end`` that is not spoken."""

    def line_break(self, at: int, level: Break) -> None:
        """A hard boundary at ``at``."""

    def code_span(self) -> None:
        """A code span begins."""

    def silence_line(self, begin: int, end: int) -> None:
        """What was said between the two was the head of a table."""

    def block(self, kind: SegmentKind) -> None:
        """What the following text is."""

    def drop_open_bracket(self, end: int) -> bool:
        """Undo a "(" at the very end, if there is one."""
