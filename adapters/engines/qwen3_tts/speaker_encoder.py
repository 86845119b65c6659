"""The speaker encoder of Base checkpoints: ECAPA-TDNN, from a recording to the vector that conditions a clone."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray

from adapters.engines.qwen3_tts.codec_config import SpeakerEncoderConfig
from adapters.engines.qwen3_tts.mel import HOP, MARGIN, log_mel
from adapters.engines.qwen3_tts.tensors import Tensors
from sidecar.faults import BadRequest
from sidecar.ports import SAMPLE_RATE_HZ, Pcm


class _Conv:
    """A convolution that keeps the length, mirroring the ends: ``(1, in, time)`` to ``(1, out, time)``."""

    def __init__(
        self, tensors: Tensors, name: str, shape: tuple[int, int, int], device: torch.device, dilation: int = 1
    ):
        weight, bias = tensors.get(f"{name}.weight", shape), tensors.get(f"{name}.bias", shape[:1])
        self.weight, self.bias = weight.to(device, torch.float32), bias.to(device, torch.float32)
        self.dilation = dilation
        self.margin = (shape[2] - 1) * dilation // 2

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self.margin:
            x = F.pad(x, (self.margin, self.margin), mode="reflect")
        return F.conv1d(x, self.weight, self.bias, dilation=self.dilation)


class _Block:
    """Res2Net between two 1x1 convolutions, squeeze and excitation, and the input added."""

    def __init__(
        self, tensors: Tensors, name: str, config: SpeakerEncoderConfig, index: int, device: torch.device
    ) -> None:
        channels, kernel, dilation = config.channels[index], config.kernels[index], config.dilations[index]
        part, squeeze = channels // config.res2net_scale, config.se_channels
        self.scale = config.res2net_scale
        self.enter = _Conv(tensors, f"{name}.tdnn1.conv", (channels, channels, 1), device)
        self.parts = [
            _Conv(tensors, f"{name}.res2net_block.blocks.{number}.conv", (part, part, kernel), device, dilation)
            for number in range(self.scale - 1)
        ]
        self.leave = _Conv(tensors, f"{name}.tdnn2.conv", (channels, channels, 1), device)
        self.squeeze = _Conv(tensors, f"{name}.se_block.conv1", (squeeze, channels, 1), device)
        self.excite = _Conv(tensors, f"{name}.se_block.conv2", (channels, squeeze, 1), device)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        first, *others = F.relu(self.enter(x)).chunk(self.scale, 1)
        made = [first]
        for number, (part, conv) in enumerate(zip(others, self.parts, strict=True)):
            made.append(F.relu(conv(part if number == 0 else part + made[-1])))
        y = F.relu(self.leave(torch.cat(made, 1)))
        return y * self.excite(F.relu(self.squeeze(y.mean(2, keepdim=True)))).sigmoid() + x


class SpeakerEncoder:
    """Computes speaker embeddings in float32, whatever the checkpoint's type.

    ``tensors`` reads ``model.safetensors`` (names under ``speaker_encoder.``). Raises ``EngineFault`` for missing or
    misshapen tensors.
    """

    def __init__(self, config: SpeakerEncoderConfig, tensors: Tensors, *, device: str | torch.device = "cpu") -> None:
        self.config, self.device = config, torch.device(device)
        channels, kernels, dilations = config.channels, config.kernels, config.dilations
        wide, attention = channels[-1], config.attention_channels

        def conv(name: str, out: int, into: int, kernel: int = 1, dilation: int = 1) -> _Conv:
            return _Conv(tensors, f"speaker_encoder.{name}", (out, into, kernel), self.device, dilation)

        self._enter = conv("blocks.0.conv", channels[0], config.mel_dim, kernels[0], dilations[0])
        self._blocks = [
            _Block(tensors, f"speaker_encoder.blocks.{index}", config, index, self.device)
            for index in range(1, len(channels) - 1)
        ]
        self._join = conv("mfa.conv", wide, sum(channels[1:-1]), kernels[-1], dilations[-1])
        self._attend = conv("asp.tdnn.conv", attention, 3 * wide)
        self._weigh = conv("asp.conv", wide, attention)
        self._leave = conv("fc", config.width, 2 * wide)
        margins = [(kernel - 1) * dilation // 2 for kernel, dilation in zip(kernels, dilations, strict=True)]
        # Mirroring n steps takes n + 1, and the mel front end's own mirror MARGIN + 1 samples.
        self.min_samples = max((max(margins) + 1) * HOP, MARGIN + 1)

    def embed(self, pcm: Pcm) -> NDArray[np.float32]:
        """The embedding ``(width,)`` of a recording ``(samples,)`` at 24 kHz.

        Raises ``BadRequest`` when it is shorter than ``min_samples`` (53 ms at the released sizes).
        """
        if len(pcm) < self.min_samples:
            shortest, got = self.min_samples * 1e3 / SAMPLE_RATE_HZ, len(pcm) * 1e3 / SAMPLE_RATE_HZ
            raise BadRequest(f"the recording is too short to hear a speaker: {got:.0f} ms, at least {shortest:.0f} ms")
        with torch.inference_mode():
            mel = log_mel(torch.from_numpy(np.ascontiguousarray(pcm, np.float32)).to(self.device))
            vector: NDArray[np.float32] = self.forward(mel[None])[0].cpu().numpy()
        return vector

    def forward(self, mel: torch.Tensor) -> torch.Tensor:
        """``mel (1, 128, frames)`` -> ``(1, width)``."""
        x = F.relu(self._enter(mel))
        made = []
        for block in self._blocks:
            x = block(x)
            made.append(x)
        x = F.relu(self._join(torch.cat(made, 1)))  # (1, wide, frames)
        mean, spread = _statistics(x, torch.full_like(x[:, :1], 1.0 / x.shape[2]))
        everywhere = torch.cat((x, mean.expand_as(x), spread.expand_as(x)), 1)
        weights = self._weigh(torch.tanh(F.relu(self._attend(everywhere)))).softmax(2)
        return self._leave(torch.cat(_statistics(x, weights), 1))[:, :, 0]


def _statistics(x: torch.Tensor, weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Weighted mean and standard deviation over time, each ``(1, channels, 1)``."""
    mean = (weights * x).sum(2, keepdim=True)
    variance = (weights * (x - mean).square()).sum(2, keepdim=True)
    return mean, variance.clamp(min=1e-12).sqrt()
