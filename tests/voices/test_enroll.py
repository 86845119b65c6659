"""From a recording to what is encoded of it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from voices.enroll import (
    BEST_S,
    MAX_RECORDING_S,
    MIN_RECORDING_S,
    SILENCE_AFTER_S,
    UnusableClip,
    letters,
    prepared,
)

RATE = 24_000
F32 = NDArray[np.float32]


def speech(*parts: tuple[float, float]) -> F32:
    """Noise of (seconds, level) one after another."""
    chance = np.random.default_rng(1)
    noise = [level * chance.standard_normal(int(seconds * RATE)) for seconds, level in parts]
    return np.concatenate(noise).astype(np.float32)


def test_silence_at_both_ends_goes() -> None:
    clip = prepared(speech((1, 0), (5, 0.05), (2, 0)))
    assert clip.from_s == pytest.approx(0.95, abs=0.03)
    assert clip.to_s == pytest.approx(6.05, abs=0.03)
    assert clip.speech_s == pytest.approx(5, abs=0.05)
    assert clip.level_db == pytest.approx(-26, abs=0.5)
    assert clip.notes == ()
    assert clip.pcm.dtype == np.float32


def test_a_reference_stays_whole_and_silence_follows() -> None:
    clip = prepared(speech((0.5, 0), (12, 0.05), (0.5, 0)), "word " * 30, in_context=True)
    assert len(clip.pcm) / RATE == pytest.approx(12.1 + SILENCE_AFTER_S, abs=0.05)
    assert not clip.pcm[-int(SILENCE_AFTER_S * RATE) :].any()
    assert any("serve best" in note for note in clip.notes)


def test_silence_after_a_reference_stays_within_the_bound() -> None:
    assert len(prepared(speech((29.8, 0.05)), "word " * 80, in_context=True).pcm) == MAX_RECORDING_S * RATE


def test_of_a_long_recording_the_densest_part_between_pauses() -> None:
    sparse = [(0.5, 0.05), (1.5, 0.0)] * 4
    clip = prepared(speech(*sparse, (7, 0.05), (1, 0), *sparse))
    assert BEST_S[0] <= len(clip.pcm) / RATE <= BEST_S[1]
    assert clip.speech_s == pytest.approx(7, abs=0.6)


def test_speech_without_a_pause_is_cut_at_its_longest() -> None:
    assert len(prepared(speech((20, 0.05))).pcm) / RATE == pytest.approx(BEST_S[1], abs=0.02)


@pytest.mark.parametrize(
    ("pcm", "why"),
    [
        (speech((MIN_RECORDING_S - 0.01, 0.05)), "at least 1 s"),
        (speech((MAX_RECORDING_S + 0.01, 0.05)), "at most 30 s"),
        (speech((3, 0)), "silent"),
        (speech((3, 1e-5)), "silent"),
        (speech((2, 0), (0.1, 0.1), (2, 0)), "hardly any speech"),
        (np.full(48_000, np.nan, np.float32), "no mono sound"),
        (np.ones((48_000, 2), np.float32), "no mono sound"),
        (np.zeros(0, np.float32), "at least 1 s"),
    ],
)
def test_what_makes_no_voice(pcm: F32, why: str) -> None:
    with pytest.raises(UnusableClip, match=why) as caught:
        prepared(pcm)
    assert not caught.value.of_text


def test_a_transcript_is_held_against_the_time_it_takes() -> None:
    pcm = speech((4, 0.05))
    assert prepared(pcm, "This is what a person says in about four seconds of time.").notes == ()
    assert "short" in prepared(pcm, "Hi.").notes[0]
    assert "long" in prepared(pcm, "word " * 30).notes[0]
    with pytest.raises(UnusableClip, match="nobody says") as caught:
        prepared(pcm, "word " * 60)
    assert caught.value.of_text


def test_bad_recordings_are_taken_with_a_word() -> None:
    assert any("overdriven" in note for note in prepared(np.clip(speech((5, 2.0)), -1, 1)).notes)
    assert any("quiet" in note for note in prepared(speech((5, 0.003))).notes)
    assert any("of speech" in note for note in prepared(speech((1.5, 0.05))).notes)


def test_letters_of_scripts() -> None:
    assert letters("Ab 1, é!") == 4
    assert letters("你好。") == 6


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.05, 4), st.sampled_from([0.0, 0.01, 0.2])), min_size=1, max_size=8), st.booleans()
)
def test_whatever_comes_is_used_within_bounds_or_refused(parts: list[tuple[float, float]], in_context: bool) -> None:
    pcm = speech(*parts)
    try:
        clip = prepared(pcm, in_context=in_context)
    except UnusableClip:
        return
    length_s = len(clip.pcm) / RATE
    assert 0 <= clip.from_s < clip.to_s <= len(pcm) / RATE
    assert length_s <= (MAX_RECORDING_S if in_context else BEST_S[1] + 0.02)
    silence = int(min(SILENCE_AFTER_S, MAX_RECORDING_S - (clip.to_s - clip.from_s)) * RATE) if in_context else 0
    used = pcm[round(clip.from_s * RATE) : round(clip.to_s * RATE)]
    np.testing.assert_array_equal(clip.pcm[: len(clip.pcm) - silence], used)
    assert 0 < clip.speech_s <= length_s
