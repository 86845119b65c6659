"""What was sent, what was heard."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.core.playhead import Playhead, played_ms
from sidecar.faults import BadRequest


def noise(ms: int) -> np.ndarray:
    return np.random.default_rng(1).normal(0, 0.1, ms * 24).astype(np.float32)


def silence(ms: int) -> np.ndarray:
    return np.zeros(ms * 24, np.float32)


def spoken(text: str = "One two three four. Five six.", ms: int = 2_000) -> Playhead:
    head = Playhead()
    head.wrote(text)
    cut = text.index(".") + 2
    for start, end in ((0, cut), (cut, len(text))):
        head.began(start, end, text[start:end].strip())
        head.sent(noise(ms))
        head.ended()
    return head


def test_all_of_it() -> None:
    heard = spoken().heard()
    assert heard.text == "One two three four. Five six"
    assert heard.played_ms == 4_000


def test_heard_text_ends_with_the_last_word_that_sounded_whole() -> None:
    head = spoken()
    assert head.heard(0).text == ""
    assert head.heard(1_000).text == "One two"
    assert head.heard(2_000).text == "One two three four"
    assert head.heard(3_200).text == "One two three four. Five"


@pytest.mark.parametrize(("lie", "truth"), [(-5, 0), (-1e300, 0), (1e300, 4_000), (4_001, 4_000), (math.inf, 4_000)])
def test_lies_are_clamped(lie: float, truth: int) -> None:
    assert spoken().heard(lie).played_ms == truth


@pytest.mark.parametrize("value", ["5", True, math.nan, math.inf, -math.inf, [5], {}])
def test_what_is_no_number_is_refused(value: Any) -> None:
    with pytest.raises(BadRequest, match="played_ms"):
        played_ms(value)


def test_numbers_and_nothing_are_taken() -> None:
    assert (played_ms(None), played_ms(5), played_ms(-2.5)) == (None, 5.0, -2.5)


def test_a_segment_under_way_is_reckoned_by_the_pace_so_far() -> None:
    head = spoken()  # five letters and a bit of the first segment a second
    head.wrote(" Seven eight nine ten eleven.")
    head.began(29, 57, "Seven eight nine ten eleven.")
    before = head.heard().chars
    head.sent(noise(1_200))
    during = head.heard()
    assert before < during.chars
    assert during.text.endswith("Seven")


def test_the_engine_cannot_have_said_what_it_has_not_read() -> None:
    head = Playhead()
    head.wrote("One two three four five.")
    head.began(0, 24, "One two three four five.")
    head.sent(noise(4_000), text_chars=8)
    assert head.heard().text == "One two"
    head.abandoned()
    assert head.heard().text == "One two"


def test_a_pause_moves_time_not_words() -> None:
    head = spoken()
    head.sent(silence(500))
    assert head.sent_ms == 4_500
    assert head.heard().text == "One two three four. Five six"


def test_word_times_lie_in_the_reply() -> None:
    head = Playhead()
    head.wrote("Hi there. So long.")
    head.began(0, 10, "Hi there.")
    head.sent(noise(1_000))
    head.ended()
    head.began(10, 18, "So long.")
    head.sent(noise(1_000))
    times = head.ended()
    assert [(time.word, time.start, time.end) for time in times] == [("So", 10, 12), ("long", 13, 17)]
    assert times[0].start_ms == pytest.approx(1_000, abs=40)
    assert times[-1].end_ms <= 2_000


Step = st.one_of(
    st.tuples(st.just("begin"), st.text(alphabet="ab c.今1", min_size=1, max_size=30)),
    st.tuples(st.just("sent"), st.integers(1, 900)),
    st.tuples(st.just("pause"), st.integers(1, 300)),
    st.tuples(st.just("end"), st.none()),
    st.tuples(st.just("abandon"), st.none()),
)


@settings(deadline=None)
@given(st.lists(Step, max_size=25), st.floats(-1e4, 1e5))
def test_heard_is_a_prefix_of_sent_and_grows(steps: list[tuple[str, Any]], at_ms: float) -> None:
    head = Playhead()
    text = ""
    began = 0
    for kind, value in steps:
        if kind == "begin":
            began = len(text)
            text += value
            head.wrote(value)
            head.ended()
            head.began(began, len(text), value)
        elif kind == "sent":
            head.sent(noise(value), text_chars=value % 40)
        elif kind == "pause":
            head.sent(silence(value))
        elif kind == "end":
            head.ended()
        else:
            head.abandoned()
        every, some = head.heard(), head.heard(at_ms)
        assert text.startswith(every.text)
        assert every.text.startswith(some.text)
        assert 0 <= some.played_ms <= head.sent_ms == every.played_ms
        assert every.text == "" or every.text[-1] not in " ."
