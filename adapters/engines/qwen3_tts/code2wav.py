"""Stage 1: codes to samples with carried state, so that sound leaves in any pieces and equals the one-pass decode.

A stream's state is a flat buffer of the compute type (4.7 MB at real size in float32) and its position; see
``code2wav_layers``. Everything is causal: a frame's 1,920 samples need nothing that comes later.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray

from adapters.engines.qwen3_tts.code2wav_blocks import Block, TransformerLayer, Upsampler
from adapters.engines.qwen3_tts.code2wav_layers import (
    CausalConv,
    Layout,
    Linear,
    Placement,
    Snake,
    rotation,
    window_mask,
)
from adapters.engines.qwen3_tts.codec_config import DecoderConfig
from adapters.engines.qwen3_tts.stages import CODEBOOKS, FRAME_SAMPLES, Frames
from adapters.engines.qwen3_tts.tensors import Tensors
from sidecar.faults import EngineFault

MAX_PIECE_FRAMES = 32
"""Longer pieces are decoded in parts of this many frames: memory stays bounded, weights are still read seldom."""

_TILE_VALUES = 1 << 18
"""Values of an activation that the later blocks make at once on the CPU: 1 MB, so that several stay in the cache."""


@dataclass(slots=True, eq=False)
class DecoderState:
    """What one stream carries: ``buffer (size,)`` on the device and the number of frames decoded so far, there as
    ``position ()`` int64 and here as ``frames``."""

    buffer: torch.Tensor
    position: torch.Tensor
    frames: int = 0

    def clone(self) -> DecoderState:
        """An independent copy, for instance of a state that has heard a reference."""
        return DecoderState(self.buffer.clone(), self.position.clone(), self.frames)

    @property
    def nbytes(self) -> int:
        """Size of the carried tensors."""
        return self.buffer.nbytes + self.position.nbytes


class Code2Wav:
    """The codec's decoder; implements ``stages.Decoder``. Not thread-safe.

    ``tensors`` reads ``speech_tokenizer/model.safetensors`` (names under ``decoder.``). ``threads`` sets torch's
    number of threads at each call; ``one_by_one`` computes streams that come together apart, so that a stream's samples
    are the same bit for bit whatever it comes with. Raises ``EngineFault`` for missing or misshapen tensors.
    """

    def __init__(
        self,
        config: DecoderConfig,
        tensors: Tensors,
        *,
        device: str | torch.device = "cpu",
        dtype: torch.dtype = torch.float32,
        threads: int | None = None,
        one_by_one: bool = False,
    ) -> None:
        self.config = config
        self._one_by_one = one_by_one
        self.device, self.dtype, self.threads = torch.device(device), dtype, threads
        if self.device.type == "cuda" and dtype == torch.float32:
            # By default cuDNN would round the inputs of convolutions to ten bits. Holds for the whole process.
            torch.backends.cudnn.allow_tf32 = False
        place, layout = Placement(self.device, dtype), Layout()

        def get(part: str, *shape: int) -> torch.Tensor:
            return tensors.get(f"decoder.{part}", shape).float()

        width, latent = config.hidden_size, config.latent_dim
        self._table = place.put(self._projected_codebooks(get))
        self._offsets = torch.arange(CODEBOOKS, device=self.device) * config.codebook_size
        weight, bias = get("pre_conv.conv.weight", latent, config.codebook_dim, 3), get("pre_conv.conv.bias", latent)
        self._pre_conv = CausalConv(weight, bias, place, layout)
        name = "pre_transformer"
        self._enter = Linear(
            get(f"{name}.input_proj.weight", width, latent), place, get(f"{name}.input_proj.bias", width)
        )
        self._layers = [
            TransformerLayer(config, tensors, f"decoder.{name}.layers.{index}", place, layout)
            for index in range(config.layers)
        ]
        self._norm = place.put(get(f"{name}.norm.weight", width))
        self._leave = Linear(
            get(f"{name}.output_proj.weight", latent, width), place, get(f"{name}.output_proj.bias", latent)
        )
        half = torch.arange(0, config.head_dim, 2, dtype=torch.int64).float() / config.head_dim
        self._frequencies = (1.0 / config.rope_theta**half).to(self.device)
        self._upsamplers = [
            Upsampler(tensors, f"decoder.upsample.{index}", latent, ratio, place, layout)
            for index, ratio in enumerate(config.upsampling_ratios)
        ]
        channels = config.decoder_dim
        weight, bias = get("decoder.0.conv.weight", channels, latent, 7), get("decoder.0.conv.bias", channels)
        self._widen = CausalConv(weight, bias, place, layout)
        self._blocks = []
        self._steps_per_frame = [
            math.prod(config.upsampling_ratios + config.upsample_rates[:index])
            for index in range(len(config.upsample_rates))
        ]
        for index, rate in enumerate(config.upsample_rates):
            self._blocks.append(Block(tensors, f"decoder.decoder.{index + 1}.block", channels, rate, place, layout))
            channels //= 2
        last = len(config.upsample_rates) + 1
        self._snake = Snake(get(f"decoder.{last}.alpha", channels), get(f"decoder.{last}.beta", channels), place)
        weight, bias = get(f"decoder.{last + 1}.conv.weight", 1, channels, 7), get(f"decoder.{last + 1}.conv.bias", 1)
        self._sound = CausalConv(weight, bias, place, layout)
        self.state_size = layout.size

    def _projected_codebooks(self, get: Any) -> torch.Tensor:
        """Every code's contribution to the quantized vector: ``(16 * codebook_size, codebook_dim)`` float32.

        A table is a running sum divided by how often each entry was used; the group's 1x1 convolution follows,
        which is linear and so can be taken before the sum over codebooks.
        """
        size, inner, dim = self.config.codebook_size, self.config.inner_dim, self.config.codebook_dim
        tables = []
        for index in range(CODEBOOKS):
            side, number = ("first", 0) if index == 0 else ("rest", index - 1)
            name = f"quantizer.rvq_{side}"
            book = f"{name}.vq.layers.{number}._codebook"
            usage = get(f"{book}.cluster_usage", size).clamp(min=1e-5)
            projection = get(f"{name}.output_proj.weight", dim, inner, 1)[:, :, 0]
            tables.append((get(f"{book}.embedding_sum", size, inner) / usage[:, None]) @ projection.t())
        return torch.cat(tables)

    @property
    def conv_reach_frames(self) -> int:
        """How many frames back the convolutions after the transformer can see (10 at real size)."""
        reach, rate = 0.0, 1
        for ratio, upsampler in zip(self.config.upsampling_ratios, self._upsamplers, strict=True):
            rate *= ratio
            reach += upsampler.depthwise.history / rate
        reach += self._widen.history / rate
        for rise, block in zip(self.config.upsample_rates, self._blocks, strict=True):
            reach += block.spread.history / rate
            rate *= rise
            reach += sum(unit.conv.history for unit in block.units) / rate
        return math.ceil(reach + self._sound.history / rate)

    def new_state(self) -> DecoderState:
        """The state before the first frame."""
        buffer = torch.zeros(self.state_size, dtype=self.dtype, device=self.device)
        return DecoderState(buffer, torch.zeros((), dtype=torch.int64, device=self.device))

    def decode(self, pieces: Sequence[tuple[DecoderState, Frames]]) -> list[NDArray[np.float32]]:
        """Decode the next frames of several streams; states are updated in place.

        ``pieces`` are (state, codes ``(frames, 16)`` of any integer type, each below the codebook size); every state
        may come once. Returns float32 samples in [-1, 1], ``(frames * 1920,)`` for each. Streams with equally many
        frames are computed as one batch. Raises ``EngineFault`` for codes out of range, before any state is touched.
        """
        if self.threads is not None and torch.get_num_threads() != self.threads:
            torch.set_num_threads(self.threads)
        if len({id(state) for state, _ in pieces}) != len(pieces):
            raise EngineFault("a decoder state may come only once in a batch")
        checked = [(state, self._checked(codes)) for state, codes in pieces]
        results = [np.zeros(len(codes) * FRAME_SAMPLES, np.float32) for _, codes in checked]
        groups: dict[int, list[int]] = {}
        for index, (_, codes) in enumerate(checked):
            if len(codes):
                groups.setdefault(-1 - index if self._one_by_one else len(codes), []).append(index)
        for group in groups.values():
            states = [checked[index][0] for index in group]
            batch = torch.from_numpy(np.stack([checked[index][1] for index in group])).to(self.device)
            parts = [self._advance(states, part) for part in torch.split(batch, MAX_PIECE_FRAMES, 1)]
            samples = (parts[0] if len(parts) == 1 else torch.cat(parts, 1)).cpu().numpy()  # (streams, frames * 1920)
            for row, index in enumerate(group):
                results[index] = samples[row]
        return results

    def _checked(self, codes: Frames) -> NDArray[np.int64]:
        array = np.asarray(codes)
        if array.ndim != 2 or array.shape[1] != CODEBOOKS or array.dtype.kind not in "iu":
            raise EngineFault(f"codes must be whole numbers of shape (frames, {CODEBOOKS})")
        if array.size and (array.min() < 0 or array.max() >= self.config.codebook_size):
            raise EngineFault(f"codes must lie in 0..{self.config.codebook_size - 1}")
        return array.astype(np.int64)

    def listen(self, state: DecoderState, codes: Frames) -> None:
        """Bring a state past ``codes (frames, 16)`` whose sound nobody needs: a reference before what it introduces.

        The state is that after ``decode`` within float rounding; what is decoded next continues at sample
        ``frames * 1920`` exactly. Much cheaper than decoding, since the convolutions look back a few frames only.
        Raises ``EngineFault`` for codes out of range.
        """
        checked = torch.from_numpy(self._checked(codes)).to(self.device)[None]
        if not checked.shape[1]:
            return
        with torch.inference_mode():
            buffers = state.buffer[None]
            latents = []
            for part in torch.split(checked, MAX_PIECE_FRAMES, 1):
                latents.append(self.front(part, buffers, state.position[None]))
                state.position.add_(part.shape[1])
            state.frames += checked.shape[1]
            for part in torch.split(torch.cat(latents, 1)[:, -self.conv_reach_frames :], MAX_PIECE_FRAMES, 1):
                self.back(part, buffers)

    def _advance(self, states: Sequence[DecoderState], codes: torch.Tensor) -> torch.Tensor:
        """One batch: ``codes (streams, frames, 16)``, as many states; float32 ``(streams, frames * 1920)``."""
        steps = codes.shape[1]
        with torch.inference_mode():
            if len(states) == 1:
                buffers, positions = states[0].buffer[None], states[0].position[None]
                sound = self.forward(codes, buffers, positions)
            else:
                buffers = torch.stack([state.buffer for state in states])
                positions = torch.stack([state.position for state in states])
                sound = self.forward(codes, buffers, positions)
                for state, buffer in zip(states, buffers, strict=True):
                    state.buffer.copy_(buffer)
            for state in states:
                state.position.add_(steps)
                state.frames += steps
        return sound

    def forward(self, codes: torch.Tensor, buffers: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """The computation alone, for compiling or capturing.

        ``codes (streams, frames, 16)`` int64, ``buffers (streams, state_size)``, updated in place, ``positions
        (streams,)`` int64, not updated. Returns float32 ``(streams, frames * 1920)``.
        """
        return self.back(self.front(codes, buffers, positions), buffers)

    def front(self, codes: torch.Tensor, buffers: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Codes to what the convolutions take: ``(streams, frames, latent)``; quantizer and transformer."""
        steps = codes.shape[1]
        # In float32: sixteen addends would lose bits in bfloat16.
        quantized = F.embedding(codes + self._offsets, self._table).sum(2, dtype=torch.float32).to(self.dtype)
        x = self._enter(self._pre_conv.feed(buffers, quantized))
        turn = rotation(positions, steps, self._frequencies, self.dtype)
        mask = window_mask(positions, steps, self.config.sliding_window - 1, self.dtype)
        for layer in self._layers:
            x = layer(x, buffers, turn, mask)
        return self._leave(F.rms_norm(x, x.shape[-1:], self._norm, self.config.rms_norm_eps))

    def back(self, latent: torch.Tensor, buffers: torch.Tensor) -> torch.Tensor:
        """``latent (streams, frames, latent)`` to samples, float32 ``(streams, frames * 1920)`` in [-1, 1]."""
        x = latent
        for upsampler in self._upsamplers:
            x = upsampler(x, buffers)
        x = self._widen.feed(buffers, x)
        return self._rise(x, buffers, 0).float().clamp_(-1.0, 1.0)

    def _rise(self, x: torch.Tensor, buffers: torch.Tensor, index: int) -> torch.Tensor:
        """Blocks from ``index`` on and the last convolution: ``(streams, samples)``.

        On the CPU the first block takes all steps at once, for the sake of its large weights; the later ones take
        ever smaller parts, whose activations stay in the cache. Carried state makes that the same computation.
        """
        if index == len(self._blocks):
            room = self._sound.room(buffers, x.shape[1])
            self._snake.into(self._sound.fresh(room), x)
            return self._sound(buffers, room)[:, :, 0]
        block, steps = self._blocks[index], x.shape[1]
        if index and self.device.type == "cpu":
            frame = self._steps_per_frame[index]
            values = x.shape[0] * frame * block.rate * block.channels
            steps = min(steps, frame * max(1, _TILE_VALUES // values))
        sounds = [self._rise(block(part, buffers), buffers, index + 1) for part in torch.split(x, steps, 1)]
        return sounds[0] if len(sounds) == 1 else torch.cat(sounds, 1)


def reference_cut(reference_frames: int, generated_frames: int) -> int:
    """Where the reference package cuts a decode of reference and generated frames together, in samples.

    It multiplies a float share, so the cut may lie one sample before ``reference_frames * 1920``, which is right and
    what streaming does. For comparisons only.
    """
    total = reference_frames + generated_frames
    return int(reference_frames / max(total, 1) * (total * FRAME_SAMPLES))
