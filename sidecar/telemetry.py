"""What the sidecar says about itself: metrics for Prometheus, and a watch on the event loop."""

from __future__ import annotations

import asyncio
import logging
import math
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics import MetricWrapperBase

from sidecar import faults
from sidecar.drift_watch import SKIPPED
from sidecar.ports import SAMPLE_RATE_HZ
from sidecar.telemetry_log import configure_logging, frame_place
from voices.drift import Verdict

__all__ = ["ENDPOINTS", "OUTCOMES", "LoopMonitor", "Metrics", "ReplyTimer", "configure_logging"]

log = logging.getLogger(__name__)

OTHER = "other"
"""The label of every value that is not in its list."""

DRIFT_METERS = (*(f"V{number}" for number in range(1, 12)), OTHER)
MODES = ("segment", "live")
ENDPOINTS = ("speech", "chat", "stream", "realtime", OTHER)
OUTCOMES = ("completed", "cancelled", "failed", "rejected", OTHER)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_WAIT_BUCKETS_S = (0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 10.0)
_OVERHEAD_BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0)
_LEAD_BUCKETS = (0, 1, 2, 4, 8, 12, 16, 24, 32, 64)
_FACTOR_BUCKETS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0, 1.1, 1.5, 2.0, 5.0)

Child = TypeVar("Child", bound=MetricWrapperBase)


def _fault_codes() -> tuple[str, ...]:
    codes = {kind.code for kind in vars(faults).values() if isinstance(kind, type) and issubclass(kind, faults.Fault)}
    return (*sorted(code for code in codes if code), OTHER)


FAULT_CODES = _fault_codes()


class _Children(Mapping[str, Child]):
    """One child of a metric per known label value, bound beforehand; unknown values share the child ``other``."""

    def __init__(self, children: dict[str, Child]) -> None:
        self._children = children
        self._other = children[OTHER]

    def __getitem__(self, value: str) -> Child:
        return self._children.get(value, self._other)

    def __iter__(self) -> Iterator[str]:
        return iter(self._children)

    def __len__(self) -> int:
        return len(self._children)


class Metrics:
    """All metrics of one app, in a registry of their own. Recording never raises.

    The set of series is fixed: labels take only listed values, and what is not listed counts as ``other``. It is
    also a ``ReplyObserver`` and a ``LiveObserver``.
    """

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry(auto_describe=False)

        def histogram(name: str, doc: str, buckets: Sequence[float], labels: Sequence[str] = ()) -> Histogram:
            return Histogram(f"sidecar_{name}", doc, labels, registry=registry, buckets=(*buckets, math.inf))

        def counter(name: str, doc: str, labels: Sequence[str] = ()) -> Counter:
            return Counter(f"sidecar_{name}", doc, labels, registry=registry)

        first_audio = histogram("time_to_first_audio_seconds", "Request to first audio.", _WAIT_BUCKETS_S, ["endpoint"])
        self._first_audio = _Children({name: first_audio.labels(name) for name in ENDPOINTS})
        token_to_audio = histogram(
            "first_token_to_first_audio_seconds", "First token of the model to first audio.", _WAIT_BUCKETS_S, ["mode"]
        )
        self._token_to_audio = _Children({mode: token_to_audio.labels(mode) for mode in (*MODES, OTHER)})
        self._live_lead = histogram(
            "live_lead_tokens", "Live mode: text that lies ahead of the engine, about, at each chunk.", _LEAD_BUCKETS
        )
        self._live_stalls = counter("live_stalls_total", "Live mode: times that an engine ran out of whole words.")
        self._live_rolls = counter("live_rollovers_total", "Live mode: generations that took over from another.")
        self._factor = histogram("realtime_factor", "Seconds taken per second of audio of a reply.", _FACTOR_BUCKETS)
        self._token_to_engine = histogram(
            "token_to_engine_seconds",
            "Token that completes a segment to the call of the engine.",
            _OVERHEAD_BUCKETS_S,
        )
        self._chunk_to_socket = histogram(
            "chunk_to_socket_seconds", "Chunk of the engine to the write of its bytes.", _OVERHEAD_BUCKETS_S
        )
        self._loop_lag = histogram("loop_lag_seconds", "Lateness of the event loop.", _OVERHEAD_BUCKETS_S)
        replies = counter("replies_total", "Replies by how they ended.", ["endpoint", "outcome"])
        self._replies = {
            (endpoint, outcome): replies.labels(endpoint, outcome) for endpoint in ENDPOINTS for outcome in OUTCOMES
        }
        codes = counter("faults_total", "Errors answered, by code.", ["code"])
        self._faults = _Children({code: codes.labels(code) for code in FAULT_CODES})
        self._cancels = counter("cancels_total", "Times that a client asked to stop.")
        self._underruns = counter("underruns_total", "Times that audio came later than it was to sound.")
        self._segments = counter("segments_total", "Utterances given to the engine.")
        judged = counter("drift_judged_total", "Segments by the verdict on their voice.", ["verdict"])
        self._drift_judged = _Children({verdict: judged.labels(verdict) for verdict in (*map(str, Verdict), OTHER)})
        reasons = counter("drift_reasons_total", "Meters that gave a reason for a verdict.", ["meter"])
        self._drift_reasons = _Children({meter: reasons.labels(meter) for meter in DRIFT_METERS})
        skipped = counter("drift_skipped_total", "Segments whose voice was not judged.", ["reason"])
        self._drift_skipped = _Children({reason: skipped.labels(reason) for reason in (*SKIPPED, OTHER)})
        self._audio_s = counter("audio_seconds_total", "Audio produced.")
        self._active = Gauge("sidecar_active_replies", "Replies that speak now.", registry=registry)
        self._rows = Gauge("sidecar_engine_rows", "Utterances the engine speaks now.", registry=registry)

    def reply_started(
        self, endpoint: str, now_ms: float, *, streamed: bool = True, mode: str = "segment"
    ) -> ReplyTimer:
        """Time one reply of one of ``ENDPOINTS`` in one of ``MODES``; ``streamed``: it is heard while it is made."""
        return ReplyTimer(self, endpoint, now_ms, streamed, mode)

    def drift_judged(self, verdict: str, meters: tuple[str, ...]) -> None:
        """A segment's voice got this verdict; ``meters`` gave reasons."""
        self._drift_judged[verdict].inc()
        for meter in meters:
            self._drift_reasons[meter].inc()

    def drift_skipped(self, reason: str) -> None:
        """A segment's voice was not judged."""
        self._drift_skipped[reason].inc()

    @contextmanager
    def active(self, places: int = 1) -> Iterator[None]:
        """Count so many replies as speaking for the time of a block."""
        self._active.inc(places)
        try:
            yield
        finally:
            self._active.dec(places)

    def utterance_opened(self) -> None:
        """A segment goes to the engine."""
        self._segments.inc()

    def segment_waited(self, ms: float) -> None:
        """Time from the token that completed a segment to the call of the engine."""
        self._token_to_engine.observe(_seconds(ms))

    def chunk_waited(self, ms: float) -> None:
        """Time from a chunk of the engine to the write of its bytes to the socket."""
        self._chunk_to_socket.observe(_seconds(ms))

    def live_lead(self, tokens: float) -> None:
        """About so much text lay ahead of the engine when a chunk was made."""
        self._live_lead.observe(max(0.0, tokens))

    def live_stalled(self) -> None:
        """A live reply's engine has no whole word left."""
        self._live_stalls.inc()

    def live_rolled_over(self) -> None:
        """Another generation goes on with a live reply."""
        self._live_rolls.inc()

    def first_audio(
        self, endpoint: str, since_start_ms: float, since_token_ms: float | None = None, mode: str = "segment"
    ) -> None:
        """A reply's first audio: time from its request, and from the model's first token if there was one."""
        self._first_audio[endpoint].observe(_seconds(since_start_ms))
        if since_token_ms is not None:
            self._token_to_audio[mode].observe(_seconds(since_token_ms))

    def audio(self, samples: int) -> None:
        """So many samples at 24 kHz were produced."""
        self._audio_s.inc(max(0, samples) / SAMPLE_RATE_HZ)

    def underrun(self) -> None:
        """A listener has run out of audio in the middle of a reply."""
        self._underruns.inc()

    def reply_ended(self, endpoint: str, outcome: str, realtime_factor: float | None = None) -> None:
        """A reply is over, with one of ``OUTCOMES``."""
        endpoint = endpoint if endpoint in ENDPOINTS else OTHER
        outcome = outcome if outcome in OUTCOMES else OTHER
        self._replies[endpoint, outcome].inc()
        if realtime_factor is not None:
            self._factor.observe(realtime_factor)

    def fault(self, code: str | None) -> None:
        """An error of this ``Fault.code`` was answered."""
        self._faults[code or OTHER].inc()

    def cancelled(self) -> None:
        """A client asked to stop what was being said (one that just goes away ends as ``cancelled``)."""
        self._cancels.inc()

    def engine_rows(self, rows: int) -> None:
        """So many utterances are being spoken now."""
        self._rows.set(rows)

    def loop_lag(self, ms: float) -> None:
        """The event loop came so much later than it was to."""
        self._loop_lag.observe(_seconds(ms))

    def render(self) -> tuple[bytes, str]:
        """The text that Prometheus scrapes, and its content type."""
        return generate_latest(self.registry), CONTENT_TYPE


class ReplyTimer:
    """What happens to one reply, told by its endpoint with the monotonic time of each event in ms."""

    __slots__ = (
        "_done_ms", "_ended", "_endpoint", "_metrics", "_mode", "_samples", "_start_ms", "_streamed", "_token_ms"
    )  # fmt: skip

    def __init__(self, metrics: Metrics, endpoint: str, now_ms: float, streamed: bool, mode: str = "segment") -> None:
        self._metrics = metrics
        self._mode = mode
        self._endpoint = endpoint
        self._streamed = streamed
        self._start_ms = now_ms
        self._token_ms: float | None = None
        self._samples = 0
        self._done_ms = now_ms  # when what has been produced so far will have sounded
        self._ended = False

    def token(self, now_ms: float) -> None:
        """The model has written something to be spoken; only the first time counts."""
        if self._token_ms is None:
            self._token_ms = now_ms

    def audio(self, now_ms: float, samples: int) -> None:
        """``samples`` at 24 kHz go to the client. Late ones count as an underrun if the reply is ``streamed``."""
        if samples <= 0:
            return
        if self._samples == 0:
            since_token_ms = None if self._token_ms is None else now_ms - self._token_ms
            self._metrics.first_audio(self._endpoint, now_ms - self._start_ms, since_token_ms, self._mode)
        elif self._streamed and now_ms > self._done_ms:
            self._metrics.underrun()
        self._samples += samples
        self._done_ms = max(self._done_ms, now_ms) + samples * 1_000 / SAMPLE_RATE_HZ
        self._metrics.audio(samples)

    def ended(self, now_ms: float, outcome: str) -> None:
        """The reply is over, with one of ``OUTCOMES``; only the first call counts."""
        if self._ended:
            return
        self._ended = True
        factor = None
        if outcome == "completed" and self._samples:
            factor = max(0.0, now_ms - self._start_ms) / 1_000 / (self._samples / SAMPLE_RATE_HZ)
        self._metrics.reply_ended(self._endpoint, outcome, factor)


class LagSink(Protocol):
    """Told how late the event loop is."""

    def loop_lag(self, ms: float) -> None:
        """One measurement."""


class LoopMonitor:
    """Measures how late the event loop is, and logs what it is doing when it hangs.

    The loop sets a beat; a thread looks whether it keeps to it, and if not, logs the places of the loop's stack
    (never values). Cheap enough to run always.
    """

    def __init__(self, sink: LagSink, *, threshold_ms: float = 100.0, interval_ms: float = 50.0) -> None:
        """Blocks longer than ``threshold_ms`` are logged, each once; the lag is measured each ``interval_ms``."""
        self._sink = sink
        self._threshold_s = threshold_ms / 1_000
        self._interval_s = interval_ms / 1_000
        self._due_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Watch the running event loop. Does nothing if it is being watched already."""
        if self._thread is not None:
            return
        self._stop.clear()
        self._schedule(asyncio.get_running_loop())
        watched = threading.get_ident()
        self._thread = threading.Thread(target=self._watch, args=(watched,), name="loop-monitor", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Watch no longer; to be called in the loop. Idempotent."""
        self._stop.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._thread is not None:
            self._thread.join(timeout=1.0)
            self._thread = None

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due_s = time.monotonic() + self._interval_s
        self._timer = loop.call_later(self._interval_s, self._beat, loop)

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        lag_s = max(0.0, time.monotonic() - self._due_s)
        self._sink.loop_lag(lag_s * 1_000)
        if lag_s > self._threshold_s:
            log.warning("the event loop was blocked", extra={"lag_ms": round(lag_s * 1_000)})
        self._schedule(loop)

    def _watch(self, watched: int) -> None:
        reported_due_s = 0.0
        while not self._stop.wait(self._threshold_s / 4):
            due_s = self._due_s
            if due_s != reported_due_s and time.monotonic() - due_s > self._threshold_s:
                reported_due_s = due_s
                log.warning("the event loop is blocked", extra={"stack": _stack_of(watched)})


def _stack_of(thread: int) -> str:
    """The innermost places of a thread's stack, the innermost first."""
    frame = sys._current_frames().get(thread)
    places: list[str] = []
    while frame is not None and len(places) < 12:
        places.append(frame_place(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return " < ".join(places)


def _seconds(ms: float) -> float:
    return ms / 1_000 if 0 <= ms < math.inf else 0.0
