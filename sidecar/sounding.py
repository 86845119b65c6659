"""How the segments of a reply become one stream of sound: trimmed edges, pauses as punctuation asks, joins without
clicks, one gain. What it does to a segment depends on nothing but the reply so far, so it is the same everywhere.
"""

from __future__ import annotations

import numpy as np

from segmenter import Segment
from sidecar.ports import SAMPLE_RATE_HZ, Pcm
from voices.level import DialogGain
from voices.pauses import EdgeTrimmer, missing_pause_ms, target_pause_ms
from voices.seams import SeamSmoother

_NOTHING: Pcm = np.zeros(0, np.float32)


class Sounding:
    """One reply. ``shape_pauses``: edges are trimmed and pauses made; else the segmenter's pauses are just added.

    ``level_db`` is the speech level that the voice is known to have, ``target_level_db`` the one wanted.
    """

    def __init__(
        self, *, shape_pauses: bool = True, target_level_db: float | None = None, level_db: float | None = None
    ) -> None:
        self._gain: DialogGain | None = None
        if target_level_db is not None and level_db is not None:
            self._gain = DialogGain(target_level_db, level_db)
        self._shape = shape_pauses
        self._smoother = SeamSmoother()
        self._trimmer: EdgeTrimmer | None = None
        self._target_ms = 0.0
        self._tail_ms = 0.0
        self._sounded = False

    def begin(self) -> Pcm:
        """The next segment begins: the pause before it, perhaps none."""
        pause_ms = self.pause_ms()
        pause = np.zeros(round(pause_ms * SAMPLE_RATE_HZ / 1_000), np.float32)
        self._trimmer = EdgeTrimmer() if self._shape else None
        if len(pause):
            self._smoother.join()
            pause = self._smoother.feed(pause)
        self._smoother.join()
        return pause

    def pause_ms(self) -> float:
        """What has to be put before the next segment."""
        if not self._sounded:
            return 0.0
        return missing_pause_ms(self._target_ms, self._tail_ms) if self._shape else self._target_ms

    def feed(self, pcm: Pcm) -> Pcm:
        """Samples of the segment; those that can be heard now."""
        return self._out(self._trimmer.feed(pcm) if self._trimmer is not None else pcm)

    def end(self, segment: Segment) -> Pcm:
        """The segment is over: its last samples."""
        last = self._out(self._trimmer.finish()) if self._trimmer is not None else _NOTHING
        self._tail_ms = self._trimmer.tail_ms if self._trimmer is not None else 0.0
        self._target_ms = segment.pause_after_ms
        if self._shape:
            self._target_ms = self._target_ms or target_pause_ms(segment.spoken)
        self._trimmer = None
        return last

    def _out(self, pcm: Pcm) -> Pcm:
        if self._gain is not None:
            pcm = self._gain.apply(pcm)
        pcm = self._smoother.feed(pcm)
        self._sounded = self._sounded or len(pcm) > 0
        return pcm
