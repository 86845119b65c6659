"""``python -m segmenter``: show how a text on standard input is cut."""

from __future__ import annotations

import argparse
import sys

from segmenter import Segment, SegmentOptions, SegmentStream


def _show(segments: list[Segment]) -> None:
    for segment in segments:
        span = f"[{segment.start}, {segment.end})"
        sys.stdout.write(f"{segment.index:3} {segment.kind:9} {span:12} {segment.text!r}\n")
        if segment.spoken:
            sys.stdout.write(f"    -> {segment.spoken}\n")
        sys.stdout.flush()


def main() -> None:
    """Read standard input line by line and print each segment when it is certain."""
    parser = argparse.ArgumentParser(prog="python -m segmenter", description=__doc__)
    parser.add_argument("--granularity", choices=("none", "sentence", "clause"), default="sentence")
    parser.add_argument("--language", default="auto")
    parser.add_argument("--max-chars", type=int, default=300)
    arguments = parser.parse_args()
    stream = SegmentStream(
        SegmentOptions(granularity=arguments.granularity, language=arguments.language, max_chars=arguments.max_chars)
    )
    for line in sys.stdin:
        _show(stream.feed(line))
    _show(stream.flush())


if __name__ == "__main__":
    main()
