"""How segments become one stream of sound."""

from __future__ import annotations

import numpy as np
import pytest

from segmenter import Segment, SegmentKind
from sidecar.sounding import Sounding
from voices.pauses import PRE_ROLL_MS, TAIL_MS

SENTENCE = Segment(0, "One. ", "One.", 0, 5, SegmentKind.SENTENCE, 300)


def spoken(ms: int, lead_ms: int = 200, tail_ms: int = 200) -> np.ndarray:
    """A tone with silence before and behind it."""
    sound = 0.2 * np.sin(np.arange(ms * 24) * 0.05)
    return np.concatenate([np.zeros(lead_ms * 24), sound, np.zeros(tail_ms * 24)]).astype(np.float32)


def said(sounding: Sounding, pcm: np.ndarray) -> np.ndarray:
    parts = [sounding.begin()]
    parts += [sounding.feed(pcm[at : at + 1_920]) for at in range(0, len(pcm), 1_920)]
    return np.concatenate([*parts, sounding.end(SENTENCE)])


def test_pauses_are_as_long_as_the_text_asks_whatever_silence_the_engine_adds() -> None:
    sounding = Sounding()
    heard = np.concatenate([said(sounding, spoken(500)), said(sounding, spoken(500, lead_ms=40))])
    loud = np.flatnonzero(np.abs(heard) > 0.01)
    gaps = np.diff(loud)
    assert gaps.max() / 24 == pytest.approx(300, abs=25)
    assert loud[0] / 24 <= PRE_ROLL_MS + 10
    assert (len(heard) - loud[-1]) / 24 <= TAIL_MS + 10


def test_unshaped_the_pauses_are_added_to_what_the_engine_gives() -> None:
    sounding = Sounding(shape_pauses=False)
    first = said(sounding, spoken(500))
    np.testing.assert_array_equal(first, spoken(500))
    assert len(said(sounding, spoken(500))) == len(first) + 300 * 24


def test_a_voice_of_known_level_is_brought_to_the_target() -> None:
    plain = said(Sounding(), spoken(500))
    raised = said(Sounding(target_level_db=-20, level_db=-22), spoken(500))
    assert np.abs(raised).max() == pytest.approx(np.abs(plain).max() * 10 ** (2 / 20), rel=1e-3)
    np.testing.assert_array_equal(said(Sounding(target_level_db=-20), spoken(500)), plain)


def test_joins_that_click_are_smoothed() -> None:
    sounding = Sounding(shape_pauses=False)
    high = np.full(4_800, 0.3, np.float32)
    sounding.begin()
    sounding.feed(high)
    silent = Segment(0, "One", "One", 0, 3, SegmentKind.CLAUSE, 0)
    sounding.end(silent)
    assert len(sounding.begin()) == 0
    assert abs(float(sounding.feed(-high)[0]) - 0.3) < 0.01
