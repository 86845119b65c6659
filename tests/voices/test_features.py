from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.voices.speech import RATE_HZ, toy_speech
from voices.features import MAX_SEGMENT_S, measure, spectrum_distance_db
from voices.features_clicks import MAX_CLICKS, find_clicks


@pytest.mark.parametrize("pitch_hz", [85, 120, 220, 330])
def test_pitch_is_found(pitch_hz: float) -> None:
    found = measure(toy_speech(2, pitch_hz=pitch_hz)).pitch_st
    assert found == pytest.approx(12 * math.log2(pitch_hz / 50), abs=1.0)


def test_pitch_two_semitones_up_is_two_semitones_up() -> None:
    low, high = (measure(toy_speech(2, pitch_hz=150 * 2 ** (st / 12))).pitch_st for st in (0, 2))
    assert high - low == pytest.approx(2, abs=0.25)


@settings(max_examples=20, deadline=None)
@given(st.floats(-20, 12))
def test_gain_moves_the_level_and_nothing_else(decibels: float) -> None:
    pcm = toy_speech(1.5, level=0.05)
    plain, louder = measure(pcm), measure(pcm * np.float32(10 ** (decibels / 20)))
    assert louder.level_db - plain.level_db == pytest.approx(decibels, abs=0.3)
    assert louder.pitch_st == pytest.approx(plain.pitch_st, abs=0.01)
    assert spectrum_distance_db(plain.spectrum, louder.spectrum) < 0.2


def test_silence_at_the_edges_is_measured_and_not_counted_as_speech() -> None:
    features = measure(toy_speech(2, lead_s=0.3, tail_s=0.5))
    assert features.leading_ms == pytest.approx(300, abs=30)
    assert features.trailing_ms == pytest.approx(500, abs=30)
    assert features.active_s == pytest.approx(2, abs=0.25)
    assert features.duration_s == pytest.approx(2.8)


def test_a_gap_inside_is_found() -> None:
    pcm = np.concatenate((toy_speech(1), np.zeros(9_600, np.float32), toy_speech(1)))
    features = measure(pcm)
    assert features.longest_gap_ms == pytest.approx(400, abs=30)
    assert features.dropout_ms == 0, "a pause that fades is no dropout"


def test_lost_samples_are_told_from_a_pause() -> None:
    pcm = toy_speech(2)
    at = 12_000 + int(np.abs(pcm[12_000:36_000]).argmax())
    cut = np.concatenate((pcm[:at], np.zeros(7_200, np.float32), pcm[at:]))
    assert measure(cut).dropout_ms == pytest.approx(300, abs=1)


def test_other_formants_are_another_timbre() -> None:
    own = [measure(toy_speech(3, seed=seed)).spectrum for seed in range(2)]
    other = measure(toy_speech(3, formants_hz=(400.0, 1_900.0, 3_200.0))).spectrum
    assert spectrum_distance_db(own[0], other) > 3 * spectrum_distance_db(own[0], own[1])


@pytest.mark.parametrize("samples", [0, 1, 100, 239, 241, 1_920])
def test_next_to_nothing_is_measured_without_a_word(samples: int) -> None:
    features = measure(np.zeros(samples, np.float32))
    assert features.active_s == 0
    assert features.level_db == -120
    assert features.duration_s == samples / RATE_HZ
    assert features.spectrum.frames == 0


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 12_000), st.floats(0, 1))
def test_noise_of_any_length_and_level_gives_finite_figures(seed: int, samples: int, level: float) -> None:
    pcm = np.random.default_rng(seed).uniform(-level, level, samples).astype(np.float32)
    features = measure(pcm)
    assert 0 <= features.active_s <= features.duration_s + 0.01
    assert np.isfinite(features.spectrum.shape_db).all()
    assert np.isfinite([features.level_db, features.leading_ms, features.trailing_ms, features.longest_gap_ms]).all()


def test_of_a_segment_without_end_only_the_first_minute_is_measured() -> None:
    features = measure(np.tile(toy_speech(2), 40))
    assert features.duration_s == 80
    assert features.active_s <= MAX_SEGMENT_S


@pytest.mark.parametrize(
    "pcm", [np.zeros((2, 100), np.float32), np.zeros(100, np.int16), np.array([0.0, np.nan]), np.array([np.inf])]
)
def test_what_is_no_mono_sound_is_refused(pcm: np.ndarray) -> None:
    with pytest.raises(ValueError, match="samples must be"):
        measure(pcm)


# ---------------------------------------------------------------- clicks
@settings(max_examples=30, deadline=None)
@given(st.integers(50, 23_000), st.sampled_from([-1, 1]), st.sampled_from([1, 24_000]))
def test_a_step_in_soft_speech_is_found_where_it_is(at: int, sign: int, length: int) -> None:
    pcm = toy_speech(1, level=0.02)
    pcm[at : at + length] += np.float32(0.3 * sign)
    assert [click.at_sample for click in find_clicks(pcm)][:1] == [at]


def test_speech_has_no_clicks() -> None:
    assert find_clicks(toy_speech(3, level=0.2)) == ()


def test_clicks_are_bounded() -> None:
    pcm = np.zeros(24_000, np.float32)
    pcm[::200] = 0.5
    assert len(find_clicks(pcm)) == MAX_CLICKS
