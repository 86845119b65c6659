"""Random tensors whose values depend on the seed and their names alone."""

from __future__ import annotations

from math import sqrt
from zlib import crc32

import torch


class Maker:
    """Makes tensors, each from a generator of its own."""

    def __init__(self, seed: int, dtype: torch.dtype) -> None:
        self.seed = seed
        self.dtype = dtype
        self.tensors: dict[str, torch.Tensor] = {}

    def generator(self, name: str) -> torch.Generator:
        return torch.Generator().manual_seed((self.seed * 1_000_003 + crc32(name.encode())) & 0x7FFFFFFF)

    def put(self, name: str, value: torch.Tensor) -> None:
        assert name not in self.tensors
        self.tensors[name] = value.to(self.dtype).contiguous()

    def normal(self, name: str, shape: tuple[int, ...], std: float, mean: float = 0.0) -> None:
        self.put(name, torch.empty(shape).normal_(mean, std, generator=self.generator(name)))

    def uniform(self, name: str, shape: tuple[int, ...], low: float, high: float) -> None:
        self.put(name, torch.empty(shape).uniform_(low, high, generator=self.generator(name)))

    def linear(self, name: str, outputs: int, inputs: int, gain: float = 1.0, *, bias: bool = False) -> None:
        self.normal(f"{name}.weight", (outputs, inputs), gain / sqrt(inputs))
        if bias:
            self.normal(f"{name}.bias", (outputs,), 0.05)

    def conv(self, name: str, outputs: int, inputs: int, kernel: int, gain: float = 1.0, *, bias: bool = True) -> None:
        self.normal(f"{name}.weight", (outputs, inputs, kernel), gain / sqrt(inputs * kernel))
        if bias:
            self.normal(f"{name}.bias", (outputs,), 0.05)

    def norm(self, name: str, width: int, mean: float = 1.0, *, bias: bool = False) -> None:
        self.uniform(f"{name}.weight", (width,), 0.8 * mean, 1.2 * mean)
        if bias:
            self.normal(f"{name}.bias", (width,), 0.05)
