"""How far samples decoded here are from those that a server decoded of the same codes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

MIN_SNR_DB = 90.0
"""The same decoder in float32 stays above: only the last bit of a sample differs, now and then."""


@dataclass(frozen=True, slots=True)
class Parity:
    """16-bit samples against 16-bit samples. ``snr_db`` is infinite where all are equal."""

    ours: int
    theirs: int
    differing: int
    largest_step: int
    snr_db: float

    @property
    def good(self) -> bool:
        """True if both are equally long and as close as one decoder in float32 is to itself."""
        return self.ours == self.theirs > 0 and self.snr_db >= MIN_SNR_DB


def parity(ours: bytes, theirs: bytes) -> Parity:
    """Compare little-endian 16-bit samples over the length that both have."""
    a, b = (np.frombuffer(data[: len(data) // 2 * 2], "<i2").astype(np.float64) for data in (ours, theirs))
    common = min(len(a), len(b))
    error = a[:common] - b[:common]
    noise, signal = float((error**2).sum()), float((b[:common] ** 2).sum())
    snr_db = math.inf if not noise else 10 * math.log10(signal / noise) if signal else -math.inf
    return Parity(
        ours=len(a),
        theirs=len(b),
        differing=int(np.count_nonzero(error)),
        largest_step=int(np.abs(error).max(initial=0)),
        snr_db=snr_db,
    )
