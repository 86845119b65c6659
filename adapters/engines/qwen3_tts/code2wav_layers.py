"""The layers of Code2Wav, each with its carried state, over time-major activations ``(streams, time, channels)``.

A stream's whole state is one flat buffer; each layer knows its slot in it. A layer reads its slot, computes the new
steps and writes the slot back, so any cutting of a stream gives what one pass gives. Zeros are the state before the
first frame: they are the zero padding that the one-pass network puts left of its input.

Time-major keeps every convolution a plain matrix product or a channels-last convolution, and makes the transposed
convolutions matrix products whose result is already in order. Nothing here waits for a device or depends on values,
so the functions can be compiled and captured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812

_NARROW = 128
"""Up to this many input channels a channels-last convolution beats matrix products on the CPU."""

_LONG_ROW = 1536
"""Length of a row (steps times channels) that elementwise work likes."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a layer's history lies in a stream's buffer: ``rows * channels`` values from ``offset``."""

    offset: int
    rows: int
    channels: int

    def view(self, buffers: torch.Tensor) -> torch.Tensor:
        """``(streams, rows, channels)``, a view of ``buffers (streams, size)``."""
        size = self.rows * self.channels
        return buffers[:, self.offset : self.offset + size].view(-1, self.rows, self.channels)


class Layout:
    """Hands out slots; ``size`` is the number of values of one stream's buffer."""

    def __init__(self) -> None:
        self.size = 0

    def take(self, rows: int, channels: int) -> Slot:
        """The next free slot."""
        slot = Slot(self.size, rows, channels)
        self.size += rows * channels
        return slot


@dataclass(frozen=True, slots=True)
class Placement:
    """Where and as what weights live."""

    device: torch.device
    dtype: torch.dtype

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor there, contiguous."""
        return tensor.to(self.device, self.dtype).contiguous()


class Snake:
    """SnakeBeta: ``x + sin(x * exp(alpha))^2 / (exp(beta) + 1e-9)`` per channel."""

    def __init__(self, alpha: torch.Tensor, beta: torch.Tensor, place: Placement) -> None:
        # Several steps are treated as one long one, since broadcasting over short rows costs more than the sums.
        self.fold = max(1, _LONG_ROW // alpha.shape[0])
        self.alpha = place.put(alpha.float().exp().repeat(self.fold))
        self.scale = place.put((1.0 / (beta.float().exp() + 1e-9)).repeat(self.fold))

    def into(self, out: torch.Tensor, x: torch.Tensor) -> None:
        """Write the activation of ``x (streams, steps, channels)`` to ``out`` of the same shape (another tensor)."""
        streams, steps, channels = x.shape
        fold = math.gcd(self.fold, steps)
        alpha, scale = self.alpha[: fold * channels], self.scale[: fold * channels]
        x, out = x.view(streams, -1, fold * channels), out.view(streams, -1, fold * channels)
        wave = torch.mul(x, alpha).sin_()
        wave.square_()
        if torch.compiler.is_compiling():
            # Writing through ``out=`` to a strided view is what the compiler refuses; it fuses the copy anyway.
            out.copy_(torch.addcmul(x, wave, scale))
        else:
            torch.addcmul(x, wave, scale, out=out)


class CausalConv:
    """A convolution that sees the present and the past: kernel ``k``, dilation ``d``, history ``(k - 1) * d`` steps.

    ``weight`` is ``(out, in, k)``, tap ``k - 1`` being the present. A transposed convolution whose kernel is a
    multiple of its stride is such a convolution too, see ``transposed``.
    """

    def __init__(
        self, weight: torch.Tensor, bias: torch.Tensor, place: Placement, layout: Layout, *, dilation: int = 1
    ) -> None:
        self.out, self.channels, self.kernel = weight.shape
        self.dilation = dilation
        self.history = (self.kernel - 1) * dilation
        self.slot = layout.take(self.history, self.channels)
        self.bias = place.put(bias)
        self.narrow = self.kernel > 2 and (self.channels <= _NARROW or place.device.type != "cpu")
        if self.narrow:
            self.weight = place.put(weight)[:, :, None].contiguous(memory_format=torch.channels_last)
        else:
            self.weight = place.put(weight.permute(2, 1, 0))  # (k, in, out)
        # Summing tap by tap would round to bfloat16 after each.
        self.by_taps = place.dtype == torch.float32

    @staticmethod
    def transposed(weight: torch.Tensor, bias: torch.Tensor, stride: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Weight and bias of the convolution whose output, cut into ``stride`` steps, is the transposed one's.

        ``weight`` is ``(in, out, taps * stride)``. Output step ``n * stride + i`` is the sum over ``m`` of input
        ``n - m`` times the weight's column ``m * stride + i``; the steps beyond the last input's stride, which the
        network cuts off, are not made.
        """
        channels, out, width = weight.shape
        taps = width // stride
        # (in, out, taps, stride) -> (stride, out, in, taps), the past first
        split = weight.reshape(channels, out, taps, stride).permute(3, 1, 0, 2).flip(3)
        return split.reshape(stride * out, channels, taps), bias.repeat(stride)

    def room(self, buffers: torch.Tensor, steps: int) -> torch.Tensor:
        """An input ``(streams, history + steps, in)`` whose history is filled; the caller writes the rest."""
        room = buffers.new_empty((buffers.shape[0], self.history + steps, self.channels))
        if self.history:
            room[:, : self.history] = self.slot.view(buffers)
        return room

    def fresh(self, room: torch.Tensor) -> torch.Tensor:
        """The part of ``room`` that the caller writes: ``(streams, steps, in)``."""
        return room[:, self.history :]

    def feed(self, buffers: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """The output of ``x (streams, steps, in)``."""
        room = self.room(buffers, x.shape[1])
        self.fresh(room).copy_(x)
        return self(buffers, room)

    def __call__(self, buffers: torch.Tensor, room: torch.Tensor) -> torch.Tensor:
        """``(streams, steps, out)`` from a written ``room``; keeps its end as the next history."""
        if self.history:
            self.slot.view(buffers).copy_(room[:, -self.history :])
        streams, steps = room.shape[0], room.shape[1] - self.history
        if self.narrow:
            image = room.transpose(1, 2).unsqueeze(2)  # (streams, in, 1, time), channels last in memory
            made = F.conv2d(image, self.weight, self.bias, dilation=(1, self.dilation))
            return made.squeeze(2).transpose(1, 2).contiguous()  # as it lies, where the device kept channels last
        if self.by_taps and streams == 1:
            rows = room[0]
            out = torch.addmm(self.bias, rows[:steps], self.weight[0])
            for tap in range(1, self.kernel):
                start = tap * self.dilation
                out.addmm_(rows[start : start + steps], self.weight[tap])
        else:
            stride = (room.stride(0), self.channels, self.dilation * self.channels, 1)
            windows = room.as_strided((streams, steps, self.kernel, self.channels), stride)
            columns = windows.reshape(streams * steps, self.kernel * self.channels)
            out = torch.addmm(self.bias, columns, self.weight.view(-1, self.out))
        return out.view(streams, steps, self.out)


class DepthwiseConv:
    """A causal convolution of each channel by itself; ``weight`` is ``(channels, 1, k)``."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor, place: Placement, layout: Layout) -> None:
        self.weight = place.put(weight[:, 0].t())  # (k, channels)
        self.bias = place.put(bias)
        self.history = self.weight.shape[0] - 1
        self.slot = layout.take(self.history, self.weight.shape[1])

    def __call__(self, buffers: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """``(streams, steps, channels)`` from the same."""
        steps = x.shape[1]
        room = torch.cat((self.slot.view(buffers), x), 1)
        self.slot.view(buffers).copy_(room[:, -self.history :])
        out = torch.addcmul(self.bias, room[:, :steps], self.weight[0])
        for tap in range(1, self.history + 1):
            out.addcmul_(room[:, tap : tap + steps], self.weight[tap])
        return out


class Linear:
    """``x @ weight.T + bias`` over the last axis; the weight, ``(out, in)``, is kept as ``(in, out)``."""

    def __init__(self, weight: torch.Tensor, place: Placement, bias: torch.Tensor | None = None) -> None:
        self.weight = place.put(weight.t())
        self.bias = None if bias is None else place.put(bias)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """``(..., out)``."""
        flat = x.reshape(-1, x.shape[-1])
        made = flat @ self.weight if self.bias is None else torch.addmm(self.bias, flat, self.weight)
        return made.view(*x.shape[:-1], -1)

    def add_to(self, x: torch.Tensor, branch: torch.Tensor) -> torch.Tensor:
        """``x`` plus the output of ``branch``, in ``x``'s memory."""
        flat = x.view(-1, x.shape[-1])
        flat.addmm_(branch.reshape(-1, branch.shape[-1]), self.weight)
        if self.bias is not None:
            flat.add_(self.bias)
        return x


class Attention:
    """Self-attention over the last ``window`` frames. State: rotated keys and values of ``window - 1`` frames.

    ``out`` carries the layer's scale, so that the branch is added as it comes.
    """

    def __init__(
        self,
        qkv: torch.Tensor,
        out: torch.Tensor,
        place: Placement,
        layout: Layout,
        *,
        heads: int,
        kv_heads: int,
        head_dim: int,
        window: int,
    ) -> None:
        self.qkv, self.out = Linear(qkv, place), Linear(out, place)
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, head_dim
        self.past = window - 1
        self.slot = layout.take(self.past, 2 * kv_heads * head_dim)

    def add_to(
        self,
        x: torch.Tensor,
        normed: torch.Tensor,
        buffers: torch.Tensor,
        turn: tuple[torch.Tensor, torch.Tensor],
        mask: torch.Tensor,
    ) -> torch.Tensor:
        """``x (streams, steps, width)`` plus attention of ``normed``; ``turn`` from ``rotation``."""
        streams, steps, _ = normed.shape
        made = self.qkv(normed).view(streams, steps, self.heads + 2 * self.kv_heads, self.head_dim)
        turned = rotate(made[:, :, : self.heads + self.kv_heads], turn)
        query, key = torch.split(turned, [self.heads, self.kv_heads], 2)
        fresh = torch.cat((key, made[:, :, self.heads + self.kv_heads :]), 2).view(streams, steps, -1)
        cache = torch.cat((self.slot.view(buffers), fresh), 1)  # (streams, past + steps, 2 * kv_heads * head_dim)
        self.slot.view(buffers).copy_(cache[:, -self.past :])
        keys, values = cache.view(streams, -1, 2 * self.kv_heads, self.head_dim).transpose(1, 2).chunk(2, 1)
        seen = F.scaled_dot_product_attention(
            query.transpose(1, 2), keys, values, attn_mask=mask, enable_gqa=self.heads != self.kv_heads
        )
        return self.out.add_to(x, seen.transpose(1, 2).reshape(streams, steps, -1))


def rotation(
    positions: torch.Tensor, steps: int, frequencies: torch.Tensor, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines ``(streams, steps, 1, head_dim / 2)`` of the frames from ``positions (streams,)`` on."""
    frames = positions[:, None] + torch.arange(steps, device=positions.device)
    angles = frames[:, :, None, None].float() * frequencies
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Rotary positions, first half of the channels against the second."""
    cos, sin = turn
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


def window_mask(positions: torch.Tensor, steps: int, past: int, dtype: torch.dtype) -> torch.Tensor:
    """What each frame may see of ``past`` kept and ``steps`` new ones: ``(streams, 1, steps, past + steps)``.

    0 for itself and the ``past`` frames before it as far as the stream has them, else -inf.
    """
    device = positions.device
    query = torch.arange(steps, device=device)[:, None]
    key = torch.arange(past + steps, device=device)
    near = (key >= query) & (key <= query + past)
    real = key >= past - positions[:, None]  # (streams, past + steps)
    seen = near & real[:, None, None, :]
    return torch.zeros(seen.shape, dtype=dtype, device=device).masked_fill_(~seen, float("-inf"))
