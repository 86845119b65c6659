"""How codes are drawn: the reference's order of processors, and draws keyed by (seed, step, codebook).

A draw is the inverse CDF of the float32 softmax: with probabilities p over the ids in ascending order and a uniform u,
the first id whose cumulated probability exceeds u times the total. u is one of 2^24 equally likely values k / 2^24,
the top bits of a word of Philox 4x32-10 at the counter (step, codebook) under a key made from the seed. Nothing else
enters, so a draw does not depend on the batch, the row or the history of other requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from adapters.engines.qwen3_tts.stages import CODEBOOKS, Sampling

_MASK32 = np.uint64(0xFFFFFFFF)
_MASK64 = (1 << 64) - 1
_SHIFT32 = np.uint64(32)
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


def philox(counters: NDArray[np.uint64], keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Philox 4x32-10 (Salmon et al., 2011): ``counters (..., 4)``, ``keys (..., 2)`` to ``(..., 4)``, 32-bit words."""
    a, b, c, d = (counters[..., word] for word in range(4))
    first, second = keys[..., 0], keys[..., 1]
    for turn in range(_ROUNDS):
        left, right = _MULTIPLIERS[0] * a, _MULTIPLIERS[1] * c
        one = (first + np.uint64(turn * _WEYL[0] & 0xFFFFFFFF)) & _MASK32
        two = (second + np.uint64(turn * _WEYL[1] & 0xFFFFFFFF)) & _MASK32
        a, b, c, d = (right >> _SHIFT32) ^ b ^ one, right & _MASK32, (left >> _SHIFT32) ^ d ^ two, left & _MASK32
    return np.stack((a, b, c, d), -1)


def split_seed(seed: int) -> tuple[int, int]:
    """One public seed (any integer, modulo 2^64) to the 64-bit keys of the talker's and the predictor's sampler."""
    words = np.array([seed & 0xFFFFFFFF, (seed & _MASK64) >> 32], dtype=np.uint64)
    block = [int(word) for word in philox(np.zeros(4, dtype=np.uint64), words)]
    return block[0] | block[1] << 32, block[2] | block[3] << 32


def uniforms(keys: Sequence[int], steps: Sequence[int], codebooks: range) -> NDArray[np.float32]:
    """Uniforms in [0, 1) for each key with its step, ``(keys, codebooks)`` float32."""
    counters = np.zeros((len(keys), len(codebooks), 4), dtype=np.uint64)
    counters[:, :, 0] = np.asarray(steps, dtype=np.uint64)[:, None]
    counters[:, :, 1] = np.asarray(codebooks, dtype=np.uint64)
    whole = np.asarray(keys, dtype=np.uint64)[:, None]
    words = philox(counters, np.stack((whole & _MASK32, whole >> _SHIFT32), -1))[..., 0]
    return ((words >> np.uint64(8)).astype(np.float32) / np.float32(1 << 24)).astype(np.float32)


class Draw(Protocol):
    """Picks one id per row."""

    def __call__(self, probabilities: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
        """``probabilities (n, ids)`` float32, ``uniform (n,)`` float32 to ids ``(n,)`` int64."""


def inverse_cdf(probabilities: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """The first id whose cumulated probability exceeds ``uniform`` times the total; never one of probability 0."""
    cumulated = probabilities.cumsum(-1)
    total = cumulated[:, -1:]
    # Just below the total at most, so that rounding cannot lead past the last id.
    target = torch.minimum(uniform[:, None] * total, torch.nextafter(total, torch.zeros_like(total)))
    return (cumulated <= target).sum(-1)


@dataclass(frozen=True, slots=True)
class Rules:
    """How a batch of rows draws: one value per row as tensors ``(n, 1)``, and what is true of the whole batch.

    ``widest`` is the largest top-k of the batch (0: none). A row's result does not depend on it, nor on ``sampled``
    (some row samples) and ``nucleus`` (some row has top-p below 1): they only leave work out.
    """

    greedy: torch.Tensor
    temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    widest: int
    sampled: bool
    nucleus: bool

    @staticmethod
    def of(rows: Sequence[tuple[bool, float, int, float]], ids: int, device: torch.device) -> Rules:
        """From (greedy, temperature, top_k, top_p) of each row; ``ids`` is the size of the vocabulary.

        A temperature of 0 means greedy. A top-k of 0 or of the whole vocabulary keeps everything.
        """
        greedy = [row[0] or row[1] <= 0 for row in rows]
        ks = [row[2] if 0 < row[2] < ids else ids for row in rows]
        warm = [1.0 if cold else row[1] for cold, row in zip(greedy, rows, strict=True)]
        narrow = [k for k, cold in zip(ks, greedy, strict=True) if k < ids and not cold]
        return Rules(
            greedy=torch.tensor(greedy, device=device)[:, None],
            temperature=torch.tensor(warm, dtype=torch.float32, device=device)[:, None],
            top_k=torch.tensor(ks, dtype=torch.int64, device=device)[:, None],
            top_p=torch.tensor([row[3] for row in rows], dtype=torch.float32, device=device)[:, None],
            widest=max(narrow, default=0),
            sampled=not all(greedy),
            nucleus=any(row[3] < 1 and not cold for row, cold in zip(rows, greedy, strict=True)),
        )


def talker_rule(sampling: Sampling) -> tuple[bool, float, int, float]:
    """The talker's row of ``Rules.of``."""
    return sampling.greedy, sampling.temperature, sampling.top_k, sampling.top_p


def predictor_rule(sampling: Sampling) -> tuple[bool, float, int, float]:
    """The predictor's row of ``Rules.of``."""
    return sampling.greedy, sampling.predictor_temperature, sampling.predictor_top_k, sampling.predictor_top_p


def constrain(
    logits: torch.Tensor, seen: torch.Tensor, penalty: torch.Tensor, codes: int, eos: int, allow_eos: torch.Tensor
) -> torch.Tensor:
    """What holds for the talker in greedy mode too, in this order: penalty, end, control ids.

    ``logits (n, ids)`` float32; ``seen (n, ids)`` bool are the codes drawn before; ``penalty (n, 1)`` divides their
    positive logits and multiplies the others; ids from ``codes`` on are no codes and cannot be drawn, but ``eos`` can
    where ``allow_eos (n,)``.
    """
    penalised = torch.where(logits < 0, logits * penalty, logits / penalty)
    scores = torch.where(seen, penalised, logits)
    end = torch.where(allow_eos, scores[:, eos], -torch.inf)
    scores[:, codes:] = -torch.inf
    scores[:, eos] = end
    return scores


def choose(scores: torch.Tensor, rules: Rules, uniform: torch.Tensor, draw: Draw) -> torch.Tensor:
    """Temperature, top-k (ties with the k-th stay), top-p, softmax in float32, draw; greedy rows take the largest.

    ``scores (n, ids)`` float32, ``uniform (n,)``; returns ids ``(n,)`` int64.
    """
    if not rules.sampled:
        return scores.argmax(-1)
    warm = scores / rules.temperature
    if rules.widest:
        best = warm.topk(rules.widest, -1).values
        least = best.gather(1, rules.top_k.clamp(max=rules.widest) - 1)
        # A row that keeps everything may stand beside one that does not.
        warm = warm.masked_fill((warm < least) & (rules.top_k <= rules.widest), -torch.inf)
    if rules.nucleus:
        warm = _nucleus(warm, rules.top_p)
    drawn = draw(warm.softmax(-1), uniform)
    return torch.where(rules.greedy[:, 0], scores.argmax(-1), drawn)


def _nucleus(scores: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Drop the least likely ids that together have at most ``1 - top_p``, never the most likely one."""
    ascending, order = scores.sort(-1)
    drop = ascending.softmax(-1).cumsum(-1) <= 1 - top_p
    drop[:, -1] = False
    drop &= top_p < 1
    return scores.masked_fill(torch.zeros_like(drop).scatter(1, order, drop), -torch.inf)


PREDICTED = range(1, CODEBOOKS)
"""The codebooks that the code predictor draws."""
