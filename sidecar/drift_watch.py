"""Watches the voices of all dialogs beside the path of sound: a copy of the samples, one thread, bounded everywhere.

The speaking side never waits here. When the thread lags, segments are left out and counted; a dialog that nobody
feeds any more is forgotten. Nothing is logged but counts: no text, no samples, no embeddings.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np

from sidecar.faults import NotFound
from sidecar.ports import SAMPLE_RATE_HZ, Clock, Pcm
from voices.drift import Judgement, VoiceAnchor
from voices.drift_limits import DriftLimits
from voices.drift_meter import DriftMeter, Judged, SpeakerEmbedding, SpokenSegment
from voices.drift_report import DriftReport
from voices.features import MAX_SEGMENT_S

log = logging.getLogger(__name__)

LAGGING, TOO_LONG, CLOSED, FAILED = "lagging", "too_long", "closed", "failed"
SKIPPED = (LAGGING, TOO_LONG, CLOSED, FAILED)
"""Why a segment was not judged."""


@dataclass(frozen=True, slots=True)
class DriftWatchLimits:
    """Bounds. ``queued_s``: audio that waits for the thread or is being collected, of all dialogs together."""

    max_dialogs: int = 256
    dialog_ttl_s: float = 3_600.0
    queued_s: float = 120.0


class DriftObserver(Protocol):
    """Told what the watch finds (metrics). Called in the event loop."""

    def drift_judged(self, verdict: str, meters: tuple[str, ...]) -> None:
        """A segment got this verdict; ``meters`` (``V6``, ...) are those that gave a reason."""

    def drift_skipped(self, reason: str) -> None:
        """A segment was not judged, for one of ``SKIPPED``."""


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """What is known of a segment beside its samples; see ``voices.drift.Take``."""

    text: str
    reply: int
    index: int
    pause_before_ms: float | None = None
    target_pause_ms: float | None = None
    text_tokens: int | None = None
    pause_ms: float | None = None


class SegmentTap:
    """Collects the samples of one segment on their way out. ``add`` copies; ``end`` hands them to the thread.

    A segment that was cancelled is given up with ``drop``. Every method may be called again without harm.
    """

    __slots__ = ("_dialog", "_facts", "_given_up", "_judged", "_parts", "_samples", "_watch")

    def __init__(self, watch: DriftWatch, dialog: _Dialog, facts: SegmentFacts) -> None:
        self._watch: DriftWatch | None = watch
        self._dialog = dialog
        self._facts = facts
        self._parts: list[Pcm] = []
        self._samples = 0
        self._given_up = False
        self._judged: Judged | None = None

    def add(self, pcm: Pcm) -> None:
        """Take a copy of the next samples; of what is too much for the watch, nothing is kept."""
        if self._watch is None or self._given_up:
            return
        if self._samples + len(pcm) > MAX_SEGMENT_S * SAMPLE_RATE_HZ:
            self._give_up(TOO_LONG)
        elif not self._watch._reserve(len(pcm)):
            self._give_up(LAGGING)
        else:
            self._samples += len(pcm)
            self._parts.append(pcm.copy())

    def paused(self, before_ms: float, target_ms: float, heard_ms: float | None) -> None:
        """The pause before it has become known; before ``end`` and ``judge``."""
        self._facts = replace(self._facts, pause_before_ms=before_ms, target_pause_ms=target_ms, pause_ms=heard_ms)

    def end(self) -> asyncio.Future[Judgement | None]:
        """The segment is complete and was spoken. The answer comes once it is judged; None if it was left out."""
        return self._hand_over(accept=True)

    def judge(self) -> asyncio.Future[Judgement | None]:
        """As ``end``, but the take counts only after ``accept``: another one may still be played in its place."""
        return self._hand_over(accept=False)

    def accept(self) -> None:
        """The take that was judged is the one that is spoken. Before the next segment is judged; at most once."""
        if self._watch is not None and self._judged is not None:
            self._watch._accept(self._dialog, self._judged)
        self._watch, self._judged = None, None

    def _hand_over(self, *, accept: bool) -> asyncio.Future[Judgement | None]:
        parts, self._parts = self._parts, []
        if self._watch is None or self._given_up or not parts:
            self._watch = None
            nothing: asyncio.Future[Judgement | None] = asyncio.get_running_loop().create_future()
            nothing.set_result(None)
            return nothing
        self._given_up = True
        return self._watch._submit(self._dialog, self._facts, parts, self._samples, None if accept else self)

    def drop(self) -> None:
        """The segment will not be complete: forget it."""
        watch, self._watch = self._watch, None
        self._parts = []
        if watch is not None and not self._given_up:
            watch._release(self._samples)

    def _give_up(self, reason: str) -> None:
        self._given_up = True
        self._parts = []
        if self._watch is not None:
            self._watch._release(self._samples)
            self._watch._skipped(reason)


class _Dialog:
    """A dialog's meter (touched in the thread only) and when it was last fed."""

    __slots__ = ("last_ms", "make", "meter")

    def __init__(self, make: Callable[[], DriftMeter], now_ms: float) -> None:
        self.make = make
        self.meter: DriftMeter | None = None
        self.last_ms = now_ms

    def judge(self, facts: SegmentFacts, parts: list[Pcm], accept: bool) -> Judged:
        meter = self.opened()
        judged = meter.judge(
            SpokenSegment(
                np.concatenate(parts),
                facts.text,
                facts.reply,
                facts.index,
                facts.pause_before_ms,
                facts.target_pause_ms,
                facts.text_tokens,
                pause_ms=facts.pause_ms,
            )
        )
        if accept:
            meter.accept(judged)
        return judged

    def accept(self, judged: Judged) -> None:
        self.opened().accept(judged)

    def opened(self) -> DriftMeter:
        if self.meter is None:
            self.meter = self.make()
        return self.meter


class DriftWatch:
    """All dialogs' meters behind one thread. Use from one event loop; ``close`` when done.

    ``embed`` runs in the thread. ``limits`` are those of the voice if it was calibrated.
    """

    def __init__(
        self,
        clock: Clock,
        limits: DriftWatchLimits | None = None,
        embed: SpeakerEmbedding | None = None,
        observer: DriftObserver | None = None,
    ) -> None:
        self._clock = clock
        self._limits = limits or DriftWatchLimits()
        self._embed = embed
        self._observer = observer
        self._dialogs: OrderedDict[tuple[str, str], _Dialog] = OrderedDict()
        self._held_samples = 0
        self._thread: ThreadPoolExecutor | None = ThreadPoolExecutor(1, thread_name_prefix="voice-drift")
        self.skipped = dict.fromkeys(SKIPPED, 0)

    @property
    def held_s(self) -> float:
        """Audio that is being collected or waits for the thread."""
        return self._held_samples / SAMPLE_RATE_HZ

    def segment(
        self,
        tenant: str,
        dialog: str,
        facts: SegmentFacts,
        limits: DriftLimits | None = None,
        anchor: VoiceAnchor | None = None,
    ) -> SegmentTap:
        """Begin to listen to a segment. ``limits`` and ``anchor`` count when the dialog's first one is heard."""
        now_ms = self._clock.now_ms()
        self._forget_old(now_ms)
        key = (tenant, dialog)
        known = self._dialogs.get(key)
        if known is None:
            known = _Dialog(partial(DriftMeter, limits, anchor, self._embed), now_ms)
            self._dialogs[key] = known
            while len(self._dialogs) > self._limits.max_dialogs:
                self._dialogs.popitem(last=False)
        known.last_ms = now_ms
        self._dialogs.move_to_end(key)
        return SegmentTap(self, known, facts)

    async def report(self, tenant: str, dialog: str) -> DriftReport:
        """The report of a dialog, all segments that ended before included. Raises ``NotFound``."""
        self._forget_old(self._clock.now_ms())
        known = self._dialogs.get((tenant, dialog))
        if known is None or self._thread is None:
            raise NotFound("No such dialog, or it has been quiet for too long.")
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: known.opened().report())

    def forget(self, tenant: str, dialog: str) -> bool:
        """Drop a dialog; True if it was known."""
        return self._dialogs.pop((tenant, dialog), None) is not None

    async def close(self) -> None:
        """Stop; what still waits is left out. Waits for the segment at work. Idempotent."""
        thread, self._thread = self._thread, None
        self._dialogs.clear()
        if thread is not None:
            thread.shutdown(wait=False, cancel_futures=True)
            await asyncio.to_thread(thread.shutdown, wait=True)

    # ------------------------------------------------------------ the taps' side
    def _reserve(self, samples: int) -> bool:
        if self._thread is None or self._held_samples + samples > self._limits.queued_s * SAMPLE_RATE_HZ:
            return False
        self._held_samples += samples
        return True

    def _release(self, samples: int) -> None:
        self._held_samples -= samples

    def _skipped(self, reason: str) -> None:
        self.skipped[reason] += 1
        if self._observer is not None:
            self._observer.drift_skipped(reason)

    def _submit(
        self, dialog: _Dialog, facts: SegmentFacts, parts: list[Pcm], samples: int, holder: SegmentTap | None
    ) -> asyncio.Future[Judgement | None]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Judgement | None] = loop.create_future()
        if self._thread is None:
            self._release(samples)
            self._skipped(CLOSED)
            answer.set_result(None)
            return answer
        work = self._thread.submit(dialog.judge, facts, parts, holder is None)
        work.add_done_callback(lambda done: _on_loop(loop, self._done, done, answer, samples, holder))
        return answer

    def _accept(self, dialog: _Dialog, judged: Judged) -> None:
        if self._thread is not None:
            self._thread.submit(dialog.accept, judged)

    def _done(
        self,
        done: Future[Judged],
        answer: asyncio.Future[Judgement | None],
        samples: int,
        holder: SegmentTap | None,
    ) -> None:
        self._release(samples)
        judgement: Judgement | None = None
        if done.cancelled():
            self._skipped(CLOSED)
        elif (error := done.exception()) is not None:
            # The kind alone: a message could quote what was said.
            log.warning("a segment could not be judged", extra={"error": type(error).__name__})
            self._skipped(FAILED)
        else:
            judgement = done.result().judgement
            if holder is not None:
                holder._judged = done.result()
            if self._observer is not None:
                meters = tuple(dict.fromkeys(one.meter for one in judgement.reasons))
                self._observer.drift_judged(str(judgement.verdict), meters)
        if not answer.done():
            answer.set_result(judgement)

    def _forget_old(self, now_ms: float) -> None:
        oldest_ms = now_ms - self._limits.dialog_ttl_s * 1_000
        while self._dialogs:
            key, dialog = next(iter(self._dialogs.items()))
            if dialog.last_ms > oldest_ms:
                return
            del self._dialogs[key]


def _on_loop(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *arguments: object) -> None:
    # The thread may end a segment after the loop has been closed: then nobody waits any more.
    if not loop.is_closed():
        try:
            loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:
            return
