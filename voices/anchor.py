"""What conditions an engine on one speaker: an embedding, and optionally a reference recording as codes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from hashlib import blake2b
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T", bound=np.generic)

CODEBOOKS = 16
"""Codes of one codec frame."""

CODEBOOK_SIZE = 2_048
"""A code is 0 <= code < 2048."""

EMBEDDING_WIDTHS = (1_024, 2_048)
"""Widths of the speaker embeddings of the released checkpoints (0.6B, 1.7B)."""

MAX_WIDTH = 4_096
"""Widest embedding that is taken."""

MAX_NORM = 1e6
"""Longest embedding that is taken: beyond it, it is no embedding."""

MAX_CODE_FRAMES = 750
"""Longest reference recording in frames of 80 ms: a minute. Much less can be stored with a voice."""

MAX_TRANSCRIPT_CHARS = 2_000
"""Longest transcript of a reference recording."""

_MAX_FINGERPRINT_CHARS = 64


@dataclass(frozen=True, slots=True, eq=False)
class SpeakerAnchor:
    """One speaker, for one family of checkpoints.

    ``embedding`` is ``(width,)`` float32. ``codes``, if any, are those of a reference recording, ``(frames, 16)``
    int16, and ``transcript`` is what is said in it (empty without codes). ``fingerprint`` names (encoder, recording):
    equal fingerprints, equal anchors. The arrays are read-only copies.

    Raises ``ValueError`` for an embedding that is not finite, is all zeros, or is wider than ``MAX_WIDTH``, for codes
    out of range, and for what does not fit together.
    """

    embedding: NDArray[np.float32]
    codes: NDArray[np.int16] | None = None
    transcript: str = ""
    fingerprint: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "embedding", _embedding(self.embedding))
        if self.codes is not None:
            object.__setattr__(self, "codes", checked_codes(self.codes, MAX_CODE_FRAMES))
        if self.codes is None and self.transcript:
            raise ValueError("a transcript needs the codes of its recording")
        checked_text(self.transcript, MAX_TRANSCRIPT_CHARS, "the transcript")
        checked_text(self.fingerprint, _MAX_FINGERPRINT_CHARS, "the fingerprint")

    @property
    def width(self) -> int:
        """Width of the embedding."""
        return int(self.embedding.shape[0])

    def same_as(self, other: SpeakerAnchor) -> bool:
        """True if both condition an engine in exactly the same way."""
        return (
            self.embedding.tobytes() == other.embedding.tobytes()
            and self.transcript == other.transcript
            and (self.codes is None) == (other.codes is None)
            and (self.codes is None or other.codes is None or np.array_equal(self.codes, other.codes))
        )


def anchor_fingerprint(encoder: str, recording: NDArray[np.float32], transcript: str = "") -> str:
    """32 hex digits that name what an encoder makes of a recording (float32 samples at 24 kHz).

    ``encoder`` names the encoder's weights (such as a digest of them): another encoder, another fingerprint.
    """
    digest = blake2b(digest_size=16, person=b"sidecar.anchor01")
    for part in (encoder.encode(), transcript.encode(), np.ascontiguousarray(recording, "<f4").tobytes()):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def checked_codes(codes: NDArray[np.int16], max_frames: int) -> NDArray[np.int16]:
    """A read-only copy of ``codes``, ``(frames, 16)`` int16. Raises ``ValueError`` for what are no codec codes."""
    array = np.asarray(codes)
    if array.ndim != 2 or array.shape[1] != CODEBOOKS or not 0 < array.shape[0] <= max_frames:
        raise ValueError(f"codes must be (frames, {CODEBOOKS}) with 1 to {max_frames} frames")
    if array.dtype.kind not in "iu" or int(array.min()) < 0 or int(array.max()) >= CODEBOOK_SIZE:
        raise ValueError(f"codes must be integers in [0, {CODEBOOK_SIZE})")
    return _read_only(array.astype(np.int16))


def checked_text(text: str, max_chars: int, what: str) -> str:
    """``text`` itself. Raises ``ValueError`` if it is too long or not valid Unicode."""
    if len(text) > max_chars:
        raise ValueError(f"{what} may have at most {max_chars} characters")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what} is not valid Unicode") from None
    return text


def _embedding(embedding: NDArray[np.float32]) -> NDArray[np.float32]:
    array = np.asarray(embedding)
    if array.ndim != 1 or not 0 < array.shape[0] <= MAX_WIDTH or array.dtype.kind not in "fiu":
        raise ValueError(f"an embedding is one row of 1 to {MAX_WIDTH} numbers")
    with np.errstate(over="ignore", invalid="ignore"):  # a signalling NaN warns when it is converted
        array = array.astype(np.float32)
        norm = float(np.linalg.norm(array.astype(np.float64)))
    if not math.isfinite(norm):
        raise ValueError("an embedding has finite numbers only")
    if not 0.0 < norm <= MAX_NORM:
        raise ValueError(f"an embedding's norm is above 0 and at most {MAX_NORM:g}")
    return _read_only(array)


def _read_only(array: NDArray[T]) -> NDArray[T]:
    array.setflags(write=False)
    return array
