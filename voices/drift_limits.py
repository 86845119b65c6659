"""What counts as drift: noise and thresholds of every meter, as fitted to a voice or taken from published figures.

The defaults come from measurements of zero-shot clones (same voice, other text): two sentences of one voice differ by
1.1 semitones of median pitch and 1.1 dB of level (medians over pairs), their speaker cosine on 2 s stays over 0.81
where other voices reach 0.73, and their long-term spectra differ by 1.9 dB (median; 2.9 dB in 95 of 100 pairs).
``voices.drift_calibrate`` fits tighter ones to a voice.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voices.drift_text import PaceModel
from voices.features import BANDS

FORM = "sidecar-drift-limits-1"
"""Marks the JSON form."""

MAX_JSON_BYTES = 64_000
"""A longer text is refused."""


@dataclass(frozen=True, slots=True)
class Steadiness:
    """How steady a quantity is from segment to segment, and what is too much.

    The standard deviation of a segment with ``t`` seconds of speech is ``sqrt(fixed**2 + per_s**2 / t)``. A change is
    raised when it is at least ``threshold`` standard deviations (of what is compared, the baseline's own uncertainty
    included) and at least ``least``, below which nobody would hear it.
    """

    fixed: float
    per_s: float
    threshold: float
    least: float

    def deviation(self, active_s: float) -> float:
        """Standard deviation of a segment with so much active speech."""
        return math.sqrt(self.fixed**2 + self.per_s**2 / max(active_s, 0.25))


@dataclass(frozen=True, slots=True, eq=False)
class Timbre:
    """When a long-term spectrum is another voice's.

    Without ``whitening`` the distance is in dB RMS; with it, ``whitening @ (shape - anchor)`` has unit variance per
    band for one second of the voice's own speech, and the distance counts its RMS in standard deviations.
    """

    watch: float = 3.0
    reroll: float = 4.0
    whitening: NDArray[np.float64] | None = None
    uncertain_s: float = 0.0
    """Seconds of speech after which more no longer makes the distance surer (0: it is taken as it is)."""


@dataclass(frozen=True, slots=True, eq=False)
class DriftLimits:
    """Limits of all meters. ``pace`` is about the logarithm of seconds taken over seconds expected.

    ``identity_*`` are cosines of speaker embeddings on at least 2 s (``identity_long_watch``: 3 s). ``seam_step`` is in
    full scale. Gaps in milliseconds: ``seam_pause_ms`` is how far a pause may be from its target, ``inner_gap_ms``
    the longest silence inside a segment (``inner_mark_gap_ms`` where its text has a mark to pause at).
    """

    level_db: Steadiness = Steadiness(1.1, 0.8, 3.5, 3.0)
    pitch_st: Steadiness = Steadiness(1.1, 0.8, 3.5, 1.5)
    pace: Steadiness = Steadiness(0.08, 0.08, 3.5, 0.08)
    timbre: Timbre = field(default_factory=Timbre)
    pace_model: PaceModel = field(default_factory=PaceModel)
    identity_reroll: float = 0.78
    identity_watch: float = 0.80
    identity_long_watch: float = 0.86
    seam_step: float = 10 ** (-54 / 20)
    seam_pause_ms: float = 300.0
    leading_ms: float = 300.0
    inner_gap_ms: float = 600.0
    inner_mark_gap_ms: float = 900.0
    dropout_ms: float = 200.0
    inside_pitch_step_st: float = 3.3
    """Median pitch step over pauses inside one generation: what V12 is compared with."""


def limits_to_json(limits: DriftLimits) -> str:
    """The JSON form, read back by ``limits_from_json``."""
    body = {one.name: getattr(limits, one.name) for one in fields(limits)}
    timbre = limits.timbre
    whitening = None if timbre.whitening is None else np.round(timbre.whitening, 6).tolist()
    for name in ("level_db", "pitch_st", "pace", "pace_model"):
        body[name] = asdict(body[name])
    body["timbre"] = {
        "watch": timbre.watch,
        "reroll": timbre.reroll,
        "uncertain_s": timbre.uncertain_s,
        "whitening": whitening,
    }
    return json.dumps({"form": FORM, **body}, indent=1)


def limits_from_json(text: str) -> DriftLimits:
    """Limits from their JSON form; raises ``ValueError`` that names what is wrong, never half-reads.

    Missing members take their defaults, unknown ones are refused. All numbers must be finite and not negative.
    """
    if len(text) > MAX_JSON_BYTES:
        raise ValueError("drift limits: too long")
    try:
        body = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise ValueError("drift limits: not JSON") from None
    if not isinstance(body, dict) or body.pop("form", None) != FORM:
        raise ValueError(f"drift limits: must be an object with form {FORM}")
    known = {one.name for one in fields(DriftLimits)}
    if unknown := sorted(set(body) - known):
        raise ValueError(f"drift limits: unknown member {unknown[0][:40]}")
    values: dict[str, Any] = {}
    for name, value in body.items():
        if name in ("level_db", "pitch_st", "pace"):
            values[name] = Steadiness(**_numbers(name, value, Steadiness))
        elif name == "pace_model":
            values[name] = PaceModel(**_numbers(name, value, PaceModel))
        elif name == "timbre":
            values[name] = _timbre(value)
        else:
            values[name] = _number(name, value)
    return DriftLimits(**values)


def _timbre(value: object) -> Timbre:
    if not isinstance(value, Mapping) or set(value) - {"watch", "reroll", "uncertain_s", "whitening"}:
        raise ValueError("drift limits: timbre has unknown members or is no object")
    numbers: dict[str, Any] = {n: _number(n, each) for n, each in value.items() if n != "whitening"}
    rows = value.get("whitening")
    if rows is None:
        return replace(Timbre(), **numbers)
    square = isinstance(rows, list) and len(rows) == BANDS
    if not square or any(not isinstance(row, list) or len(row) != BANDS for row in rows):
        raise ValueError(f"drift limits: whitening must be {BANDS} x {BANDS}")
    matrix = np.array([[_number("whitening", each, signed=True) for each in row] for row in rows])
    return replace(Timbre(), **numbers, whitening=matrix)


def _numbers(name: str, value: object, kind: type[Steadiness] | type[PaceModel]) -> dict[str, float]:
    expected = {one.name for one in fields(kind)}
    if not isinstance(value, Mapping) or set(value) != expected:
        raise ValueError(f"drift limits: {name} must have exactly {', '.join(sorted(expected))}")
    return {key: _number(f"{name}.{key}", each) for key, each in value.items()}


def _number(name: str, value: object, *, signed: bool = False) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"drift limits: {name[:60]} must be a number")
    # An integer of thousands of digits cannot become a float.
    number = float(value) if abs(value) < 1e9 else math.inf
    if not math.isfinite(number) or (number < 0 and not signed):
        raise ValueError(f"drift limits: {name[:60]} must be finite and not negative")
    return number


def _refuse_constant(name: str) -> float:
    raise ValueError(name)
