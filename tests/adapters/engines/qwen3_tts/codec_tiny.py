"""A tiny codec and speaker encoder with seeded weights, named, shaped and typed as in the released checkpoints.

Every tensor's values depend on its name alone (seed 0), so that goldens made from them stay good when others change.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import torch
from safetensors.torch import save_file

DECODER: dict[str, Any] = {
    "attention_bias": False,
    "codebook_dim": 32,
    "codebook_size": 128,
    "decoder_dim": 64,
    "head_dim": 16,
    "hidden_act": "silu",
    "hidden_size": 32,
    "intermediate_size": 64,
    "latent_dim": 48,
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "num_key_value_heads": 4,
    "num_quantizers": 16,
    "num_semantic_quantizers": 1,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10_000,
    "semantic_codebook_size": 256,  # dead in the released config too: the table has codebook_size rows
    "sliding_window": 7,
    "upsample_rates": [8, 5, 4, 3],
    "upsampling_ratios": [2, 2],
}
ENCODER: dict[str, Any] = {
    "_frame_rate": 12.5,
    "audio_channels": 1,
    "codebook_dim": 16,
    "codebook_size": 128,
    "compress": 2,
    "head_dim": 8,
    "hidden_size": 32,
    "intermediate_size": 64,
    "kernel_size": 7,
    "last_kernel_size": 3,
    "num_attention_heads": 4,
    "num_filters": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 4,
    "num_quantizers": 18,
    "residual_kernel_size": 3,
    "sampling_rate": 24_000,
    "sliding_window": 10,
    "upsample_groups": 32,
    "upsampling_ratios": [8, 6, 5, 4],
    "use_causal_conv": True,
    "vector_quantization_hidden_dimension": 16,
}
CODEC: dict[str, Any] = {
    "model_type": "qwen3_tts_tokenizer_12hz",
    "encoder_valid_num_quantizers": 16,
    "input_sample_rate": 24_000,
    "output_sample_rate": 24_000,
    "decode_upsample_rate": 1_920,
    "encode_downsample_rate": 1_920,
    "encoder_config": ENCODER,
    "decoder_config": DECODER,
}
SPEAKER: dict[str, Any] = {
    "enc_dim": 64,
    "sample_rate": 24_000,
    "enc_channels": [16, 16, 16, 16, 48],
    "enc_attention_channels": 8,
    "enc_se_channels": 8,
}


class Weights:
    """Collects tensors; also a ``Tensors`` that parts of the model can read without a file."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        self.dtype = dtype
        self.tensors: dict[str, torch.Tensor] = {}

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self.tensors))

    def get(self, name: str, shape: tuple[int, ...] | None = None) -> torch.Tensor:
        assert shape is None or tuple(self.tensors[name].shape) == shape, name
        return self.tensors[name]

    def draws(self, name: str) -> torch.Generator:
        return torch.Generator().manual_seed(crc32(name.encode()) & 0x7FFFFFFF)

    def put(self, name: str, value: torch.Tensor) -> None:
        self.tensors[name] = value.to(self.dtype).contiguous()

    def normal(self, name: str, shape: tuple[int, ...], deviation: float, mean: float = 0.0) -> None:
        self.put(name, torch.empty(shape).normal_(mean, deviation, generator=self.draws(name)))

    def uniform(self, name: str, shape: tuple[int, ...], low: float, high: float) -> None:
        self.put(name, torch.empty(shape).uniform_(low, high, generator=self.draws(name)))

    def layer(self, name: str, *shape: int, gain: float = 1.0, bias: bool = True) -> None:
        """A linear layer or a convolution: deviation ``gain`` over the root of the inputs' number."""
        self.normal(f"{name}.weight", shape, gain / math.sqrt(math.prod(shape[1:])))
        if bias:
            self.normal(f"{name}.bias", shape[:1], 0.05)

    def norm(self, name: str, width: int, *, bias: bool = False) -> None:
        self.uniform(f"{name}.weight", (width,), 0.8, 1.2)
        if bias:
            self.normal(f"{name}.bias", (width,), 0.05)

    def codebook(self, name: str, sums: str, size: int, width: int, deviation: float) -> None:
        """Sums and counts; every eighth or so entry was never used."""
        draws = self.draws(name)
        usage = torch.empty(size).uniform_(0.5, 40.0, generator=draws)
        table = torch.empty(size, width).normal_(0.0, deviation, generator=draws)
        usage[:: size // 8] = 0.0
        self.put(f"{name}.cluster_usage", usage)
        self.put(f"{name}.{sums}", table * usage.clamp(min=1e-5)[:, None])


def codec_weights() -> Weights:
    """All tensors of ``speech_tokenizer/model.safetensors``."""
    made = Weights()
    _encoder(made, ENCODER)
    _decoder(made, DECODER)
    return made


def _attention(made: Weights, name: str, width: int, heads: int, gain: float = 1.0) -> None:
    for part in "qk":
        made.layer(f"{name}.{part}_proj", heads, width, gain=gain, bias=False)
    made.layer(f"{name}.v_proj", heads, width, bias=False)
    made.layer(f"{name}.o_proj", width, heads, bias=False)


def _encoder(made: Weights, config: dict[str, Any]) -> None:
    gain, channels, index = math.sqrt(1.6), config["num_filters"], 1
    stem = "encoder.encoder.layers"
    made.layer(f"{stem}.0.conv", channels, 1, config["kernel_size"], gain=3.0)
    for ratio in reversed(config["upsampling_ratios"]):
        made.layer(f"{stem}.{index}.block.1.conv", channels // 2, channels, 3, gain=gain)
        made.layer(f"{stem}.{index}.block.3.conv", channels, channels // 2, 1, gain=0.7)
        made.layer(f"{stem}.{index + 2}.conv", channels * 2, channels, ratio * 2, gain=gain)
        index, channels = index + 3, channels * 2
    width = config["hidden_size"]
    made.layer(f"{stem}.{index + 1}.conv", width, channels, config["last_kernel_size"], gain=gain)
    for number in range(config["num_hidden_layers"]):
        layer = f"encoder.encoder_transformer.layers.{number}"
        _attention(made, f"{layer}.self_attn", width, config["num_attention_heads"] * config["head_dim"])
        made.layer(f"{layer}.mlp.fc1", config["intermediate_size"], width, bias=False)
        made.layer(f"{layer}.mlp.fc2", width, config["intermediate_size"], bias=False)
        for part in ("input", "post_attention"):
            made.norm(f"{layer}.{part}_layernorm", width, bias=True)
        for part in ("self_attn", "mlp"):
            made.uniform(f"{layer}.{part}_layer_scale.scale", (width,), 0.1, 0.5)
    made.layer("encoder.downsample.conv", width, width, 4, bias=False)
    inner = config["vector_quantization_hidden_dimension"]
    for side, count in (("semantic", 1), ("acoustic", config["num_quantizers"] - 1)):
        name = f"encoder.quantizer.{side}_residual_vector_quantizer"
        made.layer(f"{name}.input_proj", inner, width, 1, bias=False)
        made.layer(f"{name}.output_proj", width, inner, 1, bias=False)
        for number in range(count):
            book = f"{name}.layers.{number}.codebook"
            made.codebook(book, "embed_sum", config["codebook_size"], config["codebook_dim"], 0.85**number)
            made.put(f"{book}.initialized", torch.ones(1))


def _decoder(made: Weights, config: dict[str, Any]) -> None:
    latent, width, dim = config["latent_dim"], config["hidden_size"], config["codebook_dim"]
    for side, count, level in (("first", 1, 1.0), ("rest", 15, 0.8)):
        name = f"decoder.quantizer.rvq_{side}"
        made.layer(f"{name}.input_proj", dim // 2, dim, 1, bias=False)  # in the file, unused when decoding
        made.layer(f"{name}.output_proj", dim, dim // 2, 1, gain=0.7, bias=False)
        for number in range(count):
            book = f"{name}.vq.layers.{number}._codebook"
            made.codebook(book, "embedding_sum", config["codebook_size"], dim // 2, level * 0.85**number)
    made.layer("decoder.pre_conv.conv", latent, dim, 3)
    name = "decoder.pre_transformer"
    made.layer(f"{name}.input_proj", width, latent)
    made.layer(f"{name}.output_proj", latent, width)
    made.norm(f"{name}.norm", width)
    for number in range(config["num_hidden_layers"]):
        layer = f"{name}.layers.{number}"
        heads = config["num_attention_heads"] * config["head_dim"]
        _attention(made, f"{layer}.self_attn", width, heads, gain=1.3)
        for part in ("gate", "up"):
            made.layer(f"{layer}.mlp.{part}_proj", config["intermediate_size"], width, bias=False)
        made.layer(f"{layer}.mlp.down_proj", width, config["intermediate_size"], bias=False)
        for part in ("input", "post_attention"):
            made.norm(f"{layer}.{part}_layernorm", width)
        for part in ("self_attn", "mlp"):
            made.uniform(f"{layer}.{part}_layer_scale.scale", (width,), 0.3, 0.8)
    for number, ratio in enumerate(config["upsampling_ratios"]):
        name = f"decoder.upsample.{number}"
        made.normal(f"{name}.0.conv.weight", (latent, latent, ratio), 1 / math.sqrt(latent))
        made.normal(f"{name}.0.conv.bias", (latent,), 0.05)
        made.layer(f"{name}.1.dwconv.conv", latent, 1, 7)
        made.norm(f"{name}.1.norm", latent, bias=True)
        made.layer(f"{name}.1.pwconv1", 4 * latent, latent)
        made.layer(f"{name}.1.pwconv2", latent, 4 * latent)
        made.uniform(f"{name}.1.gamma", (latent,), 0.2, 0.6)
    channels, index = config["decoder_dim"], 0
    made.layer("decoder.decoder.0.conv", channels, latent, 7, gain=0.8)
    for index, rate in enumerate(config["upsample_rates"], 1):
        _block(made, f"decoder.decoder.{index}.block", channels, rate)
        channels //= 2
    _snake(made, f"decoder.decoder.{index + 1}", channels)
    made.normal(f"decoder.decoder.{index + 2}.conv.weight", (1, channels, 7), 0.2 / math.sqrt(7 * channels))
    made.normal(f"decoder.decoder.{index + 2}.conv.bias", (1,), 0.01)


def _snake(made: Weights, name: str, channels: int) -> None:
    made.normal(f"{name}.alpha", (channels,), 0.3)
    made.normal(f"{name}.beta", (channels,), 0.3, mean=0.3)


def _block(made: Weights, name: str, channels: int, rate: int) -> None:
    out = channels // 2
    _snake(made, f"{name}.0", channels)
    made.normal(f"{name}.1.conv.weight", (channels, out, 2 * rate), 0.8 / math.sqrt(2 * channels))
    made.normal(f"{name}.1.conv.bias", (out,), 0.05)
    for unit in (f"{name}.{number}" for number in (2, 3, 4)):
        _snake(made, f"{unit}.act1", out)
        made.layer(f"{unit}.conv1.conv", out, out, 7, gain=0.5)
        _snake(made, f"{unit}.act2", out)
        made.layer(f"{unit}.conv2.conv", out, out, 1, gain=0.35)


def speaker_weights() -> Weights:
    """The ``speaker_encoder.`` tensors of ``model.safetensors``: bfloat16, as released."""
    made, gain = Weights(torch.bfloat16), math.sqrt(2)
    channels, squeeze, attention = (
        SPEAKER["enc_channels"],
        SPEAKER["enc_se_channels"],
        SPEAKER["enc_attention_channels"],
    )
    name = "speaker_encoder"
    conv: Callable[..., None] = made.layer
    conv(f"{name}.blocks.0.conv", channels[0], 128, 5, gain=0.3)
    for index, width in enumerate(channels[1:-1], 1):
        block = f"{name}.blocks.{index}"
        for part in ("tdnn1", "tdnn2"):
            conv(f"{block}.{part}.conv", width, width, 1, gain=gain)
        for number in range(7):
            conv(f"{block}.res2net_block.blocks.{number}.conv", width // 8, width // 8, 3, gain=gain)
        conv(f"{block}.se_block.conv1", squeeze, width, 1, gain=gain)
        conv(f"{block}.se_block.conv2", width, squeeze, 1)
    wide = channels[-1]
    conv(f"{name}.mfa.conv", wide, sum(channels[1:-1]), 1, gain=gain)
    conv(f"{name}.asp.tdnn.conv", attention, 3 * wide, 1)
    conv(f"{name}.asp.conv", wide, attention, 1, gain=2)
    conv(f"{name}.fc", SPEAKER["enc_dim"], 2 * wide, 1, gain=0.5)
    return made


def write_codec(folder: Path) -> Path:
    """Write ``speech_tokenizer/`` into ``folder`` and return it."""
    out = folder / "speech_tokenizer"
    out.mkdir(parents=True)
    (out / "config.json").write_text(json.dumps(CODEC), encoding="utf-8")
    save_file(codec_weights().tensors, str(out / "model.safetensors"), metadata={"format": "pt"})
    return out
