"""The speaker encoder and its mel front end, equal to the reference's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from adapters.engines.qwen3_tts.codec_config import speaker_encoder_config
from adapters.engines.qwen3_tts.mel import log_mel, mel_filters
from adapters.engines.qwen3_tts.speaker_encoder import SpeakerEncoder
from sidecar.faults import BadRequest
from tests.adapters.engines.qwen3_tts.codec_tiny import SPEAKER, speaker_weights

GOLDEN = np.load(Path(__file__).parent / "goldens_codec" / "frontend.npz")
CLIP = GOLDEN["pcm_24000"].astype(np.float32) / 32_768


@pytest.fixture(scope="module")
def encoder() -> SpeakerEncoder:
    torch.set_num_threads(1)
    return SpeakerEncoder(speaker_encoder_config({"speaker_encoder_config": SPEAKER}), speaker_weights())


def test_the_mel_bands_are_the_references() -> None:
    made = log_mel(torch.from_numpy(CLIP)).numpy()
    assert made.shape == (128, len(CLIP) // 256)
    assert np.abs(made - GOLDEN["mel"]).max() < 1e-4


def test_the_filters_have_slaneys_shape() -> None:
    filters = mel_filters()
    assert filters.shape == (128, 513)
    assert (filters >= 0).all()
    # Equal areas where a triangle spans many bins; peaks in order; nothing at 0 Hz.
    areas = filters[-20:].sum(1) * (12_000 / 512)
    np.testing.assert_allclose(areas, 1.0, atol=0.02)
    assert (np.diff(filters.argmax(1)) >= 0).all()
    assert not filters[:, 0].any()
    assert not mel_filters(top_hz=6_000.0)[:, 300:].any()


def test_the_embedding_is_the_references(encoder: SpeakerEncoder) -> None:
    made = encoder.embed(CLIP)
    assert made.shape == (64,)
    assert made.dtype == np.float32
    assert np.abs(made - GOLDEN["embedding_24000"]).max() < 1e-4


def test_the_embedding_tells_recordings_apart(encoder: SpeakerEncoder) -> None:
    assert np.abs(encoder.embed(CLIP) - encoder.embed(CLIP[::-1].copy() * 0.2)).max() > 1e-2


def test_a_recording_too_short_to_mirror_is_refused(encoder: SpeakerEncoder) -> None:
    assert encoder.min_samples == 1_280
    assert np.isfinite(encoder.embed(CLIP[:1_280])).all()
    for samples in (1, 385, 1_279):
        with pytest.raises(BadRequest, match=r"too short to hear a speaker: .* at least 53 ms"):
            encoder.embed(CLIP[:samples])


def test_silence_has_an_embedding(encoder: SpeakerEncoder) -> None:
    assert np.isfinite(encoder.embed(np.zeros(24_000, np.float32))).all()
