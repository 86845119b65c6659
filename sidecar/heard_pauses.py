"""How long the pause before a segment sounds, found out where the segment is made: ``sounding`` shapes it later.

What ``sounding`` does to a segment depends on its samples alone, so trimming a copy tells the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from segmenter import Segment
from sidecar.ports import Pcm
from voices.pauses import EdgeTrimmer, missing_pause_ms, target_pause_ms


@dataclass(frozen=True, slots=True)
class Pause:
    """``inserted_ms`` of silence are put before a segment, ``wanted_ms`` is how long the whole pause should be.

    ``heard_ms``: how long it is, from last sound to first sound; None where that is read off the untrimmed samples.
    """

    inserted_ms: float
    wanted_ms: float
    heard_ms: float | None = None


class SegmentEdges:
    """The edges of one segment of a reply. ``shaped``: as ``sounding`` trims them; else its samples sound as they are.

    ``before`` are the edges of the segment before it; None where it begins the reply.
    """

    def __init__(self, segment: Segment, *, shaped: bool, before: SegmentEdges | None) -> None:
        self._shaped = shaped
        self._before = before
        self._inserted_ms = segment.pause_after_ms
        self._wanted_ms = float(segment.pause_after_ms or target_pause_ms(segment.spoken))
        self._trimmer = EdgeTrimmer() if shaped else None
        self._tail_ms: float | None = None

    def begin(self) -> None:
        """A take begins: what is known of another one is forgotten."""
        self._trimmer = EdgeTrimmer() if self._shaped else None
        self._tail_ms = None

    def feed(self, pcm: Pcm) -> None:
        """The next samples of the take."""
        if self._trimmer is not None:
            self._trimmer.feed(pcm)

    def end(self) -> float | None:
        """The take is complete: with how much silence it ends (ms); None where it has no sound."""
        if self._trimmer is not None:
            self._trimmer.finish()
            self._tail_ms = None if self._trimmer.lead_ms is None else self._trimmer.tail_ms
        return self._tail_ms

    def played(self, tail_ms: float | None) -> None:
        """The take that is played ends with so much silence (None: not known). What came before it is let go."""
        self._tail_ms = tail_ms
        self._before = None

    def pause(self) -> Pause | None:
        """The pause before this segment, once its take has begun to sound and the segment before is complete."""
        before = self._before
        if before is None:
            return None
        if self._trimmer is None:
            return Pause(before._inserted_ms, before._wanted_ms)
        lead_ms = self._trimmer.lead_ms
        if before._tail_ms is None or lead_ms is None:
            return None
        inserted_ms = missing_pause_ms(before._wanted_ms, before._tail_ms)
        return Pause(inserted_ms, before._wanted_ms, before._tail_ms + inserted_ms + lead_ms)
