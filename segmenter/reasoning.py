"""Takes reasoning blocks out of a token stream."""

from __future__ import annotations

import re

REASONING_TAGS = ("think", "thinking", "reasoning", "thought")
"""Names of the tags around text that a model writes for itself; lower case."""

_NAMES = "|".join(REASONING_TAGS)
_TAG = re.compile(rf"<(/?)({_NAMES})>", re.IGNORECASE)
_PREFIXES = frozenset(
    f"<{slash}{name}>"[:n] for slash in ("", "/") for name in REASONING_TAGS for n in range(1, len(slash + name) + 2)
)
_LONGEST_PREFIX = max(map(len, _PREFIXES))


def _partial_tag_length(text: str) -> int:
    """Length of the longest tail of ``text`` that may still grow into a reasoning tag."""
    opening = text.rfind("<", max(0, len(text) - _LONGEST_PREFIX))
    if opening >= 0 and text[opening:].lower() in _PREFIXES:
        return len(text) - opening
    return 0


class ReasoningFilter:
    """Hides ``<think>``, ``<thinking>``, ``<reasoning>`` and ``<thought>`` blocks, however the tags are split.

    Everything else comes through to the letter, except a closing tag that nothing opened, and white space directly
    after a hidden block when nothing visible came before it. A tag directly after a back-tick is text (the answer
    talks about tags). The concatenated output does not depend on how the text was cut.
    """

    def __init__(self, starts_in_think: bool = False) -> None:
        self._held = ""
        self._hidden_by: str | None = "" if starts_in_think else None
        self._seen_visible = False
        self._trim = False
        self._last = ""

    def feed(self, text: str) -> str:
        """Return what is certainly visible now; at most a partial tag (12 characters) is held back."""
        buffer = self._held + text
        shown: list[str] = []
        position = 0
        for tag in _TAG.finditer(buffer):
            self._show(buffer[position : tag.start()], shown)
            position = tag.end()
            self._tag(tag, shown)
        tail = len(buffer) - _partial_tag_length(buffer[position:])
        self._show(buffer[position:tail], shown)
        self._held = buffer[tail:]
        return "".join(shown)

    def flush(self) -> str:
        """End of the text: a tag that never completed is text, a block that never closed stays hidden."""
        shown: list[str] = []
        self._show(self._held, shown)
        self._held = ""
        return "".join(shown)

    def _tag(self, tag: re.Match[str], shown: list[str]) -> None:
        closing, name = bool(tag[1]), tag[2].lower()
        if self._hidden_by is not None:
            if closing and self._hidden_by in ("", name):
                self._hidden_by = None
                self._trim = not self._seen_visible
        elif self._last == "`":
            self._show(tag[0], shown)
        elif not closing:
            self._hidden_by = name

    def _show(self, text: str, shown: list[str]) -> None:
        if self._hidden_by is not None or not text:
            return
        if self._trim:
            text = text.lstrip()
            if not text:
                return
            self._trim = False
        shown.append(text)
        self._last = text[-1]
        if not text.isspace():
            self._seen_visible = True
