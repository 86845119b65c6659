"""What clients are told of word times: headers, chunk events, speed, and where there are none."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.core import word_stamps
from sidecar.core.word_stamps import MAX_HEADER_BYTES, ChunkEvents, WordStamps, stamp_headers
from sidecar.core.word_times import FRAME_SAMPLES, MAX_FRAMES

SECOND = np.full(24_000, 0.1, np.float32)


def heard(text: str, seconds: int = 1, speed: float = 1.0) -> WordStamps:
    stamps = WordStamps(text, speed)
    for _ in range(seconds):
        stamps.feed(SECOND)
    return stamps


def test_words_divide_the_sound() -> None:
    assert heard("aaaa, bbbb").stamps() == [
        {"word": "aaaa", "start_ms": 0, "end_ms": 500},
        {"word": "bbbb", "start_ms": 500, "end_ms": 1_000},
    ]


@pytest.mark.parametrize(("speed", "end_ms"), [(0.25, 8_000), (1.0, 2_000), (2.0, 1_000), (4.0, 500)])
def test_a_faster_file_has_earlier_words(speed: float, end_ms: int) -> None:
    first, second = heard("aaaa, bbbb", 2, speed).stamps() or []
    assert (first["start_ms"], first["end_ms"], second["end_ms"]) == (0, end_ms // 2, end_ms)


def test_silence_and_marks_have_no_words() -> None:
    silent = WordStamps("Some words.")
    silent.feed(np.zeros(24_000, np.float32))
    assert silent.stamps() == []
    assert heard("...").stamps() == []
    assert WordStamps("Nothing yet.").stamps() == []


def test_sound_beyond_what_is_looked_at_fails() -> None:
    """Squeezed into the part that was looked at, the times would be wrong."""
    stamps = WordStamps("word " * 3_000)
    minute = np.full(60 * 24_000, 0.1, np.float32)
    for _ in range(MAX_FRAMES * FRAME_SAMPLES // len(minute)):
        stamps.feed(minute)
    assert stamps.stamps() is not None
    stamps.feed(SECOND)
    assert stamps.stamps() is None


def test_an_aligner_that_fails_is_no_more_than_a_null(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("of the text: secret")

    monkeypatch.setattr(word_stamps, "word_times", broken)
    stamps = heard("Some words.").stamps()
    assert stamps is None
    assert stamp_headers(stamps) == {}
    assert ChunkEvents().last(stamps)["timestamps"] is None


# ---------------------------------------------------------------- headers
def test_a_header_is_ascii_whatever_the_words_are() -> None:
    stamps = heard("Größe 你好 мир").stamps()
    (name, value), *rest = stamp_headers(stamps).items()
    assert (name, rest) == ("x-word-timestamps", [])
    assert value.isascii()
    assert json.loads(value) == stamps
    assert stamp_headers([]) == {"x-word-timestamps": "[]"}


@given(st.integers(0, 40))
def test_a_long_list_is_told_by_its_length(over: int) -> None:
    stamp = {"word": "", "start_ms": 0, "end_ms": 0}
    room = MAX_HEADER_BYTES - len(json.dumps([stamp], separators=(",", ":")))
    headers = stamp_headers([{**stamp, "word": "a" * (room - 20 + over)}])
    size = MAX_HEADER_BYTES - 20 + over
    if size <= MAX_HEADER_BYTES:
        assert len(headers["x-word-timestamps"]) == size
    else:
        assert headers == {"x-word-timestamps-omitted": f"oversize; bytes={size}; limit=4096"}


# ---------------------------------------------------------------- chunks
@given(st.lists(st.integers(1, 5_000), max_size=8))
def test_chunks_follow_one_another_and_the_last_spans_them(lengths: list[int]) -> None:
    events = ChunkEvents()
    pieces = [bytes(2 * length) for length in lengths]
    made = [events.audio(piece) for piece in pieces]
    last = events.last([])
    assert [event["chunk_id"] for event in [*made, last]] == list(range(len(made) + 1))
    assert [base64.b64decode(event["audio_b64"]) for event in made] == pieces
    starts, ends = [e["chunk_start_ms"] for e in made], [e["chunk_end_ms"] for e in made]
    assert starts == [0, *ends][: len(starts)]
    assert (last["chunk_start_ms"], last["chunk_end_ms"]) == (0, sum(lengths) // 24)
    assert {event["timestamps"] for event in made} <= {None}
    assert (last["audio_b64"], last["timestamps"]) == ("", [])
