"""How speech that arrives piece by piece would sound to somebody who plays it at once. Told the time, no clock."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Arrival:
    """One piece: the pause since the one before it (``None`` for the first), by how long the sound ran dry before it,
    and how much sound is left to play now that it is here."""

    gap_ms: float | None
    dry_ms: float
    ahead_ms: float


class PlayClock:
    """One stretch of sound that should play without a break, such as an utterance.

    All times are milliseconds on one clock of the caller's.
    """

    def __init__(self) -> None:
        self.first_ms: float | None = None
        self.last_ms = 0.0
        self.sound_ms = 0.0
        self.dry_ms = 0.0
        self.max_gap_ms = 0.0
        self._runs_out_ms = 0.0
        self._smooth_start_ms = 0.0

    def piece(self, at_ms: float, sound_ms: float) -> Arrival:
        """``sound_ms`` of sound came at ``at_ms``; never earlier than the piece before."""
        gap_ms = None if self.first_ms is None else at_ms - self.last_ms
        dry_ms = 0.0
        if self.first_ms is None:
            self.first_ms = self._runs_out_ms = self._smooth_start_ms = at_ms
        else:
            self.max_gap_ms = max(self.max_gap_ms, at_ms - self.last_ms)
            dry_ms = max(0.0, at_ms - self._runs_out_ms)
            self._smooth_start_ms = max(self._smooth_start_ms, at_ms - self.sound_ms)
        self.dry_ms += dry_ms
        self._runs_out_ms = max(self._runs_out_ms, at_ms) + sound_ms
        self.sound_ms += sound_ms
        self.last_ms = at_ms
        return Arrival(gap_ms, dry_ms, self._runs_out_ms - at_ms)

    @property
    def smooth_start_ms(self) -> float | None:
        """When playing could have begun so that it never ran dry; known once all has come. ``None`` without sound."""
        return None if self.first_ms is None else self._smooth_start_ms

    @property
    def realtime_factor(self) -> float | None:
        """Time from the first piece to the last, per sound: below 1 the sound came faster than it plays."""
        if self.first_ms is None or not self.sound_ms:
            return None
        return (self.last_ms - self.first_ms) / self.sound_ms
