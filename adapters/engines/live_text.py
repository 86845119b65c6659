"""How much of an utterance's text has come and been read: the rules of ``Speaking.append`` and ``finish``."""

from __future__ import annotations

from sidecar.faults import TooLarge
from sidecar.ports import MAX_LIVE_CHARS, MAX_UNREAD_CHARS, Utterance


class WholeText:
    """``append`` and ``finish`` of engines whose utterances are never live."""

    def append(self, text: str) -> None:
        """Raises ``RuntimeError``: the text is whole."""
        raise RuntimeError("the text of this utterance is complete")

    def finish(self) -> None:
        """Raises ``RuntimeError``: the text is whole."""
        raise RuntimeError("this utterance is not live")


class TextCount:
    """Counts characters; holds no text. Raises ``TooLarge`` for a live text that begins with too much."""

    def __init__(self, utterance: Utterance) -> None:
        self.live = utterance.live
        self.chars = len(utterance.text)
        self.read_chars = 0
        self.finished = not utterance.live
        if self.live:
            self._check(0)

    def append(self, text: str, *, over: bool) -> bool:
        """Count more text; False when there is nothing to do with it. Raises as ``Speaking.append`` does."""
        if self.finished:
            raise RuntimeError("the text of this utterance is complete")
        if over or not text:
            return False
        self._check(len(text))
        self.chars += len(text)
        return True

    def finish(self) -> bool:
        """The text is complete; False when it was before. Raises as ``Speaking.finish`` does."""
        if not self.live:
            raise RuntimeError("this utterance is not live")
        before, self.finished = self.finished, True
        return not before

    def read(self, chars: int | None) -> None:
        """The engine has taken in so many characters from the beginning on."""
        self.read_chars = max(self.read_chars, chars or 0)

    def _check(self, more: int) -> None:
        if self.chars + more - self.read_chars > MAX_UNREAD_CHARS:
            raise TooLarge(f"More than {MAX_UNREAD_CHARS} characters of the text wait to be spoken.", param="input")
        if self.chars + more > MAX_LIVE_CHARS:
            raise TooLarge(f"The text is longer than {MAX_LIVE_CHARS} characters.", param="input")
