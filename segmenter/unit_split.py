"""Splits text into units by the rules of vLLM-Omni's speech stream (0.30)."""

from __future__ import annotations

import re

_ASCII_MARKS = ".!?,;"
_SENTENCE = ".!?。！？…।॥؟"
_CLAUSE = _SENTENCE + ",;，；،؛"
_CLOSERS = "\"'”’»)]}』」】）"
_RUN = re.compile(f"[{re.escape(_CLAUSE + _CLOSERS)}]*+")
_ABBREVIATIONS = frozenset(
    re.split(
        " ",
        "dr mr mrs ms prof sr jr st mt fig no vs etc approx dept inc ltd co al e.g i.e u.s u.k a.m p.m",
    )
)
_LOOK_BACK_CHARS = 6
_GRANULARITIES = ("none", "sentence", "clause")


class UnitSplitter:
    """Cuts a stream into the units that vLLM-Omni would synthesise one by one.

    ``none`` makes one unit of everything; ``sentence`` ends a unit at end marks; ``clause`` also at commas and
    semicolons. New lines are no boundary and there is no length limit: the caller bounds the text. Units do not
    depend on how the text was cut; every character is looked at once. Raises ``ValueError`` for another granularity.
    """

    def __init__(self, granularity: str) -> None:
        if granularity not in _GRANULARITIES:
            raise ValueError("granularity must be none, sentence or clause")
        self._marks = {"none": "", "sentence": _SENTENCE, "clause": _CLAUSE}[granularity]
        self._mark = re.compile(f"[{re.escape(self._marks)}]") if self._marks else None
        self._unit: list[str] = []
        self._before = ""
        self._in_run = False
        self._needs_blank = False

    def feed(self, text: str) -> list[str]:
        """Return the units (stripped, not empty) that are complete now."""
        if self._mark is None:
            self._unit.append(text)
            return []
        units: list[str] = []
        position = 0
        while position < len(text):
            position = self._in_mark_run(text, position, units) if self._in_run else self._in_text(text, position)
        return units

    def flush(self) -> list[str]:
        """End of the text: return what is left and start afresh."""
        units: list[str] = []
        self._close(units)
        self._in_run = False
        return units

    def _in_text(self, text: str, position: int) -> int:
        assert self._mark is not None  # noqa: S101 - narrows the type
        mark = self._mark.search(text, position)
        end = mark.start() if mark else len(text)
        self._take(text[position:end])
        if mark:
            self._in_run = mark[0] != "." or not _is_abbreviation(self._before)
            self._needs_blank = mark[0] in _ASCII_MARKS
            self._take(mark[0])
            end += 1
        return end

    def _in_mark_run(self, text: str, position: int, units: list[str]) -> int:
        run = _RUN.match(text, position)
        end = run.end() if run else position
        self._take(text[position:end])
        if end < len(text):
            self._in_run = False
            if not self._needs_blank or text[end].isspace():
                self._close(units)
        return end

    def _take(self, text: str) -> None:
        if text:
            self._unit.append(text)
            self._before = (self._before + text[-_LOOK_BACK_CHARS - 1 :])[-_LOOK_BACK_CHARS - 1 :]

    def _close(self, units: list[str]) -> None:
        unit = "".join(self._unit).strip()
        self._unit.clear()
        self._before = ""
        if unit:
            units.append(unit)


def _is_abbreviation(before: str) -> bool:
    """Whether the full stop after ``before`` belongs to an abbreviation or a single letter."""
    start = len(before)
    while start and (before[start - 1].isalpha() or before[start - 1] == "."):
        start -= 1
    word = before[start:]
    if len(word) > _LOOK_BACK_CHARS or (start and before[start - 1].isalnum()):
        return False
    return (len(word) == 1 and word.isalpha()) or word.strip(".").lower() in _ABBREVIATIONS
