"""The running text for voices that read along: the same however it arrives, with its places in the raw text."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segmenter import SpeakableStream, speakable

MARKED = (
    "# Title ##\n\nHello **bold** world (see [1]). A *list*:\n- one 😀, two\n- two | three\n\n"
    "a | b\n---|---\n1 | 2\n\nDone `code x`.\n\n```\ncode\n```\n\nFin [link](http://x.y/z). Wow!\n\n...\n\n"
    "(http://a.b) End <think>not this</think> now $x^2$ · ok"
)


def said(pieces: list[str]) -> tuple[str, tuple[int, ...]]:
    stream = SpeakableStream()
    answers = [*map(stream.feed, pieces), stream.finish()]
    return "".join(a.text for a in answers), tuple(end for a in answers for end in a.ends)


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def cut(text: str, places: list[int]) -> list[str]:
    edges = sorted({0, len(text), *(place % (len(text) + 1) for place in places)})
    return [text[a:b] for a, b in pairwise(edges)]


def test_lines_and_paragraphs_are_kept() -> None:
    assert said(["Hi *there*.\n\n- One\n- Two\n\n---\n\nBye."])[0] == "Hi there.\n\nOne\nTwo\n\nBye."


def test_it_says_what_the_segmenter_says() -> None:
    text = MARKED.replace("a | b\n", "")
    assert words(said([text])[0]) == words(speakable(text))


def test_of_a_tables_head_only_the_first_cell() -> None:
    assert said(["a | b\n---|---\n1 | 2\n"])[0] == "a"
    assert said(["| a | b |\n|---|---|\n| 1 | 2 |\n"])[0] == ""
    assert said(["this | that\nand more"])[0] == "this | that and more"


def test_every_character_has_its_place() -> None:
    raw = "So **be** it. [Here](http://x.y) too."
    text, ends = said([raw])
    assert text == "So be it. Here too."
    assert "".join(raw[end - 1] for end in ends) == text


def test_nothing_may_follow_the_end() -> None:
    stream = SpeakableStream()
    stream.feed("Word ")
    assert stream.finish().text == ""
    assert stream.finish().text == ""
    with pytest.raises(ValueError, match="finished"):
        stream.feed("x")


def test_a_pause_lets_closing_marks_pass() -> None:
    stream = SpeakableStream()
    assert stream.feed("Sure!").text == "Sure"
    assert stream.settle().text == "!"


@given(st.lists(st.integers(0, 10_000), max_size=60))
@settings(max_examples=150, deadline=None)
def test_the_same_however_it_is_cut(places: list[int]) -> None:
    assert said(cut(MARKED, places)) == said([MARKED])


@given(st.text(alphabet="ab1 .!*_`#|-()[]\n$<>&\\😀", max_size=120), st.lists(st.integers(0, 10_000), max_size=12))
@settings(max_examples=400, deadline=None)
def test_any_text_in_any_pieces(text: str, places: list[int]) -> None:
    whole, ends = said([text])
    assert said(cut(text, places)) == (whole, ends)
    assert len(ends) == len(whole)
    assert list(ends) == sorted(ends)
    assert all(0 <= end <= len(text) for end in ends)
