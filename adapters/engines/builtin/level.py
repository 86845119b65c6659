"""Edges and loudness of a spoken sentence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sidecar.ports import FRAME_SAMPLES, SAMPLE_RATE_HZ, Pcm

_STEP = 120  # 5 ms
_QUIET_RMS = 10 ** (-46 / 20)
_LEAD_SAMPLES = SAMPLE_RATE_HZ * 20 // 1000
_TAIL_SAMPLES = SAMPLE_RATE_HZ * 50 // 1000
_KNEE = 0.8


def levelled(parts: Sequence[Pcm], gain_db: float, pause_samples: int) -> Pcm:
    """The parts joined, trimmed and at their final level, in whole frames of 1920 samples.

    Leading silence is cut to 20 ms. After the speech come 50 ms of its own tail and ``pause_samples`` of silence,
    then what is missing to a whole frame. Peaks above 0.8 bend softly and never reach 1. Empty if all is silent.
    """
    gain = np.float32(10 ** (gain_db / 20))
    voiced = [trimmed for part in parts if len(trimmed := _trim(part * gain))]
    if not voiced:
        return np.zeros(0, np.float32)
    speech = np.concatenate(voiced)
    _bend_peaks(speech)
    length = len(speech) + pause_samples
    pcm = np.zeros(-(-length // FRAME_SAMPLES) * FRAME_SAMPLES, np.float32)
    pcm[: len(speech)] = speech
    return pcm


def fade_out(pcm: Pcm) -> Pcm:
    """The same samples with the last 10 ms fading, for speech that is cut off."""
    faded = pcm.copy()
    length = min(len(pcm), SAMPLE_RATE_HZ // 100)
    faded[len(pcm) - length :] *= np.linspace(1, 0, length, dtype=np.float32)
    return faded


def _trim(pcm: Pcm) -> Pcm:
    steps = len(pcm) // _STEP
    if steps == 0:
        return pcm[:0]
    power = np.square(pcm[: steps * _STEP]).reshape(steps, _STEP).mean(axis=1)
    loud = np.flatnonzero(power > _QUIET_RMS**2)
    if len(loud) == 0:
        return pcm[:0]
    first = max(0, int(loud[0]) * _STEP - _LEAD_SAMPLES)
    last = min(len(pcm), (int(loud[-1]) + 1) * _STEP + _TAIL_SAMPLES)
    cut = pcm[first:last].copy()
    edge = np.linspace(0, 1, min(_STEP, len(cut)), dtype=np.float32)
    cut[: len(edge)] *= edge
    cut[len(cut) - len(edge) :] *= edge[::-1]
    return cut


def _bend_peaks(pcm: Pcm) -> None:
    over = np.abs(pcm) > _KNEE
    peaks = pcm[over]
    room = 1 - _KNEE
    # tanh approaches 1 and float32 would round it up to 1: 0.999 of the room keeps every peak below full scale.
    pcm[over] = np.sign(peaks) * (_KNEE + 0.999 * room * np.tanh((np.abs(peaks) - _KNEE) / room))
