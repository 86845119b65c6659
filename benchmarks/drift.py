"""The drift meters on real voices: false alarms on clean dialogs, faults found, other voices told apart, cost.

    python -m benchmarks.drift [--dialogs 200] [--voices heart pico-en-gb espeak:en-gb]

Each voice is calibrated on sentences of its own; everything else is measured on sentences that calibration has not
seen. Dialogs are drawn from those at random. ``espeak:`` voices need espeak-ng on the path.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import shutil
import subprocess
import time
import tracemalloc
import wave
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import soxr

from benchmarks.figures import machine
from sidecar.drift_texts import dialog
from tests.voices.drift_faults import Said, faster, higher, interrupted, louder, said_by, stepped
from voices.drift import MAX_RECORDS, DialogDrift, Take
from voices.drift_calibrate import CleanSegment, calibrate
from voices.drift_limits import DriftLimits
from voices.drift_meters import timbre_distance
from voices.features import EMPTY_SPECTRUM, Features, measure

CALIBRATED, FRESH = 150, 150
SEGMENTS, FAULT_AT = 24, 10
PAUSE_MS = 310.0
FAULT_DIALOGS = 12


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    meter: str
    spoil: Callable[[Said], Said] | None
    lasts: bool = False
    pause_ms: float = PAUSE_MS


FAULTS = (
    Fault("level +6 dB, one segment", "V6", lambda said: Said(said.text, louder(said.pcm, 6))),
    Fault("pitch +2 st, one segment", "V4", lambda said: Said(said.text, higher(said.pcm, 2))),
    Fault("pitch +2 st, from there on", "V4", lambda said: Said(said.text, higher(said.pcm, 2)), lasts=True),
    Fault("pace +15 %, one segment", "V8", lambda said: Said(said.text, faster(said.pcm, 1.15))),
    Fault("pace +15 %, from there on", "V8", lambda said: Said(said.text, faster(said.pcm, 1.15)), lasts=True),
    Fault("one-sample step at a join", "V10", lambda said: Said(said.text, stepped(said.pcm, 0.1))),
    Fault("400 ms more at a join", "V11", None, pause_ms=PAUSE_MS + 400),
    Fault("400 ms lost inside", "V11", lambda said: Said(said.text, interrupted(said.pcm, 400))),
)


def say(voice: str, texts: Sequence[str]) -> list[Said]:
    if not voice.startswith("espeak:"):
        return said_by(voice, texts)
    said = []
    for text in texts:
        command = ["espeak-ng", "-v", voice.removeprefix("espeak:"), "--stdout", text]
        raw = subprocess.run(command, capture_output=True, check=True).stdout
        with wave.open(io.BytesIO(raw)) as file:
            rate_hz = file.getframerate()
        pcm = np.frombuffer(raw[44:], "<i2").astype(np.float32) / np.float32(32_768)
        said.append(Said(text, soxr.resample(pcm, rate_hz, 24_000).astype(np.float32)))
    return said


class Voice:
    """A voice with the limits fitted to one half of its sentences, and the other half."""

    def __init__(self, name: str) -> None:
        texts = list(dict.fromkeys(dialog(7, 3 * (CALIBRATED + FRESH))))[: CALIBRATED + FRESH]
        said = say(name, texts)
        started_s = time.process_time()
        measured = [(each, measure(each.pcm)) for each in said]
        audio_s = sum(features.duration_s for _, features in measured)
        self.measure_ms_per_s = 1_000 * (time.process_time() - started_s) / audio_s
        self.name = name
        self.limits: DriftLimits = calibrate([CleanSegment(each.text, f) for each, f in measured[:CALIBRATED]])
        self.fresh: list[tuple[Said, Features]] = measured[CALIBRATED:]


def reasons(voice: Voice, limits: DriftLimits, draw: random.Random, fault: Fault | None = None) -> list[set[str]]:
    """The meters that gave a reason, segment by segment, in one dialog."""
    drift = DialogDrift(limits)
    found = []
    for index in range(SEGMENTS):
        said, features = draw.choice(voice.fresh)
        pause_ms = PAUSE_MS
        if fault is not None and (index == FAULT_AT or (fault.lasts and index > FAULT_AT)):
            pause_ms = fault.pause_ms
            if fault.spoil is not None:
                said = fault.spoil(said)
                features = measure(said.pcm)
        judgement = drift.feed(Take(0, index, said.text, features, pause_before_ms=pause_ms))
        found.append({one.meter for one in judgement.reasons})
    return found


def faults_found(voice: Voice) -> dict[str, Any]:
    out = {}
    for fault in FAULTS:
        draw = random.Random(11)
        waits = []
        for _ in range(FAULT_DIALOGS):
            raised = reasons(voice, voice.limits, draw, fault)[FAULT_AT:]
            waits.append(next((index for index, meters in enumerate(raised) if fault.meter in meters), None))
        found = [wait for wait in waits if wait is not None]
        mean = round(sum(found) / len(found), 1) if found else None
        out[fault.name] = {"meter": fault.meter, "found": f"{len(found)}/{len(waits)}", "segments_later": mean}
    return out


def told_apart(voice: Voice, others: Sequence[Voice]) -> dict[str, Any]:
    """AUC and the share over the limits, for the timbre of one segment with at least 2 s of speech."""
    draw = random.Random(13)
    same = [distance for _ in range(10) for distance in _distances(voice, voice.fresh, draw)]
    out = {}
    for other in others:
        if other is not voice:
            theirs = [distance for _ in range(10) for distance in _distances(voice, other.fresh, draw)]
            out[other.name] = {
                "auc": round(auc(same, theirs), 4),
                "watched": round(float(np.mean(np.array(theirs) >= voice.limits.timbre.watch)), 3),
                "rerolled": round(float(np.mean(np.array(theirs) >= voice.limits.timbre.reroll)), 3),
            }
    return out


def _distances(voice: Voice, segments: Sequence[tuple[Said, Features]], draw: random.Random) -> list[float]:
    anchor, used = EMPTY_SPECTRUM, set()
    while anchor.seconds < 12:
        index = draw.randrange(len(voice.fresh))
        used.add(index)
        anchor = anchor.plus(voice.fresh[index][1].spectrum)
    own = segments is voice.fresh
    return [
        timbre_distance(voice.limits.timbre, anchor, features.spectrum, given=False)
        for index, (_, features) in enumerate(segments)
        if features.active_s >= 2 and not (own and index in used)
    ]


def auc(same: Sequence[float], other: Sequence[float]) -> float:
    """Probability that one of ``other`` is larger than one of ``same``."""
    ordered = np.sort(same)
    below, upto = np.searchsorted(ordered, other, "left"), np.searchsorted(ordered, other, "right")
    return float(np.mean((below + upto) / 2 / len(ordered)))


def false_alarms(voice: Voice, limits: DriftLimits, dialogs: int) -> dict[str, Any]:
    draw = random.Random(17)
    alarms = 0
    by_meter: dict[str, int] = {}
    for _ in range(dialogs):
        raised = set().union(*reasons(voice, limits, draw))
        alarms += bool(raised)
        for meter in raised:
            by_meter[meter] = by_meter.get(meter, 0) + 1
    return {"dialogs": dialogs, "with_alarm": alarms, "by_meter": by_meter}


def dialog_kb(voice: Voice) -> float:
    """Memory of the largest dialog there can be."""
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    drift = DialogDrift(voice.limits)
    for index in range(MAX_RECORDS + 10):
        said, features = voice.fresh[index % len(voice.fresh)]
        drift.feed(Take(0, index, said.text, features, pause_before_ms=PAUSE_MS))
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return round((after - before) / 1_024, 0)


def judge_us(voice: Voice) -> float:
    """CPU microseconds of one judgement, the measurement left out."""
    drift = DialogDrift(voice.limits)
    takes = [Take(0, i, said.text, features, PAUSE_MS) for i, (said, features) in enumerate(voice.fresh)]
    started_s = time.process_time()
    for take in takes:
        drift.feed(take)
    return round(1e6 * (time.process_time() - started_s) / len(takes), 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dialogs", type=int, default=200)
    parser.add_argument("--voices", nargs="+", default=["heart", "pico-en-gb", "espeak:en-gb"])
    options = parser.parse_args()
    names = [name for name in options.voices if not name.startswith("espeak:") or shutil.which("espeak-ng")]
    print(machine(), flush=True)
    voices = [Voice(name) for name in names]
    for voice in voices:
        figures = {
            "voice": voice.name,
            "measure_ms_per_audio_s": round(voice.measure_ms_per_s, 2),
            "judge_us_per_segment": judge_us(voice),
            "largest_dialog_kb": dialog_kb(voice),
            "false_alarms": false_alarms(voice, voice.limits, options.dialogs),
            "false_alarms_uncalibrated": false_alarms(voice, DriftLimits(), options.dialogs),
            "faults": faults_found(voice),
            "other_voices": told_apart(voice, voices),
        }
        print(json.dumps(figures, indent=1), flush=True)


if __name__ == "__main__":
    main()
