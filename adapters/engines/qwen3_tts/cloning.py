"""The encoders of a Base checkpoint: a recording to the anchor that its clones start from."""

from __future__ import annotations

import hashlib

from adapters.engines.anchors import checked_clip, checked_reference_length, made_anchor
from adapters.engines.qwen3_tts.checkpoint import Checkpoint
from adapters.engines.qwen3_tts.speaker_encoder import SpeakerEncoder
from adapters.engines.qwen3_tts.speech_tokenizer import SpeechTokenizer
from adapters.engines.qwen3_tts.stages import FRAME_SAMPLES
from sidecar.faults import EngineFault
from sidecar.ports import Pcm
from voices.anchor import SpeakerAnchor

_NAMED_BY = "speaker_encoder.fc.weight"


class CheckpointEncoder:
    """Implements ``encoding.VoiceEncoder``. The codec's encoder, a quarter of a gigabyte, is read when first needed.

    Raises ``EngineFault`` when the speaker encoder's weights do not fit.
    """

    def __init__(self, checkpoint: Checkpoint, *, device: str = "cpu") -> None:
        if checkpoint.speaker_encoder is None:
            raise EngineFault(f"checkpoint {checkpoint.folder.name} has no speaker encoder")
        self._checkpoint = checkpoint
        self._device = device
        self._speaker = SpeakerEncoder(checkpoint.speaker_encoder, checkpoint.weights, device=device)
        self._codec: SpeechTokenizer | None = None
        weights = checkpoint.weights.get(_NAMED_BY).float().numpy()
        self._name = f"qwen3-tts {hashlib.blake2b(weights.tobytes(), digest_size=16).hexdigest()}"

    def encode(self, pcm: Pcm, transcript: str | None) -> SpeakerAnchor:
        """See ``Engine.encode_voice``. The codes are those of the recording as it is, nothing trimmed or added."""
        clip, said = checked_clip(pcm, transcript, min_samples=self._speaker.min_samples)
        if said:
            checked_reference_length(-(-len(clip) // FRAME_SAMPLES))
        embedding = self._speaker.embed(clip)
        codes = self._tokenizer().encode(clip) if said else None
        return made_anchor(self._name, clip, embedding, codes, said)

    def _tokenizer(self) -> SpeechTokenizer:
        if self._codec is None:
            codec, weights = self._checkpoint.codec.encoder, self._checkpoint.codec_weights
            self._codec = SpeechTokenizer(codec, weights, device=self._device)
        return self._codec
