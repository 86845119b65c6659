"""The tail of what a voice has just said, given to its next utterance as acoustic context."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Carry:
    """``codes`` ``(frames, 16)`` int16 of the last frames spoken and ``text``, the words that sound in them."""

    codes: NDArray[np.int16]
    text: str
