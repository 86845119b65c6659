"""Silence between segments: how long it should be by punctuation, and the trimming that makes it so.

Engines put silence of their own at both edges of an utterance (medians of 100 to 370 ms before the first sound have
been reported, up to 0.9 s), so pauses at joins come out too long and uneven. Here both edges are trimmed while the
samples stream through, and what is missing to the target is put back as one pause.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

RATE_HZ = 24_000
PRE_ROLL_MS = 15
"""Kept before the first sound, so that no plosive loses its beginning."""

TAIL_MS = 30
"""Kept after the last sound, fading out."""

_STEP = 120
_QUIET_POWER = 10 ** (-50 / 10)
_CLOSING = "\"'»«”“’‘)]}」』*_"
_TARGETS_MS = (
    (".!?…。！？｡؟।", 400),
    (":;：；؛", 300),
    ("—–-", 250),
    (",，、،", 200),
)
_UNMARKED_MS = 60
_PARAGRAPH_MS = 650

F32 = NDArray[np.float32]


def target_pause_ms(text: str, *, paragraph_ends: bool = False) -> int:
    """The pause a listener expects after ``text``, from last sound to first sound, in milliseconds."""
    if paragraph_ends:
        return _PARAGRAPH_MS
    last = text.rstrip().rstrip(_CLOSING)[-1:]
    return next((ms for marks, ms in _TARGETS_MS if last and last in marks), _UNMARKED_MS)


def missing_pause_ms(target_ms: float, tail_ms: float, lead_ms: float = PRE_ROLL_MS) -> float:
    """Silence to insert where one segment ends with ``tail_ms`` of silence and the next begins with ``lead_ms``."""
    return max(0.0, target_ms - tail_ms - lead_ms)


class EdgeTrimmer:
    """Trims one segment while it streams; nothing that sounds is ever held back.

    Leading silence is dropped but for ``PRE_ROLL_MS``. Silence later on is held (at most ``hold_ms``; what exceeds it
    flows on) until sound follows, which releases it untouched, or the segment ends: then ``TAIL_MS`` of it are kept,
    fading. Counts in whole 5 ms steps; a step is silent below -50 dBFS. A segment without any sound comes out empty.
    """

    def __init__(self, hold_ms: int = 240) -> None:
        if not TAIL_MS <= hold_ms <= 2_000:
            raise ValueError(f"hold_ms must lie in {TAIL_MS}..2000")
        self._hold_samples = hold_ms * RATE_HZ // 1_000
        self._pending = np.zeros(0, np.float32)
        self._sounded = False
        self._flowed_silence = 0
        self._dropped_lead = 0
        self._lead_ms: float | None = None
        self._tail_ms = 0.0

    @property
    def dropped_lead_ms(self) -> float:
        """Leading silence that was dropped."""
        return self._dropped_lead * 1_000 / RATE_HZ

    @property
    def lead_ms(self) -> float | None:
        """The silence with which what came out begins; None as long as nothing sounded."""
        return self._lead_ms

    @property
    def tail_ms(self) -> float:
        """After ``finish``: the silence with which what came out ends."""
        return self._tail_ms

    def feed(self, pcm: F32) -> F32:
        """Take the next samples; returns those that can be sent."""
        self._pending = np.concatenate((self._pending, pcm))
        steps = len(self._pending) // _STEP
        power = np.square(self._pending[: steps * _STEP]).reshape(steps, _STEP).mean(axis=1)
        loud = np.flatnonzero(power > _QUIET_POWER)
        if not self._sounded:
            if len(loud) == 0:
                self._drop_lead(max(0, len(self._pending) - PRE_ROLL_MS * RATE_HZ // 1_000 - _STEP))
                return self._pending[:0]
            self._sounded = True
            cut = max(0, int(loud[0]) * _STEP - PRE_ROLL_MS * RATE_HZ // 1_000)
            self._drop_lead(cut)
            self._lead_ms = (int(loud[0]) * _STEP - cut) * 1_000 / RATE_HZ
            end = (int(loud[-1]) + 1) * _STEP - cut
        else:
            end = (int(loud[-1]) + 1) * _STEP if len(loud) else 0
        return self._release(end)

    def finish(self) -> F32:
        """The segment is over: the tail that is still to be sent."""
        if not self._sounded:
            self._drop_lead(len(self._pending))
            return self._pending
        tail = self._pending[: TAIL_MS * RATE_HZ // 1_000].copy()
        self._tail_ms = (self._flowed_silence + len(tail)) * 1_000 / RATE_HZ
        tail *= np.cos(np.linspace(0, np.pi / 2, len(tail), dtype=np.float32)) ** 2
        self._pending = self._pending[:0]
        return tail

    def _drop_lead(self, samples: int) -> None:
        self._dropped_lead += samples
        self._pending = self._pending[samples:]

    def _release(self, end: int) -> F32:
        if end:
            self._flowed_silence = 0
        excess = len(self._pending) - self._hold_samples
        if excess > end:
            self._flowed_silence += excess - end
            end = excess
        out, self._pending = self._pending[:end], self._pending[end:]
        return out
