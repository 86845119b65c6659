"""Word times from loudness."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.core.word_times import FRAME_SAMPLES, MAX_FRAMES, Loudness, word_times, words_of


def sound(*parts: tuple[float, bool]) -> Loudness:
    """Seconds of noise or silence."""
    random = np.random.default_rng(0)
    loudness = Loudness()
    for seconds, speaking in parts:
        samples = random.normal(0, 0.1 if speaking else 1e-5, int(seconds * 24_000)).astype(np.float32)
        for at in range(0, len(samples), 1_000):
            loudness.feed(samples[at : at + 1_000])
    return loudness


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello there, you.", ["Hello", "there", "you"]),
        ("It's 3.14 or 10:30!", ["It's", "3.14", "or", "10:30"]),
        ("well-known e.g. this", ["well-known", "e.g", "this"]),
        ("今天 ok。", ["今", "天", "ok"]),
        ("Größe für 5€", ["Größe", "für", "5"]),
        ("안녕하세요 여러분", ["안녕하세요", "여러분"]),
        ("... --- !", []),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert [text[word.start : word.end] for word in words_of(text)] == words


def test_silence_at_the_ends_is_nobodys() -> None:
    times = word_times("one, two", sound((0.5, False), (1.0, True), (0.5, False)))
    assert times[0].start_ms == pytest.approx(500, abs=40)
    assert times[-1].end_ms == pytest.approx(1_500, abs=40)
    assert times[0].end_ms == pytest.approx(1_000, abs=60)


def test_a_pause_is_tied_to_the_mark_near_it() -> None:
    # By length alone the comma would lie at 2/3 of the speech; the pause says that it lies at half.
    times = word_times("slow slow slow slow, quick quick", sound((0.5, False), (1.0, True), (0.4, False), (1.0, True)))
    assert times[3].end_ms == pytest.approx(1_500, abs=60)
    assert times[4].start_ms == pytest.approx(1_900, abs=60)


def test_a_word_before_a_pause_is_drawn_out() -> None:
    one, two = word_times("slow slow", sound((1.0, True)))
    assert two.end_ms - two.start_ms > 1.3 * (one.end_ms - one.start_ms)


def test_every_sentence_of_a_long_text_keeps_its_own_pace() -> None:
    """Pauses are told apart by order, though each sentence is faster or slower than the text says."""
    lengths_s = [1.2, 1.8, 1.5, 1.1, 1.9, 1.3, 1.6, 1.8] * 4
    parts = [part for length_s in lengths_s for part in ((length_s, True), (0.3, False))]
    times = word_times("Some words are said here. " * len(lengths_s), sound(*parts[:-1]))
    starts_ms = [time.start_ms for time in times if time.word == "Some"]
    expected_ms = [1000 * (sum(lengths_s[:at]) + 0.3 * at) for at in range(len(lengths_s))]
    assert starts_ms == pytest.approx(expected_ms, abs=60)


def test_marks_that_nobody_pauses_at_are_passed_over() -> None:
    text = "one, " * 30 + "one. Then four more words"
    times = word_times(text, sound((6.25, True), (0.4, False), (0.95, True)))
    (then,) = [time for time in times if time.word == "Then"]
    assert then.start_ms == pytest.approx(6_650, abs=60)


def test_a_pause_far_from_every_mark_is_left_alone() -> None:
    times = word_times("one two three four five six seven, eight", sound((0.3, True), (0.4, False), (2.0, True)))
    assert times[6].end_ms > 1_800


def test_an_ideograph_takes_as_long_as_a_short_word() -> None:
    times = word_times("我们ok", sound((1.0, True)))
    assert [time.word for time in times] == ["我", "们", "ok"]
    spans = [time.end_ms - time.start_ms for time in times]
    assert max(spans) <= 2 * min(spans)


@pytest.mark.parametrize(
    ("text", "loudness"), [("", sound((1, True))), ("...", sound((1, True))), ("word", Loudness())]
)
def test_nothing_to_say(text: str, loudness: Loudness) -> None:
    assert word_times(text, loudness) == []


def test_sound_without_speech_has_no_words() -> None:
    loudness = Loudness()
    loudness.feed(np.zeros(48_000, np.float32))
    assert word_times("one two", loudness) == []


def test_what_is_kept_is_bounded() -> None:
    loudness = Loudness()
    for _ in range(MAX_FRAMES * FRAME_SAMPLES // 2_400_000 + 2):
        loudness.feed(np.ones(2_400_000, np.float32))
    assert len(loudness.active()) == MAX_FRAMES
    assert loudness.samples > MAX_FRAMES * FRAME_SAMPLES


@settings(deadline=None)
@given(
    st.text(alphabet="ab c,.今我 1\n", max_size=80),
    st.lists(st.tuples(st.floats(0.0, 0.6), st.booleans()), min_size=1, max_size=8),
)
def test_times_rise_and_stay_within_the_sound(text: str, parts: list[tuple[float, bool]]) -> None:
    loudness = sound(*parts)
    times = word_times(text, loudness)
    assert len(times) in (0, len(words_of(text)))
    before = 0
    for time in times:
        assert before <= time.start_ms <= time.end_ms
        before = time.end_ms
        assert text[time.start : time.end] == time.word
    if times:
        assert before <= loudness.samples / 24
