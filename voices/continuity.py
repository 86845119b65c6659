"""What the next segment of a reply may lean on: the last seconds of the one before, or nothing.

Pure. It is told what was spoken and answers with the context of what is spoken next. A fixed anchor keeps who speaks;
the carry keeps mood, pitch and pace across the seam (MagpieTTS-LF, arXiv 2606.18485, carries decoder state likewise).
It is short and never grows, because what a model continues from itself makes its errors feed on themselves.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from voices.carry import MAX_CARRY_CHARS, MAX_GAP_S, Carry, KeptCarry

LEAST_FRAMES = 25
"""2 s: with less than this the piece before is taken along, if there is one."""

MOST_FRAMES = 50
"""4 s, the longest carry."""

_WORD_START = re.compile(r"(?<=\s)\S|(?<=[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af])\S")


@dataclass(frozen=True, slots=True)
class Manner:
    """What must stay the same for one segment to lean on another: ``voice`` (a fingerprint or an engine's voice) and
    ``language`` (ISO 639-1)."""

    voice: str
    language: str


class Continuity:
    """The carry of one reply, segment by segment."""

    def __init__(self, kept: KeptCarry | None = None, *, reply_index: int = 0, now_s: float = 0.0) -> None:
        """``kept``: what the dialog's reply before left behind; it counts if it still may (``KeptCarry.usable``)."""
        self._carry: Carry | None = None
        self._manner: Manner | None = None
        self._reply_index = reply_index
        if kept is not None and kept.usable(
            voice=kept.voice, language=kept.language, now_s=now_s, reply_index=reply_index
        ):
            self._carry, self._manner = kept.carry, Manner(kept.voice, kept.language)

    def next(self, manner: Manner) -> Carry | None:
        """The context of a segment in this manner; another voice or language begins anew."""
        if self._manner is not None and manner != self._manner:
            self.reset()
        return self._carry

    def spoken(self, manner: Manner, codes: NDArray[np.int16] | None, text: str) -> None:
        """A segment was spoken whole: ``codes (frames, 16)`` are all of its frames, ``text`` what was said.

        Without codes there is nothing to lean on.
        """
        text = text.strip()
        if codes is None or not len(codes) or not text:
            self.reset()
            return
        if len(codes) < LEAST_FRAMES and self._carry is not None and manner == self._manner:
            codes = np.concatenate([self._carry.codes, codes])
            text = f"{self._carry.text} {text}"
        self._carry, self._manner = tail(codes, text), manner

    def reset(self) -> None:
        """A cancel, a failure, a guard's verdict: the next segment begins from its anchor alone."""
        self._carry = self._manner = None

    def kept(self, now_s: float) -> KeptCarry | None:
        """What the dialog's next reply may lean on."""
        if self._carry is None or self._manner is None:
            return None
        return KeptCarry(
            self._carry, self._manner.voice, self._manner.language, int(now_s), next_reply=self._reply_index + 1
        )


def tail(codes: NDArray[np.int16], text: str) -> Carry | None:
    """The last ``MOST_FRAMES`` at most, and the words that sound in them; None where the two cannot be matched.

    Where the words lie is reckoned by their share of the text, so the cut falls at the start of a word, and frames and
    words are cut at the same share.
    """
    if len(codes) <= MOST_FRAMES and len(text) <= MAX_CARRY_CHARS:
        return Carry(codes, text)
    wanted = 1 - MOST_FRAMES / len(codes)
    starts = [match.start() for match in _WORD_START.finditer(text)]
    for start in starts:
        frames = len(codes) - round(start / len(text) * len(codes))
        if start / len(text) >= wanted and 0 < frames <= MOST_FRAMES and len(text) - start <= MAX_CARRY_CHARS:
            return Carry(codes[-frames:], text[start:])
    return None


__all__ = ["LEAST_FRAMES", "MAX_GAP_S", "MOST_FRAMES", "Continuity", "Manner", "tail"]
