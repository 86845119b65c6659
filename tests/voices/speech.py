"""A toy voice whose pitch, level and spectrum are known: harmonics under formants, in syllables."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

RATE_HZ = 24_000


def toy_speech(
    seconds: float,
    *,
    pitch_hz: float = 120.0,
    formants_hz: tuple[float, ...] = (600.0, 1_500.0, 2_600.0),
    level: float = 0.1,
    lead_s: float = 0.0,
    tail_s: float = 0.0,
    seed: int = 0,
) -> NDArray[np.float32]:
    random = np.random.default_rng(seed)
    time = np.arange(int(seconds * RATE_HZ)) / RATE_HZ
    pitch = pitch_hz * 2 ** (random.normal(0, 0.3) / 12) * (1 + 0.02 * np.sin(2 * np.pi * 0.7 * time))
    phase = 2 * np.pi * np.cumsum(pitch) / RATE_HZ
    voice = np.zeros(len(time))
    for harmonic in range(1, int(4_000 / pitch_hz)):
        hz = harmonic * pitch_hz
        gain = sum(1 / (1 + ((hz - formant) / 150) ** 2) for formant in formants_hz) + 0.01
        voice += gain * np.sin(harmonic * phase + random.uniform(0, 6))
    syllables = 0.55 + 0.45 * np.sin(2 * np.pi * 4 * time - np.pi / 2)
    voice *= syllables
    voice *= level / np.sqrt(np.mean(np.square(voice)))
    edge = np.minimum(1, np.minimum(np.arange(len(time)), np.arange(len(time))[::-1]) / 240)
    padded = np.concatenate((np.zeros(int(lead_s * RATE_HZ)), voice * edge, np.zeros(int(tail_s * RATE_HZ))))
    return padded.astype(np.float32)
