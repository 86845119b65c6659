"""Goes once over the clean text of a sentence and says where to cut it."""

from __future__ import annotations

import re
import unicodedata
from functools import partial
from typing import NamedTuple

from segmenter import boundary, referee
from segmenter.boundary import Candidate
from segmenter.items import bullet_start, item_start
from segmenter.languages import AUTO, Language, LanguageGuess, language
from segmenter.marks import BULLETS, CLAUSE_MARKS, END_MARKS, NO, SCRIPT_CLAUSE_MARKS, WAIT
from segmenter.nesting import NESTING_MARKS, Nesting
from segmenter.policy import CLAUSE_MIN_WEIGHT, NESTED_LIMIT_CHARS, SegmentOptions, clause_weight

_SENTENCE_MARKS = frozenset(END_MARKS)
_CLAUSE_MARKS = frozenset(CLAUSE_MARKS + SCRIPT_CLAUSE_MARKS + "、")
_OTHER_MARKS = "".join(sorted({*NESTING_MARKS, *_SENTENCE_MARKS, *_CLAUSE_MARKS, *BULLETS} - {"."}))
_SCAN = re.compile(rf"\.(?![0-9a-z])|[{re.escape(_OTHER_MARKS)}]")
_GUESS_CHARS = 120
_GUESS_STEP_CHARS = 24


def may_decide(text: str) -> bool:
    """Whether there is a mark in ``text`` that is to be judged."""
    return _SCAN.search(text) is not None


class Cut(NamedTuple):
    """``text[:end]`` is a segment; ``clause``: only a part of a sentence."""

    end: int
    clause: bool


class Judge:
    """What is known of the sentence that is being read. No mark is judged twice, except one that had to wait.

    All methods get the clean text since the last cut; it only grows, until ``cut_off`` or ``cut_back``. ``waiting``: a
    mark waits for the text behind it; else only a further mark or the length limit leads to a cut.
    """

    def __init__(self, options: SegmentOptions) -> None:
        self.waiting = False
        self._options = options
        self._scanned = 0
        self._clause_at = 0
        self._joined_at = 0
        self._nesting = Nesting()
        self._names: set[int] = set()
        self._listing = False
        self._guess = LanguageGuess()
        self._guessed: tuple[int, Language] | None = None
        self._code = options.language
        self._language = language(options.language)
        self._referee = None
        if options.referee == "pysbd":
            referee.check_installed()
            self._referee = self._ask_referee

    @property
    def language(self) -> str:
        """The language in use; while it is told from the text: what that has told so far, or ``auto``."""
        return self._guess.code() if self._code == AUTO else self._code

    @language.setter
    def language(self, code: str) -> None:
        self._code = code
        self._language = language(code)
        self._guessed = None

    # ------------------------------------------------------------ bookkeeping
    def cut_off(self, end: int, spoken: str) -> None:
        """``text[:end]`` has left as a segment that says ``spoken``; what is left is to be judged anew."""
        self.waiting = True
        if self._code == AUTO and spoken:
            self._guess.note(spoken[:_GUESS_CHARS])
        self._names = {position - end for position in self._names if position >= end}
        self._nesting.clear()
        self._scanned = self._clause_at = self._joined_at = 0
        self._guessed = None

    def cut_back(self, keep: int) -> None:
        """Only ``text[:keep]`` is left: the rest was not to be said."""
        self.waiting = True
        self._nesting.cut_back(keep)
        self._names = {position for position in self._names if position < keep}
        self._scanned = min(self._scanned, keep)
        self._clause_at = min(self._clause_at, keep)
        self._joined_at = min(self._joined_at, keep)

    def line_over(self) -> None:
        """A line has ended."""
        self.waiting = False
        self._nesting.clear()
        self._scanned = self._clause_at = self._joined_at = 0
        self._guessed = None
        self._listing = False

    def name_at(self, position: int) -> None:
        """A code span begins at ``position``: it may begin a sentence without a capital."""
        self._names.add(position)

    def join(self, end: int) -> None:
        """The sentence ``text[:end]`` waits for the next one, to be said with it."""
        self._nesting.clear()
        self._scanned = self._clause_at = self._joined_at = end

    # ------------------------------------------------------------ cuts
    def next_cut(self, text: str, *, final: bool, chatty: bool, listing: bool, clauses: bool) -> Cut | None:
        """The next certain cut, or None. ``clauses``: at clause marks too; ``listing``: the line is a list's item."""
        limit = self._options.max_chars
        self.waiting = False
        while True:
            mark = _SCAN.search(text, self._scanned, limit)
            if mark is None:
                self._scanned = max(self._scanned, min(len(text), limit))
                too_long = len(text) - text.endswith(" ") > limit
                return self._cut_by_length(text, limit) if too_long else None
            at = mark.start()
            end = self._judge(text, at, final=final, chatty=chatty, listing=listing, clauses=clauses)
            if end == WAIT:
                self._scanned = at
                self.waiting = True
                return None
            if end > limit:
                return self._cut_by_length(text, limit)
            if end > 0:
                sentence = mark[0] not in _CLAUSE_MARKS or _is_script_end(text, at)
                return Cut(end, clause=not sentence) if end < len(text) or not final else None

    def _judge(self, text: str, at: int, *, final: bool, chatty: bool, listing: bool, clauses: bool) -> int:
        """Whether to cut at the mark ``text[at]``: a position, ``NO`` or ``WAIT``."""
        mark = text[at]
        layout_only = self._options.granularity == "none"
        if mark in ".)" and not layout_only and not self._nesting.expects(at, NESTED_LIMIT_CHARS).strip(mark):
            item = item_start(text, at, partial(self._speaks, text, at), final=final)
            if item != NO:
                return item
        if mark in _SENTENCE_MARKS or _is_script_end(text, at):
            return self._judge_sentence(self._candidate(text, at, final=final, chatty=chatty))
        if mark in _CLAUSE_MARKS:
            return self._judge_clause(text, at, final=final, clauses=clauses)
        self._scanned = at + 1
        if mark in BULLETS:
            cut = NO if layout_only else bullet_start(text, at, listing=self._listing or listing)
            self._listing = self._listing or cut > 0
            return cut
        self._nesting.see(text, at)
        return NO

    def _candidate(self, text: str, at: int, *, final: bool, chatty: bool) -> Candidate:
        expects = self._nesting.expects(at, NESTED_LIMIT_CHARS)
        speaks = partial(self._speaks, text, at)
        return Candidate(text, at, expects, speaks, self._referee, self._names, final=final, chatty=chatty)

    def _ask_referee(self, before: str, word: str) -> bool | None:
        return referee.cuts(self.language, before, word)

    def _judge_sentence(self, mark: Candidate) -> int:
        cut = boundary.sentence_end(mark)
        if cut > 0 and self._options.granularity == "none":
            self._clause_at, cut = cut, NO
        if cut == NO:
            self._scanned = boundary.run_end(mark.text, mark.at)
        return cut

    def _judge_clause(self, text: str, at: int, *, final: bool, clauses: bool) -> int:
        if not self._still_open(text, at):
            cut = boundary.clause_end(text, at, final=final)
        else:
            cut = NO if final or not self._nesting.closes_to_the_end(text[at + 1 :]) else WAIT
        if cut == WAIT:
            return cut
        self._scanned = at + 1
        if cut > 0:
            self._clause_at = cut
            if not clauses or clause_weight(text[:cut]) < CLAUSE_MIN_WEIGHT:
                return NO
        return cut

    def _still_open(self, text: str, at: int) -> bool:
        """Whether a quote or bracket stays open behind the closing marks that directly follow ``text[at]``."""
        expected = self._nesting.expects(at, NESTED_LIMIT_CHARS)
        position = at + 1
        while expected and text[position : position + 1] == expected[-1]:
            expected = expected[:-1]
            position += 1
        return bool(expected)

    def _speaks(self, text: str, at: int) -> Language:
        """The language of the sentence, told from what came before ``at``."""
        if self._code != AUTO:
            return self._language
        seen = at - at % _GUESS_STEP_CHARS
        if self._guessed is None or self._guessed[0] != seen:
            self._guessed = seen, language(self._guess.code(text[max(0, seen - _GUESS_CHARS) : seen]))
        return self._guessed[1]

    def _cut_by_length(self, text: str, limit: int) -> Cut:
        """No end within ``limit``: cut at the last clause mark, else the last blank, else right there."""
        cut = self._clause_at if limit // 3 < self._clause_at <= limit else 0
        if not cut:
            cut = text.rfind(" ", limit // 3, limit + 1)
        if cut <= 0:
            cut = limit
            while cut > limit // 2 and unicodedata.category(text[cut])[0] == "M":
                cut -= 1
        return Cut(cut, clause=True)

    # ------------------------------------------------------------ pauses of the writer
    def settled(self, text: str) -> Cut | None:
        """The sentence end that only waits for its next character, unless it may be a number or abbreviation."""
        at, bare = self._scanned, text.rstrip(" ")
        if self._joined_at and self._joined_at == len(bare):
            return Cut(self._joined_at, clause=False)
        if self._options.granularity == "none" or at >= len(bare) or bare[at] not in _SENTENCE_MARKS:
            return None
        cut = boundary.sentence_end(self._candidate(text, at, final=True, chatty=False))
        safe = cut >= len(bare) and boundary.is_safe_end(bare, at, bare[at:], self._speaks(text, at))
        return Cut(cut, clause=False) if safe else None

    def fragment(self, text: str) -> Cut | None:
        """An unfinished sentence up to its last clause mark, else its last whole word."""
        if self._options.granularity == "none":
            return None
        cut = self._clause_at
        if self._joined_at and cut == self._joined_at:
            return Cut(cut, clause=False)
        if clause_weight(text[:cut]) < CLAUSE_MIN_WEIGHT:
            cut = text.rfind(" ")
            while cut > 0 and not boundary.is_safe_word_end(text, cut):
                cut = text.rfind(" ", 0, cut)
        return Cut(cut, clause=True) if cut > 0 and clause_weight(text[:cut]) >= CLAUSE_MIN_WEIGHT else None


def _is_script_end(text: str, at: int) -> bool:
    return text[at] in ":;" and boundary.is_script_end(text, at)
