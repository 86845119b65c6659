"""Arithmetic of speaker embeddings: mixing voices, and finding the ones that are alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

MAX_MIXED = 16
"""Most embeddings of one mixture."""

_SMALLEST_SHARE = 1e-6


def mixed(embeddings: Sequence[NDArray[np.float32]], weights: Sequence[float]) -> NDArray[np.float32]:
    """The weighted sum of embeddings ``(width,)``, as long as they are on average, float32.

    Weights may be negative; only their ratios count. Raises ``ValueError`` for too few or too many embeddings, other
    numbers of weights, weights that are not finite or all 0, different widths, and embeddings that cancel out.
    """
    if not 1 <= len(embeddings) <= MAX_MIXED:
        raise ValueError(f"a mixture has 1 to {MAX_MIXED} voices")
    shares = np.asarray(weights, np.float64)
    if shares.shape != (len(embeddings),) or not np.isfinite(shares).all() or not np.abs(shares).any():
        raise ValueError("each voice of a mixture has a finite weight, and not all are 0")
    if len({embedding.shape for embedding in embeddings}) != 1:
        raise ValueError("voices of a mixture have embeddings of one width")
    stack = np.stack([embedding.astype(np.float64) for embedding in embeddings])
    lengths = np.linalg.norm(stack, axis=1)
    total = (shares / np.abs(shares).max()) @ stack
    length = float(np.linalg.norm(total))
    if length <= _SMALLEST_SHARE * float(lengths.max()):
        raise ValueError("the voices of the mixture cancel out")
    mixture: NDArray[np.float32] = (total * (float(lengths.mean()) / length)).astype(np.float32)
    return mixture


def cosine(one: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    """Cosine of the angle between two embeddings of one width, neither of them all zeros."""
    a, b = one.astype(np.float64), other.astype(np.float64)
    return float(np.clip(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)), -1.0, 1.0))


def nearest(
    wanted: NDArray[np.float32], known: Iterable[tuple[str, NDArray[np.float32]]], most: int
) -> list[tuple[str, float]]:
    """The ``most`` names whose embeddings are nearest to ``wanted``, with their cosines, nearest first.

    Embeddings of another width are passed over; names of equal cosine come in their own order.
    """
    found = [(name, cosine(wanted, embedding)) for name, embedding in known if embedding.shape == wanted.shape]
    return sorted(found, key=lambda pair: (-pair[1], pair[0]))[:most]
