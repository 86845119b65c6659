from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.llm.sse import SseEvent, SseParser
from sidecar.faults import UpstreamBroken


def parse(*chunks: bytes, finish: bool = False, **limits: int) -> tuple[list[SseEvent], bool]:
    """The events, and whether a fault came after them."""
    parser = SseParser(**limits)
    events: list[SseEvent] = []
    try:
        for chunk in chunks:
            events.extend(parser.feed(chunk))
        if finish:
            events.extend(parser.finish())
    except UpstreamBroken:
        return events, True
    return events, False


def data_of(*chunks: bytes, finish: bool = False) -> list[str]:
    events, fault = parse(*chunks, finish=finish)
    assert not fault
    return [event.data for event in events]


def cut(raw: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(raw) + 1) for place in places})
    return [raw[start:end] for start, end in zip([0, *ends], [*ends, len(raw)], strict=True)]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"data: a\n\n", ["a"]),
        (b"data:a\n\n", ["a"]),
        (b"data:  a \n\n", [" a "]),
        (b"data: a\r\n\r\n", ["a"]),
        (b"data: a\r\rdata: b\r\r", ["a", "b"]),
        (b"data: a\n\r\n", ["a"]),
        (b"data: a\r\n\n", ["a"]),
        (b"data: a\ndata: b\n\n", ["a\nb"]),
        (b"data\n\n", [""]),
        (b"data:\n\n", [""]),
        (b"data\ndata\n\n", ["\n"]),
        (b": comment\n\ndata: a\n: comment\n\n", ["a"]),
        (b"\n\n\r\n\rdata: a\n\n", ["a"]),
        (b"event: x\n\ndata: a\n\n", ["a"]),
        (b"id: 1\nretry: 10\nfoo: bar\ndata: a\n\n", ["a"]),
        (b'{"error": 1}\n\ndata: a\n\n', ["a"]),
        (b"\xef\xbb\xbfdata: a\n\n", ["a"]),
        (b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\ndata: b\n\n", ["b"]),
        (b" data: a\n\n", []),
        (b"data: \xff\xc3\n\n", ["��"]),
        (b"data: \x00\n\n", ["\x00"]),
        (b"data: a: b\n\n", ["a: b"]),
        (b"data: a\n", []),
        (b"data: a", []),
    ],
)
def test_lines_are_read_as_the_standard_says(raw: bytes, expected: list[str]) -> None:
    assert data_of(raw) == expected


def test_event_names_hold_for_one_event_and_ids_for_all_after() -> None:
    events, _ = parse(b"event: error\nid: 7\ndata: a\n\ndata: b\n\nid: x\0y\ndata: c\n\nid\ndata: d\n\n")
    assert events == [
        SseEvent("a", "error", "7"),
        SseEvent("b", "message", "7"),
        SseEvent("c", "message", "7"),
        SseEvent("d", "message", ""),
    ]


@pytest.mark.parametrize("raw", [b"data: a\n\ndata: b", b"data: a\n\ndata: b\n", b"data: a\n\ndata: b\r"])
def test_finish_gives_the_last_event_without_its_line_ends(raw: bytes) -> None:
    assert data_of(raw) == ["a"]
    assert data_of(raw, finish=True) == ["a", "b"]


def test_an_event_is_out_as_soon_as_its_last_byte_is_in() -> None:
    parser = SseParser()
    assert list(parser.feed(b"data: a\r")) == []
    assert [event.data for event in parser.feed(b"\r")] == ["a"]
    assert list(parser.feed(b"\n")) == []
    assert [event.data for event in parser.feed(b"data: b\n\n")] == ["b"]


LINES = st.sampled_from(
    [b"data: Gr\xc3\xbc\xc3\x9fe", b"data:", b"data", b": ping", b"event: error", b"id: 3", b"retry: 5", b"", b"", b"x"]
)
STREAMS = st.lists(st.tuples(LINES | st.binary(max_size=12), st.sampled_from([b"\n", b"\r", b"\r\n"])), max_size=30)


@given(STREAMS, st.lists(st.integers(0, 2_000), max_size=12))
def test_any_cut_gives_the_same_events(lines: list[tuple[bytes, bytes]], places: list[int]) -> None:
    raw = b"".join(line + end for line, end in lines)
    whole = parse(raw, finish=True)
    assert parse(*cut(raw, places), finish=True) == whole
    assert parse(*(raw[at : at + 1] for at in range(len(raw))), finish=True) == whole


@given(st.binary(max_size=600), st.lists(st.integers(0, 600), max_size=8), st.integers(1, 40))
def test_random_bytes_end_in_events_or_a_fault_wherever_they_are_cut(raw: bytes, places: list[int], limit: int) -> None:
    events, fault = parse(raw, finish=True, max_line_bytes=limit)
    assert parse(*cut(raw, places), finish=True, max_line_bytes=limit) == (events, fault)
    assert all(len(event.data.encode()) <= 3 * limit for event in events)


@given(st.lists(st.text(alphabet=st.characters(exclude_characters="\r\n", codec="utf-8"), max_size=20), max_size=10))
def test_what_was_written_is_read(texts: list[str]) -> None:
    raw = "".join(f"data: {text}\n\n" for text in texts).encode()
    assert data_of(raw) == texts


def test_limits_are_exact_and_events_before_them_come_out() -> None:
    assert parse(b"data: abc\n\n", max_line_bytes=9) == ([SseEvent("abc")], False)
    assert parse(b"data: a\n\ndata: abcd\n\n", max_line_bytes=9) == ([SseEvent("a")], True)
    two = b"data: ab\ndata: cd\n\n"
    assert parse(two, max_event_bytes=5) == ([SseEvent("ab\ncd")], False)
    assert parse(two, max_event_bytes=4) == ([], True)


@pytest.mark.parametrize(
    "chunk", [b"x" * 65_536, b"data:\n" * 10_000, b": " + b"c" * 65_000], ids=["line", "event", ":"]
)
def test_endless_input_ends_in_a_fault_with_bounded_memory(chunk: bytes) -> None:
    parser = SseParser(max_line_bytes=100_000)
    tracemalloc.start()
    try:
        with pytest.raises(UpstreamBroken):
            assert [event for _ in range(1_000) for event in parser.feed(chunk)] == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # An event of empty lines costs a list slot of 8 bytes for each byte that counts, besides what is being parsed.
    assert peak < 8_000_000


def test_blank_lines_and_comments_never_add_up() -> None:
    parser = SseParser(max_line_bytes=64)
    for _ in range(2_000):
        assert list(parser.feed(b": ping\n\nevent: a\nid: b\n\n")) == []
