"""Immutable facts that come out of a reply, in the order in which a client may see them."""

from __future__ import annotations

from dataclasses import dataclass

from segmenter import Segment
from sidecar.faults import Fault
from sidecar.ports import Pcm


@dataclass(frozen=True, slots=True)
class SegmentStarted:
    """The engine begins this segment; its samples follow. ``first_sample`` counts from the start of the reply.

    ``ends``: of a segment that may still grow, for each character of its spoken text where it ends in the reply's own
    text; None for one that is complete.
    """

    segment: Segment
    seed: int
    voice: str
    language: str
    first_sample: int
    ends: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class ReplyAudio:
    """The next samples of the reply: speech, or the pause between two segments (then ``ready_s`` is None).

    ``ready_s`` is the event loop's time since which they could have been sent, ``text_chars`` how much of the segment's
    spoken text the engine had taken in by then.
    """

    pcm: Pcm
    ready_s: float | None = None
    text_chars: int | None = None

    @property
    def is_pause(self) -> bool:
        """Silence between two segments, a fraction of a second."""
        return self.ready_s is None


@dataclass(frozen=True, slots=True)
class SegmentGrew:
    """The segment that sounds goes on with this text to be said; audio of it follows.

    ``ends``: for each of its characters, where it ends in the reply's own text.
    """

    spoken: str
    ends: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SegmentEnded:
    """The segment has been spoken (``samples`` of it), or ended early by ``fault``."""

    segment: Segment
    samples: int
    fault: Fault | None = None


ReplyEvent = SegmentStarted | SegmentGrew | ReplyAudio | SegmentEnded
