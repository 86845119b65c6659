"""Is it still the same voice? A dialog's segments are fed in one by one; each gets a verdict with reasons.

Meters and their names: V1 identity (cosine of speaker embeddings), V4 pitch, V6 level, V7 timbre (long-term
spectrum), V8 pace, V9 length per text token, V10 clicks, V11 pauses. The whole dialog's figures, V2, V3, V5, V12 and
V13 among them, are in ``voices.drift_report``.

No clock, no threads; neither audio nor text is kept. One dialog takes at most about 300 kB, whatever its length.
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from voices.drift_limits import DriftLimits
from voices.drift_meters import Change, SteadyMeter, TimbreMeter
from voices.drift_text import inner_marks
from voices.features import Features, Spectrum, spectrum_distance_db
from voices.pauses import target_pause_ms
from voices.seams import AUDIBLE_STEP

MAX_RECORDS = 256
"""A dialog's report covers its last so many segments."""

FRAME_S = 0.08
"""One codec frame."""

_MIN_ACTIVE_S = 0.3
_IDENTITY_MIN_S = 2.0
_IDENTITY_LONG_S = 3.0
_IDENTITY_ANCHOR_S = 6.0
_REANCHOR_REST = 4
_FRAMES_PER_TOKEN = (1.5, 12.0)
_FEW_TOKENS = 4
_SHORT_FRAMES = 25


class Verdict(enum.StrEnum):
    """``OK``; ``WATCH``: something is off; ``REROLL``: this take should not be heard; ``REANCHOR``: drop the carry."""

    OK = "ok"
    WATCH = "watch"
    REROLL = "reroll"
    REANCHOR = "reanchor"


@dataclass(frozen=True, slots=True)
class Reason:
    """One meter that is over its limit. ``segments``: over how many segments the value was averaged.

    ``excess`` is 1 at the limit and grows with the trouble, in the meter's own measure.
    """

    meter: str
    name: str
    value: float
    limit: float
    unit: str
    excess: float
    segments: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class Take:
    """One segment as it was spoken, measured.

    ``reply`` and ``index`` say where it stands. ``pause_before_ms``: silence inserted before it (None: it begins a
    reply, or the pause is unknown); ``target_pause_ms``: how long the whole pause before it should be (None: by the
    punctuation of the segment before); ``pause_ms``: how long it sounds, where that cannot be read off the samples
    measured here, because listeners get them with their edges trimmed. ``embedding``: a unit vector of ``embedded_s``
    seconds that end with this segment. ``text_tokens`` as the engine counts them; ``looped``: its codes repeat
    themselves.
    """

    reply: int
    index: int
    text: str
    features: Features
    pause_before_ms: float | None = None
    target_pause_ms: float | None = None
    embedding: NDArray[np.float64] | None = None
    embedded_s: float = 0.0
    text_tokens: int | None = None
    looped: bool = False
    pause_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """``verdict`` with its ``reasons``; ``readings``: every meter's value by name (None: not to be said)."""

    verdict: Verdict
    reasons: tuple[Reason, ...]
    readings: dict[str, float | None] = field(hash=False)

    @property
    def badness(self) -> float:
        """0 without reasons; the worse the larger. Of two takes of one segment the smaller is the better one."""
        return sum(one.excess for one in self.reasons) + (100.0 if self.verdict is Verdict.REROLL else 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class VoiceAnchor:
    """What a voice is known to be like, in place of a dialog's own first seconds. Members may be missing."""

    spectrum: Spectrum | None = None
    embedding: NDArray[np.float64] | None = None
    level_db: float | None = None
    pitch_st: float | None = None
    pitch_range_st: float | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """What is remembered of a segment that was spoken. What could not be measured is None (pitch: NaN).

    ``at_s``: where it began in the dialog's audio. ``pitch_step_st`` and ``seam_timbre_db``: from the end of the
    segment before, within one reply. ``pause_ms`` as it was realised, with its target.
    """

    reply: int
    index: int
    at_s: float
    duration_s: float
    active_s: float
    level_db: float
    pitch_st: float
    pitch_range_st: float
    pace: float
    leading_ms: float
    pause_ms: float | None
    target_pause_ms: float | None
    pitch_step_st: float | None
    seam_timbre_db: float | None
    judgement: Judgement


class DialogDrift:
    """The meters of one dialog. ``assess`` looks without remembering, ``accept`` remembers what was really spoken.

    Segments come in order; a take that is replaced by a better one is assessed but never accepted.
    """

    def __init__(self, limits: DriftLimits | None = None, anchor: VoiceAnchor | None = None) -> None:
        self.limits = limits or DriftLimits()
        self.anchor = anchor or VoiceAnchor()
        self.level = SteadyMeter(self.limits.level_db, self.anchor.level_db)
        self.pitch = SteadyMeter(self.limits.pitch_st, self.anchor.pitch_st)
        self.pace = SteadyMeter(self.limits.pace)
        self.timbre = TimbreMeter(self.limits.timbre, self.anchor.spectrum)
        self.records: deque[Record] = deque(maxlen=MAX_RECORDS)
        self.segments = 0
        self.counts = dict.fromkeys(Verdict, 0)
        self.embeddings = 0
        self.embedding_sum = np.zeros(0)
        self._last: Take | None = None
        self._embedded = np.zeros(0)
        self._embedded_s = 0.0
        self._watches = 0
        self._rest = 0
        self._spoken_s = 0.0

    # ------------------------------------------------------------ judging
    def assess(self, take: Take) -> Judgement:
        """What this take would be if it were the next segment. Changes nothing."""
        readings: dict[str, float | None] = {}
        grave = [*self._identity(take, readings), *self._length(take, readings)]
        slow = self._steady(take, readings)
        timbre, is_other = self._timbre(take, readings)
        edges = [*self._clicks(take, readings), *self._pauses(take, readings)]
        reasons = (*grave, *timbre, *slow, *edges)
        if is_other or any(one.name != "identity_watch" for one in grave):
            verdict = Verdict.REROLL
        elif grave or timbre or slow:
            due = self._watches >= 1 and self._rest == 0
            verdict = Verdict.REANCHOR if due else Verdict.WATCH
        else:
            verdict = Verdict.WATCH if edges else Verdict.OK
        return Judgement(verdict, reasons, readings)

    def accept(self, take: Take, judgement: Judgement) -> None:
        """This take was spoken, with the judgement it got."""
        features = take.features
        self.records.append(self._record(take, judgement))
        self._last = take
        self.segments += 1
        self.counts[judgement.verdict] += 1
        self._spoken_s += features.duration_s + (take.pause_before_ms or 0) / 1_000
        prosodic = {one.meter for one in judgement.reasons} & {"V1", "V4", "V6", "V7", "V8"}
        self._watches = self._watches + 1 if prosodic else 0
        self._rest = max(0, self._rest - 1)
        if judgement.verdict is Verdict.REANCHOR:
            self._watches, self._rest = 0, _REANCHOR_REST
        self._count_embedding(take)
        if features.active_s < _MIN_ACTIVE_S:
            return
        self.level.take(features.level_db, features.active_s)
        self.pitch.take(features.pitch_st, features.voiced_s)
        self.pace.take(self._pace(take), features.active_s)
        if not {one.meter for one in judgement.reasons} & {"V1", "V7"}:
            self.timbre.take(features.spectrum)
            self._learn_identity(take)

    def feed(self, take: Take) -> Judgement:
        """Assess and accept."""
        judgement = self.assess(take)
        self.accept(take, judgement)
        return judgement

    # ------------------------------------------------------------ meters
    def _identity(self, take: Take, readings: dict[str, float | None]) -> list[Reason]:
        cosine = self._cosine(take)
        readings["identity"] = cosine
        if cosine is None:
            return []
        limits = self.limits
        if cosine < limits.identity_reroll:
            return [
                Reason(
                    "V1",
                    "identity",
                    cosine,
                    limits.identity_reroll,
                    "cosine",
                    limits.identity_reroll / max(cosine, 0.05),
                )
            ]
        least = limits.identity_long_watch if take.embedded_s >= _IDENTITY_LONG_S else limits.identity_watch
        if cosine < least:
            return [Reason("V1", "identity_watch", cosine, least, "cosine", least / cosine)]
        return []

    def _cosine(self, take: Take) -> float | None:
        if take.embedding is None or take.embedded_s < _IDENTITY_MIN_S:
            return None
        anchor = self.anchor.embedding
        if anchor is None:
            if self._embedded_s < _IDENTITY_ANCHOR_S:
                return None
            anchor = self._embedded
        if anchor.shape != take.embedding.shape:
            return None
        norms = float(np.linalg.norm(anchor) * np.linalg.norm(take.embedding))
        return float(anchor @ take.embedding) / norms if norms > 0 else None

    def _learn_identity(self, take: Take) -> None:
        if take.embedding is None or self._embedded_s >= 2 * _IDENTITY_ANCHOR_S:
            return
        if self._embedded.shape != take.embedding.shape:
            self._embedded, self._embedded_s = np.zeros(take.embedding.shape), 0.0
        self._embedded = self._embedded + take.embedding * take.embedded_s
        self._embedded_s += take.embedded_s

    def _count_embedding(self, take: Take) -> None:
        if take.embedding is None or take.embedded_s < _IDENTITY_MIN_S:
            return
        if self.embedding_sum.shape != take.embedding.shape:
            self.embeddings, self.embedding_sum = 0, np.zeros(take.embedding.shape)
        norm = float(np.linalg.norm(take.embedding))
        if norm > 0:
            self.embeddings += 1
            self.embedding_sum = self.embedding_sum + take.embedding / norm

    def _length(self, take: Take, readings: dict[str, float | None]) -> list[Reason]:
        frames = take.features.duration_s / FRAME_S
        tokens = take.text_tokens
        ratio = frames / tokens if tokens else None
        readings["frames_per_token"] = ratio
        if take.looped:
            return [Reason("V9", "loop", 1.0, 0.0, "", 2.0)]
        if ratio is not None and tokens:
            least, most = _FRAMES_PER_TOKEN
            if ratio > most and frames > _SHORT_FRAMES:
                return [Reason("V9", "frames_per_token", ratio, most, "frames", ratio / most)]
            if ratio < least and tokens >= _FEW_TOKENS:
                return [Reason("V9", "frames_per_token", ratio, least, "frames", least / max(ratio, 0.1))]
        return []

    def _steady(self, take: Take, readings: dict[str, float | None]) -> list[Reason]:
        features = take.features
        found: list[Reason] = []
        for meter, name, unit, steady, value, seconds in (
            ("V6", "level_offset", "dB", self.level, features.level_db, features.active_s),
            ("V4", "pitch_offset", "semitones", self.pitch, features.pitch_st, features.voiced_s),
            ("V8", "pace", "log ratio", self.pace, self._pace(take), features.active_s),
        ):
            enough = features.active_s >= _MIN_ACTIVE_S
            change: Change | None = steady.look(value, seconds) if enough else None
            readings[name] = value - steady.baseline if enough and change is not None else None
            if change is not None and steady.raised(change):
                excess = change.deviations / steady.steadiness.threshold
                least = steady.steadiness.least
                found.append(Reason(meter, name, change.offset, least, unit, excess, change.segments))
        return found

    def _pace(self, take: Take) -> float:
        expected_s = self.limits.pace_model.expected_s(take.text)
        spoken_s = take.features.active_s
        return float(np.log(spoken_s / expected_s)) if expected_s > 0 and spoken_s > 0 else float("nan")

    def _timbre(self, take: Take, readings: dict[str, float | None]) -> tuple[list[Reason], bool]:
        limits = self.limits.timbre
        distance = self.timbre.look(take.features.spectrum) if take.features.active_s >= _MIN_ACTIVE_S else None
        readings["timbre_distance"] = distance
        watch, reroll = self.timbre.allowed
        if distance is None or distance < watch:
            return [], False
        unit = "dB" if limits.whitening is None else "deviations"
        return (
            [Reason("V7", "timbre_distance", distance, watch, unit, distance / watch)],
            distance >= reroll,
        )

    def _clicks(self, take: Take, readings: dict[str, float | None]) -> list[Reason]:
        step = max((abs(one.step) for one in take.features.clicks), default=0.0)
        seam = self._seam_step(take)
        readings["seam_step"] = seam
        found = []
        if seam > self.limits.seam_step:
            found.append(Reason("V10", "seam_step", seam, self.limits.seam_step, "full scale", 2.0))
        if step:
            found.append(Reason("V10", "click", step, self.limits.seam_step, "full scale", 2.0))
        return found

    def _pauses(self, take: Take, readings: dict[str, float | None]) -> list[Reason]:
        limits, features = self.limits, take.features
        realised, target = self._pause(take)
        off_ms = None if realised is None or target is None else realised - target
        readings["seam_pause"] = off_ms
        found = []
        if off_ms is not None and abs(off_ms) > limits.seam_pause_ms:
            found.append(_long("seam_pause", off_ms, limits.seam_pause_ms))
        if features.active_s and features.leading_ms > limits.leading_ms:
            found.append(_long("leading_silence", features.leading_ms, limits.leading_ms))
        gap_ms = limits.inner_mark_gap_ms if inner_marks(take.text) else limits.inner_gap_ms
        if features.longest_gap_ms > gap_ms:
            found.append(_long("inner_gap", features.longest_gap_ms, gap_ms))
        if features.dropout_ms > limits.dropout_ms:
            found.append(_long("dropout", features.dropout_ms, limits.dropout_ms))
        return found

    # ------------------------------------------------------------ seams
    def _before(self, take: Take) -> Take | None:
        """The segment before it in the same reply."""
        last = self._last
        return last if last is not None and last.reply == take.reply else None

    def _pause(self, take: Take) -> tuple[float | None, float | None]:
        before = self._before(take)
        if before is None or take.pause_before_ms is None or not (before.features.active_s and take.features.active_s):
            return None, None
        realised = take.pause_ms
        if realised is None:
            realised = before.features.trailing_ms + take.pause_before_ms + take.features.leading_ms
        target = take.target_pause_ms
        return realised, float(target_pause_ms(before.text)) if target is None else target

    def _seam_step(self, take: Take) -> float:
        """The audible step (full scale) where this segment begins, and where the one before ended; 0 if none is."""
        before = self._before(take)
        head = np.array(take.features.edges[0])
        if before is None:
            return _audible(np.zeros(2), head)
        tail = np.array(before.features.edges[1])
        if take.pause_before_ms:
            return max(_audible(tail, np.zeros(2)), _audible(np.zeros(2), head))
        return _audible(tail, head)

    def _record(self, take: Take, judgement: Judgement) -> Record:
        features, before = take.features, self._before(take)
        pause_ms, target_ms = self._pause(take)
        pitch_step: float | None = None
        seam_timbre: float | None = None
        if before is not None:
            step = abs(features.head_pitch_st - before.features.tail_pitch_st)
            pitch_step = step if np.isfinite(step) else None
            if min(features.head.seconds, before.features.tail.seconds) >= 1.0:
                seam_timbre = spectrum_distance_db(features.head, before.features.tail)
        return Record(
            reply=take.reply,
            index=take.index,
            at_s=self._spoken_s + (take.pause_before_ms or 0) / 1_000,
            duration_s=features.duration_s,
            active_s=features.active_s,
            level_db=features.level_db,
            pitch_st=features.pitch_st,
            pitch_range_st=features.pitch_range_st,
            pace=self._pace(take),
            leading_ms=features.leading_ms,
            pause_ms=pause_ms,
            target_pause_ms=target_ms,
            pitch_step_st=pitch_step,
            seam_timbre_db=seam_timbre,
            judgement=judgement,
        )


def _long(name: str, value_ms: float, limit_ms: float) -> Reason:
    return Reason("V11", name, value_ms, limit_ms, "ms", abs(value_ms) / limit_ms)


def _audible(tail: NDArray[np.float64], head: NDArray[np.float64]) -> float:
    """As ``voices.seams.audible_step``, from the few samples that a measurement keeps."""
    step = abs(float(head[0] - tail[-1]))
    slew = min(float(np.abs(np.diff(tail)).max()), float(np.abs(np.diff(head)).max()))
    return step if step > AUDIBLE_STEP and step > 2 * slew else 0.0
