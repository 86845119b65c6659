"""A megabyte of what segmenters choke on: bounded memory, linear work, nothing lost."""

from __future__ import annotations

import random
import sys
from types import FrameType

import pytest

from segmenter import SegmentOptions, SegmentStream

_ALPHABETS = {
    "brackets": "()[]{}（）【】<>",
    "quotes": "\"'“”„«»‘’「」『』,,``",
    "stars": "*_~`#->+= ",
    "digits": "0123456789.,:-/ %$",
    "combining": "e\u0301\u0308a\u20e3\ufe0f\u200d👍🏽1 ",
    "stops": ". .A.b! ?…。！a ",
    "all": '()[]"“„«*_~`#|<>/\\&$0123.,;:!?…。， \n\t\r-=e\u0301aAzZ漢かह한👍\u200d\ufe0f\ue200【†】',
}
_OPENINGS = ("```\n", "$$\n", "<think>\n")
_PART_CHARS = 100_000
_SAMPLE_CHARS = 20_000


def _text(alphabet: str, length: int) -> str:
    rnd = random.Random(alphabet)
    return "".join(rnd.choices(alphabet, k=length))


@pytest.mark.parametrize("names", [("brackets", "stars", "combining", "all"), ("quotes", "digits", "stops"), ()])
def test_a_megabyte_in_all(names: tuple[str, ...]) -> None:
    """``pending_chars`` counts what is kept: all text that is in no segment. Unclosed blocks are the last three."""
    texts = [_text(_ALPHABETS[name], _PART_CHARS) for name in names]
    if not names:
        texts = [opening + "a. B [x](y) *z* 1.5\n" * (_PART_CHARS // 20) for opening in _OPENINGS]
    for text in texts:
        stream = SegmentStream(SegmentOptions(max_chars=300))
        position = 0
        for start in range(0, len(text), 4_096):
            for segment in stream.feed(text[start : start + 4_096]):
                assert segment.start == position
                assert len(segment.spoken) <= 300
                position = segment.end
            assert stream.pending_chars <= 2_600
        for segment in stream.flush():
            assert segment.start == position
            position = segment.end
        assert position == len(text)


@pytest.mark.parametrize("name", _ALPHABETS)
def test_work_is_linear(name: str) -> None:
    """Calls made for twice the text are no more than 2.3 times as many."""
    text = _text(_ALPHABETS[name], _SAMPLE_CHARS)

    def calls(part: str) -> int:
        count = 0

        def note(frame: FrameType, event: str, argument: object) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        stream = SegmentStream()
        sys.setprofile(note)
        try:
            for start in range(0, len(part), 4):
                stream.feed(part[start : start + 4])
        finally:
            sys.setprofile(None)
        return count

    assert calls(text) <= 2.3 * calls(text[: _SAMPLE_CHARS // 2]) + 1_000
