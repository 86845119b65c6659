"""Pauses, seams and the gain of a dialog."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.voices.speech import toy_speech
from voices.level import MAX_GAIN_DB, DialogGain
from voices.pauses import PRE_ROLL_MS, TAIL_MS, EdgeTrimmer, missing_pause_ms, target_pause_ms
from voices.seams import AUDIBLE_STEP, SMOOTHING_SAMPLES, SeamSmoother

Pcm = np.ndarray


def pieces(pcm: Pcm, sizes: list[int]) -> list[Pcm]:
    out, at = [], 0
    while at < len(pcm):
        size = sizes[len(out) % len(sizes)]
        out.append(pcm[at : at + size])
        at += size
    return out


# ---------------------------------------------------------------- pauses
@pytest.mark.parametrize(
    ("text", "ms"),
    [("Yes.", 400), ("Really?“", 400), ("First,", 200), ("Namely:", 300), ("and then", 60), ("好。", 400), ("", 60)],
)
def test_pauses_follow_the_punctuation(text: str, ms: int) -> None:
    assert target_pause_ms(text) == ms
    assert target_pause_ms(text, paragraph_ends=True) > 400


def test_what_is_there_is_not_added_again() -> None:
    assert missing_pause_ms(400, 30) == 400 - 30 - PRE_ROLL_MS
    assert missing_pause_ms(60, 240) == 0


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 5_000), min_size=1, max_size=5), st.floats(0, 0.8), st.floats(0, 0.8))
def test_trimming_keeps_what_sounds_whatever_the_chunks(sizes: list[int], lead_s: float, tail_s: float) -> None:
    pcm = toy_speech(0.8, lead_s=lead_s, tail_s=tail_s)
    trimmer = EdgeTrimmer()
    parts = [trimmer.feed(part) for part in pieces(pcm, sizes)]
    out = np.concatenate([*parts, trimmer.finish()])
    dropped = round(trimmer.dropped_lead_ms * 24)
    kept = out[: max(0, int((lead_s + 0.8) * 24_000) - dropped)]
    assert np.array_equal(kept[: -TAIL_MS * 24], pcm[dropped : dropped + len(kept)][: -TAIL_MS * 24])
    assert trimmer.dropped_lead_ms == pytest.approx(max(0, lead_s * 1_000 - PRE_ROLL_MS), abs=40)
    assert len(out) <= len(pcm)
    assert out[-1] == pytest.approx(0, abs=1e-3)


def test_an_inner_pause_is_untouched() -> None:
    pcm = np.concatenate((toy_speech(0.5), np.zeros(12_000, np.float32), toy_speech(0.5)))
    trimmer = EdgeTrimmer()
    out = np.concatenate([*(trimmer.feed(part) for part in pieces(pcm, [1_920])), trimmer.finish()])
    assert np.array_equal(out[:-1_440], pcm[round(trimmer.dropped_lead_ms * 24) :][: len(out) - 1_440])


def test_a_segment_without_sound_comes_out_empty() -> None:
    trimmer = EdgeTrimmer()
    assert sum(len(trimmer.feed(np.zeros(1_920, np.float32))) for _ in range(20)) + len(trimmer.finish()) == 0


def test_silence_is_held_back_only_so_long() -> None:
    trimmer = EdgeTrimmer(hold_ms=100)
    spoken = len(trimmer.feed(toy_speech(0.5)))
    flowed = sum(len(trimmer.feed(np.zeros(1_920, np.float32))) for _ in range(20))
    assert spoken + flowed >= 12_000 + 20 * 1_920 - 2_400 - 240
    trimmer.finish()
    assert trimmer.tail_ms > 1_000


# ---------------------------------------------------------------- seams
def test_a_click_at_a_join_goes_and_nothing_moves() -> None:
    smoother = SeamSmoother()
    first = toy_speech(0.3, level=0.05)
    second = toy_speech(0.3, level=0.05) + np.float32(0.2)
    smoother.feed(first)
    smoother.join()
    out = smoother.feed(second)
    assert smoother.smoothed == 1
    assert abs(out[0] - first[-1]) <= AUDIBLE_STEP
    assert np.abs(np.diff(out[:400])).max() < 0.02
    assert np.array_equal(out[SMOOTHING_SAMPLES:], second[SMOOTHING_SAMPLES:])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 700), min_size=1, max_size=5), st.floats(-0.4, 0.4))
def test_smoothing_does_not_depend_on_the_chunks(sizes: list[int], offset: float) -> None:
    second = toy_speech(0.1, level=0.05) + np.float32(offset)
    outs = []
    for cut in ([10_000], sizes):
        smoother = SeamSmoother()
        smoother.feed(toy_speech(0.1))
        smoother.join()
        # The step is judged from the first 24 samples: the first chunk has at least those.
        parts = [second[:24], *pieces(second[24:], cut)]
        outs.append(np.concatenate([smoother.feed(part) for part in parts]))
    np.testing.assert_allclose(outs[0], outs[1], atol=1e-6)


def test_a_clean_join_passes_bit_for_bit() -> None:
    smoother = SeamSmoother()
    pcm = toy_speech(0.5)
    assert smoother.feed(pcm) is pcm
    smoother.join()
    pause = np.zeros(2_400, np.float32)
    assert smoother.feed(pause) is pause
    assert smoother.smoothed == 0


def test_speech_cut_off_into_a_pause_fades() -> None:
    smoother = SeamSmoother()
    smoother.feed(np.full(100, 0.3, np.float32) + toy_speech(0.1)[:100])
    smoother.join()
    out = smoother.feed(np.zeros(2_400, np.float32))
    assert np.abs(np.diff(out)).max() < 0.01
    assert not out[SMOOTHING_SAMPLES:].any()


# ---------------------------------------------------------------- level
@pytest.mark.parametrize(("level_db", "gain_db"), [(-22, 2), (-20, 0), (-17, -3), (-40, 3), (0, -3)])
def test_a_voice_has_one_gain_within_bounds(level_db: float, gain_db: float) -> None:
    assert DialogGain(-20, level_db).gain_db == gain_db
    assert abs(gain_db) <= MAX_GAIN_DB


def test_a_quiet_voice_is_raised_and_never_clips() -> None:
    pcm = np.clip(toy_speech(1, level=0.3), -0.98, 0.98)
    louder = DialogGain(-20, -21).apply(pcm)
    assert np.abs(louder).max() < 1
    quiet = np.abs(pcm) < 0.5
    assert louder[quiet] == pytest.approx(pcm[quiet] * 10 ** (1 / 20), rel=1e-4)


def test_pieces_are_raised_like_the_whole() -> None:
    pcm, gain = toy_speech(0.5), DialogGain(-20, -23)
    np.testing.assert_array_equal(np.concatenate([gain.apply(part) for part in pieces(pcm, [777])]), gain.apply(pcm))


def test_without_a_gain_the_samples_pass_through() -> None:
    pcm = toy_speech(0.1)
    assert DialogGain(-20, -20).apply(pcm) is pcm


@pytest.mark.parametrize("arguments", [(1.0, -20.0), (-80.0, -20.0), (-20.0, float("nan"))])
def test_senseless_levels_are_refused(arguments: tuple[float, float]) -> None:
    with pytest.raises(ValueError):
        DialogGain(*arguments)
