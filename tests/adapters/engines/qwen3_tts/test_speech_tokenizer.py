"""Reference codes, equal to the reference's, and what recordings are taken."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from adapters.engines.qwen3_tts.codec_config import codec_config, speaker_encoder_config
from adapters.engines.qwen3_tts.speaker_encoder import SpeakerEncoder
from adapters.engines.qwen3_tts.speech_tokenizer import SpeechTokenizer, clip_24k, encode_voice
from sidecar.faults import BadRequest, EngineFault
from tests.adapters.engines.qwen3_tts.codec_tiny import CODEC, ENCODER, SPEAKER, codec_weights, speaker_weights

GOLDEN = np.load(Path(__file__).parent / "goldens_codec" / "frontend.npz")


def recording(rate: int) -> np.ndarray:
    return GOLDEN[f"pcm_{rate}"].astype(np.float32) / 32_768


@pytest.fixture(scope="module")
def tokenizer() -> SpeechTokenizer:
    torch.set_num_threads(1)
    return SpeechTokenizer(codec_config(CODEC).encoder, codec_weights())


@pytest.fixture(scope="module")
def speaker() -> SpeakerEncoder:
    return SpeakerEncoder(speaker_encoder_config({"speaker_encoder_config": SPEAKER}), speaker_weights())


@pytest.mark.parametrize("rate", [24_000, 16_000])
def test_codes_and_embedding_are_the_references(tokenizer: SpeechTokenizer, speaker: SpeakerEncoder, rate: int) -> None:
    made = encode_voice(recording(rate), rate, speaker, tokenizer)
    assert made.codes is not None
    assert made.codes.dtype == np.int16
    np.testing.assert_array_equal(made.codes, GOLDEN[f"codes_{rate}"])
    assert np.abs(made.embedding - GOLDEN[f"embedding_{rate}"]).max() < 1e-4


def test_codes_only_when_asked(speaker: SpeakerEncoder) -> None:
    assert encode_voice(recording(24_000), 24_000, speaker).codes is None


@pytest.mark.parametrize(("samples", "frames"), [(1, 1), (1_919, 1), (1_920, 1), (1_921, 2), (19_200, 10)])
def test_a_begun_frame_counts(tokenizer: SpeechTokenizer, samples: int, frames: int) -> None:
    codes = tokenizer.encode(recording(24_000)[:samples])
    assert codes.shape == (frames, 16)
    assert ((codes >= 0) & (codes < 128)).all()


def test_channels_are_averaged() -> None:
    clip = recording(24_000)
    stereo = np.stack((clip * 1.5, clip * 0.5), 1)
    np.testing.assert_allclose(clip_24k(stereo, 24_000), clip, atol=1e-7)


@pytest.mark.parametrize(("rate", "samples"), [(44_100, 44_101), (48_000, 9_999), (8_000, 1), (22_050, 33)])
def test_lengths_after_resampling_are_rounded_up(rate: int, samples: int) -> None:
    clip = clip_24k(np.ones(samples, np.float32), rate)
    assert len(clip) == -(-samples * 24_000 // rate)
    assert clip.dtype == np.float32


@pytest.mark.parametrize(
    ("pcm", "rate", "message"),
    [
        (np.zeros(0, np.float32), 24_000, "no samples"),
        (np.zeros((5, 0), np.float32), 24_000, "no samples"),
        (np.zeros((2, 3, 4), np.float32), 24_000, "no samples"),
        (np.array([0.0, np.nan], np.float32), 24_000, "not finite"),
        (np.array([0.0, np.inf], np.float32), 24_000, "not finite"),
        (np.zeros(61 * 8_000, np.float32), 8_000, "longer than 60 s"),
        (np.zeros(9, np.float32), 0, "rate must lie"),
        (np.zeros(9, np.float32), 1_000_000, "rate must lie"),
    ],
)
def test_recordings_that_cannot_be_used(pcm: Any, rate: int, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        clip_24k(pcm, rate)


def test_weights_that_do_not_fit_are_named() -> None:
    config, weights = codec_config(CODEC).encoder, codec_weights()
    weights.put("encoder.something", torch.zeros(1))
    with pytest.raises(EngineFault, match=r"not expected: encoder\.something"):
        SpeechTokenizer(config, weights)


def test_a_configuration_that_is_not_mimis() -> None:
    config = codec_config({**CODEC, "encoder_config": {**ENCODER, "hidden_act": "no such thing"}}).encoder
    with pytest.raises(EngineFault, match="encoder_config is not one of a Mimi encoder"):
        SpeechTokenizer(config, codec_weights())


def test_the_goldens_can_be_made_again() -> None:
    """Where the reference package is installed: it still says what is kept."""
    pytest.importorskip("qwen_tts", exc_type=ImportError)
    make = importlib.import_module("tests.adapters.engines.qwen3_tts.goldens_codec.make")
    for file, content in make.make().items():
        kept = np.load(make.FOLDER / f"{file}.npz")
        assert set(kept) == set(content)
        for name, value in content.items():
            np.testing.assert_allclose(kept[name], value, atol=1e-5, err_msg=f"{file} {name}")
