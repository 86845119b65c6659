"""The blocks of Code2Wav, built from a checkpoint's tensors; see ``code2wav_layers`` for how they carry state.

All take and give time-major activations ``(streams, steps, channels)`` and the streams' ``buffers (streams, size)``,
which they update in place.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812

from adapters.engines.qwen3_tts.code2wav_layers import (
    Attention,
    CausalConv,
    DepthwiseConv,
    Layout,
    Linear,
    Placement,
    Snake,
)
from adapters.engines.qwen3_tts.codec_config import DecoderConfig
from adapters.engines.qwen3_tts.tensors import Tensors


class TransformerLayer:
    """RMSNorm, windowed attention and a gated MLP, each branch scaled per channel (folded into its last weight)."""

    def __init__(self, config: DecoderConfig, tensors: Tensors, name: str, place: Placement, layout: Layout) -> None:
        width, inner = config.hidden_size, config.intermediate_size
        queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim

        def get(part: str, *shape: int) -> torch.Tensor:
            return tensors.get(f"{name}.{part}", shape).float()

        self.eps = config.rms_norm_eps
        self.norms = [
            place.put(get(f"{norm}.weight", width)) for norm in ("input_layernorm", "post_attention_layernorm")
        ]
        scale = get("self_attn_layer_scale.scale", width)[:, None]
        self.attention = Attention(
            torch.cat(
                [get(f"self_attn.{part}_proj.weight", queries if part == "q" else keys, width) for part in "qkv"]
            ),
            get("self_attn.o_proj.weight", width, queries) * scale,
            place,
            layout,
            heads=config.heads,
            kv_heads=config.kv_heads,
            head_dim=config.head_dim,
            window=config.sliding_window,
        )
        self.gate_up = Linear(
            torch.cat([get(f"mlp.{part}_proj.weight", inner, width) for part in ("gate", "up")]), place
        )
        scale = get("mlp_layer_scale.scale", width)[:, None]
        self.down = Linear(get("mlp.down_proj.weight", width, inner) * scale, place)

    def __call__(
        self, x: torch.Tensor, buffers: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor], mask: torch.Tensor
    ) -> torch.Tensor:
        """``(streams, frames, width)`` to the same, in ``x``'s memory; ``turn`` and ``mask`` from the layers' file."""
        normed = F.rms_norm(x, x.shape[-1:], self.norms[0], self.eps)
        x = self.attention.add_to(x, normed, buffers, turn, mask)
        gate, up = self.gate_up(F.rms_norm(x, x.shape[-1:], self.norms[1], self.eps)).chunk(2, -1)
        return self.down.add_to(x, F.silu(gate) * up)


class Upsampler:
    """Transposed convolution without overlap, then a ConvNeXt block."""

    def __init__(self, tensors: Tensors, name: str, width: int, ratio: int, place: Placement, layout: Layout) -> None:
        def get(part: str, *shape: int) -> torch.Tensor:
            return tensors.get(f"{name}.{part}", shape).float()

        weight, bias = CausalConv.transposed(
            get("0.conv.weight", width, width, ratio), get("0.conv.bias", width), ratio
        )
        self.spread = Linear(weight[:, :, 0], place, bias)
        self.depthwise = DepthwiseConv(
            get("1.dwconv.conv.weight", width, 1, 7), get("1.dwconv.conv.bias", width), place, layout
        )
        self.norm = (place.put(get("1.norm.weight", width)), place.put(get("1.norm.bias", width)))
        self.widen = Linear(get("1.pwconv1.weight", 4 * width, width), place, get("1.pwconv1.bias", 4 * width))
        gamma = get("1.gamma", width)
        self.narrow = Linear(
            get("1.pwconv2.weight", width, 4 * width) * gamma[:, None], place, get("1.pwconv2.bias", width) * gamma
        )

    def __call__(self, x: torch.Tensor, buffers: torch.Tensor) -> torch.Tensor:
        """``(streams, steps, width)`` to ``(streams, steps * ratio, width)``."""
        x = self.spread(x).view(x.shape[0], -1, x.shape[2])
        branch = F.layer_norm(self.depthwise(buffers, x), x.shape[-1:], *self.norm, 1e-6)
        return self.narrow.add_to(x, F.gelu(self.widen(branch)))


class ResidualUnit:
    """SnakeBeta, dilated convolution, SnakeBeta, 1x1 convolution, and the input added."""

    def __init__(
        self, tensors: Tensors, name: str, channels: int, dilation: int, place: Placement, layout: Layout
    ) -> None:
        def get(part: str, *shape: int) -> torch.Tensor:
            return tensors.get(f"{name}.{part}", shape).float()

        self.first = Snake(get("act1.alpha", channels), get("act1.beta", channels), place)
        weight, bias = get("conv1.conv.weight", channels, channels, 7), get("conv1.conv.bias", channels)
        self.conv = CausalConv(weight, bias, place, layout, dilation=dilation)
        self.second = Snake(get("act2.alpha", channels), get("act2.beta", channels), place)
        weight, bias = get("conv2.conv.weight", channels, channels, 1), get("conv2.conv.bias", channels)
        self.mix = Linear(weight[:, :, 0], place, bias)

    def __call__(self, x: torch.Tensor, buffers: torch.Tensor) -> torch.Tensor:
        """``(streams, steps, channels)`` to the same, in ``x``'s memory."""
        room = self.conv.room(buffers, x.shape[1])
        self.first.into(self.conv.fresh(room), x)
        inner = self.conv(buffers, room)
        active = torch.empty_like(inner)
        self.second.into(active, inner)
        return self.mix.add_to(x, active)


class Block:
    """SnakeBeta, transposed convolution by ``rate`` to half the channels, three residual units."""

    def __init__(self, tensors: Tensors, name: str, channels: int, rate: int, place: Placement, layout: Layout) -> None:
        def get(part: str, *shape: int) -> torch.Tensor:
            return tensors.get(f"{name}.{part}", shape).float()

        self.channels, self.rate = channels // 2, rate
        self.snake = Snake(get("0.alpha", channels), get("0.beta", channels), place)
        weight, bias = get("1.conv.weight", channels, self.channels, 2 * rate), get("1.conv.bias", self.channels)
        self.spread = CausalConv(*CausalConv.transposed(weight, bias, rate), place, layout)
        self.units = [
            ResidualUnit(tensors, f"{name}.{index + 2}", self.channels, dilation, place, layout)
            for index, dilation in enumerate((1, 3, 9))
        ]

    def __call__(self, x: torch.Tensor, buffers: torch.Tensor) -> torch.Tensor:
        """``(streams, steps, channels)`` to ``(streams, steps * rate, channels / 2)``."""
        room = self.spread.room(buffers, x.shape[1])
        self.snake.into(self.spread.fresh(room), x)
        x = self.spread(buffers, room).view(x.shape[0], -1, self.channels)
        for unit in self.units:
            x = unit(x, buffers)
        return x
