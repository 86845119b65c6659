import threading

import pytest

from segmenter import SegmentOptions, SegmentStream, referee
from tests.segmenter.helpers import run

_LONG = "This sentence goes on for long enough to sound while others wait."


def _spoken(text: str, options: SegmentOptions) -> list[str]:
    segments = run(text, options)
    assert segments == run([text], options)
    assert "".join(segment.text for segment in segments) == text
    return [segment.spoken for segment in segments if segment.spoken]


class TestJoinShort:
    OPTIONS = SegmentOptions(first_by_clause=False, join_short=True)

    def test_a_very_short_sentence_is_said_with_the_next_one(self) -> None:
        assert _spoken(f"{_LONG} Ok. We go now. {_LONG}", self.OPTIONS) == [_LONG, "Ok. We go now.", _LONG]

    def test_not_at_the_begin_where_somebody_waits(self) -> None:
        assert _spoken("Ok. We go now.", self.OPTIONS) == ["Ok.", "We go now."]

    def test_not_over_the_end_of_a_line(self) -> None:
        assert _spoken(f"{_LONG} Ok.\nWe go now.", self.OPTIONS) == [_LONG, "Ok.", "We go now."]

    def test_a_pause_of_the_writer_ends_the_waiting(self) -> None:
        stream = SegmentStream(self.OPTIONS)
        assert [s.spoken for s in stream.feed(f"{_LONG} Ok. ")] == [_LONG]
        assert [s.spoken for s in stream.feed("A")] == []
        assert [s.spoken for s in stream.force()] == ["Ok."]
        assert [s.spoken for s in stream.flush()] == ["A"]


class TestVerbalise:
    def test_only_what_is_spoken_changes(self) -> None:
        segments = run(["It costs $5. Fine."], SegmentOptions(language="en", first_by_clause=False, verbalise=True))
        assert [segment.text for segment in segments] == ["It costs $5. ", "Fine."]
        assert segments[0].spoken == "It costs five dollars."

    def test_a_language_that_is_not_known_is_left_alone(self) -> None:
        segments = run(["Xyz 5 abc."], SegmentOptions(verbalise=True))
        assert segments[0].spoken == "Xyz 5 abc."


def test_force_speaks_what_waits() -> None:
    stream = SegmentStream(SegmentOptions(first_by_clause=False, fragment_after_ms=50.0))
    stream.feed("It is late.")
    assert [segment.spoken for segment in stream.force()] == ["It is late."]
    stream.feed(" I would rather take the train home")
    assert [segment.spoken for segment in stream.force()] == ["I would rather take the train"]


class TestReferee:
    @pytest.fixture(autouse=True)
    def _installed(self) -> None:
        pytest.importorskip("pysbd")

    def test_it_is_asked_where_the_lists_do_not_know(self) -> None:
        asked: list[tuple[str, str]] = []
        stream = SegmentStream(SegmentOptions(language="en", first_by_clause=False, referee="pysbd"))
        answer = stream._assembler.judge._referee
        assert answer is not None

        def note(before: str, word: str) -> bool | None:
            asked.append((before, word))
            return answer(before, word)

        stream._assembler.judge._referee = note
        stream.feed("Dr. Lund came by. Then we saw a wrld. Xylo was there. ")
        assert asked == [("Then we saw a wrld.", "Xylo")]

    def test_it_answers_for_one_place(self) -> None:
        assert referee.cuts("en", "The train left on time.", "Nobody") is True
        assert referee.cuts("en", "We met Dr.", "Lund") is False
        assert referee.cuts("xx", "", "Lund") is None

    @pytest.mark.parametrize(
        "text", ["Look ☝ here ♬ and B♭.", "Note.[111 222 333 444 555 666 777 888 999].", "∯ȸ." * 90]
    )
    def test_what_it_loses_or_hangs_on_never_reaches_it(self, text: str) -> None:
        assert referee.cuts("en", text, "Next") in (True, False, None)

    def test_many_threads(self) -> None:
        wrong: list[str] = []

        def ask(name: str) -> None:
            for number in range(20):
                if referee.cuts("en", f"The {name} train number {number} left on time.", "Nobody") is not True:
                    wrong.append(name)

        threads = [threading.Thread(target=ask, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []


def test_an_unknown_referee_is_refused() -> None:
    with pytest.raises(ValueError, match="referee"):
        SegmentOptions(referee="nobody")  # type: ignore[arg-type]
