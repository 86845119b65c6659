"""The segmenter: feed text as it is written, get segments as soon as they are certain."""

from __future__ import annotations

from segmenter.assemble import Assembler
from segmenter.policy import SegmentOptions
from segmenter.segment import Segment
from segmenter.speakable import Cleaner


class SegmentStream:
    """Turns one text stream into segments.

    The segments do not depend on how the text was cut into ``feed`` calls (calls of ``idle`` may add cuts). Cost is
    linear in the text, what is kept is bounded. Not thread-safe.
    """

    def __init__(self, options: SegmentOptions = SegmentOptions()) -> None:  # noqa: B008 - frozen
        self._options = options
        self._assembler = Assembler(options)
        self._cleaner = Cleaner(self._assembler, starts_in_think=options.starts_in_think)
        self._fed_chars = 0
        self._flushed = False

    @property
    def pending_chars(self) -> int:
        """Raw characters that were fed but are in no segment yet."""
        return self._fed_chars - self._assembler.start

    @property
    def language(self) -> str:
        """The language in use; with ``auto`` the one told from the text so far, ``auto`` while that is open.

        Setting it corrects the language for what has not left in segments yet; ``auto`` goes back to telling it.
        """
        return self._assembler.judge.language

    @language.setter
    def language(self, code: str) -> None:
        self._assembler.judge.language = code

    def feed(self, text: str) -> list[Segment]:
        """Take more text; returns the segments that are certain now. Raises ``ValueError`` after ``flush``."""
        if self._flushed:
            raise ValueError("the stream has been flushed")
        self._fed_chars += len(text)
        self._assembler.arrived(text)
        self._cleaner.feed(text)
        return self._assembler.take()

    def idle(self, silent_ms: float) -> list[Segment]:
        """The writer has paused for ``silent_ms``.

        From ``decide_after_ms`` on a sentence end that only waits for its next character is taken ("Sure!", but not
        "3." or "Dr."); from ``fragment_after_ms`` on an unfinished sentence is spoken up to a clause mark or whole
        word. Never cuts in mid-word. Does nothing after ``flush``.
        """
        if self._flushed or silent_ms < self._options.decide_after_ms:
            return []
        if self._cleaner.settle():
            self._assembler.settle()
        if silent_ms >= self._options.fragment_after_ms:
            self._assembler.fragment()
        return self._assembler.take()

    def force(self) -> list[Segment]:
        """Speak now what can be spoken: what ``idle`` does after the longest pause, whatever the options say."""
        return self.idle(max(self._options.decide_after_ms, self._options.fragment_after_ms))

    def flush(self) -> list[Segment]:
        """End of the text: returns the remaining segments. Afterwards ``feed`` raises; a second call returns []."""
        if self._flushed:
            return []
        self._flushed = True
        self._cleaner.finish()
        self._assembler.finish(self._fed_chars)
        return self._assembler.take()
