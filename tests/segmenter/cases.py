"""Reads the cases and scores boundaries, counted in letters, digits and combining marks."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from segmenter import Segment, SegmentOptions
from tests.segmenter.helpers import run

_HERE = Path(__file__).parent

Case = dict[str, Any]


def load(name: str) -> list[Case]:
    with (_HERE / name).open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def options(case: Case) -> SegmentOptions:
    clauses = case["mode"] == "clause"
    return SegmentOptions(
        granularity="clause" if clauses else "sentence",
        language=case["lang"],
        first_by_clause=clauses,
        starts_in_think=case.get("config", {}).get("starts_in_think", False),
    )


def is_speakable(char: str) -> bool:
    category = unicodedata.category(char)
    return category[0] in "LN" or category in ("Mn", "Mc")


def places(text: str, ends: Iterable[int]) -> set[int]:
    """Boundaries as numbers of speakable characters before them, those at the very ends left out."""
    before = [0]
    for char in text:
        before.append(before[-1] + is_speakable(char))
    return {before[end] for end in ends} - {0, before[-1]}


def expected_ends(case: Case) -> list[int]:
    """Raw offsets of the ends of the expected segments, which cover the text but for white space."""
    text, position, ends = case["text"], 0, []
    for segment in case["segments"]:
        for char in segment:
            if char.isspace():
                continue
            while text[position].isspace():
                position += 1
            assert text[position] == char
            position += 1
        ends.append(position)
    return ends


@dataclass
class Score:
    right: int = 0
    wrong: int = 0
    missed: int = 0

    def add(self, case: Case, segments: list[Segment]) -> None:
        wanted = places(case["text"], expected_ends(case))
        found = places(case["text"], (segment.end for segment in segments))
        self.right += len(wanted & found)
        self.wrong += len(found - wanted)
        self.missed += len(wanted - found)

    @property
    def f1(self) -> float:
        total = 2 * self.right + self.wrong + self.missed
        return 2 * self.right / total if total else 1.0


def score(cases: Iterable[Case]) -> Score:
    result = Score()
    for case in cases:
        result.add(case, run([case["text"]], options(case)))
    return result
