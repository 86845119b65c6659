"""The code predictor: from the talker's hidden state and the code it drew, the other 15 codes of the frame.

Its cache lives for one frame and all rows are at the same position, so a frame is 15 passes of fixed shapes for any
batch, without a mask and without asking the device anything.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812

from adapters.engines.qwen3_tts.config import TalkerConfig
from adapters.engines.qwen3_tts.layers import Rope, Transformer, attend_causally, attend_to, transformer
from adapters.engines.qwen3_tts.linear import Linear, Place
from adapters.engines.qwen3_tts.stages import CODEBOOKS
from adapters.engines.qwen3_tts.tensors import Tensors

Choose = Callable[[torch.Tensor, int], torch.Tensor]
"""Picks codes ``(n,)`` int64 from float32 logits ``(n, codes)`` of a codebook (1..15)."""


class Predictor:
    """Computes; its scratch cache holds nothing between frames."""

    def __init__(self, config: TalkerConfig, weights: Tensors, place: Place, rows: int) -> None:
        prefix, width, inner = "talker.code_predictor", config.talker.hidden, config.predictor
        self.config = config
        self.place = place
        self.rope = Rope(inner, CODEBOOKS, place)
        self._layers = transformer(inner, weights, f"{prefix}.model", self.rope, place)
        self._tables = [
            place.table(weights.get(f"{prefix}.model.codec_embedding.{group}.weight", (config.codes, width)))
            for group in range(CODEBOOKS - 1)
        ]
        self._heads = [
            place.linear(weights.get(f"{prefix}.lm_head.{group}.weight", (config.codes, inner.hidden)))
            for group in range(CODEBOOKS - 1)
        ]
        self._narrow: Linear | None = None
        if inner.hidden != width:
            name = f"{prefix}.small_to_mtp_projection"
            self._narrow = place.linear(
                weights.get(f"{name}.weight", (inner.hidden, width)), bias=weights.get(f"{name}.bias", (inner.hidden,))
            )
        shape = (inner.layers, rows, inner.kv_heads, CODEBOOKS, inner.head_dim)
        self._k = torch.zeros(shape, dtype=place.dtype, device=place.device)
        self._v = torch.zeros(shape, dtype=place.dtype, device=place.device)

    def embed(self, group: int, codes: torch.Tensor) -> torch.Tensor:
        """Codes ``(n,)`` of codebook ``group`` (1..15) to vectors of the talker's width, ``(n, hidden)``."""
        return F.embedding(codes, self._tables[group - 1]).to(self.place.dtype)

    def frame(
        self, hidden: torch.Tensor, first: torch.Tensor, embedded: torch.Tensor, choose: Choose
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Complete one frame of each row.

        ``hidden (n, hidden)`` is the talker's final-norm state that gave the codes ``first (n,)`` int64, ``embedded
        (n, hidden)`` their vectors. Returns the codes ``(n, 16)`` int64 and the sum of their vectors ``(n, hidden)``.
        """
        codes, vectors = [first], [embedded]
        x = torch.stack((hidden, embedded), 1)  # (n, 2, hidden)
        for group in range(1, CODEBOOKS):
            state = self._pass(x, 0 if group == 1 else group)
            codes.append(choose(self._heads[group - 1](state).float(), group))
            vectors.append(self.embed(group, codes[-1]))
            x = vectors[-1][:, None]
        return torch.stack(codes, 1), torch.stack(vectors, 1).sum(1)

    def _pass(self, x: torch.Tensor, start: int) -> torch.Tensor:
        """``x (n, 2 or 1, talker hidden)`` at position ``start``; the last position's state ``(n, hidden)``."""
        n, new = x.shape[0], x.shape[1]
        end = start + new
        if self._narrow is not None:
            x = self._narrow(x)
        if not isinstance(self._layers, Transformer):
            rows = [row for row in range(n) for _ in range(new)]
            state = self._layers(x.flatten(0, 1), rows, [*range(start, end)] * n, self._k, self._v)
            return state.view(x.shape)[:, -1]

        def attend(layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            keys, values = self._k[layer, :n, :, :end], self._v[layer, :n, :, :end]
            keys[:, :, start:] = k.transpose(1, 2)
            values[:, :, start:] = v.transpose(1, 2)
            if new == 1:
                return attend_to(q, keys, values)
            return attend_causally(q, keys, values)

        return self._layers(x, self.rope.span(start, end), attend)[:, -1]
