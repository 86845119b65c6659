"""The one step loop around the talker, in a thread of its own; see ``decoding`` for where the decoder runs.

Callers talk to it through an inbox that holds at most one note per request, whatever they do; events go back through
each request's sink. The loop asks the scheduler what to do, lets the stages do it, and tells the scheduler.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Literal, cast

import numpy as np

from adapters.engines.qwen3_tts.decoding import Apart, Decoded, Inline, Stages, Stream
from adapters.engines.qwen3_tts.requests import Ask, Ended, Event, Failed, Limits, Placed, Samples, Sink
from adapters.engines.qwen3_tts.scheduler import Piece, Scheduler
from adapters.engines.qwen3_tts.stages import Talker
from sidecar.faults import BadRequest, EngineFault, EngineLost, Fault

_log = logging.getLogger(__name__)


Trace = Callable[[Literal["admit", "step", "decode"], Sequence[int], int], None]
"""Hears of every call to a stage before it is made: what, whose (rows of a step, else request ids), how many frames."""


@dataclass(slots=True)
class _Note:
    """What has been asked of one request since the loop looked last."""

    opened: Ask | None = None
    text: list[int] = field(default_factory=list)
    closed: bool = False
    cancelled: bool = False
    took: int = 0


@dataclass(slots=True)
class _Live:
    """One request as the loop knows it."""

    ask: Ask
    sink: Sink
    text: list[int]
    closed: bool
    row: int | None = None
    stream: Stream | None = None


class Ticket:
    """One request in the hands of its caller. Any thread; nothing here waits."""

    def __init__(self, id: int, note: Callable[[int], _Note], lock: threading.Condition) -> None:
        self._id = id
        self._note = note
        self._lock = lock

    def append(self, text_ids: Sequence[int]) -> None:
        """More text ids for a prompt that is not closed."""
        with self._lock:
            self._note(self._id).text.extend(text_ids)
            self._lock.notify()

    def finish(self) -> None:
        """The text is complete. Idempotent."""
        with self._lock:
            self._note(self._id).closed = True
            self._lock.notify()

    def took(self, samples: int) -> None:
        """The reader has taken so many samples: the row may go on by as many."""
        with self._lock:
            self._note(self._id).took += samples
            self._lock.notify()

    def cancel(self) -> None:
        """Free the row before the next step; no event follows except those already under way. Idempotent."""
        with self._lock:
            self._note(self._id).cancelled = True
            self._lock.notify()


class Runtime:
    """Loads the stages in its thread and runs them until closed.

    ``load`` gives the stages. When a stage raises something unforeseen, nothing of its state can be trusted any
    more: every request fails with ``EngineLost``, and so does everything asked later.
    """

    def __init__(self, load: Callable[[], Stages], limits: Limits | None = None, *, trace: Trace | None = None) -> None:
        self._load = load
        self._limits = limits or Limits()
        self._trace: Trace = trace or (lambda what, ids, frames: None)
        self._lock = threading.Condition()
        self._notes: dict[int, _Note] = {}
        self._sinks: dict[int, Sink] = {}
        self._ids = itertools.count(1)
        self._closing = False
        self._over = False
        self._on_exit: Callable[[], None] | None = None
        self._lost: str | None = "The speech engine is not running."
        self._thread: threading.Thread | None = None
        self._active = 0
        self._turn_began: float | None = None
        self._live: dict[int, _Live] = {}

    # ------------------------------------------------------------ any thread
    def start(self) -> Future[None]:
        """Begin to load; the future ends when requests are taken, with whatever ``load`` raised otherwise."""
        ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="qwen3-tts-steps", daemon=True)
        self._thread.start()
        return ready

    def submit(self, ask: Ask, sink: Sink) -> Ticket:
        """Ask for an utterance; raises ``EngineLost`` when the loop does not run.

        All else comes as events: ``Placed``, then ``Samples``, then ``Ended``; or ``Failed`` with
        ``EngineOverloaded``, ``BadRequest``, ``EngineFault`` or ``EngineLost``.
        """
        with self._lock:
            if self._lost is not None:
                raise EngineLost(self._lost)
            id = next(self._ids)
            self._sinks[id] = sink
            self._notes[id] = _Note(opened=ask)
            self._lock.notify()
        return Ticket(id, self._note_of, self._lock)

    @property
    def active(self) -> int:
        """Rows taken, as of the last turn."""
        return self._active

    @property
    def lost(self) -> str | None:
        """Why nothing can be asked, if so."""
        return self._lost

    def busy_s(self) -> float:
        """How long the turn at work has taken so far, in seconds; a stuck kernel shows here."""
        began = self._turn_began
        return 0.0 if began is None else time.monotonic() - began

    def close(self, then: Callable[[], None] | None = None) -> None:
        """Stop after the call at work: requests fail with ``EngineLost``. ``then`` is called from the loop's thread
        as its last act, or at once when it does not run. Never waits; idempotent."""
        with self._lock:
            self._closing = True
            self._lost = self._lost or "The speech engine was stopped."
            self._lock.notify()
            if self._thread is not None and not self._over and then is not None:
                self._on_exit = then
                return
        if then is not None:
            then()

    def join(self) -> None:
        """Wait until the thread has ended."""
        if self._thread is not None:
            self._thread.join()

    def _note_of(self, id: int) -> _Note:
        # Requests that are past leave a note at most once: the loop drops what it does not know.
        if self._lost is not None:
            return _Note()
        return self._notes.setdefault(id, _Note())

    # ------------------------------------------------------------ the loop's thread
    def _run(self, ready: Future[None]) -> None:
        try:
            try:
                stages = self._load()
                scheduler = Scheduler(stages.talker.max_rows, self._limits)
            except BaseException as error:
                ready.set_exception(error)
                return
            with self._lock:
                self._lost = "The speech engine was stopped." if self._closing else None
            ready.set_result(None)
            reason = "The speech engine was stopped."
            decoding = Apart(stages, self._wake) if stages.apart else Inline(stages)
            try:
                self._serve(stages.talker, decoding, scheduler)
            except Exception:
                _log.exception("the speech engine's step loop failed")
                reason = "The speech engine failed and must be started anew."
            finally:
                decoding.close()
            self._give_up(reason)
        finally:
            with self._lock:
                self._over = True
                then = self._on_exit
            if then is not None:
                then()

    def _wake(self) -> None:
        with self._lock:
            self._lock.notify()

    def _serve(self, talker: Talker, decoding: Apart | Inline, scheduler: Scheduler) -> None:
        worked = True
        while True:
            with self._lock:
                while not (worked or self._notes or decoding.ready or self._closing):
                    self._lock.wait()
                if self._closing:
                    return
                notes, self._notes = self._notes, {}
            self._turn_began = time.monotonic()
            for id, note in notes.items():
                self._heed(talker, scheduler, id, note)
            worked = self._turn(talker, decoding, scheduler)
            self._active = scheduler.active
            self._turn_began = None

    def _heed(self, talker: Talker, scheduler: Scheduler, id: int, note: _Note) -> None:
        if note.opened is not None:
            self._open(talker, scheduler, id, note.opened)
        live = self._live.get(id)
        if live is None:
            return
        if note.cancelled:
            self._drop(scheduler, id)
            return
        if note.text and not live.closed:
            live.text.extend(note.text)
            scheduler.text(id, len(note.text))
            if live.row is not None:
                talker.append(live.row, note.text)
        if note.closed and not live.closed:
            live.closed = True
            scheduler.close(id)
            if live.row is not None:
                talker.close(live.row)
            elif not live.text:
                self._fail(scheduler, id, BadRequest("There is no text to speak.", param="input"))
                return
        if note.took:
            scheduler.took(id, note.took)

    def _open(self, talker: Talker, scheduler: Scheduler, id: int, ask: Ask) -> None:
        sink = self._sinks.pop(id)
        try:
            known = ask.prompt
            if not known.closed:  # the least it can begin with
                known = replace(known, text_ids=known.text_ids + (0,) * (known.ids_to_begin - len(known.text_ids)))
            scheduler.submit(id, ask, talker.max_positions - talker.positions(known))
        except Fault as fault:
            sink(Failed(fault))
            return
        self._live[id] = _Live(ask, sink, list(ask.prompt.text_ids), ask.prompt.closed)

    def _turn(self, talker: Talker, decoding: Apart | Inline, scheduler: Scheduler) -> bool:
        """One turn; False when there was nothing to do."""
        seated = scheduler.seat()
        self._active = scheduler.active  # before anybody hears of a row
        for id in seated:
            self._tell(id, Placed())
        self._release(talker, scheduler)
        admissions = scheduler.admissions()
        for id, row in admissions:
            self._admit(talker, scheduler, id, row)
        stalled = {row for row in scheduler.open_rows() if not talker.can_step(row)}
        rows = scheduler.steps(stalled)
        if rows:
            self._trace("step", rows, 1)
            for result in talker.step(rows):
                failed = scheduler.stepped(result.row, result.frame)
                if failed is not None:
                    self._fail(scheduler, *failed)
            self._release(talker, scheduler)
            stalled = {row for row in scheduler.open_rows() if not talker.can_step(row)}
        batches = scheduler.decodes(stalled) if decoding.free else []
        decoding.put([self._traced(batch) for batch in batches])
        done = decoding.done()
        for decoded in done:
            self._decoded(scheduler, decoded)
        for ending in scheduler.endings():
            self._tell(ending.id, Ended(ending.reason, ending.frames))
            if ending.id in self._live:
                self._live[ending.id].stream = None  # megabytes, and the reader may take its time
        self._forget(scheduler)
        return bool(admissions or rows or batches or done)

    def _admit(self, talker: Talker, scheduler: Scheduler, id: int, row: int) -> None:
        live = self._live[id]
        prompt = replace(live.ask.prompt, text_ids=tuple(live.text), closed=live.closed)
        self._trace("admit", [id], 0)
        try:
            talker.admit(row, prompt)
        except Fault as fault:
            talker.release(row)
            self._fail(scheduler, id, fault)
            return
        live.row = row
        live.stream = Stream(prompt, sounding=live.ask.output != "codes")
        scheduler.admitted(id)

    def _traced(self, batch: list[Piece]) -> list[tuple[Piece, Stream]]:
        """The batch with its streams, after telling of those that are decoded."""
        streams = [(piece, cast(Stream, self._live[piece.id].stream)) for piece in batch]
        sounding = [piece for piece, stream in streams if stream.sounding]
        if sounding:
            self._trace("decode", [piece.id for piece in sounding], sum(len(piece.frames) for piece in sounding))
        return streams

    def _decoded(self, scheduler: Scheduler, decoded: Decoded) -> None:
        """Hand out what was asked for of these: frames, samples, or both."""
        for piece, pcm in decoded:
            first = scheduler.decoded(piece)
            if first is None:
                continue  # cancelled meanwhile
            if not np.isfinite(pcm).all():
                self._fail(scheduler, piece.id, EngineFault("The decoder gave samples that are not numbers."))
                continue
            output = self._live[piece.id].ask.output
            self._tell(piece.id, Samples(pcm, first, None if output == "pcm" else piece.frames))

    def _release(self, talker: Talker, scheduler: Scheduler) -> None:
        for row in scheduler.released():
            talker.release(row)

    def _tell(self, id: int, event: Event) -> None:
        live = self._live.get(id)
        if live is not None:
            live.sink(event)

    def _fail(self, scheduler: Scheduler, id: int, fault: Fault) -> None:
        self._tell(id, Failed(fault))
        self._drop(scheduler, id)

    def _drop(self, scheduler: Scheduler, id: int) -> None:
        self._live.pop(id, None)
        scheduler.cancel(id)

    def _forget(self, scheduler: Scheduler) -> None:
        """Drop what the scheduler has let go: ended, and every sample taken."""
        if len(self._live) > len(known := set(scheduler.ids())):
            for id in [id for id in self._live if id not in known]:
                del self._live[id]

    def _give_up(self, reason: str) -> None:
        with self._lock:
            self._lost = reason
            self._notes.clear()
            waiting = list(self._sinks.values())
            self._sinks.clear()
        self._turn_began = None
        self._active = 0
        for sink in [*(live.sink for live in self._live.values()), *waiting]:
            sink(Failed(EngineLost(reason)))
        self._live.clear()
