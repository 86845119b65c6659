"""The talker: embeddings, text projection, 28 layers over a static KV cache with one row per speech, the code head."""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812

from adapters.engines.qwen3_tts.config import TalkerConfig, TransformerConfig
from adapters.engines.qwen3_tts.layers import Rope, Transformer, attend_causally, attend_to, transformer
from adapters.engines.qwen3_tts.linear import Place
from adapters.engines.qwen3_tts.tensors import Tensors

KeyValues = tuple[torch.Tensor, torch.Tensor]
"""Keys and values of some positions of one row, ``(layers, kv_heads, positions, head_dim)`` each."""


class KvCache:
    """Keys and values of ``rows`` rows, ``k`` and ``v (layers, rows, kv_heads, positions, head_dim)``.

    The operating system commits the pages when they are first written, so an unused row costs nothing on a CPU.
    """

    def __init__(self, config: TransformerConfig, rows: int, positions: int, place: Place) -> None:
        shape = (config.layers, rows, config.kv_heads, positions, config.head_dim)
        self.k, self.v = _zeros(shape, place), _zeros(shape, place)

    @staticmethod
    def bytes_per_position(config: TransformerConfig, place: Place) -> int:
        """Of one row, all layers."""
        return 2 * config.layers * config.kv_heads * config.head_dim * place.dtype.itemsize

    def copy_out(self, row: int, length: int) -> KeyValues:
        """A copy of a row's first ``length`` positions, of all layers."""
        return self.k[:, row, :, :length].clone(), self.v[:, row, :, :length].clone()

    def copy_in(self, row: int, kept: KeyValues) -> None:
        """Write what ``copy_out`` gave to the beginning of a row."""
        k, v = kept
        self.k[:, row, :, : k.shape[2]] = k
        self.v[:, row, :, : v.shape[2]] = v


def _zeros(shape: tuple[int, ...], place: Place) -> torch.Tensor:
    """Zeros; on a CPU from pages that nobody has written yet, as ``torch.zeros`` would write them all."""
    if place.device.type != "cpu":
        return torch.zeros(shape, dtype=place.dtype, device=place.device)
    size = math.prod(shape) * place.dtype.itemsize
    # Windows has neither flag and gives private memory anyway.
    private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    return torch.frombuffer(mmap.mmap(-1, size, **private), dtype=place.dtype).view(shape)


class Talker:
    """Computes; it keeps no row's state but the cache it is given."""

    def __init__(self, config: TalkerConfig, weights: Tensors, place: Place, positions: int) -> None:
        width, text = config.talker.hidden, config.text_hidden
        self.config = config
        self.place = place
        self.rope = Rope(config.talker, positions, place)
        self._layers = transformer(config.talker, weights, "talker.model", self.rope, place)
        self._text = place.table(weights.get("talker.model.text_embedding.weight", (config.text_vocab, text)))
        self._codes = place.table(weights.get("talker.model.codec_embedding.weight", (config.codec_vocab, width)))
        self._fc1, self._fc2 = (
            place.linear(
                weights.get(f"talker.text_projection.{name}.weight", (outputs, text)),
                bias=weights.get(f"talker.text_projection.{name}.bias", (outputs,)),
            )
            for name, outputs in (("linear_fc1", text), ("linear_fc2", width))
        )
        self._head = place.linear(weights.get("talker.codec_head.weight", (config.codec_vocab, width)))

    def text(self, ids: torch.Tensor) -> torch.Tensor:
        """Text ids ``(n,)`` int64 to vectors ``(n, hidden)``."""
        return self._fc2(F.silu(self._fc1(F.embedding(ids, self._text).to(self.place.dtype))))

    def codes(self, ids: torch.Tensor) -> torch.Tensor:
        """Codec ids ``(n,)`` int64 (codes of group 0, control ids, speakers) to vectors ``(n, hidden)``."""
        return F.embedding(ids, self._codes).to(self.place.dtype)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """``hidden (n, hidden)`` to float32 ``(n, codec_vocab)``."""
        return self._head(hidden).float()

    def prefill(self, cache: KvCache, row: int, start: int, x: torch.Tensor) -> torch.Tensor:
        """Run ``x (positions, hidden)`` of one row at ``start``; other rows are not touched.

        Returns the final-norm hidden state of the last position, ``(1, hidden)``.
        """
        end = start + x.shape[0]
        if not isinstance(self._layers, Transformer):
            return self._layers(x, [row] * len(x), range(start, end), cache.k, cache.v)[-1:]

        def attend(layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            keys, values = cache.k[layer][row : row + 1, :, :end], cache.v[layer][row : row + 1, :, :end]
            keys[:, :, start:] = k.transpose(1, 2)
            values[:, :, start:] = v.transpose(1, 2)
            return attend_causally(q, keys, values)

        return self._layers(x[None], self.rope.span(start, end), attend)[:, -1]

    def step_rows(self, cache: KvCache, rows: Sequence[int], positions: Sequence[int], x: torch.Tensor) -> torch.Tensor:
        """One position of each of some rows, row by row over exactly its own keys: the CPU's form.

        ``x (n, hidden)``, ``n >= len(rows)``: what is beyond fills the batch up and attends to nothing. Returns the
        final-norm hidden states ``(n, hidden)``.
        """
        places = list(zip(rows, positions, strict=True))
        fill = x.shape[0] - len(places)
        if not isinstance(self._layers, Transformer):
            return F.pad(self._layers(x[: len(places)], rows, positions, cache.k, cache.v), (0, 0, 0, fill))
        index = torch.tensor([*positions, *[0] * fill], device=x.device)

        def attend(layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            contexts = []
            for at, (row, position) in enumerate(places):
                keys, values = cache.k[layer][row : row + 1], cache.v[layer][row : row + 1]
                keys[0, :, position] = k[at, 0]
                values[0, :, position] = v[at, 0]
                contexts.append(attend_to(q[at : at + 1], keys[:, :, : position + 1], values[:, :, : position + 1]))
            if fill:
                contexts.append(q[len(places) :].reshape(fill, 1, -1))
            return contexts[0] if len(contexts) == 1 else torch.cat(contexts)

        return self._layers(x[:, None], self.rope.at(index), attend)[:, 0]

    def step_slots(self, cache: KvCache, positions: torch.Tensor, window: int, x: torch.Tensor) -> torch.Tensor:
        """One position of the rows ``0..n-1`` at once, in static shapes and without asking the device anything.

        ``positions (n,)`` int64, all below ``window``; ``x (n, hidden)``. A row that should stand still may take part:
        what it writes at its next position is written again when it is really stepped. Returns the final-norm hidden
        states ``(n, hidden)``. Meant for CUDA graphs and ``torch.compile(fullgraph=True)``.
        """
        n = x.shape[0]
        if not isinstance(self._layers, Transformer):
            return self._layers(x, range(n), positions.tolist(), cache.k, cache.v)
        every = torch.arange(n, device=x.device)
        visible = torch.arange(window, device=x.device)[None] <= positions[:, None]
        mask = visible[:, None, None]  # (n, 1, 1, window)

        def attend(layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            keys, values = cache.k[layer], cache.v[layer]
            keys[every, :, positions] = k[:, 0]
            values[every, :, positions] = v[:, 0]
            return attend_to(q, keys[:n, :, :window], values[:n, :, :window], mask)

        return self._layers(x[:, None], self.rope.at(positions), attend)[:, 0]
