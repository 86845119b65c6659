"""Which quotes and brackets are open."""

from __future__ import annotations

from typing import Final

_CLOSES: Final = {
    "(": ")",
    "[": "]",
    "{": "}",
    "（": "）",
    "【": "】",
    "《": "》",
    "〈": "〉",
    "「": "」",
    "『": "』",
    "“": "”",
    "„": "“",
    "«": "»",
    "»": "«",
    "‹": "›",
    "›": "‹",
    '"': '"',
}
NESTING_MARKS: Final = frozenset(_CLOSES) | frozenset(_CLOSES.values())
"""All marks that open or close something."""

_ONLY_OPENS_A_WORD = frozenset('"»›')
_QUOTES = frozenset('"”“»«›‹')
_OPENING_QUOTE_LIMIT_CHARS = 60
_STACK_LIMIT = 16


class Nesting:
    """A bounded stack of open quotes and brackets, by their positions in the sentence."""

    def __init__(self) -> None:
        self._open: list[tuple[str, int]] = []

    def __bool__(self) -> bool:
        return bool(self._open)

    def see(self, text: str, at: int) -> None:
        """Take note of the mark at ``text[at]``."""
        mark = text[at]
        for depth in range(len(self._open) - 1, -1, -1):
            if self._open[depth][0] == mark or (self._open[depth][0] == "“" and mark == "”"):
                del self._open[depth:]
                return
        before = text[at - 1] if at else " "
        if mark in _ONLY_OPENS_A_WORD and not (before.isspace() or before in "([{（「『—–-:：，。！？"):
            return
        if (mark == "(" and before in ":;-") or (mark == "“" and _closes(text, at, before)):
            return
        closing = _CLOSES.get(mark)
        if closing is not None and len(self._open) < _STACK_LIMIT:
            self._open.append((closing, at))

    def expects(self, at: int, limit_chars: int) -> str:
        """Closing marks of what was opened less than ``limit_chars`` before ``at``, innermost last.

        A quote that opens the sentence is less of a reason to wait: several sentences may stand in it.
        """
        if not self._open:
            return ""
        if self._open[0][1] == 0 and at > _OPENING_QUOTE_LIMIT_CHARS and self._open[0][0] in _QUOTES:
            del self._open[0]
        self._open = [entry for entry in self._open if at - entry[1] <= limit_chars]
        return "".join(entry[0] for entry in self._open)

    def cut_back(self, keep: int) -> None:
        """Forget what was opened at ``keep`` or later."""
        self._open = [entry for entry in self._open if entry[1] < keep]

    def clear(self) -> None:
        """Forget everything."""
        self._open.clear()

    def closes_to_the_end(self, rest: str) -> bool:
        """Whether ``rest`` is but closing marks, so that more of them may come."""
        return not rest.strip("".join(entry[0] for entry in self._open))


def _closes(text: str, at: int, before: str) -> bool:
    """Whether “ is a closing mark although nothing was opened: it hangs on a word or mark of an alphabet."""
    if not (before.isalnum() or before in ".!?,…") or before >= "\u1100":
        return False
    return at + 1 >= len(text) or text[at + 1] in " .,;:!?)"
