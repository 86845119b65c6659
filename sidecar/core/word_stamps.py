"""What a client is told of the words of a spoken text: a list of times, and the audio frames that carry it.

Contract: vLLM-Omni's ``word_timestamps``. The times are an estimate (``sidecar.core.word_times``), not an alignment.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidecar.core.word_times import FRAME_SAMPLES, MAX_FRAMES, Loudness, word_times

log = logging.getLogger(__name__)

MAX_HEADER_BYTES = 4_096
"""A longer list does not travel in a header."""

_SAMPLES_PER_MS = 24
_BYTES_PER_SAMPLE = 2

Stamp = dict[str, Any]
"""``word`` as it is written, ``start_ms`` and ``end_ms`` from the beginning of the audio (int)."""


class WordStamps:
    """Hears ``text`` being spoken at 24 kHz; ``speed``: how much faster than that it is sent."""

    def __init__(self, text: str, speed: float = 1.0) -> None:
        self._text = text
        self._speed = speed
        self._loudness = Loudness()

    def feed(self, pcm: NDArray[np.float32]) -> None:
        """The next samples, as the engine gave them."""
        self._loudness.feed(pcm)

    def stamps(self) -> list[Stamp] | None:
        """Every word in order; empty for silence. None when no times could be found, as for over 20 minutes."""
        if self._loudness.samples >= (MAX_FRAMES + 1) * FRAME_SAMPLES:
            return None
        try:
            times = word_times(self._text, self._loudness)
        except (ArithmeticError, LookupError, ValueError):
            # The sound is worth more than its times. Never the text: it is the client's.
            log.exception("no word times for a text of %d characters", len(self._text))
            return None
        return [
            {"word": time.word, "start_ms": self._sent(time.start_ms), "end_ms": self._sent(time.end_ms)}
            for time in times
        ]

    def _sent(self, ms: int) -> int:
        return int(ms / self._speed)


def stamp_headers(stamps: Sequence[Stamp] | None) -> dict[str, str]:
    """``X-Word-Timestamps`` in ASCII; in its place, when it is too long, how long; nothing where there are no times."""
    if stamps is None:
        return {}
    value = json.dumps(list(stamps), ensure_ascii=True, separators=(",", ":"))
    if len(value) > MAX_HEADER_BYTES:
        return {"x-word-timestamps-omitted": f"oversize; bytes={len(value)}; limit={MAX_HEADER_BYTES}"}
    return {"x-word-timestamps": value}


class ChunkEvents:
    """The ``audio.chunk`` events of one unit of streamed PCM (24 kHz, 16 bit, mono)."""

    def __init__(self, rate_hz: int = 24_000) -> None:
        self._rate_hz = rate_hz
        self._chunks = 0
        self._samples = 0

    def audio(self, pcm16: bytes) -> dict[str, Any]:
        """The next piece; its end is the next one's start."""
        start_ms = self._samples // _SAMPLES_PER_MS
        self._samples += len(pcm16) // _BYTES_PER_SAMPLE
        return self._event(start_ms, base64.b64encode(pcm16).decode("ascii"), None)

    def last(self, stamps: Sequence[Stamp] | None) -> dict[str, Any]:
        """The one without audio that closes the unit: the times of all its words."""
        return self._event(0, "", None if stamps is None else list(stamps))

    def _event(self, start_ms: int, audio_b64: str, stamps: list[Stamp] | None) -> dict[str, Any]:
        event = {
            "type": "audio.chunk",
            "chunk_id": self._chunks,
            "chunk_start_ms": start_ms,
            "chunk_end_ms": self._samples // _SAMPLES_PER_MS,
            "sample_rate": self._rate_hz,
            "channels": 1,
            "audio_b64": audio_b64,
            "timestamps": stamps,
        }
        self._chunks += 1
        return event
