"""Matrix products of stage 0 in the precisions offered: float32, bfloat16, and int8 weights on the CPU.

With one row a product costs the bytes of its weights, so int8 is worth four times float32. Its activations are
quantised row by row (127 levels to each side of zero, the row's largest magnitude as the scale) and the sums are
exact integers: a row's result cannot depend on the rows beside it. PyTorch's own dynamic quantisation scales a whole
batch by one number, which would let neighbours into each other's codes, so it is not used.

Where llvmlite is installed, kernels of our own (``int8_fused``) compute the same numbers faster; PyTorch's otherwise.
"""

from __future__ import annotations

import functools
import importlib
import platform
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast

import torch
import torch.nn.functional as F  # noqa: N812

from sidecar.faults import ConfigError

Precision = Literal["float32", "bfloat16", "int8"]
PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16", "int8")

_SIGNED = 127
"""Levels of a weight to each side of zero."""

_BLOCK = 1 << 17
"""Values that are quantised at a time."""


class Linear(Protocol):
    """``x (..., in)`` of the compute type to ``(..., out)`` of the same type."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The product."""


class DenseLinear:
    """Weights ``(out, in)`` of the compute type, with an optional bias ``(out,)``."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self.weight = weight
        self.bias = bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """``x (..., in)`` to ``(..., out)``."""
        return F.linear(x, self.weight, self.bias)


class Int8Linear:
    """Weights as int8 with one scale per output channel, activations quantised per row; float32 in and out."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self._levels, zero_point = _activation_levels()
        self._product = _int8_product(*quantise(weight), zero_point)
        self.bias = None if bias is None else bias.float()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """``x (..., in)`` float32 to ``(..., out)`` float32."""
        rows = x.reshape(-1, x.shape[-1])
        scale = rows.abs().amax(1, keepdim=True).clamp_(min=1e-30).div_(self._levels)
        out = self._product(rows / scale).mul_(scale)
        if self.bias is not None:
            out = out.add_(self.bias)
        return out.view(*x.shape[:-1], -1)


def _int8_product(weight: torch.Tensor, scale: torch.Tensor, zero_point: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Rounds ``levels (n, in)`` float32 to integers and multiplies them with the int8 ``weight``.

    FBGEMM rounds within the product and reads the weights of a lone row a fifth faster than oneDNN (measured, AVX-512
    VNNI), but its packing takes a tensor type that PyTorch means to remove: without it, or on a build that lacks
    FBGEMM, oneDNN does. Both sum in exact integers.
    """
    zero = torch.zeros(weight.shape[0], dtype=torch.int64)
    packed: Any
    if _fbgemm_available():
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.quantize_per_tensor", category=UserWarning)
            typed = cast("Any", torch)._make_per_channel_quantized_tensor(weight, scale.double(), zero, 0)
        packed = torch.ops.quantized.linear_prepack(typed, None)
        multiply = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32
        return lambda levels: multiply(levels, 1.0, zero_point, packed)
    packed = torch.ops.onednn.qlinear_prepack(weight, None)

    def product(levels: torch.Tensor) -> torch.Tensor:
        whole = levels.round().add_(zero_point).to(torch.uint8)
        out: torch.Tensor = torch.ops.onednn.qlinear_pointwise(
            whole, 1.0, zero_point, packed, scale, zero, None, 1.0, 0, torch.float32, "none", [], ""
        )
        return out

    return product


def _fbgemm_available() -> bool:
    return (
        cast("Any", torch.backends).quantized.engine in ("x86", "fbgemm")
        and hasattr(torch, "_make_per_channel_quantized_tensor")
        and hasattr(torch.ops.quantized, "linear_with_input_q_dq_qweight_dq_output_fp32")
    )


def quantise(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """``weight (out, in)`` as int8 ``(out, in)`` and float32 scales ``(out,)``, symmetric, largest magnitude at 127."""
    levels, scale = torch.empty(weight.shape, dtype=torch.int8), torch.empty(weight.shape[0])
    # Block by block: what is between stays in the cache, four times as fast.
    block = max(1, _BLOCK // weight.shape[1])
    for at in range(0, weight.shape[0], block):
        exact = weight[at : at + block].float()
        step = torch.maximum(exact.amax(1), -exact.amin(1)).clamp_(min=1e-30).div_(_SIGNED)
        scale[at : at + block] = step
        levels[at : at + block] = (exact / step[:, None]).round_().clamp_(-_SIGNED, _SIGNED)
    return levels, scale


def _activation_levels() -> tuple[int, int]:
    """Levels of an activation to each side of zero, and the zero point that makes them unsigned bytes.

    127 and 128; where the CPU lacks VNNI 63 and 64, as its 16-bit sums of two products would saturate beyond.
    """
    supported: Callable[[], bool] | None = getattr(torch.cpu, "_is_vnni_supported", None)
    return (127, 128) if supported is not None and supported() else (63, 64)


def int8_available(device: torch.device) -> bool:
    """True where the int8 kernel exists: x86 CPUs with oneDNN."""
    return (
        device.type == "cpu"
        and platform.machine().lower() in ("x86_64", "amd64")
        and bool(cast("Any", torch.backends.mkldnn).is_available())
        and hasattr(torch.ops.onednn, "qlinear_pointwise")
    )


@functools.cache
def kernels() -> Any:
    """The module ``int8_fused``, or None where it cannot be used."""
    try:
        module: Any = importlib.import_module("adapters.engines.qwen3_tts.int8_fused")
    except ImportError:
        return None
    return module if module.usable() else None


@dataclass(frozen=True, slots=True)
class Place:
    """Where stage 0 lives and in what it computes. Raises ``ConfigError`` when that does not exist here.

    ``own_kernels``: int8 in kernels of our own where they can be used, else in PyTorch's.
    """

    device: torch.device
    precision: Precision = "float32"
    own_kernels: bool = True

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise ConfigError([f"precision {self.precision!r} is none of {', '.join(PRECISIONS)}"])
        if self.precision == "int8" and not int8_available(self.device):
            raise ConfigError(
                [f"precision int8 needs an x86 CPU, not {self.device.type} on {platform.machine()}: use bfloat16"]
            )

    @property
    def dtype(self) -> torch.dtype:
        """The compute type: bfloat16, or float32 (also around int8 products)."""
        return torch.bfloat16 if self.precision == "bfloat16" else torch.float32

    @property
    def kernels(self) -> Any:
        """The module ``int8_fused`` where it is to compute, else None."""
        return kernels() if self.own_kernels and self.precision == "int8" else None

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor on the device in the compute type."""
        return tensor.to(self.device, self.dtype).contiguous()

    def table(self, tensor: torch.Tensor) -> torch.Tensor:
        """An embedding table on the device, in the stored type: its rows are converted when looked up, exactly."""
        return tensor.to(self.device)

    def linear(self, *weights: torch.Tensor, bias: torch.Tensor | None = None) -> Linear:
        """A product with the weights stacked over their outputs."""
        ours = self.kernels
        if ours is not None and all(ours.takes(one) for one in weights):
            product: Linear = ours.KernelLinear(weights, bias)
            return product
        if self.precision == "int8":
            return Int8Linear(torch.cat(weights) if len(weights) > 1 else weights[0], bias)
        return DenseLinear(self._stacked(weights), None if bias is None else self.put(bias))

    def _stacked(self, weights: Sequence[torch.Tensor]) -> torch.Tensor:
        """Converted and stacked in one go: fresh memory is what loading costs most, so none is used in between."""
        if len(weights) == 1:
            return self.put(weights[0])
        outputs = [len(one) for one in weights]
        stacked = torch.empty(sum(outputs), weights[0].shape[1], dtype=self.dtype, device=self.device)
        for part, one in zip(torch.split(stacked, outputs), weights, strict=True):
            part.copy_(one)
        return stacked
