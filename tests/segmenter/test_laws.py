"""What holds for every text, however it is cut into tokens."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from segmenter import Segment, SegmentKind, SegmentOptions, SegmentStream
from tests.segmenter.helpers import run

_WORDS = "Hello¦world¦he¦The¦She¦Dr¦e.g¦z¦B¦U¦S¦p.m¦3¦14¦1,000¦2024¦Oktober¦etc¦am¦Monday¦Mr¦vitamin¦I¦Xyz"
_BLANKS = " ¦ ¦ ¦  ¦\n¦\n\n¦\r\n¦\t¦    ¦\u00a0"
_MARKS = ".¦. ¦!¦?¦…¦...¦。¦！¦，¦、¦,¦, ¦;¦: ¦ — ¦–¦-¦“¦”¦\"¦'¦„¦«¦»¦「¦」¦（¦）¦(¦)¦।¦:-("
_MARKUP = (
    "- ¦* ¦*¦**¦_¦__¦~~¦`¦``¦```¦\n```py\n¦~~~¦<think>¦</think>¦<¦<b>¦</b>¦<br>¦<details>¦</details>¦<!--¦-->¦<table>¦"
    '<a href="x¦">¦[¦]¦](¦[^1]¦[1]¦![¦https://x.y/a_(b)¦www.¦h¦$¦$$¦$x^2$¦\\¦\\(¦\\)¦\\[¦&¦&amp;¦&nbsp;¦【¦4†source】¦'
    "】¦---¦===¦# ¦> ¦1. ¦• ¦|¦| a | b |¦\n|¦<|channel|>¦<|message|>¦\ue200¦\ue201"
)
_LISTS = "1. a¦ 2. B¦ 2) ¦• ¦ • ¦b. ¦ii. ¦:¦;¦Բ:¦και;¦「行く。」と¦“好！”妈妈¦说¦①¦Name | Age\n--- | ---\n¦P.S. ¦Mr ¦,,"
_OTHERS = "👍¦🏽¦\u200d¦\ufe0f¦©¦1️⃣¦你好¦かな¦한국¦é¦e\u0301¦नमस्ते¦" + "x" * 45 + "¦" + "a b c d e f g " * 6
_PIECES = st.sampled_from("¦".join((_WORDS, _BLANKS, _MARKS, _MARKUP, _LISTS, _OTHERS)).split("¦"))
_TEXTS = st.lists(_PIECES, max_size=40).map("".join) | st.text(max_size=80)
_OPTIONS = st.builds(
    SegmentOptions,
    granularity=st.sampled_from(["none", "sentence", "clause"]),
    first_by_clause=st.booleans(),
    max_chars=st.sampled_from([40, 60, 300]),
    language=st.sampled_from(["auto", "en", "de", "ko", "xx"]),
    join_short=st.booleans(),
    starts_in_think=st.sampled_from([False, False, False, True]),
)


def _cut(text: str, places: list[int]) -> list[str]:
    cuts = sorted(place % (len(text) + 1) for place in places)
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def _check(text: str, segments: list[Segment], options: SegmentOptions) -> None:
    assert "".join(segment.text for segment in segments) == text
    position = 0
    for index, segment in enumerate(segments):
        assert (segment.index, segment.start) == (index, position)
        assert segment.end - segment.start == len(segment.text) > 0
        position = segment.end
        spoken = segment.spoken
        assert len(spoken) <= options.max_chars
        assert not spoken or any(map(str.isalnum, spoken))
        assert spoken == " ".join(spoken.split(" ")).strip()
        assert "\n" not in spoken
        assert (spoken == "") == (segment.kind in (SegmentKind.SILENT, SegmentKind.CODE))


@settings(max_examples=300, deadline=None)
@given(_TEXTS, _OPTIONS, st.lists(st.integers(0, 5000), max_size=12))
def test_any_cut_of_the_text_gives_the_same_segments(text: str, options: SegmentOptions, places: list[int]) -> None:
    whole = run([text], options)
    _check(text, whole, options)
    assert run(_cut(text, places), options) == whole
    assert run(text, options) == whole


@settings(max_examples=150, deadline=None)
@given(_TEXTS, _OPTIONS, st.lists(st.tuples(st.integers(0, 5000), st.sampled_from([50, 150, 600])), max_size=8))
def test_pauses_add_cuts_but_lose_nothing(text: str, options: SegmentOptions, pauses: list[tuple[int, int]]) -> None:
    stream = SegmentStream(options)
    segments: list[Segment] = []
    for part, (_, silent_ms) in zip(_cut(text, [place for place, _ in pauses]), [*pauses, (0, 0)], strict=True):
        segments += stream.feed(part)
        segments += stream.idle(silent_ms)
        assert sum(len(segment.text) for segment in segments) + stream.pending_chars <= len(text)
    segments += stream.flush()
    _check(text, segments, options)
    assert stream.pending_chars == 0


@settings(max_examples=150, deadline=None)
@given(_TEXTS)
def test_every_speakable_character_is_in_the_span_of_one_segment(text: str) -> None:
    """Letters of plain text are spoken; spans do not overlap and leave nothing out."""
    kept = "".join(char for char in text if (char.isalnum() and char.isascii()) or char in " .,")
    plain = kept.strip() or "a"  # four blanks at the begin would make it code
    segments = run([plain])
    _check(plain, segments, SegmentOptions())
    letters = "".join(filter(str.isalnum, plain))
    spoken = "".join("".join(filter(str.isalnum, segment.spoken)) for segment in segments)
    if "www" not in plain.lower() and "http" not in plain.lower():
        assert spoken == letters


@settings(max_examples=100, deadline=None)
@given(_TEXTS, st.lists(st.integers(0, 5000), max_size=6))
def test_forcing_adds_cuts_but_loses_nothing(text: str, places: list[int]) -> None:
    stream = SegmentStream()
    segments: list[Segment] = []
    for part in _cut(text, places):
        segments += stream.feed(part)
        segments += stream.force()
    segments += stream.flush()
    _check(text, segments, SegmentOptions())
