"""What listens along while a reply is made: the carry for its next segment, and the watch over its voice.

The speech line tells each segment's ``Ear`` of every chunk as the engine makes it, ahead of the listener, and asks it
at the end whether to speak the segment again. Nothing here delays a sample.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from segmenter import Segment
from sidecar.drift_watch import DriftWatch, SegmentFacts, SegmentTap
from sidecar.heard_pauses import SegmentEdges
from sidecar.ports import AudioChunk, Utterance
from voices.anchor import CODEBOOKS
from voices.carry import Carry, KeptCarry
from voices.continuity import Continuity, Manner
from voices.drift import Judgement, VoiceAnchor
from voices.guard import Action, Guard, better_take
from voices.seeds import segment_seed

JUDGED_WITHIN_S = 1.5
"""A verdict that takes longer comes too late to act on."""


@dataclass(frozen=True, slots=True)
class WatchedDialog:
    """Whose dialog it is that is watched, under which name; ``anchor`` is what is known of its voice."""

    tenant: str
    dialog: str
    watch: DriftWatch
    guard: Guard | None = None
    anchor: VoiceAnchor | None = None


class ReplyEars:
    """All that listens to one reply. ``continuity`` None: nothing is carried; ``watched`` None: nothing is judged."""

    def __init__(
        self,
        reply_index: int,
        dialog_seed: int,
        continuity: Continuity | None = None,
        watched: WatchedDialog | None = None,
    ) -> None:
        self.reply_index = reply_index
        self.dialog_seed = dialog_seed
        self.continuity = continuity
        self.watched = watched
        self._edges: SegmentEdges | None = None

    @property
    def carries(self) -> bool:
        """A segment leans on the one before, which must be complete then."""
        return self.continuity is not None

    def carry(self, voice: str, language: str | None) -> Carry | None:
        """What a segment leans on; nothing where its language is not known yet."""
        if self.continuity is None or language is None:
            return None
        return self.continuity.next(Manner(voice, language))

    def kept(self, now_s: float) -> KeptCarry | None:
        """What the dialog's next reply may lean on."""
        return self.continuity.kept(now_s) if self.continuity is not None else None

    def ear(self, segment: Segment, voice: str, shaped: bool | None = None) -> Ear:
        """What listens to one segment, in the order in which they sound.

        ``shaped``: pauses are made as ``sounding`` does; None: nobody knows here, and they are not measured.
        """
        edges = None
        if self.watched is not None and shaped is not None:
            edges = SegmentEdges(segment, shaped=shaped, before=self._edges)
        self._edges = edges
        return Ear(self, segment, voice, edges)


@dataclass(frozen=True, slots=True)
class _FirstTake:
    """What is kept of a take while another one is tried."""

    tap: SegmentTap
    judgement: Judgement
    codes: list[NDArray[np.int16]]
    tail_ms: float | None


class Ear:
    """Listens to one segment; see ``speech_line.Listener``."""

    def __init__(self, ears: ReplyEars, segment: Segment, voice: str, edges: SegmentEdges | None) -> None:
        self._ears = ears
        self._segment = segment
        self._voice = voice
        self._edges = edges
        self._tail_ms: float | None = None
        self._asked: Utterance | None = None
        self._language = ""
        self._codes: list[NDArray[np.int16]] = []
        self._tap: SegmentTap | None = None
        self._first: _FirstTake | None = None

    def opened(self, asked: Utterance, language: str, text_tokens: int) -> None:
        """The engine begins to speak it."""
        self._asked, self._language, self._codes = asked, language, []
        if self._edges is not None:
            self._edges.begin()
        watched = self._ears.watched
        if watched is not None:
            facts = SegmentFacts(
                self._segment.spoken,
                self._ears.reply_index,
                self._segment.index,
                text_tokens=text_tokens,
            )
            self._tap = watched.watch.segment(watched.tenant, watched.dialog, facts, anchor=watched.anchor)

    def chunk(self, chunk: AudioChunk) -> None:
        """More of it."""
        if chunk.codes is not None:
            self._codes.append(chunk.codes)
        if self._tap is not None:
            self._tap.add(chunk.pcm)
        if self._edges is not None:
            self._edges.feed(chunk.pcm)

    async def over(self, heard: Callable[[], bool]) -> Utterance | None:
        """It is complete. What to speak in its place, if the guard wants another take that nobody has heard yet."""
        self._complete()
        tap, watched = self._tap, self._ears.watched
        if tap is None or watched is None or watched.guard is None:
            self._settled()
            return None
        judgement = await _within(tap.judge())
        if judgement is None or self._asked is None:
            self._settled()
            return None
        guard, place = watched.guard, (self._ears.reply_index, self._segment.index)
        if heard():
            guard.sent(*place)
        action = guard.decide(*place, judgement)
        if action is Action.REROLL:
            self._first = _FirstTake(tap, judgement, self._codes, self._tail_ms)
            seed = segment_seed(self._asked.seed, *place)
            return replace(self._asked, seed=seed)
        self._settled(reanchor=action is Action.REANCHOR)
        return None

    async def better(self) -> bool:
        """The second take is complete: whether it is the better one."""
        self._complete()
        first, tap = self._first, self._tap
        if first is None or tap is None:
            return False
        judgement = await _within(tap.judge())
        return judgement is not None and better_take(first.judgement, judgement) == 1

    def chose(self, *, second: bool) -> None:
        """Which take is played."""
        first = self._first
        if first is None:
            return
        if second:
            first.tap.drop()
            self._settled()
            return
        if self._tap is not None and self._tap is not first.tap:
            self._tap.drop()
        self._tap, self._codes, self._tail_ms = first.tap, first.codes, first.tail_ms
        # The guard wanted this one gone: what comes next must not be drawn after it.
        self._settled(reanchor=True)

    def lost(self) -> None:
        """It was cancelled or failed: nothing may lean on it."""
        if self._tap is not None:
            self._tap.drop()
        if self._edges is not None:
            self._edges.played(None)
        if self._ears.continuity is not None:
            self._ears.continuity.reset()

    def _complete(self) -> None:
        """All samples of a take are there: the pause before it can be told."""
        if self._edges is None:
            return
        self._tail_ms = self._edges.end()
        pause = self._edges.pause()
        if pause is not None and self._tap is not None:
            self._tap.paused(pause.inserted_ms, pause.wanted_ms, pause.heard_ms)

    def _settled(self, *, reanchor: bool = False) -> None:
        """The take that is played is known."""
        tap, self._tap, self._first = self._tap, None, None
        if self._edges is not None:
            self._edges.played(self._tail_ms)
        if tap is not None:
            if self._ears.watched is not None and self._ears.watched.guard is not None:
                tap.accept()
            else:
                tap.end()
        continuity = self._ears.continuity
        if continuity is None:
            return
        codes = np.concatenate(self._codes) if self._codes else np.zeros((0, CODEBOOKS), np.int16)
        continuity.spoken(Manner(self._voice, self._language), codes, self._segment.spoken)
        if reanchor:
            continuity.reset()


async def _within(answer: asyncio.Future[Judgement | None]) -> Judgement | None:
    try:
        async with asyncio.timeout(JUDGED_WITHIN_S):
            return await answer
    except TimeoutError:
        return None
