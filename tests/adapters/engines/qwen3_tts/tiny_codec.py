"""Codec and speaker encoder of the checkpoints that ``tiny`` writes: configuration and random tensors."""

from __future__ import annotations

from math import sqrt
from typing import Any

import torch

from tests.adapters.engines.qwen3_tts.tiny_maker import Maker


def codec_config(*, small: bool) -> dict[str, Any]:
    """``speech_tokenizer/config.json``, in the released size or a small one."""

    def pick(full: int, tiny: int) -> int:
        return tiny if small else full

    encoder = {
        "_frame_rate": 12.5,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "compress": 2,
        "dilation_growth_rate": 2,
        "hidden_act": "gelu",
        "initializer_range": 0.02,
        "kernel_size": 7,
        "last_kernel_size": 3,
        "layer_scale_initial_scale": 0.01,
        "max_position_embeddings": 8000,
        "norm_eps": 1e-5,
        "normalize": False,
        "num_residual_layers": 1,
        "num_semantic_quantizers": 1,
        "pad_mode": "constant",
        "residual_kernel_size": 3,
        "rope_theta": 10000.0,
        "sampling_rate": 24000,
        "trim_right_ratio": 1.0,
        "upsampling_ratios": [8, 6, 5, 4],
        "use_cache": False,
        "use_causal_conv": True,
        "use_conv_shortcut": False,
        "use_streaming": False,
        "audio_channels": 1,
        "num_filters": pick(64, 4),
        "hidden_size": pick(512, 32),
        "num_hidden_layers": pick(8, 2),
        "intermediate_size": pick(2048, 64),
        "num_attention_heads": pick(8, 4),
        "num_key_value_heads": pick(8, 4),
        "head_dim": pick(64, 8),
        "sliding_window": pick(250, 10),
        "codebook_size": pick(2048, 128),
        "codebook_dim": pick(256, 16),
        "num_quantizers": pick(32, 18),
        "vector_quantization_hidden_dimension": pick(256, 16),
        "upsample_groups": pick(512, 32),
    }
    decoder = {
        "attention_bias": False,
        "attention_dropout": 0.0,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "layer_scale_initial_scale": 0.01,
        "max_position_embeddings": 8000,
        "num_quantizers": 16,
        "num_semantic_quantizers": 1,
        "rope_theta": 10000,
        "upsample_rates": [8, 5, 4, 3],
        "upsampling_ratios": [2, 2],
        "codebook_dim": pick(512, 32),
        "codebook_size": pick(2048, 128),
        "semantic_codebook_size": pick(4096, 256),
        "latent_dim": pick(1024, 48),
        "decoder_dim": pick(1536, 64),
        "hidden_size": pick(512, 32),
        "intermediate_size": pick(1024, 64),
        "num_attention_heads": pick(16, 4),
        "num_key_value_heads": pick(16, 4),
        "head_dim": pick(64, 16),
        "num_hidden_layers": pick(8, 3),
        "sliding_window": pick(72, 7),
        "vector_quantization_hidden_dimension": pick(512, 32),
    }
    return {
        "architectures": ["Qwen3TTSTokenizerV2Model"],
        "model_type": "qwen3_tts_tokenizer_12hz",
        "encoder_valid_num_quantizers": 16,
        "input_sample_rate": 24000,
        "output_sample_rate": 24000,
        "decode_upsample_rate": 1920,
        "encode_downsample_rate": 1920,
        "transformers_version": "4.57.3",
        "encoder_config": encoder,
        "decoder_config": decoder,
    }


def _codebook(make: Maker, name: str, sums: str, size: int, width: int, std: float) -> None:
    """Stored as running sums and usage; some entries were never used."""
    generator = make.generator(name)
    usage = torch.empty(size).uniform_(0.5, 40.0, generator=generator)
    table = torch.empty(size, width).normal_(0, std, generator=generator)
    usage[:: max(size // 8, 1)] = 0.0
    make.put(f"{name}.cluster_usage", usage)
    make.put(f"{name}.{sums}", table * usage.clamp(min=1e-5)[:, None])


def codec_tensors(make: Maker, config: dict[str, Any]) -> None:
    """``speech_tokenizer/model.safetensors``."""
    _encoder(make, config["encoder_config"])
    _decoder(make, config["decoder_config"])


def _encoder(make: Maker, e: dict[str, Any]) -> None:
    prefix, channels, gain, at = "encoder.encoder.layers", e["num_filters"], sqrt(1.6), 1
    make.conv(f"{prefix}.0.conv", channels, 1, 7, 3.0)
    for ratio in reversed(e["upsampling_ratios"]):
        make.conv(f"{prefix}.{at}.block.1.conv", channels // 2, channels, 3, gain)
        make.conv(f"{prefix}.{at}.block.3.conv", channels, channels // 2, 1, 0.7)
        make.conv(f"{prefix}.{at + 2}.conv", channels * 2, channels, ratio * 2, gain)
        at, channels = at + 3, channels * 2
    make.conv(f"{prefix}.{at + 1}.conv", e["hidden_size"], channels, 3, gain)
    width, attention = e["hidden_size"], e["num_attention_heads"] * e["head_dim"]
    for layer in range(e["num_hidden_layers"]):
        name = f"encoder.encoder_transformer.layers.{layer}"
        for part in "qkv":
            make.linear(f"{name}.self_attn.{part}_proj", attention, width)
        make.linear(f"{name}.self_attn.o_proj", width, attention)
        make.linear(f"{name}.mlp.fc1", e["intermediate_size"], width)
        make.linear(f"{name}.mlp.fc2", width, e["intermediate_size"])
        make.norm(f"{name}.input_layernorm", width, bias=True)
        make.norm(f"{name}.post_attention_layernorm", width, bias=True)
        make.uniform(f"{name}.self_attn_layer_scale.scale", (width,), 0.1, 0.5)
        make.uniform(f"{name}.mlp_layer_scale.scale", (width,), 0.1, 0.5)
    make.conv("encoder.downsample.conv", width, width, 4, bias=False)
    inner = e["vector_quantization_hidden_dimension"]
    for side, count in (("semantic", 1), ("acoustic", e["num_quantizers"] - 1)):
        name = f"encoder.quantizer.{side}_residual_vector_quantizer"
        make.conv(f"{name}.input_proj", inner, width, 1, bias=False)
        make.conv(f"{name}.output_proj", width, inner, 1, bias=False)
        for layer in range(count):
            book = f"{name}.layers.{layer}.codebook"
            _codebook(make, book, "embed_sum", e["codebook_size"], e["codebook_dim"], 1.0 * 0.85**layer)
            make.put(f"{book}.initialized", torch.ones(1))


def _decoder(make: Maker, d: dict[str, Any]) -> None:
    latent, width, book = d["latent_dim"], d["hidden_size"], d["codebook_dim"]
    for side, count, std in (("first", 1, 1.0), ("rest", d["num_quantizers"] - 1, 0.8)):
        name = f"decoder.quantizer.rvq_{side}"
        make.conv(f"{name}.input_proj", book // 2, book, 1, bias=False)
        make.conv(f"{name}.output_proj", book, book // 2, 1, 0.7, bias=False)
        for layer in range(count):
            full = f"{name}.vq.layers.{layer}._codebook"
            _codebook(make, full, "embedding_sum", d["codebook_size"], book // 2, std * 0.85**layer)
    make.conv("decoder.pre_conv.conv", latent, book, 3)
    prefix = "decoder.pre_transformer"
    make.linear(f"{prefix}.input_proj", width, latent, bias=True)
    make.linear(f"{prefix}.output_proj", latent, width, bias=True)
    make.norm(f"{prefix}.norm", width)
    queries, keys = d["num_attention_heads"] * d["head_dim"], d["num_key_value_heads"] * d["head_dim"]
    for layer in range(d["num_hidden_layers"]):
        name = f"{prefix}.layers.{layer}"
        make.linear(f"{name}.self_attn.q_proj", queries, width, 1.3)
        make.linear(f"{name}.self_attn.k_proj", keys, width, 1.3)
        make.linear(f"{name}.self_attn.v_proj", keys, width)
        make.linear(f"{name}.self_attn.o_proj", width, queries)
        make.linear(f"{name}.mlp.gate_proj", d["intermediate_size"], width)
        make.linear(f"{name}.mlp.up_proj", d["intermediate_size"], width)
        make.linear(f"{name}.mlp.down_proj", width, d["intermediate_size"])
        make.norm(f"{name}.input_layernorm", width)
        make.norm(f"{name}.post_attention_layernorm", width)
        make.uniform(f"{name}.self_attn_layer_scale.scale", (width,), 0.3, 0.8)
        make.uniform(f"{name}.mlp_layer_scale.scale", (width,), 0.3, 0.8)
    for at, ratio in enumerate(d["upsampling_ratios"]):
        name = f"decoder.upsample.{at}"
        make.normal(f"{name}.0.conv.weight", (latent, latent, ratio), 1 / sqrt(latent))
        make.normal(f"{name}.0.conv.bias", (latent,), 0.05)
        make.conv(f"{name}.1.dwconv.conv", latent, 1, 7)
        make.norm(f"{name}.1.norm", latent, bias=True)
        make.linear(f"{name}.1.pwconv1", 4 * latent, latent, bias=True)
        make.linear(f"{name}.1.pwconv2", latent, 4 * latent, bias=True)
        make.uniform(f"{name}.1.gamma", (latent,), 0.2, 0.6)
    _wave(make, d)


def _snake(make: Maker, name: str, channels: int) -> None:
    make.normal(f"{name}.alpha", (channels,), 0.3)
    make.normal(f"{name}.beta", (channels,), 0.3, 0.3)


def _wave(make: Maker, d: dict[str, Any]) -> None:
    channels, prefix = d["decoder_dim"], "decoder.decoder"
    make.conv(f"{prefix}.0.conv", channels, d["latent_dim"], 7, 0.8)
    for at, rate in enumerate(d["upsample_rates"]):
        block, half = f"{prefix}.{at + 1}.block", channels // 2
        _snake(make, f"{block}.0", channels)
        make.normal(f"{block}.1.conv.weight", (channels, half, 2 * rate), 0.8 / sqrt(2 * channels))
        make.normal(f"{block}.1.conv.bias", (half,), 0.05)
        for unit in range(2, 5):
            _snake(make, f"{block}.{unit}.act1", half)
            make.conv(f"{block}.{unit}.conv1.conv", half, half, 7, 0.5)
            _snake(make, f"{block}.{unit}.act2", half)
            make.conv(f"{block}.{unit}.conv2.conv", half, half, 1, 0.35)
        channels = half
    last = len(d["upsample_rates"]) + 1
    _snake(make, f"{prefix}.{last}", channels)
    make.normal(f"{prefix}.{last + 1}.conv.weight", (1, channels, 7), 0.2 / sqrt(7 * channels))
    make.normal(f"{prefix}.{last + 1}.conv.bias", (1,), 0.01)


def speaker_encoder_tensors(make: Maker, config: dict[str, Any]) -> None:
    """``speaker_encoder.*`` of a Base checkpoint."""
    channels = config.get("enc_channels", [512, 512, 512, 512, 1536])
    attention, squeeze = config.get("enc_attention_channels", 128), config.get("enc_se_channels", 128)
    kernels, scale, gain, prefix = (5, 3, 3, 3, 1), 8, sqrt(2), "speaker_encoder"
    make.conv(f"{prefix}.blocks.0.conv", channels[0], 128, kernels[0], 0.3)
    for at in range(1, len(channels) - 1):
        block, part = f"{prefix}.blocks.{at}", channels[at] // scale
        make.conv(f"{block}.tdnn1.conv", channels[at], channels[at - 1], 1, gain)
        for piece in range(scale - 1):
            make.conv(f"{block}.res2net_block.blocks.{piece}.conv", part, part, kernels[at], gain)
        make.conv(f"{block}.tdnn2.conv", channels[at], channels[at], 1, gain)
        make.conv(f"{block}.se_block.conv1", squeeze, channels[at], 1, gain)
        make.conv(f"{block}.se_block.conv2", channels[at], squeeze, 1)
    make.conv(f"{prefix}.mfa.conv", channels[-1], sum(channels[1:-1]), kernels[-1], gain)
    make.conv(f"{prefix}.asp.tdnn.conv", attention, 3 * channels[-1], 1)
    make.conv(f"{prefix}.asp.conv", channels[-1], attention, 1, 2)
    make.conv(f"{prefix}.fc", config["enc_dim"], 2 * channels[-1], 1, 0.5)
