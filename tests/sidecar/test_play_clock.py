"""How sound that comes in pieces would play."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.play_clock import Arrival, PlayClock

PIECES = st.lists(st.tuples(st.floats(0, 500), st.floats(1, 500)), min_size=1, max_size=30)


def test_a_stretch_that_runs_dry_once() -> None:
    clock = PlayClock()
    assert clock.smooth_start_ms is None
    assert clock.realtime_factor is None
    assert clock.piece(100, 80) == Arrival(None, 0.0, 80.0)
    assert clock.piece(150, 80) == Arrival(50.0, 0.0, 110.0)
    assert clock.piece(300, 80) == Arrival(150.0, 40.0, 80.0)
    assert (clock.first_ms, clock.sound_ms, clock.dry_ms, clock.max_gap_ms) == (100, 240, 40, 150)
    assert clock.smooth_start_ms == 140
    assert clock.realtime_factor == pytest.approx(200 / 240)


@given(PIECES)
def test_starting_at_the_smooth_start_never_runs_dry_and_earlier_does(pieces: list[tuple[float, float]]) -> None:
    clock, at_ms, arrivals = PlayClock(), 0.0, []
    for pause_ms, sound_ms in pieces:
        at_ms += pause_ms
        arrivals.append((at_ms, clock.sound_ms))
        clock.piece(at_ms, sound_ms)
    start_ms = clock.smooth_start_ms
    assert start_ms is not None
    lateness = [came - (start_ms + before) for came, before in arrivals]
    assert max(lateness) == pytest.approx(0, abs=1e-6), "needed as late as this, and no later"
    assert clock.dry_ms == pytest.approx(start_ms - arrivals[0][0], abs=1e-6)
