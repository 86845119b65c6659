"""Samples to bytes and back: 16-bit PCM and the WAV header. No codec library is needed here."""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from sidecar.ports import Pcm

WAV_HEADER_BYTES = 44
"""Length of what ``wav_header`` returns."""

UNKNOWN_SIZE = 0xFFFFFFFF
"""Stands in both size fields of a WAV whose length is not known yet."""

_FULL_SCALE = 32_768.0
_LARGEST = np.float32((_FULL_SCALE - 1) / _FULL_SCALE)


def cleaned(pcm: Pcm) -> Pcm:
    """Return mono float32 samples that are finite and within [-1, 1].

    NaN and infinities become 0 (a broken sample is a click at worst, never a full-scale one); the rest is
    clipped. The input is not changed. Raises ``ValueError`` if ``pcm`` is not one-dimensional.
    """
    return np.clip(_finite(pcm), -1.0, 1.0)


def mono(pcm: Pcm) -> Pcm:
    """Return ``pcm`` as float32. Raises ``ValueError`` if it is not one-dimensional."""
    samples = np.asarray(pcm, dtype=np.float32)
    if samples.ndim != 1:
        raise ValueError("samples must be mono: one dimension")
    return samples


def _finite(pcm: Pcm) -> Pcm:
    samples = mono(pcm)
    finite = np.isfinite(samples)
    return samples if finite.all() else np.where(finite, samples, np.float32(0.0))


def float_to_s16le(pcm: Pcm) -> bytes:
    """Return ``pcm`` as little-endian signed 16-bit samples: rounded, clipped, never wrapped.

    Inverse of ``s16le_to_float`` for every 16-bit value. Raises ``ValueError`` like ``cleaned``.
    """
    scaled = np.clip(_finite(pcm), np.float32(-1.0), _LARGEST)
    scaled *= np.float32(_FULL_SCALE)
    np.rint(scaled, out=scaled)
    samples: NDArray[np.int16] = scaled.astype("<i2")
    return samples.tobytes()


def s16le_to_float(data: bytes) -> Pcm:
    """Return little-endian signed 16-bit samples as float32 in [-1, 1).

    Raises ``ValueError`` if ``data`` ends within a sample.
    """
    if len(data) % 2:
        raise ValueError("16-bit samples need an even number of bytes")
    return (np.frombuffer(data, dtype="<i2") / np.float32(_FULL_SCALE)).astype(np.float32)


def wav_header(rate_hz: int, data_bytes: int | None) -> bytes:
    """Return the 44-byte header of a mono 16-bit WAV.

    ``data_bytes`` is the length of the samples that follow; None, or more than a WAV can tell, writes
    ``UNKNOWN_SIZE`` for both sizes.
    """
    known = data_bytes is not None and data_bytes <= UNKNOWN_SIZE - WAV_HEADER_BYTES
    data_size = data_bytes if known and data_bytes is not None else UNKNOWN_SIZE
    riff_size = data_size + WAV_HEADER_BYTES - 8 if known else UNKNOWN_SIZE
    return struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        b"RIFF",
        riff_size,
        b"WAVE",
        b"fmt ",
        16,
        1,
        1,
        rate_hz,
        rate_hz * 2,
        2,
        16,
        b"data",
        data_size,
    )
