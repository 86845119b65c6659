"""The figures of a whole dialog: the meters V1 to V13 with their gates, and one row for each segment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voices.drift import DialogDrift, Record

REPORT_FORM = "sidecar-drift-report-1"

_SLOPE_MIN_MIN = 1.0


@dataclass(frozen=True, slots=True)
class Gate:
    """One meter of the whole dialog. ``ok`` is None where there is too little to say, or no limit (no ``wanted``)."""

    meter: str
    name: str
    value: float | None
    unit: str
    wanted: str
    ok: bool | None
    count: int


@dataclass(frozen=True, slots=True)
class DriftReport:
    """What a dialog sounded like. Holds neither text nor audio. ``segments`` counts all, ``rows`` the last ones."""

    segments: int
    verdicts: dict[str, int]
    gates: tuple[Gate, ...]
    rows: tuple[Record, ...]

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values; numbers that are not finite become null."""
        return {
            "form": REPORT_FORM,
            "segments": self.segments,
            "verdicts": self.verdicts,
            "meters": [
                {
                    "id": one.meter,
                    "name": one.name,
                    "value": _rounded(one.value),
                    "unit": one.unit,
                    "wanted": one.wanted,
                    "ok": one.ok,
                    "count": one.count,
                }
                for one in self.gates
            ],
            "rows": [_row(each) for each in self.rows],
        }


def report_of(drift: DialogDrift) -> DriftReport:
    """The report of a dialog so far."""
    rows = tuple(drift.records)
    gates = (
        *_identity(drift, rows),
        *_prosody(drift, rows),
        *_seams(drift, rows),
    )
    return DriftReport(drift.segments, {str(verdict): n for verdict, n in drift.counts.items()}, gates, rows)


def _identity(drift: DialogDrift, rows: Sequence[Record]) -> list[Gate]:
    limits = drift.limits
    cosines = [(row.at_s, value) for row in rows if (value := row.judgement.readings.get("identity")) is not None]
    values = [value for _, value in cosines]
    slope = theil_sen([(at_s / 60, value) for at_s, value in cosines])
    long_enough = bool(cosines) and cosines[-1][0] - cosines[0][0] >= 60 * _SLOPE_MIN_MIN
    spread = _spread(drift)
    timbre = _readings(rows, "timbre_distance")
    watch = drift.timbre.allowed[0]
    unit = "dB" if limits.timbre.whitening is None else "deviations"
    return [
        _least("V1", "identity_p5", _percentile(values, 5), limits.identity_watch, "cosine", len(values)),
        _least("V1", "identity_min", min(values, default=None), limits.identity_reroll, "cosine", len(values)),
        _least("V2", "identity_slope", slope if long_enough else None, -0.01, "per minute", len(values)),
        _most("V3", "identity_spread", spread, 0.10, "1 - cosine", drift.embeddings),
        _most("V7", "timbre_distance_p95", _percentile(timbre, 95), watch, unit, len(timbre)),
    ]


def _spread(drift: DialogDrift) -> float | None:
    """1 - mean cosine over all pairs of unit embeddings, from their sum alone."""
    n = drift.embeddings
    if n < 2:
        return None
    return 1 - (float(drift.embedding_sum @ drift.embedding_sum) - n) / (n * (n - 1))


def _prosody(drift: DialogDrift, rows: Sequence[Record]) -> list[Gate]:
    spoken = [row for row in rows if row.active_s >= 0.3]
    pitch = _centred([row.pitch_st for row in spoken])
    level = _centred([row.level_db for row in spoken])
    pace = _centred([row.pace for row in spoken])
    steps = np.abs(np.diff(level))
    ranges = [row.pitch_range_st for row in spoken if math.isfinite(row.pitch_range_st)]
    usual_range = drift.anchor.pitch_range_st or _percentile(ranges, 50)
    ratios = [math.log2(each / usual_range) for each in ranges if each > 0] if usual_range else []
    ratio = _percentile(np.abs(ratios), 90)
    trend = _thirds(pace)
    frames = _readings(rows, "frames_per_token")
    return [
        _most("V4", "pitch_offset_p90", _percentile(np.abs(pitch), 90), 3.0, "semitones", len(pitch)),
        _most("V5", "pitch_range_p90", None if ratio is None else 2**ratio, 2.0, "times", len(ratios)),
        _most("V6", "level_offset_p90", _percentile(np.abs(level), 90), 2.5, "dB", len(level)),
        _most("V6", "level_step_max", float(steps.max()) if len(steps) else None, 6.0, "dB", len(steps)),
        _most("V8", "pace_offset_p90", _percent(_percentile(np.abs(pace), 90)), 25.0, "%", len(pace)),
        _most("V8", "pace_trend", None if trend is None else abs(_percent(trend) or 0.0), 8.0, "%", len(pace)),
        Gate("V9", "frames_per_token_p50", _percentile(frames, 50), "frames", "", None, len(frames)),
    ]


def _seams(drift: DialogDrift, rows: Sequence[Record]) -> list[Gate]:
    clicks = sum(one.meter == "V10" for row in rows for one in row.judgement.reasons)
    off_ms = _readings(rows, "seam_pause")
    leading = [row.leading_ms for row in rows if row.active_s]
    steps = [row.pitch_step_st for row in rows if row.pitch_step_st is not None]
    timbre = [row.seam_timbre_db for row in rows if row.seam_timbre_db is not None]
    inside = drift.limits.inside_pitch_step_st
    middle = _percentile(steps, 50)
    ratio = middle / inside if middle is not None and inside > 0 else None
    return [
        _most("V10", "clicks", float(clicks), 0.0, "clicks", len(rows)),
        _most("V11", "seam_pause_p50", _percentile(np.abs(off_ms), 50), 60.0, "ms", len(off_ms)),
        _most("V11", "seam_pause_p95", _percentile(np.abs(off_ms), 95), 200.0, "ms", len(off_ms)),
        _most("V11", "leading_silence_p95", _percentile(leading, 95), 80.0, "ms", len(leading)),
        Gate("V12", "seam_f0_ratio", ratio, "times", "", None, len(steps)),
        Gate("V13", "seam_timbre_p95", _percentile(timbre, 95), "dB", "", None, len(timbre)),
    ]


def theil_sen(points: Sequence[tuple[float, float]]) -> float | None:
    """Median slope over all pairs of points with different abscissae (Sen 1968); None if there are none."""
    if len(points) < 2:
        return None
    x, y = np.array(points, dtype=np.float64).T
    i, j = np.triu_indices(len(x), 1)
    apart = x[j] != x[i]
    return float(np.median((y[j] - y[i])[apart] / (x[j] - x[i])[apart])) if apart.any() else None


def _thirds(values: NDArray[np.float64]) -> float | None:
    """Mean of the last third minus that of the first."""
    third = len(values) // 3
    return float(values[-third:].mean() - values[:third].mean()) if third >= 2 else None


def _centred(values: Sequence[float]) -> NDArray[np.float64]:
    finite = np.array([each for each in values if math.isfinite(each)])
    return finite - np.median(finite) if len(finite) else finite


def _readings(rows: Sequence[Record], name: str) -> list[float]:
    return [value for row in rows if (value := row.judgement.readings.get(name)) is not None]


def _percentile(values: Sequence[float] | NDArray[np.float64], q: float) -> float | None:
    return float(np.percentile(np.asarray(values, dtype=np.float64), q)) if len(values) else None


def _percent(log_ratio: float | None) -> float | None:
    return None if log_ratio is None else 100 * math.expm1(log_ratio)


def _least(meter: str, name: str, value: float | None, limit: float, unit: str, count: int) -> Gate:
    return Gate(meter, name, value, unit, f">= {limit:g}", None if value is None else value >= limit, count)


def _most(meter: str, name: str, value: float | None, limit: float, unit: str, count: int) -> Gate:
    return Gate(meter, name, value, unit, f"<= {limit:.3g}", None if value is None else value <= limit, count)


def _rounded(value: float | None) -> float | None:
    return round(value, 4) if value is not None and math.isfinite(value) else None


def _row(record: Record) -> dict[str, Any]:
    judgement = record.judgement
    return {
        "reply": record.reply,
        "segment": record.index,
        "at_s": _rounded(record.at_s),
        "duration_s": _rounded(record.duration_s),
        "active_s": _rounded(record.active_s),
        "level_db": _rounded(record.level_db),
        "pitch_st": _rounded(record.pitch_st),
        "pace": _rounded(record.pace),
        "pause_ms": _rounded(record.pause_ms),
        "leading_ms": _rounded(record.leading_ms),
        "readings": {name: _rounded(value) for name, value in judgement.readings.items()},
        "verdict": str(judgement.verdict),
        "reasons": [
            {
                "id": one.meter,
                "name": one.name,
                "value": _rounded(one.value),
                "limit": _rounded(one.limit),
                "unit": one.unit,
                "segments": one.segments,
            }
            for one in judgement.reasons
        ],
    }
