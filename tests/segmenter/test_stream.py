import pytest

from segmenter import SegmentOptions, SegmentStream
from tests.segmenter.helpers import SENTENCES


def _said(stream: SegmentStream, text: str) -> list[str]:
    return [segment.spoken for segment in stream.feed(text)]


def test_a_sentence_leaves_two_characters_after_its_mark() -> None:
    stream = SegmentStream(SENTENCES)
    assert _said(stream, "It is late.") == []
    assert _said(stream, " ") == []
    assert _said(stream, "G") == ["It is late."]
    assert stream.pending_chars == 1


def test_a_number_is_never_cut_although_it_comes_in_pieces() -> None:
    stream = SegmentStream(SENTENCES)
    assert _said(stream, "It costs 3") == []
    assert _said(stream, ".") == []
    assert _said(stream, "14") == []
    assert [segment.spoken for segment in stream.flush()] == ["It costs 3.14"]


def test_a_paragraph_end_is_certain_at_once() -> None:
    stream = SegmentStream(SENTENCES)
    assert _said(stream, "A title\n\n") == ["A title"]


def test_a_script_mark_needs_one_more_character() -> None:
    stream = SegmentStream(SENTENCES)
    assert _said(stream, "你好。") == []
    assert _said(stream, "好") == ["你好。"]


def test_spans_cover_the_text() -> None:
    text = "  **Hi!** <b>You</b> 🙂 there.\n\n```\nx\n```\nBye  "
    stream = SegmentStream(SENTENCES)
    segments = stream.feed(text) + stream.flush()
    assert [text[segment.start : segment.end] for segment in segments] == [segment.text for segment in segments]
    assert [segment.start for segment in segments] == [0, *(segment.end for segment in segments[:-1])]
    assert [segment.index for segment in segments] == list(range(len(segments)))
    assert segments[-1].end == len(text)
    assert segments[0].text == "  **Hi!** "


def test_flush_ends_the_stream() -> None:
    stream = SegmentStream()
    stream.feed("Yes")
    assert [segment.spoken for segment in stream.flush()] == ["Yes"]
    assert stream.flush() == []
    assert stream.idle(1000) == []
    assert stream.pending_chars == 0
    with pytest.raises(ValueError, match="flushed"):
        stream.feed("more")


def test_an_empty_stream_has_no_segments() -> None:
    stream = SegmentStream()
    assert stream.feed("") == []
    assert stream.flush() == []


@pytest.mark.parametrize("options", [{"granularity": "word"}, {"max_chars": 5}])
def test_options_are_checked(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        SegmentOptions(**options)  # type: ignore[arg-type]


class TestIdle:
    @pytest.mark.parametrize("text", ["Sure!", "**Sure!**", "Is it so?", "It is late.", "好的。", 'He said "no."'])
    def test_a_pending_end_is_taken(self, text: str) -> None:
        stream = SegmentStream(SENTENCES)
        assert stream.feed(text) == []
        assert len(stream.idle(150)) == 1
        assert stream.pending_chars == 0

    @pytest.mark.parametrize("text", ["It costs 3.", "Ask Dr.", "The U.S.", "Well...", "No end", "by J."])
    def test_a_doubtful_end_is_not(self, text: str) -> None:
        stream = SegmentStream(SENTENCES)
        assert stream.feed(text) + stream.idle(399) == []
        assert [segment.spoken for segment in stream.flush()] == [text]

    def test_a_short_pause_does_nothing(self) -> None:
        stream = SegmentStream(SENTENCES)
        assert stream.feed("Sure!") + stream.idle(20) == []

    def test_a_long_pause_speaks_a_fragment(self) -> None:
        stream = SegmentStream(SENTENCES)
        stream.feed("I would rather go by train, because the roa")
        assert [segment.spoken for segment in stream.idle(450)] == ["I would rather go by train,"]
        stream.feed("ds are icy and the wea")
        assert [segment.spoken for segment in stream.idle(450)] == ["because the roads are icy and the"]
        assert [segment.spoken for segment in stream.flush()] == ["wea"]

    def test_never_in_mid_word_nor_in_a_number(self) -> None:
        stream = SegmentStream(SENTENCES)
        stream.feed("Internationalisat")
        assert stream.idle(5000) == []
        stream = SegmentStream(SENTENCES)
        stream.feed("They paid him about 1 ")
        assert [segment.spoken for segment in stream.idle(5000)] == ["They paid him about"]

    def test_text_goes_on_after_a_pause(self) -> None:
        stream = SegmentStream(SENTENCES)
        segments = stream.feed("Sure!") + stream.idle(200) + stream.feed(" Let us go.\nhome") + stream.flush()
        assert [segment.spoken for segment in segments] == ["Sure!", "Let us go.", "home"]
        assert "".join(segment.text for segment in segments) == "Sure! Let us go.\nhome"
