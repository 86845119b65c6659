"""The codec's and the speaker encoder's shapes, read from a checkpoint's JSON and validated field by field.

Sources: ``speech_tokenizer/config.json`` (``decoder_config``, ``encoder_config``) and ``speaker_encoder_config`` of
the root ``config.json``. Every problem found is named, with the file and the field, in one ``EngineFault``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adapters.engines.qwen3_tts.stages import CODEBOOKS, FRAME_SAMPLES
from sidecar.faults import EngineFault
from sidecar.ports import SAMPLE_RATE_HZ

CODEC_FOLDER = "speech_tokenizer"
_MODEL_TYPE = "qwen3_tts_tokenizer_12hz"
_MAX = 1 << 20
# ECAPA-TDNN of the released checkpoints, whose configs leave these out.
_CHANNELS, _KERNELS, _DILATIONS = (512, 512, 512, 512, 1536), (5, 3, 3, 3, 1), (1, 2, 3, 4, 1)
_ATTENTION, _RES2NET_SCALE, _SQUEEZE = 128, 8, 128


class _Fields:
    """Reads members of a JSON object and collects what is wrong with them."""

    def __init__(self, where: str, body: Mapping[str, Any], problems: list[str]) -> None:
        self.where = where
        self.body = body
        self.problems = problems

    def wrong(self, name: str, what: str) -> None:
        self.problems.append(f"{self.where}.{name} {what}")

    def part(self, name: str) -> _Fields:
        value = self.body.get(name)
        if not isinstance(value, Mapping):
            self.wrong(name, "must be an object")
            value = {}
        return _Fields(f"{self.where}.{name}", value, self.problems)

    def integer(self, name: str, default: int | None = None) -> int:
        value = self.body.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < _MAX:
            self.wrong(name, f"must be a positive integer, not {value!r}")
            return 1
        return value

    def number(self, name: str, default: float | None = None) -> float:
        value = self.body.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            self.wrong(name, f"must be a positive number, not {value!r}")
            return 1.0
        return float(value)

    def integers(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        value = self.body.get(name, default)
        if (
            not isinstance(value, list | tuple)
            or not value
            or not all(isinstance(one, int) and not isinstance(one, bool) and 0 < one < _MAX for one in value)
        ):
            self.wrong(name, f"must be a list of positive integers, not {value!r}")
            return (1,)
        return tuple(value)

    def must_be(self, name: str, *allowed: Any, default: Any = None) -> None:
        value = self.body.get(name, default)
        if value not in allowed:
            self.wrong(name, f"must be {' or '.join(repr(one) for one in allowed)}, not {value!r}")


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """Code2Wav. Real sizes: codebooks 16 x 2048 x 512 / 2, latent 1024, 8 layers of width 512, 1536 channels."""

    codebook_size: int
    codebook_dim: int
    latent_dim: int
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    rope_theta: float
    sliding_window: int
    rms_norm_eps: float
    decoder_dim: int
    upsample_rates: tuple[int, ...]
    upsampling_ratios: tuple[int, ...]

    @property
    def inner_dim(self) -> int:
        """Width of a codebook's rows."""
        return self.codebook_dim // 2


@dataclass(frozen=True, slots=True)
class EncoderConfig:
    """The Mimi encoder: ``mimi`` are the members of ``encoder_config`` for transformers' ``MimiConfig``."""

    mimi: Mapping[str, Any]
    codebook_size: int


@dataclass(frozen=True, slots=True)
class CodecConfig:
    """``speech_tokenizer/config.json``."""

    decoder: DecoderConfig
    encoder: EncoderConfig


@dataclass(frozen=True, slots=True)
class SpeakerEncoderConfig:
    """ECAPA-TDNN. ``width`` is the embedding's: 1024 (0.6B) or 2048 (1.7B)."""

    width: int
    mel_dim: int = 128
    channels: tuple[int, ...] = _CHANNELS
    kernels: tuple[int, ...] = _KERNELS
    dilations: tuple[int, ...] = _DILATIONS
    attention_channels: int = _ATTENTION
    res2net_scale: int = _RES2NET_SCALE
    se_channels: int = _SQUEEZE


def read_json(path: Path) -> Mapping[str, Any]:
    """A JSON object from a file; raises ``EngineFault`` naming the file when it is not one."""
    label = "/".join(path.parts[-2:])
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EngineFault(f"{label} cannot be read: missing or not JSON") from error
    if not isinstance(body, dict):
        raise EngineFault(f"{label} is not a JSON object")
    return body


def _refuse(problems: list[str]) -> None:
    if problems:
        raise EngineFault("the checkpoint does not fit: " + "; ".join(problems))


def codec_config(body: Mapping[str, Any], *, where: str = f"{CODEC_FOLDER}/config.json") -> CodecConfig:
    """Validate the parsed ``speech_tokenizer/config.json``.

    Raises ``EngineFault`` that names every field that is missing, of the wrong type or beyond what is implemented.
    """
    problems: list[str] = []
    top = _Fields(where, body, problems)
    top.must_be("model_type", _MODEL_TYPE)
    top.must_be("encoder_valid_num_quantizers", CODEBOOKS)
    for name in ("input_sample_rate", "output_sample_rate"):
        top.must_be(name, SAMPLE_RATE_HZ)
    for name in ("decode_upsample_rate", "encode_downsample_rate"):
        top.must_be(name, FRAME_SAMPLES)
    parsed = CodecConfig(_decoder(top.part("decoder_config")), _encoder(top.part("encoder_config")))
    _refuse(problems)
    return parsed


def _decoder(fields: _Fields) -> DecoderConfig:
    fields.must_be("num_quantizers", CODEBOOKS)
    fields.must_be("num_semantic_quantizers", 1, default=1)
    fields.must_be("hidden_act", "silu", default="silu")
    fields.must_be("attention_bias", False, default=False)
    parsed = DecoderConfig(
        codebook_size=fields.integer("codebook_size"),
        codebook_dim=fields.integer("codebook_dim"),
        latent_dim=fields.integer("latent_dim"),
        hidden_size=fields.integer("hidden_size"),
        intermediate_size=fields.integer("intermediate_size"),
        layers=fields.integer("num_hidden_layers"),
        heads=fields.integer("num_attention_heads"),
        kv_heads=fields.integer("num_key_value_heads"),
        head_dim=fields.integer("head_dim"),
        rope_theta=fields.number("rope_theta"),
        sliding_window=fields.integer("sliding_window"),
        rms_norm_eps=fields.number("rms_norm_eps"),
        decoder_dim=fields.integer("decoder_dim"),
        upsample_rates=fields.integers("upsample_rates"),
        upsampling_ratios=fields.integers("upsampling_ratios"),
    )
    if math.prod(parsed.upsample_rates) * math.prod(parsed.upsampling_ratios) != FRAME_SAMPLES:
        fields.wrong("upsample_rates", f"and upsampling_ratios must multiply to {FRAME_SAMPLES}")
    if parsed.heads % parsed.kv_heads:
        fields.wrong("num_key_value_heads", "must divide num_attention_heads")
    if parsed.head_dim % 2:
        fields.wrong("head_dim", "must be even")
    if parsed.codebook_dim % 2:
        fields.wrong("codebook_dim", "must be even")
    if parsed.decoder_dim % 2 ** len(parsed.upsample_rates):
        fields.wrong("decoder_dim", "must halve at every upsampling block")
    if parsed.sliding_window < 2:
        fields.wrong("sliding_window", "must be at least 2")
    return parsed


def _encoder(fields: _Fields) -> EncoderConfig:
    fields.must_be("sampling_rate", SAMPLE_RATE_HZ, default=SAMPLE_RATE_HZ)
    fields.must_be("audio_channels", 1, default=1)
    fields.must_be("use_causal_conv", True, default=True)
    # One more halving after the convolutions brings 25 Hz down to the frame rate.
    if math.prod(fields.integers("upsampling_ratios", (8, 6, 5, 4))) * 2 != FRAME_SAMPLES:
        fields.wrong("upsampling_ratios", f"must multiply to {FRAME_SAMPLES // 2}")
    if fields.integer("num_quantizers", 32) < CODEBOOKS:
        fields.wrong("num_quantizers", f"must be at least {CODEBOOKS}")
    for name in fields.body:
        if not isinstance(name, str) or name in ("auto_map", "trust_remote_code"):
            fields.wrong(str(name), "is not allowed")
    return EncoderConfig(dict(fields.body), fields.integer("codebook_size", 2048))


def speaker_encoder_config(body: Mapping[str, Any], *, where: str = "config.json") -> SpeakerEncoderConfig:
    """Validate ``speaker_encoder_config`` of the parsed root ``config.json`` (only Base checkpoints have one).

    Raises ``EngineFault`` that names every wrong field.
    """
    problems: list[str] = []
    fields = _Fields(where, body, problems).part("speaker_encoder_config")
    fields.must_be("sample_rate", SAMPLE_RATE_HZ, default=SAMPLE_RATE_HZ)
    fields.must_be("mel_dim", 128, default=128)
    parsed = SpeakerEncoderConfig(
        width=fields.integer("enc_dim"),
        mel_dim=fields.integer("mel_dim", 128),
        channels=fields.integers("enc_channels", _CHANNELS),
        kernels=fields.integers("enc_kernel_sizes", _KERNELS),
        dilations=fields.integers("enc_dilations", _DILATIONS),
        attention_channels=fields.integer("enc_attention_channels", _ATTENTION),
        res2net_scale=fields.integer("enc_res2net_scale", _RES2NET_SCALE),
        se_channels=fields.integer("enc_se_channels", _SQUEEZE),
    )
    if not len(parsed.channels) == len(parsed.kernels) == len(parsed.dilations) >= 3:
        fields.wrong("enc_channels", "must be as long as enc_kernel_sizes and enc_dilations, and at least 3")
    if any(kernel % 2 == 0 for kernel in parsed.kernels):
        fields.wrong("enc_kernel_sizes", "must be odd")
    if any(channels % parsed.res2net_scale for channels in parsed.channels[1:-1]):
        fields.wrong("enc_channels", "must be multiples of enc_res2net_scale")
    if len(set(parsed.channels[:-1])) > 1:
        fields.wrong("enc_channels", "must be equal up to the last: each block adds its input to its output")
    _refuse(problems)
    return parsed
