"""What a segment may lean on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voices.carry import MAX_CARRY_BYTES, MAX_GAP_S, Carry, KeptCarry
from voices.continuity import LEAST_FRAMES, MOST_FRAMES, Continuity, Manner, tail

ANNA = Manner("anna", "en")


def codes(frames: int, first: int = 0) -> np.ndarray:
    return (np.arange(first, first + frames, dtype=np.int16)[:, None] + np.zeros((1, 16), np.int16)) % 2_048


def test_the_first_segment_leans_on_nothing_the_next_on_it() -> None:
    reply = Continuity()
    assert reply.next(ANNA) is None
    reply.spoken(ANNA, codes(40), " Hello there. ")
    carry = reply.next(ANNA)
    assert carry is not None
    assert carry.text == "Hello there."
    np.testing.assert_array_equal(carry.codes, codes(40))


@pytest.mark.parametrize("other", [Manner("ben", "en"), Manner("anna", "de")])
def test_another_voice_or_language_begins_anew(other: Manner) -> None:
    reply = Continuity()
    reply.spoken(ANNA, codes(40), "Hello.")
    assert reply.next(other) is None
    assert reply.next(ANNA) is None  # and what was before is forgotten


@pytest.mark.parametrize("said", [(None, "Hello."), (codes(0), "Hello."), (codes(10), " ")])
def test_nothing_to_lean_on(said: tuple[np.ndarray | None, str]) -> None:
    reply = Continuity()
    reply.spoken(ANNA, codes(40), "Before.")
    reply.spoken(ANNA, *said)
    assert reply.next(ANNA) is None


def test_a_reset_forgets() -> None:
    reply = Continuity()
    reply.spoken(ANNA, codes(40), "Hello.")
    reply.reset()
    assert reply.next(ANNA) is None
    assert reply.kept(0.0) is None


def test_a_short_segment_takes_along_what_was_before() -> None:
    reply = Continuity()
    reply.spoken(ANNA, codes(30), "Before it.")
    reply.spoken(ANNA, codes(LEAST_FRAMES - 10, 30), "Yes.")
    carry = reply.next(ANNA)
    assert carry is not None
    assert carry.text == "Before it. Yes."
    np.testing.assert_array_equal(carry.codes, codes(30 + LEAST_FRAMES - 10))


def test_a_long_segment_leaves_its_last_words() -> None:
    carry = tail(codes(100), "one two three four five six seven eight nine ten")
    assert carry is not None
    assert carry.text == "six seven eight nine ten"
    assert len(carry.codes) == MOST_FRAMES
    np.testing.assert_array_equal(carry.codes[-1], codes(100)[-1])


def test_a_long_text_without_words_leaves_nothing() -> None:
    assert tail(codes(400), "a" * 300) is None


def test_scripts_without_spaces_are_cut_too() -> None:
    carry = tail(codes(100), "今天天气很好我们去公园散步吧")
    assert carry is not None
    assert carry.text == "我们去公园散步吧"[-len(carry.text) :]
    assert len(carry.codes) <= MOST_FRAMES


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 400), st.text(alphabet="ab c今x.\n", min_size=0, max_size=300)), max_size=8))
def test_a_carry_is_always_short_and_a_suffix(said: list[tuple[int, str]]) -> None:
    reply = Continuity()
    every, words = np.zeros((0, 16), np.int16), ""
    at = 0
    for frames, text in said:
        spoken = codes(frames, at)
        at += frames
        reply.spoken(ANNA, spoken, text)
        every, words = np.concatenate([every, spoken]), f"{words} {text.strip()}"
        carry = reply.next(ANNA)
        if carry is None:
            continue
        assert 0 < len(carry.codes) <= MOST_FRAMES
        np.testing.assert_array_equal(carry.codes, every[-len(carry.codes) :])
        assert words.endswith(carry.text)
        kept = reply.kept(5.0)
        assert kept is not None
        assert len(kept.to_bytes()) <= MAX_CARRY_BYTES


def test_the_next_reply_goes_on_where_the_last_one_ended() -> None:
    first = Continuity(reply_index=3)
    first.spoken(ANNA, codes(40), "See you.")
    kept = first.kept(now_s=1_000.0)
    assert kept is not None
    kept = KeptCarry.from_bytes(kept.to_bytes())

    def goes_on(reply_index: int = 4, now_s: float = 1_010.0, manner: Manner = ANNA) -> bool:
        return Continuity(kept, reply_index=reply_index, now_s=now_s).next(manner) is not None

    assert goes_on()
    assert not goes_on(reply_index=5)
    assert not goes_on(now_s=1_000.0 + MAX_GAP_S + 1)
    assert not goes_on(manner=Manner("ben", "en"))


def test_a_stored_carry_is_what_is_leaned_on() -> None:
    kept = KeptCarry(Carry(codes(30), "So."), "anna", "en", 100, 1)
    carry = Continuity(kept, reply_index=1, now_s=101).next(ANNA)
    assert carry is kept.carry
