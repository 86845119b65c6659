"""Raw text in, one running text to be said out: for voices that read along while it is written."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

from segmenter.marks import BULLETS
from segmenter.policy import Break
from segmenter.segment import SegmentKind
from segmenter.speakable import Cleaner

HELD_LINE_CHARS = 300
"""A line with a bar may be the head of a table; so much of it waits until that is known."""

_KEPT_CHARS = 24
_LAST_LETTERS = re.compile(r"[^\W\d_]+\Z")
_UNSURE_TAIL = re.compile(r"(?: |\(| \()+\Z")
_UNSURE_HEADING_TAIL = re.compile(r"(?:\s#*| ?\()+\Z")
_HEADING_TAIL = re.compile(r"\s#+\Z")


@dataclass(frozen=True, slots=True)
class SpokenText:
    """Text to be said, and for each of its characters where it ends in the raw text."""

    text: str
    ends: tuple[int, ...]


NOTHING = SpokenText("", ())


class SpeakableStream:
    """Takes mark-up out of a text as it is written; nothing that was answered is taken back.

    All answers joined do not depend on how the text was cut into ``feed`` calls (a call of ``settle`` may let marks
    pass that would have closed something). Lines end with a line feed, paragraphs with two. Cost is linear, what is
    kept is bounded. Of a table's head without outer bars the first cell is said; numbers are left as digits.
    """

    def __init__(self, *, starts_in_think: bool = False) -> None:
        self._lines = _Lines()
        self._cleaner = Cleaner(self._lines, starts_in_think=starts_in_think)
        self._finished = False

    def feed(self, text: str) -> SpokenText:
        """Take more raw text; what can be said now. Raises ``ValueError`` after ``finish``."""
        if self._finished:
            raise ValueError("the stream is finished")
        self._cleaner.feed(text)
        return self._lines.take(final=False)

    def settle(self) -> SpokenText:
        """The writer pauses: closing marks that were held back are taken as they stand."""
        if self._finished:
            return NOTHING
        self._cleaner.settle()
        return self._lines.take(final=False)

    def finish(self) -> SpokenText:
        """The end of the text: the rest. A second call answers nothing."""
        if self._finished:
            return NOTHING
        self._finished = True
        self._cleaner.finish()
        return self._lines.take(final=True)


class _Lines:
    """Collects clean text line by line; see ``segmenter.sink``. ``_line`` is what of the line can still change."""

    def __init__(self) -> None:
        self._out: list[str] = []
        self._out_ends: list[int] = []
        self._line = ""
        self._ends: list[int] = []
        self._begun = False
        """Something of the line has been let go, or may be: a letter or digit has come."""
        self._pending = Break.NONE
        self._pending_at = 0
        self._kept = ""
        self._heading = False
        self._with_bars = False
        self.last_char = ""

    def take(self, *, final: bool) -> SpokenText:
        """What nothing to come can change."""
        self._begin_line()
        if final:
            self._end_line()
        elif self._begun:
            self._let_go(self._sure())
        text, ends = "".join(self._out), tuple(self._out_ends)
        self._out.clear()
        self._out_ends.clear()
        return SpokenText(text, ends) if text else NOTHING

    # ------------------------------------------------------------ from the cleaner
    def text(self, text: str, ends: range | list[int]) -> None:
        self._line += text
        self._ends.extend(ends)
        self.last_char = text[-1]

    def blank(self, end: int) -> None:
        if self._line.endswith(" "):
            self._ends[-1] = end
        elif self._line or self._begun:
            self._line += " "
            self._ends.append(end)

    def last_letters(self) -> str:
        tail = (self._kept + self._line)[-_KEPT_CHARS:]
        found = _LAST_LETTERS.search(tail)
        return found[0] if found else ""

    def drop_blank(self) -> None:
        if self._line.endswith(" "):
            self._cut_back(len(self._line) - 1)

    def extend(self, end: int) -> None:
        """Closing marks may come when their character has left: it never owns them."""

    def skipped(self, end: int) -> None:
        """Nothing is kept for what is skipped."""

    def silent(self, end: int, kind: SegmentKind) -> None:
        if self._line or self._begun:
            self.line_break(self._ends[-1] if self._ends else end, Break.LINE)

    def line_break(self, at: int, level: Break) -> None:
        self.drop_blank()
        self._begin_line()
        said = self._begun
        self._end_line()
        if said or self._pending is not Break.NONE:
            self._pending = max(self._pending, level, Break.LINE)
            self._pending_at = at if said else self._pending_at
        self.last_char = ""
        self._kept = ""

    def code_span(self) -> None:
        """It is said like any other text."""

    def silence_line(self, begin: int, end: int) -> None:
        first = self._line.find("|")
        if first >= 0 and not self._is_text(first):
            bar = self._line.find("|", bisect_right(self._ends, begin))
            self._cut_back(max(bar, first))
        self.silent(end, SegmentKind.SILENT)

    def block(self, kind: SegmentKind) -> None:
        self._heading = kind is SegmentKind.HEADING

    def drop_open_bracket(self, end: int) -> bool:
        bare = self._line.rstrip(" ")
        if not bare.endswith("("):
            return False
        self._cut_back(len(bare[:-1].rstrip(" ")))
        self.last_char = (self._kept + self._line)[-1:]
        return True

    # ------------------------------------------------------------ inside
    def _cut_back(self, keep: int) -> None:
        self._line = self._line[:keep]
        del self._ends[keep:]

    def _begin_line(self) -> None:
        """Once a letter or digit has come it is a line; the break before it is made now."""
        if self._begun or not any(map(str.isalnum, self._line)):
            return
        bullets = len(self._line) - len(self._line.lstrip(BULLETS + " "))
        self._line = self._line[bullets:]
        del self._ends[:bullets]
        self._begun = True
        if self._pending is not Break.NONE:
            self._put("\n\n" if self._pending is Break.PARAGRAPH else "\n", self._pending_at)
            self._pending = Break.NONE

    def _put(self, breaks: str, at: int) -> None:
        self._out.append(breaks)
        self._out_ends.extend([at] * len(breaks))

    def _sure(self) -> int:
        """How much of the line is sure to stay."""
        unsure = (_UNSURE_HEADING_TAIL if self._heading else _UNSURE_TAIL).search(self._line)
        sure = len(self._line) if unsure is None else unsure.start()
        bar = self._line.find("|")
        return sure if bar < 0 or self._is_text(bar) else len(self._line[:bar].rstrip(" ("))

    def _is_text(self, bar: int) -> bool:
        """A line so long behind its first bar is no head of a table."""
        self._with_bars = self._with_bars or len(self._line) - bar >= HELD_LINE_CHARS
        return self._with_bars

    def _let_go(self, chars: int) -> None:
        if chars:
            self._out.append(self._line[:chars])
            self._out_ends.extend(self._ends[:chars])
            self._kept = (self._kept + self._line[:chars])[-_KEPT_CHARS:]
            self._line = self._line[chars:]
            del self._ends[:chars]

    def _end_line(self) -> None:
        if self._begun:
            if self._heading and (tail := _HEADING_TAIL.search(self._line)):
                self._cut_back(tail.start())
            self._let_go(len(self._line.rstrip(" ")))
        self._line, self._begun, self._with_bars = "", False, False
        self._ends.clear()
