"""Immutable facts that come out of a reply, in the order in which a client may see them."""

from __future__ import annotations

from dataclasses import dataclass

from segmenter import Segment
from sidecar.faults import Fault
from sidecar.ports import Pcm


@dataclass(frozen=True, slots=True)
class SegmentStarted:
    """The engine begins this segment; its samples follow. ``first_sample`` counts from the start of the reply."""

    segment: Segment
    seed: int
    voice: str
    language: str
    first_sample: int


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
class SegmentEnded:
    """The segment has been spoken (``samples`` of it), or ended early by ``fault``."""

    segment: Segment
    samples: int
    fault: Fault | None = None


ReplyEvent = SegmentStarted | ReplyAudio | SegmentEnded
