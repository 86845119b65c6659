"""How long a text takes to say, from its letters, words and marks: what pace is measured against (meter V8)."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_WORDS = re.compile(r"\w+", re.UNICODE)
_MARKS = re.compile(r"[,;:.!?…—、。，；：！？](?=\s|\S*\w)|\s[-–—]\s")
_DIGIT_LETTERS = 4.0
_WIDE_LETTERS = 3.0
MAX_CHARS = 20_000
"""Of a longer text only the beginning is counted."""


def text_counts(text: str) -> NDArray[np.float64]:
    """``(4,)``: letters (a digit counts 4, an ideograph 3), words, marks inside the text, and 1."""
    text = text[:MAX_CHARS].strip()
    letters = words = 0.0
    for word in _WORDS.findall(text):
        wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in word)
        digits = sum(letter.isdigit() for letter in word)
        letters += len(word) - wide - digits + _WIDE_LETTERS * wide + _DIGIT_LETTERS * digits
        words += 1 + wide / 2 + max(0, digits - 1) / 2
    return np.array([letters, words, inner_marks(text), 1.0])


def inner_marks(text: str) -> int:
    """Commas, colons, full stops and the like that have words on both sides: where a voice may pause."""
    return len(_MARKS.findall(text[:MAX_CHARS].strip().rstrip(".!?…。！？\"'»”)")))


@dataclass(frozen=True, slots=True)
class PaceModel:
    """Seconds of active speech that a letter, a word, an inner mark and any text at all take.

    The default fits several English voices to 5-6 % (standard deviation over sentences of 1-8 s).
    """

    letter_s: float = 0.036
    word_s: float = 0.055
    mark_s: float = 0.13
    base_s: float = 0.15

    def expected_s(self, text: str) -> float:
        """Expected active speech; 0 for a text without anything to say."""
        counts = text_counts(text)
        return float(counts @ self.weights) if counts[0] else 0.0

    @property
    def weights(self) -> NDArray[np.float64]:
        """``(4,)``, in the order of ``text_counts``."""
        return np.array([self.letter_s, self.word_s, self.mark_s, self.base_s])
