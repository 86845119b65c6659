from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.engines.live_text import TextCount
from sidecar.faults import TooLarge
from sidecar.ports import MAX_LIVE_CHARS, MAX_UNREAD_CHARS, Utterance


def count(text: str = "", *, live: bool = True) -> TextCount:
    return TextCount(Utterance(text, "v", 1, live=live))


def test_a_whole_text_may_be_of_any_length_and_takes_no_more() -> None:
    whole = count("x" * (MAX_UNREAD_CHARS + 1), live=False)
    with pytest.raises(RuntimeError):
        whole.append("more", over=False)
    with pytest.raises(RuntimeError):
        whole.finish()


def test_a_live_text_is_finished_once() -> None:
    text = count("a")
    assert text.append("b", over=False)
    assert not text.append("", over=False)
    assert text.finish()
    assert not text.finish()
    with pytest.raises(RuntimeError):
        text.append("c", over=True)


def test_what_is_over_counts_nothing() -> None:
    text = count()
    assert not text.append("x" * (MAX_LIVE_CHARS + 1), over=True)
    assert text.chars == 0


def test_what_is_refused_is_not_taken() -> None:
    with pytest.raises(TooLarge):
        count("x" * (MAX_UNREAD_CHARS + 1))
    text = count("x" * MAX_UNREAD_CHARS)
    with pytest.raises(TooLarge):
        text.append("y", over=False)
    assert text.chars == MAX_UNREAD_CHARS
    text.read(10)
    assert text.append("y" * 10, over=False)
    text.read(None)
    text.read(3)
    with pytest.raises(TooLarge):
        text.append("y", over=False)


def test_the_whole_is_bounded_however_fast_it_is_read() -> None:
    text = count()
    for _ in range(MAX_LIVE_CHARS // MAX_UNREAD_CHARS):
        assert text.append("x" * MAX_UNREAD_CHARS, over=False)
        text.read(text.chars)
    assert text.chars == MAX_LIVE_CHARS
    with pytest.raises(TooLarge):
        text.append("x", over=False)


@given(st.lists(st.tuples(st.integers(0, MAX_UNREAD_CHARS + 5), st.integers(0, 40_000)), max_size=30))
def test_never_more_unread_than_may_be(turns: list[tuple[int, int]]) -> None:
    text = count()
    for more, read in turns:
        with contextlib.suppress(TooLarge):
            text.append("x" * more, over=False)
        text.read(min(read, text.chars))
        assert 0 <= text.chars - text.read_chars <= MAX_UNREAD_CHARS
