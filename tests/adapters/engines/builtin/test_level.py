from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.engines.builtin.level import fade_out, levelled
from sidecar.ports import FRAME_SAMPLES, SAMPLE_RATE_HZ, Pcm


def tone(samples: int, amplitude: float) -> Pcm:
    wave: Pcm = (np.sin(np.arange(samples) * (2 * np.pi * 440 / SAMPLE_RATE_HZ)) * amplitude).astype(np.float32)
    return wave


def silence(ms: int) -> Pcm:
    return np.zeros(SAMPLE_RATE_HZ * ms // 1000, np.float32)


def test_edges_are_cut() -> None:
    pcm = levelled([np.concatenate([silence(400), tone(24_000, 0.3), silence(500)])], 0.0, 0)
    loud = np.flatnonzero(np.abs(pcm) > 0.01)
    assert loud[0] <= SAMPLE_RATE_HZ * 25 // 1000
    assert len(pcm) - loud[-1] <= SAMPLE_RATE_HZ * 150 // 1000


@pytest.mark.parametrize("gain_db", [-12.0, 0.0, 6.0])
def test_gain_is_exact_below_the_knee(gain_db: float) -> None:
    pcm = levelled([tone(24_000, 0.2)], gain_db, 0)
    assert np.abs(pcm).max() == pytest.approx(0.2 * 10 ** (gain_db / 20), rel=1e-2)


@given(st.floats(0.01, 50), st.integers(1, 30_000), st.integers(0, 5_000))
def test_never_clips_and_fills_whole_frames(amplitude: float, samples: int, pause: int) -> None:
    pcm = levelled([tone(samples, amplitude)], 6.0, pause)
    assert pcm.dtype == np.float32
    assert len(pcm) % FRAME_SAMPLES == 0
    assert len(pcm) == 0 or np.abs(pcm).max() < 1
    if len(pcm) and pause:
        assert not pcm[-pause:].any()


def test_silence_is_empty() -> None:
    assert len(levelled([silence(500)], 6.0, 100)) == 0
    assert len(levelled([], 6.0, 100)) == 0


def test_fade_ends_in_silence_and_keeps_the_rest() -> None:
    pcm = tone(4_800, 0.5)
    faded = fade_out(pcm)
    assert faded[-1] == 0
    assert np.array_equal(faded[:-240], pcm[:-240])
    assert len(fade_out(pcm[:0])) == 0
