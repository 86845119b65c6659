"""From samples to verdicts: measures a segment, has its speaker embedded if somebody can, and asks the dialog."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from voices.drift import DialogDrift, Judgement, Take, VoiceAnchor
from voices.drift_limits import DriftLimits
from voices.drift_report import DriftReport, report_of
from voices.features import HOP, active_frames, checked_pcm, frame_levels_db, measure

SpeakerEmbedding = Callable[[NDArray[np.float32]], NDArray[np.floating]]
"""Mono 24 kHz samples to a vector that points the same way for the same speaker. Slow; never called below 2 s."""

MIN_EMBEDDED_S = 2.0
MAX_EMBEDDED_S = 10.0
"""An embedding is made of at most so much active speech."""

MAX_WIDTH = 8_192

_RATE_HZ = 24_000


@dataclass(frozen=True, slots=True, eq=False)
class SpokenSegment:
    """One segment as it was spoken: ``pcm`` mono 24 kHz in [-1, 1]. The other members are those of ``Take``."""

    pcm: NDArray[np.float32]
    text: str
    reply: int = 0
    index: int = 0
    pause_before_ms: float | None = None
    target_pause_ms: float | None = None
    text_tokens: int | None = None
    looped: bool = False
    pause_ms: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """A take with its judgement, ready to be accepted. ``spoken`` is its active speech, if it must be pooled."""

    take: Take
    judgement: Judgement
    spoken: NDArray[np.float32]


class DriftMeter:
    """One dialog's meter. Not thread-safe. Costs about 10 ms a second of audio, and what ``embed`` costs.

    Segments with less than 2 s of speech are pooled with those before them until there are 2 s to embed; that is all
    the audio that is kept. An ``embed`` that fails or answers nonsense leaves the identity out (``embed_failures``).
    """

    def __init__(
        self,
        limits: DriftLimits | None = None,
        anchor: VoiceAnchor | None = None,
        embed: SpeakerEmbedding | None = None,
    ) -> None:
        self.dialog = DialogDrift(limits, anchor)
        self.embed_failures = 0
        self._embed = embed
        self._pool = np.zeros(0, np.float32)

    def judge(self, segment: SpokenSegment) -> Judged:
        """What the segment is, if it comes next. Raises ``ValueError`` for samples that are not finite mono floats."""
        features = measure(segment.pcm)
        spoken = self._spoken(segment.pcm) if self._embed is not None else self._pool[:0]
        embedding = self._embedded(spoken)
        take = Take(
            reply=segment.reply,
            index=segment.index,
            text=segment.text,
            features=features,
            pause_before_ms=segment.pause_before_ms,
            target_pause_ms=segment.target_pause_ms,
            embedding=embedding,
            embedded_s=len(spoken) / _RATE_HZ if embedding is not None else 0.0,
            text_tokens=segment.text_tokens,
            looped=segment.looped,
            pause_ms=segment.pause_ms,
        )
        return Judged(take, self.dialog.assess(take), spoken)

    def accept(self, judged: Judged) -> None:
        """This take was the one that was spoken."""
        self.dialog.accept(judged.take, judged.judgement)
        self._pool = judged.spoken if len(judged.spoken) < MIN_EMBEDDED_S * _RATE_HZ else judged.spoken[:0]

    def feed(self, segment: SpokenSegment) -> Judgement:
        """Judge and accept."""
        judged = self.judge(segment)
        self.accept(judged)
        return judged.judgement

    def report(self) -> DriftReport:
        """The dialog so far."""
        return report_of(self.dialog)

    def _spoken(self, pcm: NDArray[np.float32]) -> NDArray[np.float32]:
        """Active speech of this segment; if it is short, after what was pooled before."""
        samples = checked_pcm(pcm[: int(3 * MAX_EMBEDDED_S * _RATE_HZ)])
        active = np.repeat(active_frames(frame_levels_db(samples)), HOP)[: len(samples)]
        spoken = samples[active][: int(MAX_EMBEDDED_S * _RATE_HZ)]
        return spoken if len(spoken) >= MIN_EMBEDDED_S * _RATE_HZ else np.concatenate((self._pool, spoken))

    def _embedded(self, spoken: NDArray[np.float32]) -> NDArray[np.float64] | None:
        if self._embed is None or len(spoken) < MIN_EMBEDDED_S * _RATE_HZ:
            return None
        try:
            vector = np.asarray(self._embed(spoken), dtype=np.float64)
        except Exception:
            # Whatever an encoder does wrong, the other meters can still tell something.
            self.embed_failures += 1
            return None
        if vector.ndim != 1 or not 0 < len(vector) <= MAX_WIDTH or not np.isfinite(vector).all() or not vector.any():
            self.embed_failures += 1
            return None
        return vector / np.linalg.norm(vector)
