"""The codec's decoder alone: codes that were drawn elsewhere become samples here. Nothing of stage 0 is read."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from adapters.engines.qwen3_tts.checkpoint import WEIGHTS, Weights, codec_id, resolve
from adapters.engines.qwen3_tts.code2wav import Code2Wav, DecoderState
from adapters.engines.qwen3_tts.codec_config import CODEC_FOLDER, DecoderConfig, codec_config, read_json
from adapters.engines.qwen3_tts.stages import CODEBOOKS, Frames
from adapters.engines.qwen3_tts.tensors import Tensors
from sidecar.faults import ConfigError, EngineFault
from sidecar.ports import Pcm

_WARM_UP_FRAMES = (1, 2, 25)


class CodesDecoder:
    """One decoder on the CPU, in float32. Not thread-safe, but may move between threads.

    ``decoder_id`` is the name under which an engine sends codes for it.
    """

    def __init__(self, config: DecoderConfig, tensors: Tensors, decoder_id: str, threads: int | None = None) -> None:
        self._decoder = Code2Wav(config, tensors, threads=threads)
        self.codebook_size = config.codebook_size
        self.decoder_id = decoder_id

    @staticmethod
    def load(path_or_id: str | Path, *, threads: int | None = None, offline: bool = False) -> CodesDecoder:
        """Read the decoder of a checkpoint: its folder, a folder that holds a speech tokenizer only, or a hub id.

        Raises ``ConfigError`` that says what is missing or wrong.
        """
        folder = resolve(path_or_id, offline=offline)
        if (folder / CODEC_FOLDER).is_dir():
            folder = folder / CODEC_FOLDER
        try:
            config = codec_config(read_json(folder / "config.json"))
            weights = Weights(folder / WEIGHTS)
            return CodesDecoder(config.decoder, weights, codec_id(folder / WEIGHTS), threads)
        except EngineFault as fault:
            raise ConfigError([f"checkpoint {Path(path_or_id).name}: {fault.message}"]) from None

    def new_state(self) -> DecoderState:
        """The state before the first frame of a unit."""
        return self._decoder.new_state()

    def decode(self, state: DecoderState, codes: Frames) -> Pcm:
        """The samples of the next frames: ``codes (frames, 16)`` to float32 ``(frames * 1920,)``.

        Raises ``EngineFault`` for codes out of range.
        """
        return self._decoder.decode([(state, codes)])[0]

    def warm_up(self) -> None:
        """Make the first sound as fast as the later ones."""
        state = self.new_state()
        for frames in _WARM_UP_FRAMES:
            self.decode(state, np.zeros((frames, CODEBOOKS), np.int16))
