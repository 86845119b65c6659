"""Cost is counted, not timed: calls made for a text and for one twice as long."""

from __future__ import annotations

import sys
from types import FrameType

import pytest

from segmenter import ReasoningFilter, SegmentStream, UnitSplitter

_TEXTS = (
    *"([{<*_`$&~.!\"'“「。、h\n\t1a👍\u200d\\|#>-=【",
    *("a ", "1.1.1.", "e.g. ", "U.S. A", "p.m. A", "3. O", "A. ", "[a](", "![", "<b ", "<!-- ", "a, ", "x\n", "- a\n"),
    *(
        "<think>x",
        "```\nx",
        "~~~\n",
        "$x",
        "$$x",
        "\\(",
        "\\[",
        "&a",
        "https://a.b/c(",
        "<details>",
        "<|channel|>",
        "\ue200",
    ),
    *('He said "a. B ', "(a. B ", "*a ", "`a ", "| a ", "\n\n", "> ", "1. ", "a<b "),
)
_CHARS = 1_600


def _calls(feed: object, text: str, step: int) -> int:
    """Function calls, Python's and C's, made while ``text`` is fed."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    assert callable(feed)
    parts = [text[start : start + step] for start in range(0, len(text), step)]
    sys.setprofile(note)
    try:
        for part in parts:
            feed(part)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("unit", _TEXTS)
def test_work_grows_with_the_text(unit: str) -> None:
    text = (unit * _CHARS)[: 2 * _CHARS]
    for step in (3, len(text)):
        half = _calls(SegmentStream().feed, text[:_CHARS], step)
        assert _calls(SegmentStream().feed, text, step) <= 2.3 * half + 200
        assert half <= 120 * _CHARS


@pytest.mark.parametrize("unit", _TEXTS)
def test_what_is_kept_is_bounded(unit: str) -> None:
    """No call looks at more than what is kept, so that with the count of calls the whole work is linear."""
    stream = SegmentStream()
    for _ in range(2 * _CHARS // len(unit)):
        stream.feed(unit)
        assert stream.pending_chars <= 2_600


def test_a_megabyte_at_once() -> None:
    stream = SegmentStream()
    segments = stream.feed("```\n" + "x = 1\n" * 170_000) + stream.flush()
    assert {segment.spoken for segment in segments} == {""}
    assert max(len(segment.text) for segment in segments) <= 2_000


@pytest.mark.parametrize("unit", [".", "a", "a.", "e.g. ", "。", "<", "<think>x", "</"])
def test_filter_and_splitter_are_linear_too(unit: str) -> None:
    text = (unit * _CHARS)[: 2 * _CHARS]
    for make in (lambda: UnitSplitter("clause").feed, lambda: ReasoningFilter().feed):
        half = _calls(make(), text[:_CHARS], 3)
        assert _calls(make(), text, 3) <= 2.3 * half + 100
