"""Text in, speakable segments out."""

from segmenter.languages import AUTO
from segmenter.policy import SegmentOptions
from segmenter.reasoning import ReasoningFilter
from segmenter.segment import Segment, SegmentKind
from segmenter.speakable import speakable
from segmenter.spoken_text import SpeakableStream, SpokenText
from segmenter.stream import SegmentStream
from segmenter.unit_split import UnitSplitter

__all__ = [
    "AUTO",
    "ReasoningFilter",
    "Segment",
    "SegmentKind",
    "SegmentOptions",
    "SegmentStream",
    "SpeakableStream",
    "SpokenText",
    "UnitSplitter",
    "speakable",
]
