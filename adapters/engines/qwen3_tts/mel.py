"""The speaker encoder's ears: log mel bands of 24 kHz sound.

Bands after Slaney's Auditory Toolbox: linear below 1 kHz, logarithmic above, each triangle with the same area.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray

from sidecar.ports import SAMPLE_RATE_HZ

WINDOW = 1_024
HOP = 256
BANDS = 128
MARGIN = (WINDOW - HOP) // 2
"""Samples mirrored at each end, so that ``samples // HOP`` windows fit."""

_LINEAR_HZ = 200.0 / 3.0
"""Width of a mel below the break."""
_BREAK_HZ = 1_000.0
_LOG_STEP = math.log(6.4) / 27.0
"""Above the break 27 mels span a factor of 6.4."""


def _hz_of(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    bend = _BREAK_HZ / _LINEAR_HZ
    return np.where(mel < bend, mel * _LINEAR_HZ, _BREAK_HZ * np.exp(_LOG_STEP * (np.maximum(mel, bend) - bend)))


def _mel_of(hz: float) -> float:
    return hz / _LINEAR_HZ if hz < _BREAK_HZ else _BREAK_HZ / _LINEAR_HZ + math.log(hz / _BREAK_HZ) / _LOG_STEP


def mel_filters(
    rate: int = SAMPLE_RATE_HZ, window: int = WINDOW, bands: int = BANDS, top_hz: float | None = None
) -> NDArray[np.float32]:
    """Weights ``(bands, window // 2 + 1)`` of the spectrum's magnitudes, from 0 to ``top_hz`` (half the rate)."""
    top = rate / 2 if top_hz is None else top_hz
    edges = _hz_of(np.linspace(0.0, _mel_of(top), bands + 2))
    bins = np.linspace(0.0, rate / 2, window // 2 + 1)
    widths = np.diff(edges)[:, None]
    rising = (bins - edges[:-2, None]) / widths[:-1]
    falling = (edges[2:, None] - bins) / widths[1:]
    triangles = np.maximum(0.0, np.minimum(rising, falling))
    return (triangles * (2.0 / (edges[2:] - edges[:-2]))[:, None]).astype(np.float32)


@cache
def _filters() -> torch.Tensor:
    return torch.from_numpy(mel_filters())


def log_mel(pcm: torch.Tensor) -> torch.Tensor:
    """``pcm (samples,)`` float32 at 24 kHz, more than ``MARGIN`` samples -> ``(BANDS, samples // 256)`` float32."""
    mirrored = F.pad(pcm[None, None], (MARGIN, MARGIN), mode="reflect")[0, 0]
    window = torch.hann_window(WINDOW, device=pcm.device)
    spectrum = torch.stft(mirrored, WINDOW, HOP, WINDOW, window, center=False, return_complex=True)
    magnitudes = torch.sqrt(torch.view_as_real(spectrum).square().sum(-1) + 1e-9)
    return (_filters().to(pcm.device) @ magnitudes).clamp_(min=1e-5).log_()
