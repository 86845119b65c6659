"""Decides who is admitted, stepped and decoded. Computes nothing, waits for nothing, knows no clock.

It is told what happens (requests, text, readers, frames) and asked what to do next. One turn of the step loop asks in
this order: ``seat``, ``admissions``, ``steps``, ``decodes``, ``endings``; after each it reports what came of it.
Every row that may
be stepped is stepped in every turn, so nobody starves; a row that may not costs the others nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from adapters.engines.qwen3_tts.guard import LoopGuard
from adapters.engines.qwen3_tts.requests import Ask, EndReason, Limits
from adapters.engines.qwen3_tts.stages import FRAME_SAMPLES, Frame, Frames
from adapters.engines.rows import chunk_frames
from sidecar.faults import BadRequest, EngineFault, EngineOverloaded, Fault

State = Literal["waiting", "seated", "stepping", "stalled", "paused", "ended"]
"""waiting: no row yet. seated: has a row, not prefilled (no text yet, or others first). stepping: gets the next step.
stalled: its text is missing. paused: its reader is slow. ended: no more frames, samples not all taken yet."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Frames ``(frames, 16)`` of one request to be decoded next."""

    id: int
    frames: Frames


@dataclass(frozen=True, slots=True)
class Ending:
    """All ``frames`` of a request have been decoded, and why there are no more."""

    id: int
    reason: EndReason
    frames: int


@dataclass(slots=True, eq=False)
class _Item:
    id: int
    ask: Ask
    tokens: int
    closed: bool
    room: int
    lengths: Iterator[int]
    due: int
    guard: LoopGuard | None
    needed: int
    row: int | None = None
    admitted: bool = False
    drawn: int = 0
    given: int = 0
    unread: int = 0
    decoding: bool = False
    pending: list[Frame] = field(default_factory=list)
    over: EndReason | None = None

    @property
    def held(self) -> int:
        """Samples nobody has taken yet, decoded or not."""
        return self.unread + len(self.pending) * FRAME_SAMPLES


class Scheduler:
    """The rows of one talker and the requests for them. ``rows``: how many there are."""

    def __init__(self, rows: int, limits: Limits) -> None:
        if rows < 1:
            raise ValueError("there must be at least one row")
        self._rows = rows
        self._limits = limits
        self._waiting: deque[_Item] = deque()
        self._items: dict[int, _Item] = {}
        self._by_row: dict[int, _Item] = {}
        self._free = list(range(rows - 1, -1, -1))
        self._released: list[int] = []
        self._endings: list[Ending] = []

    # ------------------------------------------------------------ told by callers
    def submit(self, id: int, ask: Ask, room: int) -> None:
        """A new request; ``room``: frames that fit into the model's positions after its prefill.

        Raises ``EngineOverloaded`` when as many wait as may, ``BadRequest`` when the text cannot fit.
        """
        if len(self._waiting) >= len(self._free) + self._limits.max_waiting:
            raise EngineOverloaded("The speech engine is busy; try again shortly.", retry_after_s=1.0)
        tokens = len(ask.prompt.text_ids)
        needed = max(1, tokens * self._limits.frames_per_token)
        if ask.max_frames is not None:
            needed = min(needed, max(1, ask.max_frames))
        if room < needed:
            raise BadRequest(
                f"The text is too long for one utterance: {tokens} tokens need about {needed} frames, "
                f"{max(room, 0)} are left; split it into shorter ones.",
                param="input",
            )
        lengths = chunk_frames(self._limits.chunk_ramp, ask.first_chunk_frames)
        guard = LoopGuard(self._limits.guard) if self._limits.guard is not None else None
        needed = ask.prompt.ids_to_begin
        item = _Item(id, ask, tokens, ask.prompt.closed, room, lengths, next(lengths), guard, needed)
        self._items[id] = item
        self._waiting.append(item)

    def text(self, id: int, tokens: int) -> None:
        """So many more text tokens have come. Unknown requests are past: ignored, here and below."""
        if (item := self._items.get(id)) is not None:
            item.tokens += tokens

    def close(self, id: int) -> None:
        """The text of the request is complete."""
        if (item := self._items.get(id)) is not None:
            item.closed = True

    def took(self, id: int, samples: int) -> None:
        """The reader has taken so many samples."""
        if (item := self._items.get(id)) is not None:
            item.unread = max(0, item.unread - samples)
            self._leave_when_done(item)

    def cancel(self, id: int) -> bool:
        """Forget a request and free its row at once; False if there is none such."""
        item = self._items.get(id)
        if item is None:
            return False
        self._leave(item)
        return True

    # ------------------------------------------------------------ asked by the step loop
    def seat(self) -> list[int]:
        """Give free rows to those who wait longest; their ids."""
        seated = []
        while self._waiting and self._free:
            item = self._waiting.popleft()
            item.row = self._free.pop()
            self._by_row[item.row] = item
            seated.append(item.id)
        return seated

    def released(self) -> list[int]:
        """Rows that have nothing more to compute, each named once; to be released before the next ``admissions``."""
        rows, self._released = self._released, []
        return rows

    def admissions(self) -> list[tuple[int, int]]:
        """(id, row) to be prefilled now: seated, with text, longest seated first, few at a time."""
        ready = [(i.id, row) for row, i in self._by_row.items() if not i.admitted and i.over is None and _has_text(i)]
        return ready[: self._limits.admits_per_turn]

    def admitted(self, id: int) -> None:
        """The prefill is done."""
        self._items[id].admitted = True

    def open_rows(self) -> list[int]:
        """Admitted rows whose text is not complete: the talker must be asked whether they lack text."""
        return [row for row, item in self._by_row.items() if item.admitted and not item.closed and item.over is None]

    def steps(self, stalled: Collection[int] = ()) -> list[int]:
        """Rows to be stepped now; ``stalled`` are those that lack text."""
        return [row for row, item in self._by_row.items() if row not in stalled and self._may_step(item)]

    def stepped(self, row: int, frame: Frame | None) -> tuple[int, Fault] | None:
        """What a step gave; returns (id, fault) when the request is to fail, which has left its row then."""
        item = self._by_row[row]
        if frame is None:
            if item.drawn == 0:
                return self._fail(item, "The model ended before it said anything; try another seed or text.")
            self._end(item, "end")
            return None
        item.drawn += 1
        item.pending.append(frame)
        loop = item.guard.see(frame) if item.guard is not None else None
        if loop is not None:
            return self._fail(item, "The model lost its way and repeats itself; try another seed or a shorter text.")
        cap, reason = self._cap(item)
        if item.drawn >= cap:
            self._end(item, reason)
        return None

    def decodes(self, stalled: Collection[int] = ()) -> list[list[Piece]]:
        """Batches to decode now, first chunks before the others; each piece is to be reported with ``decoded``.

        Until then nothing more of its request is named.

        A row that lacks text gives what it has once its reader has nothing left, however little.
        """
        first: list[_Item] = []
        later: list[_Item] = []
        for row, item in self._by_row.items():
            dry = row in stalled and item.unread == 0
            if item.decoding:
                continue
            if item.pending and (item.over is not None or dry or len(item.pending) >= item.due):
                (later if item.given else first).append(item)
        later.sort(key=lambda item: item.unread)  # stable: rows seated longer first among equals
        chosen: list[_Item] = []
        budget = self._limits.decode_frames_per_turn
        for item in later:
            budget -= min(item.due, len(item.pending))
            if chosen and budget < 0:
                break
            chosen.append(item)
        for item in (*first, *chosen):
            item.decoding = True
        return [[self._piece(item) for item in batch] for batch in (first, chosen) if batch]

    def decoded(self, piece: Piece) -> int | None:
        """The piece has become samples; returns the index of the first one, or None if the request is past."""
        item = self._items.get(piece.id)
        if item is None:
            return None
        item.decoding = False
        frames = len(piece.frames)
        del item.pending[:frames]
        item.due = next(item.lengths)
        start = item.given * FRAME_SAMPLES
        item.given += frames
        item.unread += frames * FRAME_SAMPLES
        self._note_ending(item)
        return start

    def endings(self) -> list[Ending]:
        """Requests whose frames have all been decoded, each named once."""
        endings, self._endings = self._endings, []
        return endings

    # ------------------------------------------------------------ looking in
    @property
    def active(self) -> int:
        """Rows that are taken."""
        return self._rows - len(self._free)

    @property
    def waiting(self) -> int:
        """Requests without a row."""
        return len(self._waiting)

    def ids(self) -> list[int]:
        """All requests that are not past."""
        return list(self._items)

    def held(self, id: int) -> int:
        """Samples of a request that its reader has not taken, decoded or not."""
        return self._items[id].held

    def state(self, id: int, stalled: Collection[int] = ()) -> State:
        """See ``State``."""
        item = self._items[id]
        if item.row is None:
            return "waiting"
        if item.over is not None:
            return "ended"
        if not item.admitted:
            return "seated"
        if item.row in stalled:
            return "stalled"
        return "stepping" if self._may_step(item) else "paused"

    # ------------------------------------------------------------ inside
    def _may_step(self, item: _Item) -> bool:
        room = self._limits.max_lead_frames * FRAME_SAMPLES - item.held
        return item.admitted and item.over is None and room >= FRAME_SAMPLES

    def _cap(self, item: _Item) -> tuple[int, EndReason]:
        limits = self._limits
        cap = min(item.room, max(limits.min_cap_frames, limits.cap_frames_per_token * item.tokens))
        asked = item.ask.max_frames
        return (max(1, asked), "max_frames") if asked is not None and asked <= cap else (cap, "cap")

    def _piece(self, item: _Item) -> Piece:
        return Piece(item.id, np.stack(item.pending[: item.due]))

    def _end(self, item: _Item, reason: EndReason) -> None:
        item.over = reason
        if item.row is not None:
            self._released.append(item.row)
        self._note_ending(item)
        self._leave_when_done(item)

    def _note_ending(self, item: _Item) -> None:
        if item.over is not None and not item.pending:
            self._endings.append(Ending(item.id, item.over, item.drawn))

    def _fail(self, item: _Item, message: str) -> tuple[int, Fault]:
        self._leave(item)
        return item.id, EngineFault(message)

    def _leave_when_done(self, item: _Item) -> None:
        if item.over is not None and item.held == 0:
            self._leave(item)

    def _leave(self, item: _Item) -> None:
        del self._items[item.id]
        if item.row is None:
            self._waiting.remove(item)
            return
        del self._by_row[item.row]
        self._free.append(item.row)
        if item.over is None and item.admitted:
            self._released.append(item.row)


def _has_text(item: _Item) -> bool:
    """The whole layout prefills the text and needs all of it, the streaming one its first ids."""
    return item.tokens > 0 and (item.closed or (item.ask.prompt.layout == "streaming" and item.tokens >= item.needed))
