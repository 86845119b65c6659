from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.engines.qwen3_tts.guard import GuardSettings, Loop, LoopGuard


def verdicts(frames: np.ndarray, settings: GuardSettings | None = None) -> list[Loop | None]:
    guard = LoopGuard(settings or GuardSettings())
    return [guard.see(frame) for frame in frames]


def noise(frames: int, seed: int = 0, codes: int = 2_048) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, codes, (frames, 16)).astype(np.int16)


@given(st.integers(0, 2**32 - 1))
def test_speech_like_codes_pass(seed: int) -> None:
    assert not any(verdicts(noise(400, seed)))


def test_few_distinct_codes_without_a_period_pass() -> None:
    assert not any(verdicts(noise(2_000, 3, codes=4)))


@given(st.integers(1, 40), st.integers(0, 60), st.integers(0, 2**32 - 1))
def test_every_period_is_found_when_it_has_come_often_enough(period: int, before: int, seed: int) -> None:
    frames = noise(before + 400, seed)
    loop = noise(period, seed + 1)[:, 0]
    frames[before:, 0] = np.resize(loop, 400)
    found = verdicts(frames)
    at = next(i for i, verdict in enumerate(found) if verdict)
    assert found[at] == "periodic"
    assert at - before <= max(64, 4 * period)
    assert at + 1 >= 64


@pytest.mark.parametrize(("period", "frames"), [(1, 60), (10, 60), (20, 76), (40, 150)])
def test_a_phrase_said_a_few_times_passes(period: int, frames: int) -> None:
    made = noise(200, 5)
    made[50 : 50 + frames, 0] = np.resize(noise(period, 6)[:, 0], frames)
    assert not any(verdicts(made))


def test_frozen_frames_are_found_even_when_some_codes_move() -> None:
    frames = np.repeat(noise(1), 80, axis=0)
    frames[:, :4] = noise(80, 9)[:, :4]
    found = verdicts(frames)
    assert found.index("frozen") == 49


def test_a_pause_of_three_seconds_passes() -> None:
    frames = noise(200)
    frames[100:138] = frames[100]
    assert not any(verdicts(frames))


def test_a_loop_that_ends_in_time_is_forgotten() -> None:
    frames = noise(400, 2)
    for start in (0, 100, 200, 300):
        frames[start : start + 40, 0] = 7
    assert not any(verdicts(frames))


@pytest.mark.parametrize(
    "wrong", [{"max_period": 0}, {"repeats": 1}, {"min_frames": 1}, {"frozen_codes": 17}, {"frozen_frames": 1}]
)
def test_settings_that_make_no_sense(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError):
        GuardSettings(**wrong)
