"""What was heard of the utterances of a speech socket. Pure: told what was sent, unit by unit."""

from __future__ import annotations

from typing import Any

from sidecar.core.playhead import Heard, HeardRecord, Playhead
from sidecar.ports import Pcm


class SocketHeard:
    """The utterance that sounds, or sounded last: its units are one text and one stretch of sound.

    Times are the listener's: of sound that is sent faster they count accordingly.
    """

    def __init__(self) -> None:
        self._playhead = Playhead()
        self._utterance = -1
        self._speed = 1.0
        self._chars = 0
        self._last = ""
        self._before: HeardRecord | None = None

    def begin(self, utterance: int, speed: float) -> None:
        """The next unit belongs to this utterance."""
        if utterance != self._utterance:
            self._playhead = Playhead()
            self._utterance, self._chars, self._last = utterance, 0, ""
        self._speed = speed

    def unit(self, text: str, spoken: str, *, held_back: bool) -> None:
        """A unit begins; ``held_back``: nothing of it is sent before it is complete."""
        if self._last and not self._last.isspace() and not text[:1].isspace():
            self.wrote(" ")
        start = self._chars
        self.wrote(text)
        self._before = self._playhead.record() if held_back else None
        self._playhead.began(start, self._chars, spoken)

    def wrote(self, text: str) -> int:
        """More of the utterance's text. Where it begins there."""
        start = self._chars
        self._playhead.wrote(text)
        self._chars += len(text)
        self._last = text[-1:] or self._last
        return start

    @property
    def playhead(self) -> Playhead:
        """Of the utterance."""
        return self._playhead

    def sent(self, pcm: Pcm, samples: int, text_chars: int | None) -> None:
        """So much of the unit was sent; ``pcm`` is empty where it was sent as codes."""
        if len(pcm):
            self._playhead.sent(pcm, text_chars)
        elif samples:
            self._playhead.sent_unheard(samples)

    def ended(self, *, whole: bool) -> None:
        """The unit is over: sent ``whole``, or not to its end."""
        self._before = None
        if whole:
            self._playhead.over()
        else:
            self._playhead.abandoned()

    def cut(self, played_ms: float | None) -> dict[str, Any]:
        """The listener stopped there (None: heard all that was sent): the members that tell what was heard.

        Of the unit that sounds nothing more will be sent.
        """
        engine_ms = None if played_ms is None else played_ms * self._speed
        heard: Heard = (self._before or self._playhead).heard(engine_ms)
        self._playhead.abandoned()
        self._utterance = -1  # an index may be used again
        return {"played_ms": int(heard.played_ms / self._speed), "heard_text": heard.text}
