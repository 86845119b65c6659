"""Text that arrives bit by bit, turned into the ids of the whole text.

An id is final only when no further character can change it: the word it belongs to must have ended, which the word
after it shows, and the characters must be past any recomposition (an accent may still follow its letter).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Protocol


class Words(Protocol):
    """What is needed of a tokenizer."""

    def words(self, text: str) -> list[str]:
        """The pieces BPE works on; together they are the text."""

    def normalised(self, text: str) -> Sequence[int]:
        """The ids of a text in NFC."""


class LiveText:
    """Takes pieces of a text, gives ids as soon as they are final; all ids together are those of the whole text."""

    def __init__(self, tokens: Words) -> None:
        self._tokens = tokens
        self._raw = ""  # not normalised yet
        self._held = ""  # normalised, its words not final yet
        self.closed = False

    def feed(self, text: str) -> tuple[int, ...]:
        """More text; returns the ids that have become final. Raises ``ValueError`` once closed."""
        if self.closed:
            raise ValueError("the text is closed")
        self._raw += text
        stable = _stable(self._raw)
        self._held += unicodedata.normalize("NFC", _joined(self._raw[:stable]))
        self._raw = self._raw[stable:]
        words = self._tokens.words(self._held)
        if words:
            words.pop()
        # A run of white space is split anew by whatever ends it, lines and all.
        while words and words[-1].isspace():
            words.pop()
        final = "".join(words)
        self._held = self._held[len(final) :]
        return tuple(self._tokens.normalised(final)) if final else ()

    def finish(self) -> tuple[int, ...]:
        """The text is complete; returns the ids that are left. Idempotent."""
        if self.closed:
            return ()
        self.closed = True
        rest = self._held + unicodedata.normalize("NFC", _joined(self._raw))
        self._raw = self._held = ""
        return tuple(self._tokens.normalised(rest)) if rest else ()


def _stable(text: str) -> int:
    """Where the part of the text ends that nothing to come can recompose: before its last starter of its own."""
    for at in range(len(text) - 1, -1, -1):
        here = text[at]
        if unicodedata.combining(here) or 0xD800 <= ord(here) < 0xE000:
            continue
        before = _joined(text[max(0, _starter_before(text, at)) : at])
        alone = unicodedata.normalize("NFC", before) + unicodedata.normalize("NFC", here)
        if unicodedata.normalize("NFC", before + here) == alone:
            return at
    return 0


def _starter_before(text: str, at: int) -> int:
    """Where the cluster before ``at`` begins; a few starters back, for those that join (Hangul, vowel signs)."""
    starters = 0
    for start in range(at - 1, -1, -1):
        starters += not unicodedata.combining(text[start])
        if starters == 3:
            return start
    return 0


def _joined(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
