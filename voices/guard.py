"""What to do about a verdict: speak again what nobody has heard yet, and never anything else."""

from __future__ import annotations

import enum

from voices.drift import Judgement, Verdict

SHARE = 0.1
SPARE = 2
"""A dialog of ``n`` segments may speak ``SPARE + SHARE * n`` of them again."""


class Action(enum.StrEnum):
    """``PLAY`` it; ``REROLL``: speak it again with another seed; ``REANCHOR``: play it, but drop the carry after it."""

    PLAY = "play"
    REROLL = "reroll"
    REANCHOR = "reanchor"


class Guard:
    """The policy of one dialog. ``sent`` is told as soon as the first sample of a segment leaves for the listener.

    A segment is spoken again at most once, and in a dialog only so many are: a voice that drifts everywhere is not
    cured by trying, and each try costs the engine. Segments are (reply, index), and come in order.
    """

    def __init__(self) -> None:
        self._sent = (-1, -1)
        self._rerolled = (-1, -1)
        self._decided = (-1, -1)
        self.segments = 0
        self.rerolls = 0
        self.too_late = 0
        self.refused = 0

    def sent(self, reply: int, index: int) -> None:
        """This segment, and all before it, can be heard."""
        self._sent = max(self._sent, (reply, index))

    def heard(self, reply: int, index: int) -> bool:
        """Whether somebody may have heard some of this segment."""
        return (reply, index) <= self._sent

    def decide(self, reply: int, index: int, judgement: Judgement) -> Action:
        """What to do with a take of this segment. ``too_late`` and ``refused`` count rerolls that could not be."""
        place = (reply, index)
        if place > self._decided:
            self._decided = place
            self.segments += 1
        if judgement.verdict is Verdict.REANCHOR:
            return Action.REANCHOR
        if judgement.verdict is not Verdict.REROLL:
            return Action.PLAY
        if self.heard(reply, index):
            self.too_late += 1
        elif place <= self._rerolled or self.rerolls >= SPARE + SHARE * self.segments:
            self.refused += 1
        else:
            self._rerolled = place
            self.rerolls += 1
            return Action.REROLL
        # It is heard as it is; the next segment must not be drawn after it.
        return Action.REANCHOR


def better_take(first: Judgement, second: Judgement) -> int:
    """0 or 1: which of two takes of one segment to play; the first one where they are alike."""
    return 1 if second.badness < first.badness else 0
