"""The codec's encoder: a recording to the codes that in-context cloning starts from.

It is a Mimi encoder; transformers has the network, the checkpoint its weights and shape. transformers is imported
when an encoder is made, since that takes seconds, and never asked for anything but this class.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import soxr
import torch
from numpy.typing import NDArray

from adapters.engines.qwen3_tts.codec_config import EncoderConfig
from adapters.engines.qwen3_tts.speaker_encoder import SpeakerEncoder
from adapters.engines.qwen3_tts.stages import CODEBOOKS, FRAME_SAMPLES, Frames
from adapters.engines.qwen3_tts.tensors import Tensors
from sidecar.faults import BadRequest, EngineFault
from sidecar.ports import SAMPLE_RATE_HZ, Pcm

MAX_CLIP_S = 60.0
"""Longer recordings are refused: the encoder's attention sees all of them at once."""

_RATES_HZ = range(1_000, 384_001)
_PREFIX = "encoder."
# Parts of Mimi that only decode; the checkpoint has no weights for them.
_UNUSED = ("upsample", "decoder_transformer", "decoder")


class SpeechTokenizer:
    """Encodes recordings. ``tensors`` reads ``speech_tokenizer/model.safetensors`` (names under ``encoder.``).

    Raises ``EngineFault`` when the weights or the configuration do not fit the network, or transformers is missing.
    """

    def __init__(
        self,
        config: EncoderConfig,
        tensors: Tensors,
        *,
        device: str | torch.device = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.device, self.dtype = torch.device(device), dtype
        self._model = _mimi(config, tensors).to(self.device, dtype)

    def encode(self, pcm: Pcm) -> Frames:
        """Codes ``(ceil(samples / 1920), 16)`` int16 of a recording ``(samples,)`` at 24 kHz, at least one sample."""
        frames = -(-len(pcm) // FRAME_SAMPLES)
        values = torch.from_numpy(np.ascontiguousarray(pcm, np.float32)).to(self.device, self.dtype)
        with torch.inference_mode():
            codes = self._model.encode(values[None, None], num_quantizers=CODEBOOKS, return_dict=True).audio_codes
        result: Frames = codes[0, :, :frames].t().cpu().numpy().astype(np.int16)
        return result


def _mimi(config: EncoderConfig, tensors: Tensors) -> Any:
    try:
        from transformers import MimiConfig, MimiModel
        from transformers.modeling_utils import no_init_weights
    except ImportError as error:
        raise EngineFault("cloning with a transcript needs the package transformers") from error
    try:
        mimi: Any = MimiConfig(**dict(config.mimi))  # type: ignore[no-untyped-call]
        with no_init_weights():
            model: Any = MimiModel(mimi)
    except Exception as error:
        raise EngineFault("speech_tokenizer/config.json: encoder_config is not one of a Mimi encoder") from error
    for part in _UNUSED:
        setattr(model, part, None)
    state = {
        name: tensors.get(_PREFIX + name, tuple(value.shape)).float() for name, value in model.state_dict().items()
    }
    unknown = {name for name in tensors.names() if name.startswith(_PREFIX)} - {_PREFIX + name for name in state}
    if unknown:
        raise EngineFault(f"speech_tokenizer/model.safetensors has a tensor that is not expected: {min(unknown)}")
    model.load_state_dict(state)
    return model.eval()


def clip_24k(pcm: NDArray[np.float32], rate: int) -> Pcm:
    """A recording as the encoders take it: mono, 24 kHz, ``(samples,)`` float32.

    ``pcm`` is ``(samples,)`` or ``(samples, channels)``, whose channels are averaged. Resampled with soxr's high
    quality, the length being rounded up. Raises ``BadRequest`` for anything else, for sound that is empty, longer
    than ``MAX_CLIP_S`` or not finite, and for rates out of 1..384 kHz.
    """
    if rate not in _RATES_HZ:
        raise BadRequest(f"the recording's rate must lie in {_RATES_HZ[0]}..{_RATES_HZ[-1]} Hz, not {rate}")
    samples = np.asarray(pcm, np.float32)
    if samples.ndim == 2 and samples.shape[1]:
        samples = samples.mean(axis=1, dtype=np.float32)
    if samples.ndim != 1 or not samples.size:
        raise BadRequest("the recording has no samples")
    if samples.size > MAX_CLIP_S * rate:
        raise BadRequest(f"the recording is longer than {MAX_CLIP_S:.0f} s")
    if not np.isfinite(samples).all():
        raise BadRequest("the recording has samples that are not finite")
    if rate == SAMPLE_RATE_HZ:
        return samples
    length = math.ceil(samples.size * SAMPLE_RATE_HZ / rate)
    made = np.asarray(soxr.resample(samples, rate, SAMPLE_RATE_HZ, quality="HQ"), np.float32)[:length]
    return np.pad(made, (0, length - made.size))


@dataclass(frozen=True, slots=True)
class EncodedVoice:
    """What a recording gives: ``embedding (1024 or 2048,)`` float32, ``codes (frames, 16)`` int16 if asked for."""

    embedding: NDArray[np.float32]
    codes: Frames | None


def encode_voice(
    pcm: NDArray[np.float32], rate: int, speaker_encoder: SpeakerEncoder, tokenizer: SpeechTokenizer | None = None
) -> EncodedVoice:
    """Encode a recording, see ``clip_24k``; codes only with a ``tokenizer``.

    Raises ``BadRequest`` when the recording cannot be used.
    """
    clip = clip_24k(pcm, rate)
    embedding = speaker_encoder.embed(clip)
    return EncodedVoice(embedding, None if tokenizer is None else tokenizer.encode(clip))
