"""The transformer that talker and code predictor share, without its caches.

RMSNorm, grouped-query attention with per-head norms of q and k and plain rope (split halves), SwiGLU. The cast order
is the reference's: norms compute in float32 and multiply their weight after the cast back, rope's tables are float32
cast to the compute type. What attends to what is the caller's: each layer hands q, k and v to an ``Attend``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
import torch.nn.functional as F  # noqa: N812

from adapters.engines.qwen3_tts.config import TransformerConfig
from adapters.engines.qwen3_tts.linear import Place
from adapters.engines.qwen3_tts.tensors import Tensors

Rotation = tuple[torch.Tensor, torch.Tensor]
"""Cosine and signed sine of some positions, broadcastable to ``(rows, positions, heads, head_dim)``."""


class Attend(Protocol):
    """Keeps a layer's new keys and values and lets its queries look at all they may see."""

    def __call__(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """``q (rows, positions, heads, head_dim)``, ``k`` and ``v (rows, positions, kv_heads, head_dim)`` to the
        context ``(rows, positions, heads * head_dim)``."""


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Root mean square norm over the last axis; ``weight`` broadcasts (a vector, or one vector per head)."""
    if x.dtype == torch.float32:
        return F.rms_norm(x, x.shape[-1:], None, eps) * weight
    exact = x.float()
    return (exact * torch.rsqrt(exact.square().mean(-1, keepdim=True) + eps)).to(x.dtype) * weight


class Rope:
    """Tables of ``positions`` rotations, ``(positions, head_dim)`` each; the sine carries the sign of the swap."""

    def __init__(self, config: TransformerConfig, positions: int, place: Place) -> None:
        half = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
        angles = torch.arange(positions, dtype=torch.float32)[:, None] * (1.0 / config.rope_theta**half)
        self.cos = place.put(torch.cat((angles.cos(), angles.cos()), -1))
        self.sin = place.put(torch.cat((-angles.sin(), angles.sin()), -1))

    def span(self, start: int, end: int) -> Rotation:
        """Positions ``start..end-1`` of one row: tables ``(1, positions, 1, head_dim)``."""
        return self.cos[None, start:end, None], self.sin[None, start:end, None]

    def at(self, positions: torch.Tensor) -> Rotation:
        """One position for each row, ``positions (rows,)`` int64: tables ``(rows, 1, 1, head_dim)``."""
        return self.cos[positions][:, None, None], self.sin[positions][:, None, None]


def rotate(x: torch.Tensor, rotation: Rotation) -> torch.Tensor:
    """Rope of ``x (rows, positions, heads, head_dim)``."""
    cos, sin = rotation
    half = x.shape[-1] // 2
    return x * cos + torch.cat((x[..., half:], x[..., :half]), -1) * sin


def attend_to(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    """One position per row over keys in common: ``q (rows, 1, heads, d)``, ``k``, ``v (rows, kv_heads, keys, d)``.

    The queries that share a key head are its query positions, so no key is copied. ``mask`` broadcasts to ``(rows,
    kv_heads, group, keys)``. Returns ``(rows, 1, heads * d)``.
    """
    rows, _, heads, dim = q.shape
    grouped = q.view(rows, k.shape[1], heads // k.shape[1], dim)
    return F.scaled_dot_product_attention(grouped, k, v, attn_mask=mask).reshape(rows, 1, heads * dim)


def attend_causally(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The last positions of rows of one length: ``q (n, new, heads, d)``, ``k``, ``v (n, kv_heads, all, d)``.

    Returns ``(n, new, heads * d)``.
    """
    n, new, heads, dim = q.shape
    total, group = k.shape[2], heads // k.shape[1]
    mask = torch.ones(new, total, dtype=torch.bool, device=q.device).tril(total - new)
    keys, values = (part.repeat_interleave(group, 1) for part in (k, v))
    out = F.scaled_dot_product_attention(q.transpose(1, 2), keys, values, attn_mask=mask)
    return out.transpose(1, 2).reshape(n, new, heads * dim)


class _Layer:
    def __init__(self, config: TransformerConfig, weights: Tensors, prefix: str, place: Place, index: int) -> None:
        queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim

        def get(part: str, *shape: int) -> torch.Tensor:
            return weights.get(f"{prefix}.{part}.weight", shape)

        self.index = index
        self.config = config
        self.input_norm = place.put(get("input_layernorm", config.hidden))
        self.output_norm = place.put(get("post_attention_layernorm", config.hidden))
        self.qkv = place.linear(
            get("self_attn.q_proj", queries, config.hidden),
            get("self_attn.k_proj", keys, config.hidden),
            get("self_attn.v_proj", keys, config.hidden),
        )
        self.out = place.linear(get("self_attn.o_proj", config.hidden, queries))
        q_norm = get("self_attn.q_norm", config.head_dim).expand(config.heads, -1)
        k_norm = get("self_attn.k_norm", config.head_dim).expand(config.kv_heads, -1)
        self.head_norms = place.put(torch.cat((q_norm, k_norm)))  # (heads + kv_heads, head_dim)
        self.gate_up = place.linear(
            get("mlp.gate_proj", config.intermediate, config.hidden),
            get("mlp.up_proj", config.intermediate, config.hidden),
        )
        self.down = place.linear(get("mlp.down_proj", config.hidden, config.intermediate))

    def __call__(self, x: torch.Tensor, rotation: Rotation, attend: Attend) -> torch.Tensor:
        c = self.config
        heads = c.heads + c.kv_heads
        qkv = self.qkv(rms_norm(x, self.input_norm, c.eps))
        qkv = qkv.view(*x.shape[:2], heads + c.kv_heads, c.head_dim)
        turned = rotate(rms_norm(qkv[:, :, :heads], self.head_norms, c.eps), rotation)
        context = attend(self.index, turned[:, :, : c.heads], turned[:, :, c.heads :], qkv[:, :, heads:])
        x = x + self.out(context)
        gate, up = self.gate_up(rms_norm(x, self.output_norm, c.eps)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Transformer:
    """All layers and the final norm. ``prefix`` is the tensors' (``talker.model``)."""

    def __init__(self, config: TransformerConfig, weights: Tensors, prefix: str, place: Place) -> None:
        self.config = config
        self.layers = [
            _Layer(config, weights, f"{prefix}.layers.{index}", place, index) for index in range(config.layers)
        ]
        self.norm = place.put(weights.get(f"{prefix}.norm.weight", (config.hidden,)))

    def __call__(self, x: torch.Tensor, rotation: Rotation, attend: Attend) -> torch.Tensor:
        """``x (rows, positions, hidden)`` to the final-norm hidden states of the same shape."""
        for layer in self.layers:
            x = layer(x, rotation, attend)
        return rms_norm(x, self.norm, self.config.eps)


class Fused(Protocol):
    """A transformer whose layers, caches included, are one call."""

    def __call__(
        self, x: torch.Tensor, rows: Sequence[int], positions: Sequence[int], k: torch.Tensor, v: torch.Tensor
    ) -> torch.Tensor:
        """``x (n, hidden)``, each at a position of a row, to the final-norm states ``(n, hidden)``.

        ``k``, ``v (layers, rows, kv_heads, positions, head_dim)`` hold the row's past and get what is new; tokens of
        one row stand in ascending order.
        """


def transformer(
    config: TransformerConfig, weights: Tensors, prefix: str, rope: Rope, place: Place
) -> Transformer | Fused:
    """The fused form where there is one for this precision, CPU and size, else the layered one."""
    ours = place.kernels
    if ours is None or not ours.usable(config):
        return Transformer(config, weights, prefix, place)
    team = ours.team(torch.get_num_threads())
    found: Fused = ours.FusedTransformer(config, weights, prefix, (rope.cos, rope.sin), team)
    return found
