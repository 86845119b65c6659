"""Run the reference package on the tiny codec and speaker encoder and keep what ours must reproduce.

    python -m tests.adapters.engines.qwen3_tts.goldens_codec.make

with an interpreter that has qwen-tts 0.1.1 (and transformers 4.57.3, librosa 0.11). Writes beside itself:

- ``codec.npz``: ``codes (340, 16)``; of their one-pass decode the first 40 frames ``start`` and the last 4 ``end``
- ``frontend.npz``: a synthetic recording at two rates, ``pcm_24000`` and ``pcm_16000`` (int16, full scale 32768);
  ``mel (128, frames)`` of the first, and of each ``embedding_RATE``, ``codes_RATE (frames, 16)``
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tests.adapters.engines.qwen3_tts.codec_tiny import CODEC, SPEAKER, codec_weights, speaker_weights

FOLDER = Path(__file__).parent
START, END = 40, 4
SAMPLES = 1_920


def recording(rate: int, seconds: float = 1.3) -> NDArray[np.int16]:
    """A buzzing voice with vibrato, tremolo and some noise."""
    draws = np.random.default_rng(5)
    time = np.arange(int(rate * seconds)) / rate
    phase = 2 * np.pi * np.cumsum(140 + 30 * np.sin(2 * np.pi * 1.7 * time)) / rate
    sound = np.sum([np.sin(k * phase + draws.uniform(0, 6)) / k for k in range(1, 12)], axis=0)
    sound *= 0.5 + 0.5 * np.sin(2 * np.pi * 3.1 * time) ** 2
    sound = 0.25 * sound / np.abs(sound).max() + 0.01 * draws.standard_normal(len(time))
    return np.round(sound * 32_768).astype(np.int16)


def codec() -> tuple[Any, Any]:
    """The reference's codec and speaker encoder with the tiny weights."""
    from qwen_tts.core.models.configuration_qwen3_tts import Qwen3TTSSpeakerEncoderConfig
    from qwen_tts.core.models.modeling_qwen3_tts import Qwen3TTSSpeakerEncoder
    from qwen_tts.core.tokenizer_12hz import configuration_qwen3_tts_tokenizer_v2 as configuration
    from qwen_tts.core.tokenizer_12hz import modeling_qwen3_tts_tokenizer_v2 as modeling

    tokenizer = modeling.Qwen3TTSTokenizerV2Model(configuration.Qwen3TTSTokenizerV2Config(**CODEC)).eval()
    tokenizer.load_state_dict(codec_weights().tensors)
    speaker = Qwen3TTSSpeakerEncoder(Qwen3TTSSpeakerEncoderConfig(**SPEAKER)).eval()
    prefix = "speaker_encoder."
    speaker.load_state_dict({name.removeprefix(prefix): one for name, one in speaker_weights().tensors.items()})
    return tokenizer, speaker.float()


def make() -> dict[str, dict[str, NDArray[Any]]]:
    """The content of each file."""
    import librosa
    from qwen_tts.core.models.modeling_qwen3_tts import mel_spectrogram

    tokenizer, speaker = codec()
    codes = np.random.default_rng(11).integers(0, CODEC["decoder_config"]["codebook_size"], (340, 16)).astype(np.int16)
    with torch.inference_mode():
        sound = tokenizer.decoder(torch.from_numpy(codes.T[None].astype(np.int64)))[0, 0].numpy()
    front: dict[str, NDArray[Any]] = {}
    for rate in (24_000, 16_000):
        pcm = front[f"pcm_{rate}"] = recording(rate)
        clip = pcm.astype(np.float32) / 32_768
        if rate != 24_000:
            clip = librosa.resample(y=clip, orig_sr=rate, target_sr=24_000)
        values = torch.from_numpy(clip)[None]
        with torch.inference_mode():
            mel = mel_spectrogram(values, 1_024, 128, 24_000, 256, 1_024, 0, 12_000)
            front[f"embedding_{rate}"] = speaker(mel.transpose(1, 2))[0].numpy()
            heard = tokenizer.encode(values, torch.ones_like(values, dtype=torch.int64)).audio_codes[0]
        front[f"codes_{rate}"] = heard.numpy().astype(np.int16)
        front.setdefault("mel", mel[0].numpy())
    return {
        "codec": {"codes": codes, "start": sound[: START * SAMPLES], "end": sound[-END * SAMPLES :]},
        "frontend": front,
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    for file, content in make().items():
        np.savez_compressed(FOLDER / f"{file}.npz", **content)
        print(file, {name: value.shape for name, value in content.items()})
