"""What conditions an engine on one speaker: an embedding, and optionally a reference recording as codes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CODEBOOKS = 16
"""Codes of one codec frame."""

CODEBOOK_SIZE = 2_048
"""A code is 0 <= code < 2048."""

EMBEDDING_WIDTHS = (1_024, 2_048)
"""Widths of the speaker embeddings of the released checkpoints (0.6B, 1.7B)."""


@dataclass(frozen=True, slots=True, eq=False)
class SpeakerAnchor:
    """One speaker, for one family of checkpoints.

    ``embedding`` is ``(width,)`` float32. ``codes``, if any, are those of a reference recording, ``(frames, 16)``
    int16, and ``transcript`` is what is said in it (empty without codes). ``fingerprint`` names (encoder, recording):
    equal fingerprints, equal anchors. The arrays are read-only.
    """

    embedding: NDArray[np.float32]
    codes: NDArray[np.int16] | None = None
    transcript: str = ""
    fingerprint: str = ""

    @property
    def width(self) -> int:
        """Width of the embedding."""
        return int(self.embedding.shape[0])
