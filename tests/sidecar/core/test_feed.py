"""How a text that is still being written reaches an engine."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.core.feed import Append, Begin, Command, Feed, FeedLimits, Finish, tokens


def text_of(commands: list[Command]) -> str:
    return "".join(command.text for command in commands if not isinstance(command, Finish))


class Engine:
    """Takes in one token (four characters) a step, if it has one."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.generations: list[str] = []
        self.finished: list[bool] = []
        self.read = 0
        self.steps = 0

    def do(self, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, Begin):
                assert all(self.finished), "one generation at a time"
                self.generations.append(command.text)
                self.finished.append(False)
                self.read = self.steps = 0
            elif isinstance(command, Append):
                assert not self.finished[-1]
                self.generations[-1] += command.text
            else:
                assert not self.finished[-1]
                self.finished[-1] = True

    def step(self) -> None:
        if self.generations and self.read < len(self.generations[-1]):
            self.read = min(self.read + 4, len(self.generations[-1]))
            self.steps += 1
            self.feed.read(self.read, self.steps * 0.08)


def test_the_first_whole_word_begins_it() -> None:
    feed = Feed()
    feed.wrote("Hel", 0)
    assert feed.take(0) == []
    feed.wrote("lo", 10)
    assert feed.take(10) == []
    feed.wrote(" wor", 20)
    assert feed.take(20) == [Begin("Hello ")]
    feed.wrote("ld", 30)
    assert feed.take(30) == []
    feed.close()
    assert feed.take(30) == [Append("world"), Finish()]
    assert feed.done


def test_scripts_without_blanks_are_cut_anywhere() -> None:
    feed = Feed()
    feed.wrote("今天", 0)
    assert feed.take(0) == [Begin("今天")]


def test_no_more_than_a_band_lies_ahead() -> None:
    feed, limits = Feed(), FeedLimits()
    engine = Engine(feed)
    feed.wrote("word " * 400, 0)
    feed.close()
    while not feed.done:
        engine.do(feed.take(0))
        assert feed.ahead_tokens <= limits.high_tokens + 2
        if engine.read < len(engine.generations[-1]) - 4 * limits.low_tokens:
            assert feed.ahead_tokens >= limits.low_tokens - 2
        engine.step()
    assert "".join(engine.generations) == "word " * 400


def test_an_engine_that_cannot_tell_gets_all_as_it_comes() -> None:
    feed = Feed()
    feed.wrote("one two three ", 0)
    assert text_of(feed.take(0)) == "one two three "
    feed.read(None, 0.5)
    feed.wrote("four ", 1)
    assert feed.take(1) == [Append("four ")]


def test_a_long_reply_rolls_over_at_a_sentence_end() -> None:
    limits = FeedLimits(roll_tokens=40)
    feed = Feed(limits)
    engine = Engine(feed)
    feed.wrote("This is a sentence of some words. " * 20, 0)
    feed.close()
    while not feed.done:
        engine.do(feed.take(0))
        engine.step()
    assert len(engine.generations) > 2
    assert all(generation.endswith("words. ") for generation in engine.generations)
    assert all(tokens(generation) < 60 for generation in engine.generations)


def test_a_paragraph_is_a_good_place() -> None:
    feed = Feed(FeedLimits(paragraph_tokens=5))
    engine = Engine(feed)
    feed.wrote("A first paragraph of words.\n\nA second one.", 0)
    feed.close()
    while not feed.done:
        engine.do(feed.take(0))
        engine.step()
    assert [generation.strip() for generation in engine.generations] == [
        "A first paragraph of words.",
        "A second one.",
    ]


def test_without_any_sentence_end_it_rolls_between_words() -> None:
    limits = FeedLimits(roll_tokens=20)
    feed = Feed(limits)
    engine = Engine(feed)
    feed.wrote("word " * 200, 0)
    feed.close()
    while not feed.done:
        engine.do(feed.take(0))
        engine.step()
    assert all(tokens(generation) <= 1.5 * 20 + limits.high_tokens for generation in engine.generations)


def test_a_pause_after_a_sentence_finishes_it_and_the_rest_goes_on() -> None:
    limits = FeedLimits(settle_ms=500)
    feed = Feed(limits)
    feed.wrote("Let me think. ", 0)
    assert feed.take(0) == [Begin("Let me think. ")]
    assert feed.deadline_ms() == 500
    assert feed.take(499) == []
    assert feed.take(500) == [Finish()]
    assert feed.deadline_ms() is None
    feed.wrote("Well, ", 3_000)
    assert feed.take(3_000) == [Begin("Well, ")]


def test_in_mid_sentence_the_engine_waits() -> None:
    feed = Feed(FeedLimits(settle_ms=500, stall_ms=4_000))
    feed.wrote("Let me thi", 0)
    assert feed.take(0) == [Begin("Let me ")]
    assert feed.take(3_999) == []
    assert feed.deadline_ms() == 4_000
    assert feed.take(4_000) == [Append("thi"), Finish()]


def test_a_closed_text_takes_no_more() -> None:
    feed = Feed()
    feed.close()
    with pytest.raises(ValueError, match="closed"):
        feed.wrote("more", 0)
    assert feed.done


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.text(alphabet="ab cd.!\n今天。1", min_size=1, max_size=20), st.integers(0, 3_000), st.integers(0, 30)
        ),
        max_size=30,
    ),
    st.integers(10, 60),
)
def test_every_character_is_given_once_and_in_order(script: list[tuple[str, int, int]], roll: int) -> None:
    feed = Feed(FeedLimits(roll_tokens=roll, paragraph_tokens=roll // 2))
    engine = Engine(feed)
    now, written = 0, ""
    for text, wait_ms, steps in script:
        now += wait_ms
        engine.do(feed.take(now))
        feed.wrote(text, now)
        written += text
        engine.do(feed.take(now))
        for _ in range(steps):
            engine.step()
            engine.do(feed.take(now))
    feed.close()
    for _ in range(3_000):
        engine.do(feed.take(now))
        if feed.done:
            break
        engine.step()
    assert feed.done
    assert all(engine.finished)
    assert all(any(map(str.isalnum, generation)) for generation in engine.generations)
    assert list(filter(str.isalnum, "".join(engine.generations))) == list(filter(str.isalnum, written))


@settings(deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=40))
def test_no_word_is_cut_however_the_text_arrives(cuts: list[int]) -> None:
    text = "Alpha beta gamma delta. Epsilon zeta eta theta iota kappa lambda. " * 3
    feed = Feed(FeedLimits(roll_tokens=30))
    engine = Engine(feed)
    at = 0
    for cut in [*cuts, len(text)]:
        feed.wrote(text[at : at + cut], at)
        at += cut
        for command in feed.take(at):
            engine.do([command])
            if not isinstance(command, Finish):
                assert command.text[-1] == " "
        engine.step()


def test_a_word_without_end_is_handed_over_in_pieces() -> None:
    feed = Feed()
    engine = Engine(feed)
    feed.wrote("x" * 5_000, 0)
    feed.close()
    for _ in range(3_000):
        engine.do(feed.take(0))
        engine.step()
    assert feed.done
    assert "".join(engine.generations) == "x" * 5_000


def test_a_sentence_that_its_writer_pauses_behind_is_finished_though_no_blank_follows() -> None:
    feed = Feed()
    feed.wrote("Sure!", 0)
    assert feed.take(0) == []
    assert feed.deadline_ms() == 700
    assert feed.take(700) == [Begin("Sure!"), Finish()]
    feed.wrote("Item 3.", 1_000)
    assert feed.take(1_700) == [Begin("Item ")], "a number may go on"
    assert feed.deadline_ms() == 9_000


def test_it_starves_when_no_whole_word_is_left() -> None:
    feed = Feed()
    feed.wrote("One two three fo", 0)
    assert not feed.starved
    feed.take(0)
    assert not feed.starved
    feed.read(8, 0.1)
    assert feed.starved, "the last word is only begun by the next one"
    feed.wrote("ur ", 0)
    assert not feed.starved


def test_what_an_engine_that_ended_early_left_is_begun_again() -> None:
    feed = Feed()
    feed.wrote("One two three ", 0)
    assert feed.take(0) == [Begin("One two three ")]
    feed.read(4, 1.0)
    assert feed.overflowed() == "two three "
    assert feed.take(0) == [Begin("two three ")]


def test_marks_alone_begin_nothing() -> None:
    feed = Feed()
    feed.wrote(" ... -- ", 0)
    assert feed.take(0) == []
    feed.wrote("word ", 0)
    begin = feed.take(0)[0]
    assert begin == Begin("word ")
    assert isinstance(begin, Begin)
    assert begin.skipped == 8


def test_limits_that_contradict_one_another() -> None:
    for wrong in ({"low_tokens": 24}, {"roll_tokens": 0}, {"settle_ms": 9_000.0}):
        with pytest.raises(ValueError, match=r"limits|low_tokens"):
            FeedLimits(**wrong)  # type: ignore[arg-type]


def test_an_engine_that_does_not_begin_gets_more() -> None:
    """With frames before the text it may need an id for each of them."""
    feed = Feed()
    feed.wrote("word " * 200, 0)
    feed.close()
    given = text_of(feed.take(0))
    assert tokens(given) <= 25
    assert feed.deadline_ms() == 300
    assert feed.take(299) == []
    assert tokens(text_of(feed.take(300))) > 200
    feed = Feed()
    feed.wrote("word " * 200, 0)
    feed.take(0)
    feed.read(1, 0.08)
    assert feed.take(300) == [], "one that has begun does not"
    assert feed.deadline_ms() == 8_000


def test_a_generation_that_needs_text_to_begin_with_gets_it_at_once() -> None:
    feed = Feed()
    feed.wrote("word " * 200, 0)
    feed.take(0)
    feed.wants(60)
    given = tokens(text_of(feed.take(0)))
    assert 60 <= given + 24 <= 70
    assert feed.take(0) == []
