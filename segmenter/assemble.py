"""Collects clean text with its raw offsets, decides the cuts and makes the segments."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from functools import partial

from segmenter import boundary
from segmenter.boundary import Candidate
from segmenter.items import bullet_start, item_start
from segmenter.languages import AUTO, Language, LanguageGuess, language
from segmenter.marks import BULLETS, CLAUSE_MARKS, END_MARKS, NO, SCRIPT_CLAUSE_MARKS, WAIT
from segmenter.nesting import NESTING_MARKS, Nesting
from segmenter.policy import (
    CLAUSE_MIN_WEIGHT,
    GAP_LIMIT_CHARS,
    NESTED_LIMIT_CHARS,
    SILENT_LIMIT_CHARS,
    Break,
    SegmentOptions,
    clause_weight,
    pause_ms,
)
from segmenter.segment import Segment, SegmentKind

_SENTENCE_MARKS = frozenset(END_MARKS)
_CLAUSE_MARKS = frozenset(CLAUSE_MARKS + SCRIPT_CLAUSE_MARKS + "、")
_SCAN = re.compile("[" + re.escape("".join(sorted({*NESTING_MARKS, *_SENTENCE_MARKS, *_CLAUSE_MARKS, *BULLETS}))) + "]")
_LAST_LETTERS = re.compile(r"[^\W\d_]+\Z")
_GUESS_CHARS = 120
_GUESS_STEP_CHARS = 24
_HEADING_TAIL = re.compile(r"\s#+$")


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
        self._scanned = 0
        self._nesting = Nesting()
        self._names: set[int] = set()
        self._guess = LanguageGuess() if options.language == AUTO else None
        self._language = language(options.language)
        self._guessed: tuple[int, Language] | None = None
        self._listing = False
        self._clause_at = 0
        self._start = 0
        self._silent_end = 0
        self._silent_kind: SegmentKind | None = None
        self._block = SegmentKind.SENTENCE
        self._in_sentence = False
        self._first_spoken = False
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
        self._decide(final=False)

    def blank(self, end: int) -> None:
        """White space up to ``end``."""
        if self._clean and self._clean[-1] != " ":
            self._clean += " "
            self._ends.append(end)
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
        self._forget_sentence()
        self._in_sentence = False
        self._listing = False
        self.last_char = ""

    def code_span(self) -> None:
        """A code span begins: what follows may begin a sentence although it has no capital."""
        if self.ends_with_blank:
            self._names.add(len(self._clean))

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
        self._nesting.cut_back(keep)
        self._names = {position for position in self._names if position < keep}
        self._scanned = min(self._scanned, keep)
        self._clause_at = min(self._clause_at, keep)

    def finish(self, end: int) -> None:
        """End of the text at the raw position ``end``."""
        self.line_break(end, Break.PARAGRAPH)
        if self._silent_kind is not None:
            self._leave_silence()
        if end > self._start:
            self._emit_silent(end, SegmentKind.SILENT)

    # ------------------------------------------------------------ pauses of the model
    def settle(self) -> None:
        """Take a sentence end that only waits for its next character, unless it may be a number or abbreviation."""
        at, text = self._scanned, self._clean.rstrip(" ")
        if self._options.granularity == "none" or at >= len(text) or text[at] not in _SENTENCE_MARKS:
            return
        cut = boundary.sentence_end(self._candidate(at, final=True, chatty=False))
        if cut >= len(text) and boundary.is_safe_end(text, at, text[at:], self._speaks(at)):
            self._emit(cut, self._raw_cut(cut), Break.NONE, clause=False)

    def fragment(self) -> None:
        """Speak an unfinished sentence up to its last clause mark, else its last whole word."""
        if self._options.granularity == "none":
            return
        text = self._clean
        cut = self._clause_at
        if clause_weight(text[:cut]) < CLAUSE_MIN_WEIGHT:
            cut = text.rfind(" ")
            while cut > 0 and not boundary.is_safe_word_end(text, cut):
                cut = text.rfind(" ", 0, cut)
        if cut > 0 and clause_weight(text[:cut]) >= CLAUSE_MIN_WEIGHT:
            self._emit(cut, self._raw_cut(cut), Break.NONE, clause=True)

    # ------------------------------------------------------------ cuts
    def _decide(self, *, final: bool) -> None:
        """Cut off all segments that are certain now. One pass: ``_scanned`` never goes back inside a segment."""
        limit = self._options.max_chars
        while self._clean:
            mark = _SCAN.search(self._clean, self._scanned, limit)
            if mark is None:
                self._scanned = max(self._scanned, min(len(self._clean), limit))
                if len(self._clean) - self._clean.endswith(" ") <= limit:
                    return
                self._cut_by_length(limit)
                continue
            at = mark.start()
            cut = self._judge(mark[0], at, final=final)
            if cut == WAIT:
                self._scanned = at
                return
            if cut > limit:
                self._cut_by_length(limit)
            elif cut > 0:
                clause = mark[0] in _CLAUSE_MARKS and not boundary.is_script_end(self._clean, at)
                if cut == len(self._clean) and final:
                    return
                self._emit(cut, self._raw_cut(cut), Break.NONE, clause=clause)

    def _judge(self, mark: str, at: int, *, final: bool) -> int:
        """Whether to cut at the mark: a position in the clean text, ``NO`` or ``WAIT``."""
        if mark in ".)" and not self._nesting.expects(at, NESTED_LIMIT_CHARS).strip(mark):
            item = item_start(self._clean, at, partial(self._speaks, at), final=final)
            if item != NO:
                return item
        if mark in _SENTENCE_MARKS or (mark in ":;" and boundary.is_script_end(self._clean, at)):
            return self._judge_sentence(at, final=final)
        if mark in BULLETS:
            self._scanned = at + 1
            cut = bullet_start(self._clean, at, listing=self._listing or self._block is SegmentKind.LIST_ITEM)
            self._listing = self._listing or cut > 0
            return cut
        if mark not in _CLAUSE_MARKS:
            self._nesting.see(self._clean, at)
            self._scanned = at + 1
            return NO
        return self._judge_clause(at, final=final)

    def _candidate(self, at: int, *, final: bool, chatty: bool) -> Candidate:
        return Candidate(
            self._clean, at, self._expects(at), partial(self._speaks, at), self._names, final=final, chatty=chatty
        )

    def _judge_sentence(self, at: int, *, final: bool) -> int:
        cut = boundary.sentence_end(self._candidate(at, final=final, chatty=self._is_chatty()))
        if cut > 0 and self._options.granularity == "none":
            self._clause_at, cut = cut, NO
        if cut == NO:
            self._scanned = boundary.run_end(self._clean, at)
        return cut

    def _judge_clause(self, at: int, *, final: bool) -> int:
        if not self._expects(at, closing=True):
            cut = boundary.clause_end(self._clean, at, final=final)
        else:
            cut = NO if final or not self._nesting.closes_to_the_end(self._clean[at + 1 :]) else WAIT
        if cut == WAIT:
            return cut
        self._scanned = at + 1
        if cut > 0:
            self._clause_at = cut
            if not self._cuts_clauses() or clause_weight(self._clean[:cut]) < CLAUSE_MIN_WEIGHT:
                return NO
        return cut

    def _cuts_clauses(self) -> bool:
        options = self._options
        if options.granularity == "clause":
            return True
        return options.granularity == "sentence" and options.first_by_clause and not self._first_spoken

    def _is_chatty(self) -> bool:
        return not self._in_sentence and self._clean[:1].islower()

    def _cut_by_length(self, limit: int) -> None:
        """No end within ``limit``: cut at the last clause mark, else the last blank, else right there."""
        text = self._clean
        cut = self._clause_at if limit // 3 < self._clause_at <= limit else 0
        if not cut:
            cut = text.rfind(" ", limit // 3, limit + 1)
        if cut <= 0:
            cut = limit
            while cut > limit // 2 and unicodedata.category(text[cut])[0] == "M":
                cut -= 1
        self._emit(cut, self._raw_cut(cut), Break.NONE, clause=True)

    def _raw_cut(self, cut: int) -> int:
        blank = cut < len(self._clean) and self._clean[cut] == " "
        return self._ends[cut if blank else cut - 1]

    def _expects(self, at: int, *, closing: bool = False) -> str:
        """Closing marks of what is open at ``at``; with ``closing``, less those that directly follow."""
        expected = self._nesting.expects(at, NESTED_LIMIT_CHARS)
        if closing:
            position = at + 1
            while expected and self._clean[position : position + 1] == expected[-1]:
                expected = expected[:-1]
                position += 1
        return expected

    def _forget_sentence(self) -> None:
        self._nesting.clear()
        self._scanned = 0
        self._clause_at = 0
        self._guessed = None

    def _speaks(self, at: int) -> Language:
        """The language of the sentence, told from what came before ``at``."""
        if self._guess is None:
            return self._language
        seen = at - at % _GUESS_STEP_CHARS
        if self._guessed is None or self._guessed[0] != seen:
            code = self._guess.code(self._clean[max(0, seen - _GUESS_CHARS) : seen])
            self._guessed = seen, language(code)
        return self._guessed[1]

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
        if self._guess is not None and spoken:
            self._guess.note(spoken[:_GUESS_CHARS])
        rest = cut + (self._clean[cut : cut + 1] == " ")
        self._names = {position - rest for position in self._names if position >= rest}
        self._clean = self._clean[rest:]
        del self._ends[:rest]
        self._forget_sentence()
        self._in_sentence = clause
        self._first_spoken = self._first_spoken or bool(spoken)
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
