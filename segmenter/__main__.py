"""``python -m segmenter``: show how a text on standard input is cut, and when."""

from __future__ import annotations

import argparse
import sys
import time

from segmenter import Segment, SegmentOptions, SegmentStream


class _Display:
    """Prints segments with what had arrived and how long the segmenter had worked when each was certain."""

    def __init__(self, stream: SegmentStream) -> None:
        self._stream = stream
        self._arrived = 0
        self._worked_us = 0.0

    def feed(self, text: str) -> None:
        began = time.perf_counter()
        segments = self._stream.feed(text)
        self._worked_us += (time.perf_counter() - began) * 1e6
        self._arrived += len(text)
        self._show(segments)

    def flush(self) -> None:
        self._show(self._stream.flush())
        sys.stdout.write(f"{self._arrived} characters, language {self._stream.language}\n")

    def _show(self, segments: list[Segment]) -> None:
        for segment in segments:
            span = f"[{segment.start}, {segment.end})"
            timing = f"+{self._arrived - segment.end} chars, {self._worked_us:.0f} us"
            pause = f", pause {segment.pause_after_ms} ms" if segment.pause_after_ms else ""
            sys.stdout.write(f"{segment.index:3} {segment.kind:9} {span:12} {segment.text!r}\n    {timing}{pause}\n")
            if segment.spoken:
                sys.stdout.write(f"    -> {segment.spoken}\n")
        sys.stdout.flush()


def main() -> None:
    """Read standard input, feed it in pieces and print each segment when it is certain.

    "+2 chars" is the look-ahead: what had arrived behind the segment by then.
    """
    parser = argparse.ArgumentParser(prog="python -m segmenter", description=__doc__)
    parser.add_argument("--granularity", choices=("none", "sentence", "clause"), default="sentence")
    parser.add_argument("--language", default="auto")
    parser.add_argument("--max-chars", type=int, default=300)
    parser.add_argument("--chunk", type=int, default=0, help="characters fed at a time; 0: whole lines")
    parser.add_argument("--first-by-clause", action="store_true", help="the first segment may be a clause")
    parser.add_argument("--join-short", action="store_true", help="very short sentences join the next one")
    parser.add_argument("--verbalise", action="store_true", help="numbers and the like as words")
    parser.add_argument("--referee", choices=("none", "pysbd"), default="none")
    arguments = parser.parse_args()
    try:
        options = SegmentOptions(
            granularity=arguments.granularity,
            language=arguments.language,
            first_by_clause=arguments.first_by_clause,
            join_short=arguments.join_short,
            max_chars=arguments.max_chars,
            verbalise=arguments.verbalise,
            referee=arguments.referee,
        )
        display = _Display(SegmentStream(options))
    except ValueError as error:
        parser.error(str(error))
    for line in sys.stdin:
        step = arguments.chunk if arguments.chunk > 0 else len(line)
        for start in range(0, len(line), step):
            display.feed(line[start : start + step])
    display.flush()


if __name__ == "__main__":
    main()
