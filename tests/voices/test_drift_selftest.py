"""The meters on a real voice: quiet on clean dialogs, and every fault raised by its own meter.

The whole form, with 200 clean dialogs of each of several voices, is ``benchmarks/drift.py``.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from sidecar.drift_texts import dialog
from tests.voices.drift_faults import Said, faster, higher, interrupted, louder, said_by, stepped
from voices.drift import DialogDrift, Take
from voices.drift_calibrate import CleanSegment, calibrate
from voices.drift_limits import DriftLimits
from voices.features import Features, measure

CALIBRATED, FRESH = 60, 28


@pytest.fixture(scope="module")
def voice() -> tuple[DriftLimits, list[tuple[Said, Features]]]:
    """Limits of the default voice, and sentences of its that they have not seen."""
    texts = list(dict.fromkeys(dialog(1, 2 * (CALIBRATED + FRESH))))[: CALIBRATED + FRESH]
    measured = [(said, measure(said.pcm)) for said in said_by("heart", texts)]
    known = [CleanSegment(said.text, features) for said, features in measured[:CALIBRATED]]
    return calibrate(known), measured[CALIBRATED:]


def meters_raised(
    limits: DriftLimits,
    segments: list[tuple[Said, Features]],
    draw: random.Random,
    spoil: Callable[[Said], Said] | None = None,
    *,
    pause_ms: float = 310.0,
    last: int = 10,
) -> set[str]:
    """The meters that give a reason in a dialog whose segments 10 ... ``last`` are spoilt."""
    drift = DialogDrift(limits)
    raised: set[str] = set()
    for index in range(24):
        said, features = draw.choice(segments)
        pause = 310.0
        if 10 <= index <= last:
            pause = pause_ms
            if spoil is not None:
                said = spoil(said)
                features = measure(said.pcm)
        judgement = drift.feed(Take(0, index, said.text, features, pause_before_ms=pause))
        raised |= {one.meter for one in judgement.reasons}
    return raised


def test_clean_dialogs_raise_nothing(voice: tuple[DriftLimits, list[tuple[Said, Features]]]) -> None:
    limits, fresh = voice
    draw = random.Random(1)
    alarms = [raised for _ in range(50) if (raised := meters_raised(limits, fresh, draw))]
    assert len(alarms) <= 1, alarms


@pytest.mark.parametrize(
    ("meter", "spoil", "last"),
    [
        ("V6", lambda said: Said(said.text, louder(said.pcm, 6)), 10),
        ("V4", lambda said: Said(said.text, higher(said.pcm, 2)), 23),
        ("V8", lambda said: Said(said.text, faster(said.pcm, 1.15)), 23),
        ("V10", lambda said: Said(said.text, stepped(said.pcm, 0.3)), 10),
        ("V11", lambda said: Said(said.text, interrupted(said.pcm, 400)), 10),
    ],
    ids=["level +6 dB", "pitch +2 st", "pace +15 %", "step", "gap inside"],
)
def test_a_fault_is_raised_by_its_own_meter(
    voice: tuple[DriftLimits, list[tuple[Said, Features]]],
    meter: str,
    spoil: Callable[[Said], Said],
    last: int,
) -> None:
    limits, fresh = voice
    draw = random.Random(2)
    for _ in range(3):
        assert meter in meters_raised(limits, fresh, draw, spoil, last=last)


def test_a_long_pause_at_a_join_is_raised(voice: tuple[DriftLimits, list[tuple[Said, Features]]]) -> None:
    limits, fresh = voice
    assert "V11" in meters_raised(limits, fresh, random.Random(3), pause_ms=710.0)


def test_another_voice_in_one_segment_is_raised(voice: tuple[DriftLimits, list[tuple[Said, Features]]]) -> None:
    pytest.importorskip("py_nanotts", reason="the second voice comes from py-nanotts (Linux only)")
    limits, fresh = voice
    others = said_by("pico-en-gb", [said.text for said, features in fresh if features.active_s >= 2.5][:5])
    draw = random.Random(4)
    for other in others:
        assert "V7" in meters_raised(limits, fresh, draw, lambda _, other=other: other)
