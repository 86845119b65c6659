"""The open cases: own ones and public reports must be right, gold sets above their bars."""

from __future__ import annotations

import random

import pytest

from segmenter import Segment
from tests.segmenter.cases import Case, is_speakable, load, options, places, score
from tests.segmenter.helpers import run

OWN = load("cases/own.jsonl") + load("cases/reports.jsonl")
PYSBD = load("cases/pysbd.jsonl")
SENTENCEX = load("cases/sentencex.jsonl")
TREEBANKS = load("cases_cc_by_sa/ud_pud.jsonl") + load("cases_cc_by_sa/ud_ewt.jsonl")


def _tokenisations(text: str) -> list[list[str]]:
    rnd = random.Random(text)
    parts, start = [], 0
    while start < len(text):
        end = start + rnd.choice((1, 1, 2, 3, 5, 8, 17))
        parts.append(text[start:end])
        start = end
    return [list(text), [text[i : i + 4] for i in range(0, len(text), 4)], parts]


def _segments(case: Case) -> list[Segment]:
    """The segments, after checking that no way of cutting the text changes them."""
    whole = run([case["text"]], options(case))
    for parts in _tokenisations(case["text"]):
        assert run(parts, options(case)) == whole
    return whole


def _spoken(segments: list[Segment]) -> list[str]:
    return [segment.spoken for segment in segments if segment.spoken]


def _named(cases: list[Case]) -> list[object]:
    return [pytest.param(case, id=case["id"]) for case in cases]


@pytest.mark.parametrize("case", _named([c for c in OWN if c["mode"] == "sentence" and c.get("spoken")]))
def test_what_is_said(case: Case) -> None:
    wanted = [
        [" ".join(said.split()) for said in answer if any(map(is_speakable, said))]
        for answer in (case["spoken"], *case.get("accept", ()))
    ]
    assert _spoken(_segments(case)) in wanted


@pytest.mark.parametrize("case", _named([c for c in OWN if c["mode"] == "clause"]))
def test_the_first_clause(case: Case) -> None:
    segments = _segments(case)
    wanted = case["first"] if isinstance(case["first"], list) else [case["first"]]
    first = next(segment for segment in segments if segment.spoken)
    letters = ["".join(filter(is_speakable, said)) for said in (first.text, *wanted)]
    assert letters[0] in letters[1:]
    forbidden = places(case["text"], case.get("forbidden", ()))
    assert not forbidden & places(case["text"], (segment.end for segment in segments))


@pytest.mark.parametrize("case", _named([c for c in OWN if c.get("max_chars")]))
def test_the_length_limit(case: Case) -> None:
    spoken = _spoken(_segments(case))
    assert max(map(len, spoken)) <= case["max_chars"]
    assert "".join("".join(spoken).split()) == "".join(case["text"].split())


@pytest.mark.parametrize("lang", ["en", "de", "fr", "es", "it", "pt", "ru", "zh", "ko"])
def test_treebanks(lang: str) -> None:
    assert score(case for case in TREEBANKS if case["lang"] == lang).f1 >= 0.98


@pytest.mark.parametrize("lang", ["en", "de", "fr", "es", "zh", "ja"])
def test_the_rules_of_pysbd(lang: str) -> None:
    assert score(case for case in PYSBD if case["lang"] == lang).f1 >= 0.9


def test_the_gold_sets_as_a_whole() -> None:
    assert score(PYSBD).f1 >= 0.93
    assert score(SENTENCEX).f1 >= 0.85


def test_no_way_of_cutting_a_gold_text_changes_its_segments() -> None:
    for case in PYSBD + SENTENCEX + TREEBANKS:
        _segments(case)
