"""Clean speech of real voices, and the faults that the meters must find in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import soxr
from numpy.typing import NDArray

from adapters.engines.builtin.catalogue import Catalogue
from adapters.engines.builtin.level import levelled
from adapters.engines.builtin.synthesis import Stop

RATE_HZ = 24_000
Pcm = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Said:
    text: str
    pcm: Pcm


def said_by(voice: str, texts: Sequence[str]) -> list[Said]:
    """The texts as a built-in voice says them, each with its own seed."""
    catalogue = Catalogue()
    catalogue.load(voice)
    entry = catalogue.entry(voice)
    try:
        return [
            Said(text, levelled(entry.synthesiser.speak(text, entry.inner, "en", seed, Stop()), entry.gain_db, 0))
            for seed, text in enumerate(texts)
        ]
    finally:
        for synthesiser in catalogue.synthesisers:
            synthesiser.close()


def louder(pcm: Pcm, decibels: float) -> Pcm:
    return (pcm * np.float32(10 ** (decibels / 20))).astype(np.float32)


def higher(pcm: Pcm, semitones: float) -> Pcm:
    """By resampling: pitch and formants move together, and pace with them. No phase vocoder, no artefacts."""
    shifted: Pcm = soxr.resample(pcm, RATE_HZ * 2 ** (semitones / 12), RATE_HZ)
    return shifted


def faster(pcm: Pcm, factor: float) -> Pcm:
    """At the same pitch, by overlap-add of the best fitting 30 ms pieces (WSOLA, Verhelst and Roelands 1993)."""
    frame, reach = 720, 240
    window = np.hanning(frame + 1)[:-1].astype(np.float32)
    padded = np.concatenate((np.zeros(reach, np.float32), pcm, np.zeros(2 * frame + 2 * reach, np.float32)))
    out = np.zeros(int(len(pcm) / factor) + 2 * frame, np.float32)
    at = reach
    for start in range(0, int(len(pcm) / factor), frame // 2):
        out[start : start + frame] += padded[at : at + frame] * window
        wanted = padded[at + frame // 2 : at + frame // 2 + frame]
        middle = reach + int((start + frame // 2) * factor)
        if middle + reach + frame > len(padded):
            break
        region = padded[middle - reach : middle + reach + frame]
        fits = np.correlate(region, wanted, mode="valid")
        at = middle - reach + int(fits.argmax())
    return out[: int(len(pcm) / factor)]


def stepped(pcm: Pcm, step: float) -> Pcm:
    """Begins with a step: what was before it is lost."""
    moved = pcm[len(pcm) // 3 :].copy()
    return moved + (np.float32(step) - moved[0]) * np.exp(-np.arange(len(moved)) / 480).astype(np.float32)


def interrupted(pcm: Pcm, ms: float) -> Pcm:
    """Lost time in the loudest place of the middle third."""
    third = len(pcm) // 3
    at = third + int(np.abs(pcm[third : 2 * third]).argmax())
    return np.concatenate((pcm[:at], np.zeros(int(ms * RATE_HZ / 1_000), np.float32), pcm[at:]))
