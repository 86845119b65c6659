"""What has been sent of a reply and what of it has been heard: samples, words, and the text up to a moment.

Pure. Told of segments and of the samples that left; asked what a listener who stopped at ``played_ms`` has heard. Heard
text is a prefix of the reply's text, ends with a whole word, and never holds a word whose sound was not sent.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sidecar.core.word_times import Loudness, WordTime, word_times, words_of
from sidecar.faults import BadRequest

SAMPLES_PER_MS = 24
MOST_MS = 10**12
"""More than any reply lasts; JSON's whole numbers have no end."""

USUAL_WEIGHT_PER_S = 17.0
"""Letters a second (see ``word_times``) of a voice that has not yet spoken a whole segment: quick, so that none is
claimed too early."""


@dataclass(frozen=True, slots=True)
class Heard:
    """``text`` is what sounded whole by ``played_ms``, ``chars`` its length in the reply's own text."""

    played_ms: int
    text: str
    chars: int


@dataclass(frozen=True, slots=True)
class HeardRecord:
    """The words of a reply that was sent: ``text``, and per word when it ends in the sound and in the text."""

    text: str
    sent_ms: int
    ends_ms: tuple[int, ...]
    ends_char: tuple[int, ...]

    def heard(self, played_ms: float | None = None) -> Heard:
        """See ``Playhead.heard``."""
        until_ms = self.sent_ms if played_ms is None else int(min(max(played_ms, 0), self.sent_ms))
        at = bisect_right(self.ends_ms, until_ms)
        chars = self.ends_char[at - 1] if at else 0
        return Heard(until_ms, self.text[:chars], chars)

    def to_bytes(self) -> bytes:
        """JSON, readable by every later version."""
        record = {"v": 1, "text": self.text, "sent_ms": self.sent_ms, "ms": self.ends_ms, "chars": self.ends_char}
        return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")

    @staticmethod
    def from_bytes(value: bytes) -> HeardRecord | None:
        """None for anything that is not a whole record."""
        try:
            found = json.loads(value.decode("utf-8", "surrogatepass"))
            record = HeardRecord(found["text"], found["sent_ms"], tuple(found["ms"]), tuple(found["chars"]))
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        numbers = (record.sent_ms, *record.ends_ms, *record.ends_char)
        if not isinstance(record.text, str) or not all(type(number) is int and number >= 0 for number in numbers):
            return None
        rising = all(list(part) == sorted(part) for part in (record.ends_ms, record.ends_char))
        if not rising or len(record.ends_ms) != len(record.ends_char):
            return None
        return record if all(end <= len(record.text) for end in record.ends_char[-1:]) else None


@dataclass(slots=True)
class _Now:
    """The segment that is being sent."""

    text: str
    spoken: str
    at_char: int
    at_sample: int
    loudness: Loudness
    text_chars: int | None = None
    unheard: bool = False
    ends: list[int] | None = None
    """Where each character of ``spoken`` ends in the reply's text; None: only ``text`` as a whole has its place."""

    @property
    def words_in(self) -> str:
        """The text whose words are timed."""
        return self.text if self.ends is None else self.spoken

    def end_of(self, char: int) -> int:
        """Where the words up to here end in the reply's text."""
        return self.at_char + char if self.ends is None else self.ends[char - 1]

    def start_of(self, char: int) -> int:
        """Where a word that begins here begins in the reply's text."""
        return self.at_char + char if self.ends is None else self.ends[char] - 1

    def taken(self) -> int:
        """How much of ``words_in`` the engine had taken in when the last samples were made."""
        if self.text_chars is None:
            return len(self.words_in)
        if self.ends is not None:
            return self.text_chars
        return math.floor(min(1.0, self.text_chars / max(1, len(self.spoken))) * len(self.text))


class Playhead:
    """The sound of one reply, in the order in which it is sent."""

    def __init__(self) -> None:
        self._text = ""
        self._sent_samples = 0
        self._end_ms: list[int] = []
        self._end_char: list[int] = []
        self._now: _Now | None = None
        self._unplaced: list[tuple[_Now, int]] = []
        self._weight = 0.0
        self._weighed_s = 0.0

    # ------------------------------------------------------------ told
    def wrote(self, text: str) -> None:
        """More of the reply's text, as the client has been shown it."""
        self._text += text

    def began(self, start: int, end: int, spoken: str, ends: Sequence[int] | None = None) -> None:
        """A segment begins to sound: ``start..end`` of the reply's text, said as ``spoken``.

        ``ends``, where each character of ``spoken`` ends in the reply's text, is known of one that may still grow.
        """
        places = None if ends is None else list(ends)
        self._now = _Now(self._text[start:end], spoken, start, self._sent_samples, Loudness(), ends=places)

    def grew(self, spoken: str, ends: Sequence[int]) -> None:
        """The segment that sounds will say this too."""
        if self._now is not None and self._now.ends is not None:
            self._now.spoken += spoken
            self._now.ends.extend(ends)

    def sent(self, pcm: NDArray[np.float32], text_chars: int | None = None) -> None:
        """Samples left for the listener, of the segment that began last or of a pause between two.

        ``text_chars``: how many characters of the segment the engine had taken in by then.
        """
        self._sent_samples += len(pcm)
        if self._now is not None:
            self._now.loudness.feed(pcm)
            self._now.text_chars = text_chars

    def sent_unheard(self, samples: int) -> None:
        """Sound left in a form that we cannot hear, such as codec frames: its words count once it has left whole."""
        self._sent_samples += samples
        if self._now is not None:
            self._now.unheard = True

    def over(self) -> None:
        """The segment has been sent whole; where its words lie is found out when somebody asks."""
        if self._now is not None:
            self._unplaced.append((self._now, self._sent_samples))
            self._now = None

    def ended(self) -> list[WordTime]:
        """The segment has been sent whole. Its words, at their places in the reply's text and in its sound.

        Takes milliseconds for each minute of sound.
        """
        self.over()
        return self._place()

    def _place(self) -> list[WordTime]:
        """Find the words of the segments that are over; those of the last one are answered."""
        times: list[WordTime] = []
        for now, end_samples in self._unplaced:
            times = []
            if now.unheard and (words := words_of(now.words_in)):
                self._end_ms.append(end_samples // SAMPLES_PER_MS)
                self._end_char.append(now.end_of(words[-1].end))
                continue
            times = _placed(now)
            self._weight += sum(word.weight for word in words_of(now.words_in))
            self._weighed_s += float(now.loudness.active().sum()) * 0.02
            for time in times:
                self._end_ms.append(time.end_ms)
                self._end_char.append(time.end)
        self._unplaced.clear()
        return times

    def abandoned(self) -> None:
        """The segment will not be sent to its end: only words that surely sounded count."""
        now = self._now
        if now is not None:
            self._place()
            self._note_partial(now)
            self._now = None

    # ------------------------------------------------------------ asked
    @property
    def sent_ms(self) -> int:
        """How much sound has left."""
        return self._sent_samples // SAMPLES_PER_MS

    def heard(self, played_ms: float | None = None) -> Heard:
        """What a listener has heard who stopped at ``played_ms`` (None: of all that was sent).

        Values beyond what was sent, and negative ones, are clamped.
        """
        return self.record().heard(played_ms)

    def record(self) -> HeardRecord:
        """All that is needed to tell later what was heard. Takes milliseconds for each minute of sound, once."""
        self._place()
        ends_ms, ends_char = self._end_ms, self._end_char
        if self._now is not None:
            partial_ms, partial_char = self._partial(self._now)
            ends_ms, ends_char = [*ends_ms, *partial_ms], [*ends_char, *partial_char]
        return HeardRecord(self._text, self.sent_ms, tuple(ends_ms), tuple(ends_char))

    def _partial(self, now: _Now) -> tuple[list[int], list[int]]:
        """Ends of the words of a segment whose sound is not complete: reckoned by the pace so far."""
        pace = self._weight / self._weighed_s if self._weighed_s > 1.0 else USUAL_WEIGHT_PER_S
        active = now.loudness.active()
        reached = np.cumsum(active) * 0.02 * pace
        start_ms = now.at_sample // SAMPLES_PER_MS
        ends_ms, ends_char, weight = [], [], 0.0
        taken = now.taken()
        for word in words_of(now.words_in):
            weight += word.weight
            if not len(reached) or weight > reached[-1] or word.end > taken:
                break
            ends_ms.append(start_ms + (int(np.searchsorted(reached, weight)) + 1) * 20)
            ends_char.append(now.end_of(word.end))
        return ends_ms, ends_char

    def _note_partial(self, now: _Now) -> None:
        ends_ms, ends_char = self._partial(now)
        self._end_ms += ends_ms
        self._end_char += ends_char


def _placed(now: _Now) -> list[WordTime]:
    start_ms = now.at_sample // SAMPLES_PER_MS
    return [
        WordTime(
            time.word,
            now.start_of(time.start),
            now.end_of(time.end),
            start_ms + time.start_ms,
            start_ms + time.end_ms,
        )
        for time in word_times(now.words_in, now.loudness)
    ]


def played_ms(value: Any) -> float | None:
    """A client's ``played_ms``: None where it says nothing. Raises ``BadRequest`` for what is no finite number."""
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return float(min(max(value, -MOST_MS), MOST_MS))
    if not isinstance(value, float) or not math.isfinite(value):
        raise BadRequest("played_ms must be a number of milliseconds.", param="played_ms")
    return value
