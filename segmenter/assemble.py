"""Collects clean text with its raw offsets, decides the cuts and makes the segments."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable

from segmenter.judge import Cut, Judge, may_decide
from segmenter.marks import BULLETS
from segmenter.policy import (
    GAP_LIMIT_CHARS,
    JOIN_COVER_WEIGHT,
    JOIN_WEIGHT,
    SILENT_LIMIT_CHARS,
    Break,
    SegmentOptions,
    clause_weight,
    pause_ms,
)
from segmenter.segment import Segment, SegmentKind

_LAST_LETTERS = re.compile(r"[^\W\d_]+\Z")
_HEADING_TAIL = re.compile(r"\s#+$")


def _verbaliser() -> Callable[[str, str], str]:
    # Loading it takes the data of a library with it: only those who want it pay for that.
    from segmenter.verbalise import verbalise

    return verbalise


class Assembler:
    """The second half of the segmenter: clean text in, segments out.

    Offsets are absolute raw positions. ``text`` and ``mark_*`` calls must come in raw order. The text between the
    last segment and the position reached is kept in ``raw``; everything kept is bounded.
    """

    def __init__(self, options: SegmentOptions) -> None:
        self._options = options
        self._clean = ""
        self._ends: list[int] = []
        self._said_end = 0
        self.judge = Judge(options)
        self._start = 0
        self._silent_end = 0
        self._silent_kind: SegmentKind | None = None
        self._block = SegmentKind.SENTENCE
        self._in_sentence = False
        self._first_spoken = False
        self._said_weight = 0
        self._verbalise = _verbaliser() if options.verbalise else None
        self._index = 0
        self._raw = ""
        self._raw_base = 0
        self._out: list[Segment] = []
        self.last_char = ""

    # ------------------------------------------------------------ raw text
    @property
    def start(self) -> int:
        """Raw position up to which everything has left in segments."""
        return self._start

    def arrived(self, raw: str) -> None:
        """More raw text has come in."""
        self._raw += raw

    def take(self) -> list[Segment]:
        """The segments made since the last call."""
        made, self._out = self._out, []
        if self._start > self._raw_base:
            self._raw = self._raw[self._start - self._raw_base :]
            self._raw_base = self._start
        return made

    # ------------------------------------------------------------ from the cleaner
    def text(self, text: str, ends: range | list[int]) -> None:
        """Clean text, at most a few hundred characters; ``ends``: the raw position behind each of them."""
        if self._silent_kind is not None:
            self._leave_silence()
        self._clean += text
        self._ends.extend(ends)
        self._said_end = self._ends[-1]
        self.last_char = text[-1]
        if self.judge.waiting or len(self._clean) > self._options.max_chars or may_decide(text):
            self._decide(final=False)

    def blank(self, end: int) -> None:
        """White space up to ``end``."""
        if self._clean and self._clean[-1] != " ":
            self._clean += " "
            self._ends.append(end)
            if self.judge.waiting or len(self._clean) > self._options.max_chars:
                self._decide(final=False)
        elif self._clean:
            self._ends[-1] = end
        self.skipped(end)

    @property
    def ends_with_blank(self) -> bool:
        """Whether a new word would begin here."""
        return not self._clean or self._clean[-1] == " "

    def last_letters(self) -> str:
        """The letters at the very end, at most 24."""
        found = _LAST_LETTERS.search(self._clean, max(0, len(self._clean) - 24))
        return found[0] if found else ""

    def drop_blank(self) -> None:
        """Take the last blank back: it stood before something that is not spoken."""
        if self._clean.endswith(" "):
            self._cut_back(len(self._clean) - 1)

    def extend(self, end: int) -> None:
        """Mark-up up to the raw position ``end`` belongs to the last character, unless a blank follows that."""
        if self._ends and self._clean[-1] != " ":
            self._ends[-1] = end

    def skipped(self, end: int) -> None:
        """Nothing to say up to ``end``, inside of a line. Too much of it ends the segment."""
        base = self._said_end if self._clean else self._start
        if end - base < GAP_LIMIT_CHARS:
            return
        if self._clean:
            self.line_break(base + GAP_LIMIT_CHARS, Break.LINE)
        while end - self._start >= SILENT_LIMIT_CHARS:
            self._emit_silent(self._start + SILENT_LIMIT_CHARS, self._silent_kind or SegmentKind.SILENT)

    def silent(self, end: int, kind: SegmentKind) -> None:
        """A block up to ``end`` that is not spoken; may grow by further calls."""
        if self._clean:
            self.line_break(self._ends[-1], Break.LINE)
        if self._silent_kind not in (None, kind):
            self._leave_silence()
        self._silent_kind = kind
        self._silent_end = end
        while end - self._start >= SILENT_LIMIT_CHARS:
            self._emit_silent(self._start + SILENT_LIMIT_CHARS, kind)

    def line_break(self, at: int, level: Break) -> None:
        """A hard boundary at the raw position ``at``: everything before it leaves."""
        self.drop_blank()
        if self._clean:
            self._decide(final=True)
        if self._clean:
            self._emit(len(self._clean), at, level, clause=False)
        self.judge.line_over()
        self._in_sentence = False
        self.last_char = ""

    def code_span(self) -> None:
        """A code span begins: what follows may begin a sentence although it has no capital."""
        if self.ends_with_blank:
            self.judge.name_at(len(self._clean))

    def silence_line(self, begin: int, end: int) -> None:
        """What was said since the raw position ``begin``, up to ``end``, was the head of a table."""
        self._cut_back(bisect_right(self._ends, begin))
        if self._clean:
            self.line_break(begin, Break.LINE)
        self.silent(end, SegmentKind.SILENT)

    def block(self, kind: SegmentKind) -> None:
        """What the following text is."""
        self._block = kind

    def drop_open_bracket(self, end: int) -> bool:
        """Undo a "(" at the very end, if there is one: what was in the brackets is not spoken."""
        bare = self._clean.rstrip(" ")
        if not bare.endswith("("):
            return False
        self._cut_back(len(bare[:-1].rstrip(" ")))
        self.last_char = self._clean[-1:]
        self.extend(end)
        return True

    def _cut_back(self, keep: int) -> None:
        self._clean = self._clean[:keep]
        del self._ends[keep:]
        self.judge.cut_back(keep)

    def finish(self, end: int) -> None:
        """End of the text at the raw position ``end``."""
        self.line_break(end, Break.PARAGRAPH)
        if self._silent_kind is not None:
            self._leave_silence()
        if end > self._start:
            self._emit_silent(end, SegmentKind.SILENT)

    # ------------------------------------------------------------ cuts
    def settle(self) -> None:
        """The writer pauses: take a sentence end that only waits for its next character."""
        self._cut(self.judge.settled(self._clean))

    def fragment(self) -> None:
        """The writer pauses for long: speak an unfinished sentence up to its last soft boundary."""
        self._cut(self.judge.fragment(self._clean))

    def _decide(self, *, final: bool) -> None:
        """Cut off all segments that are certain now."""
        while self._clean:
            cut = self.judge.next_cut(
                self._clean,
                final=final,
                chatty=not self._in_sentence and self._clean[0].islower(),
                listing=self._block is SegmentKind.LIST_ITEM,
                clauses=self._cuts_clauses(),
            )
            if cut is None:
                return
            if self._may_join(cut):
                self.judge.join(cut.end)
            else:
                self._cut(cut)

    def _may_join(self, cut: Cut) -> bool:
        """Whether to let a very short sentence wait for the next one: what was said before still sounds."""
        if not self._options.join_short or cut.clause or self._said_weight < JOIN_COVER_WEIGHT:
            return False
        return self._block is SegmentKind.SENTENCE and clause_weight(self._clean[: cut.end]) <= JOIN_WEIGHT

    def _cut(self, cut: Cut | None) -> None:
        if cut is not None:
            self._emit(cut.end, self._raw_cut(cut.end), Break.NONE, clause=cut.clause)

    def _cuts_clauses(self) -> bool:
        options = self._options
        if options.granularity == "clause":
            return True
        return options.granularity == "sentence" and options.first_by_clause and not self._first_spoken

    def _raw_cut(self, cut: int) -> int:
        blank = cut < len(self._clean) and self._clean[cut] == " "
        return self._ends[cut if blank else cut - 1]

    # ------------------------------------------------------------ segments
    def _emit(self, cut: int, raw_end: int, level: Break, *, clause: bool) -> None:
        spoken = self._clean[:cut].strip()
        if not any(map(str.isalnum, spoken)):
            spoken = ""
        kind = self._block
        if clause and kind is SegmentKind.SENTENCE:
            kind = SegmentKind.CLAUSE
        if kind is SegmentKind.HEADING:
            spoken = _HEADING_TAIL.sub("", spoken)
        if not spoken:
            kind = SegmentKind.SILENT
        spoken = spoken.lstrip(BULLETS + " ")
        rest = cut + (self._clean[cut : cut + 1] == " ")
        self._clean = self._clean[rest:]
        del self._ends[:rest]
        self.judge.cut_off(rest, spoken)
        self._in_sentence = clause
        self._first_spoken = self._first_spoken or bool(spoken)
        self._said_weight = clause_weight(spoken) if spoken else self._said_weight
        if self._verbalise is not None and spoken:
            spoken = self._verbalise(spoken, self.judge.language)
        self._push(raw_end, spoken, kind, pause_ms(SegmentKind.CLAUSE if clause else kind, level, spoken))

    def _emit_silent(self, end: int, kind: SegmentKind) -> None:
        self._push(end, "", kind, 0)

    def _leave_silence(self) -> None:
        kind, self._silent_kind = self._silent_kind, None
        if kind is not None and self._silent_end > self._start:
            self._emit_silent(self._silent_end, kind)

    def _push(self, end: int, spoken: str, kind: SegmentKind, pause_after_ms: int) -> None:
        text = self._raw[self._start - self._raw_base : end - self._raw_base]
        self._out.append(Segment(self._index, text, spoken, self._start, end, kind, pause_after_ms))
        self._index += 1
        self._start = end
