"""Checkpoints that do not fit are refused with the field's name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adapters.engines.qwen3_tts.codec_config import codec_config, read_json, speaker_encoder_config
from sidecar.faults import EngineFault
from tests.adapters.engines.qwen3_tts.codec_tiny import CODEC, DECODER, ENCODER, SPEAKER


def test_what_fits_is_read() -> None:
    parsed = codec_config(CODEC)
    assert parsed.decoder.codebook_size == 128
    assert parsed.decoder.inner_dim == 16
    assert parsed.encoder.mimi["num_filters"] == 4
    assert speaker_encoder_config({"speaker_encoder_config": SPEAKER}).width == 64
    released = speaker_encoder_config({"speaker_encoder_config": {"enc_dim": 1024, "sample_rate": 24_000}})
    assert released.channels == (512, 512, 512, 512, 1536)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model_type", "mimi"),
        ("encoder_valid_num_quantizers", 8),
        ("output_sample_rate", 16_000),
        ("decode_upsample_rate", 960),
        ("decoder_config", None),
        ("encoder_config", []),
    ],
)
def test_the_codecs_own_fields(name: str, value: Any) -> None:
    with pytest.raises(EngineFault, match=rf"speech_tokenizer/config\.json\.{name} must be"):
        codec_config({**CODEC, name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_quantizers", 32),
        ("hidden_act", "gelu"),
        ("attention_bias", True),
        ("latent_dim", 0),
        ("latent_dim", "48"),
        ("hidden_size", True),
        ("rms_norm_eps", -1.0),
        ("rope_theta", None),
        ("upsample_rates", [8, 5, 4, 2]),
        ("upsample_rates", []),
        ("upsampling_ratios", [2, 2.0]),
        ("num_key_value_heads", 3),
        ("head_dim", 15),
        ("codebook_dim", 31),
        ("decoder_dim", 72),
        ("sliding_window", 1),
    ],
)
def test_the_decoders_fields(name: str, value: Any) -> None:
    with pytest.raises(EngineFault, match=r"decoder_config\.\w+") as caught:
        codec_config({**CODEC, "decoder_config": {**DECODER, name: value}})
    assert name in caught.value.message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sampling_rate", 16_000),
        ("audio_channels", 2),
        ("use_causal_conv", False),
        ("upsampling_ratios", [8, 6, 5]),
        ("num_quantizers", 8),
        ("auto_map", {"AutoModel": "somewhere.Model"}),
    ],
)
def test_the_encoders_fields(name: str, value: Any) -> None:
    with pytest.raises(EngineFault, match=rf"encoder_config\.{name}"):
        codec_config({**CODEC, "encoder_config": {**ENCODER, name: value}})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("enc_dim", None),
        ("sample_rate", 16_000),
        ("enc_channels", [16, 16, 16, 48]),
        ("enc_channels", [16, 16, 8, 16, 48]),
        ("enc_kernel_sizes", [5, 3, 3, 4, 1]),
        ("enc_res2net_scale", 3),
    ],
)
def test_the_speaker_encoders_fields(name: str, value: Any) -> None:
    with pytest.raises(EngineFault, match=r"config\.json\.speaker_encoder_config\.\w+"):
        speaker_encoder_config({"speaker_encoder_config": {**SPEAKER, name: value}})


def test_a_checkpoint_without_a_speaker_encoder() -> None:
    with pytest.raises(EngineFault, match=r"config\.json\.speaker_encoder_config must be an object"):
        speaker_encoder_config({})


def test_all_problems_are_named_at_once() -> None:
    with pytest.raises(EngineFault, match=r"model_type.*latent_dim"):
        codec_config({**CODEC, "model_type": "other", "decoder_config": {**DECODER, "latent_dim": -1}})


@pytest.mark.parametrize("text", [None, "", "{", "[]", "\xff"])
def test_files_that_are_no_object(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "speech_tokenizer" / "config.json"
    path.parent.mkdir()
    if text is not None:
        path.write_bytes(text.encode("latin-1"))
    with pytest.raises(EngineFault, match=r"^speech_tokenizer/config\.json (cannot be read|is not)"):
        read_json(path)
