"""Short ways to run the segmenter in tests."""

from __future__ import annotations

from collections.abc import Iterable

from segmenter import Segment, SegmentOptions, SegmentStream

SENTENCES = SegmentOptions(first_by_clause=False)
CLAUSES = SegmentOptions(granularity="clause")


def run(parts: Iterable[str], options: SegmentOptions = SENTENCES) -> list[Segment]:
    stream = SegmentStream(options)
    segments = [segment for part in parts for segment in stream.feed(part)]
    return segments + stream.flush()


def spoken(text: str, options: SegmentOptions = SENTENCES) -> list[str]:
    """What is said, after checking that single characters and the whole text give the same segments."""
    segments = run(text, options)
    assert segments == run([text], options)
    assert "".join(segment.text for segment in segments) == text
    return [segment.spoken for segment in segments if segment.spoken]
