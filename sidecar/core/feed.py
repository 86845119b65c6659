"""Live mode: how much of a text that is still being written an engine may see, and when a generation ends.

Pure: told the text, the engine's progress and the time, it answers what to hand over. Whole words only; a little ahead
of what the engine has taken in, so that what is not yet spoken can still be withheld; never padded: an engine without
text stands still. One generation speaks a whole passage without seams; after a limit, at a sentence's end, the next one
goes on, since the pace of a model that reads faster than it speaks climbs with the length of its text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_CJK = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD_END = re.compile(rf"[\s{_CJK}、。，！？；：](?![\u3099\u309a\ufe00-\ufe0f\U000e0100-\U000e01ef])")
"""After which character a text may be cut: a blank, or one of a script without blanks."""

_SENTENCE_END = re.compile(r"(?:[.!?…]+[\"'”’»)\]]*\s+|[。！？]+[」』”]*|\n+)")
PATIENCE_MS = 300.0
"""An engine that has made nothing of the band by then needs more of the text to begin with."""

_TWO_WORDS = re.compile(r"\S\s+\S")
_LOOK_AHEAD = 1_024
"""Characters that are looked at: more than ever fit into the band, so that a long text costs no more a step."""

_WHOLE_SENTENCE = re.compile(r"(?:[^\W\d][.!?…]+|[!?…。！？])[\"'”’»)\]」』]*\s*\Z")
"""What a writer who pauses behind it has surely ended."""

_PARAGRAPH = re.compile(r"\n[ \t]*\n\s*")


@dataclass(frozen=True, slots=True)
class FeedLimits:
    """Tokens are estimates (four characters of an alphabet, one of a script without blanks).

    The engine gets more once less than ``low_tokens`` lie ahead of it, and then up to ``high_tokens``. A generation
    ends at the first sentence end after ``roll_tokens`` or ``roll_s`` seconds of sound, at a paragraph after
    ``paragraph_tokens``, and anywhere between words after one and a half times the limit. A model that pauses for
    ``settle_ms`` after a whole sentence has that sentence finished; in mid-sentence the engine waits ``stall_ms``.
    Raises ``ValueError`` for limits that contradict one another.
    """

    low_tokens: int = 8
    high_tokens: int = 24
    roll_tokens: int = 240
    roll_s: float = 60.0
    paragraph_tokens: int = 60
    settle_ms: float = 700.0
    stall_ms: float = 8_000.0

    def __post_init__(self) -> None:
        if not 0 <= self.low_tokens < self.high_tokens:
            raise ValueError("low_tokens must be less than high_tokens")
        positive = min(self.roll_tokens, self.roll_s, self.paragraph_tokens) > 0
        if not (positive and 0 <= self.settle_ms <= self.stall_ms):
            raise ValueError("roll and paragraph limits must be positive, settle_ms no more than stall_ms")


@dataclass(frozen=True, slots=True)
class Begin:
    """Open a generation with this text. ``skipped``: characters before it that nobody can say."""

    text: str
    skipped: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Append:
    """Hand more text to the generation that is open."""

    text: str


@dataclass(frozen=True, slots=True)
class Finish:
    """The open generation's text is complete."""


Command = Begin | Append | Finish


def tokens(text: str) -> float:
    """About how many tokens a text is."""
    return sum(1.0 if "\u3040" <= one <= "\u9fff" or "\uac00" <= one <= "\ud7af" else 0.25 for one in text)


class Feed:
    """The text of one reply on its way into generations. Every character is handed over exactly once, in order."""

    def __init__(self, limits: FeedLimits | None = None, now_ms: float = 0.0) -> None:
        self._limits = limits or FeedLimits()
        self._waiting = ""
        self._skipped = 0
        self._given = ""
        self._given_tokens = 0.0
        self._read_chars = 0
        self._spoken_s = 0.0
        self._open = False
        self._closed = False
        self._wrote_ms = now_ms
        self._begun_ms = now_ms
        self._wanted_tokens = 0.0

    # ------------------------------------------------------------ told
    def wrote(self, text: str, now_ms: float) -> None:
        """More of the reply. Raises ``ValueError`` once it is closed."""
        if self._closed:
            raise ValueError("the text is closed")
        if text:
            self._waiting += text
            self._wrote_ms = now_ms

    def close(self) -> None:
        """The reply is written. Idempotent."""
        self._closed = True

    def read(self, chars: int | None, spoken_s: float) -> None:
        """The open generation has taken in so many characters of its text (None: cannot say) and spoken so long."""
        self._read_chars = max(self._read_chars, len(self._given) if chars is None else min(chars, len(self._given)))
        self._spoken_s = max(self._spoken_s, spoken_s)

    def wants(self, least_tokens: float) -> None:
        """The open generation needs so much text, about, before it can begin."""
        self._wanted_tokens = least_tokens

    # ------------------------------------------------------------ asked
    @property
    def ahead_tokens(self) -> float:
        """Handed over and not yet taken in, about."""
        return tokens(self._given[self._read_chars :]) if self._open else 0.0

    @property
    def waiting_chars(self) -> int:
        """Not yet handed over."""
        return len(self._waiting)

    @property
    def starved(self) -> bool:
        """The open generation has no whole word left to begin, and none is there to be handed over."""
        left = self._given[self._read_chars :].split()
        return self._open and len(left) <= 1 and not self._closed and not _WORD_END.search(self._waiting)

    @property
    def done(self) -> bool:
        """Everything has been handed over and finished."""
        return self._closed and not self._open and not self._waiting.strip()

    @property
    def is_open(self) -> bool:
        """A generation is open; else the next command begins one."""
        return self._open

    def take(self, now_ms: float) -> list[Command]:
        """What to do now, in order."""
        commands: list[Command] = []
        while (command := self.next(now_ms)) is not None:
            commands.append(command)
        return commands

    def overflowed(self) -> str:
        """The engine ended the open generation early. What it had not taken in waits again, and is answered."""
        left, self._open = self._given[self._read_chars :], False
        self._waiting = left + self._waiting
        return left

    def deadline_ms(self) -> float | None:
        """When ``take`` would answer something new if nothing else happens."""
        more = self._closed or _WORD_END.search(self._waiting[:_LOOK_AHEAD])
        slow = self._open and not self._spoken_s and self._waiting and more
        begins_ms = self._begun_ms + PATIENCE_MS if slow else None
        if self._closed or not (self._open or self._waiting.strip()):
            return begins_ms
        pause_ms = self._wrote_ms + (self._limits.settle_ms if self._is_whole() else self._limits.stall_ms)
        return pause_ms if begins_ms is None else min(begins_ms, pause_ms)

    def next(self, now_ms: float) -> Command | None:
        """What to do first."""
        if not self._open:
            return self._begin(now_ms)
        if self._must_end(now_ms):
            return self._finish()
        room = self._limits.high_tokens - self.ahead_tokens
        if self._given_tokens < self._wanted_tokens:
            room = max(room, self._wanted_tokens - self._given_tokens)
        elif not self._spoken_s and now_ms >= self._begun_ms + PATIENCE_MS:
            room = self._limits.high_tokens
        elif not _TWO_WORDS.search(self._given, self._read_chars):
            # An engine begins a word when it sees its end; where no blanks are written that may take a while.
            room = self._limits.high_tokens
        elif self.ahead_tokens > self._limits.low_tokens or room <= 0:
            return None
        piece = self._whole_words(room, now_ms)
        if not piece:
            return self._finish() if self._closed and not self._waiting else None
        self._give(piece)
        return Append(piece)

    # ------------------------------------------------------------ inside
    def _begin(self, now_ms: float) -> Command | None:
        while True:
            self._skip(len(self._waiting) - len(self._waiting.lstrip()))
            piece = self._whole_words(self._limits.high_tokens, now_ms)
            if not piece:
                return None
            if any(map(str.isalnum, piece)):
                break
            self._skip(len(piece))
        skipped, self._skipped = self._skipped, 0
        self._given, self._given_tokens, self._read_chars, self._spoken_s = "", 0.0, 0, 0.0
        self._open, self._begun_ms, self._wanted_tokens = True, now_ms, 0.0
        self._give(piece)
        return Begin(piece, skipped)

    def _skip(self, chars: int) -> None:
        self._waiting = self._waiting[chars:]
        self._skipped += chars

    def _give(self, piece: str) -> None:
        self._waiting = self._waiting[len(piece) :]
        self._given += piece
        self._given_tokens += tokens(piece)

    def _finish(self) -> Finish:
        self._open = False
        return Finish()

    def _must_end(self, now_ms: float) -> bool:
        limits = self._limits
        full = self._given_tokens >= limits.roll_tokens or self._spoken_s >= limits.roll_s
        if full and _ends_sentence(self._given):
            return True
        if self._given_tokens >= 1.5 * limits.roll_tokens or self._spoken_s >= 1.5 * limits.roll_s:
            return True
        if self._given_tokens >= limits.paragraph_tokens and _ends_paragraph(self._given):
            return True
        if self._closed or self._waiting.strip():
            return False
        return self._paused(now_ms)

    def _is_whole(self) -> bool:
        """What has been written ends with a whole sentence."""
        if self._waiting.strip():
            return bool(_WHOLE_SENTENCE.search(self._waiting[-64:]))
        return self._open and _ends_sentence(self._given)

    def _paused(self, now_ms: float) -> bool:
        silent_ms = now_ms - self._wrote_ms
        return silent_ms >= (self._limits.settle_ms if self._is_whole() else self._limits.stall_ms)

    def _whole_words(self, room: float, now_ms: float) -> str:
        """The longest beginning of what waits that ends with a word, fits into ``room`` and crosses no roll-over."""
        text = self._waiting[:_LOOK_AHEAD]
        flushed = self._closed or self._paused(now_ms)
        ends = [match.end() for match in _WORD_END.finditer(text)]
        if text and (flushed if len(text) == len(self._waiting) else not ends):
            ends.append(len(text))  # the last word, or one too long to be one
        taken, weight, at = 0, 0.0, 0
        for end in ends:
            weight += tokens(text[at:end])
            at = end
            if weight > room and taken:
                break
            taken = end
            if weight > room or self._rolls_after(text[:end], weight):
                break
        return text[:taken]

    def _rolls_after(self, piece: str, weight: float) -> bool:
        """A generation that is long enough ends with this piece: what follows must not be in it."""
        total = weight + (self._given_tokens if self._open else 0.0)
        if total >= self._limits.paragraph_tokens and _ends_paragraph(piece):
            return True
        return total >= self._limits.roll_tokens and _ends_sentence(piece)


def _ends_paragraph(text: str) -> bool:
    """True if the last thing in it is an empty line."""
    tail = text[-64:]
    return bool(_PARAGRAPH.search(tail[len(tail.rstrip()) :]))


def _ends_sentence(text: str) -> bool:
    """True if nothing of a further sentence has begun."""
    tail = text[-64:]
    ends = [match.end() for match in _SENTENCE_END.finditer(tail if tail.endswith(("\n", " ")) else tail + " ")]
    return bool(ends) and ends[-1] >= len(tail)
