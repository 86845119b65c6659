"""Named tensors of a safetensors file, checked when they are read. Nothing but safetensors is ever opened."""

from __future__ import annotations

import json
import math
import mmap
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open

from sidecar.faults import EngineFault

_TYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
"""Types whose tensors are mapped here; others are left to the library."""


class Tensors(Protocol):
    """Where a part of the model finds its weights."""

    def get(self, name: str, shape: tuple[int, ...] | None = None) -> torch.Tensor:
        """The tensor of that name on the CPU, as stored.

        Raises ``EngineFault`` when it is missing or has another shape.
        """

    def names(self) -> tuple[str, ...]:
        """All names."""


class TensorFile:
    """One safetensors file, read tensor by tensor. Messages name the file, never its folder.

    Raises ``EngineFault`` when the file is missing, truncated or no safetensors file.
    """

    def __init__(self, path: Path) -> None:
        self._label = "/".join(path.parts[-2:])
        self._path = path
        self._names = frozenset(self._open().keys())
        self._places = self._read_places()

    def _open(self) -> Any:
        opener: Any = safe_open  # untyped
        try:
            return opener(str(self._path), framework="pt", device="cpu")
        except (OSError, SafetensorError) as error:
            raise EngineFault(f"{self._label} cannot be read: missing, truncated or not a safetensors file") from error

    def _read_places(self) -> dict[str, tuple[torch.dtype, tuple[int, ...], int]]:
        """Type, shape and first byte of the tensors that can be mapped. The library has checked the header before."""
        with self._path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        return {
            name: (_TYPES[one["dtype"]], tuple(one["shape"]), 8 + length + one["data_offsets"][0])
            for name, one in header.items()
            if one["dtype"] in _TYPES and (length + one["data_offsets"][0]) % _TYPES[one["dtype"]].itemsize == 0
        }

    def _map(self, name: str) -> torch.Tensor:
        """A tensor in a mapping of its own.

        A mapping stays in memory, with all that was read through it, while one of its tensors does: embedding tables
        are kept, so one mapping for all would keep the whole file. Opening the file anew for each tensor would
        read its header hundreds of times: a third of a second.
        """
        dtype, shape, start = self._places[name]
        count, before = math.prod(shape), start % mmap.ALLOCATIONGRANULARITY
        size = before + count * dtype.itemsize
        try:
            with self._path.open("rb") as file:
                memory = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY, offset=start - before)
        except (OSError, ValueError) as error:
            raise EngineFault(f"{self._label} cannot be read: missing or truncated") from error
        return torch.frombuffer(memory, dtype=dtype, count=count, offset=before).view(shape)

    def names(self) -> tuple[str, ...]:
        """All names in the file, sorted."""
        return tuple(sorted(self._names))

    def get(self, name: str, shape: tuple[int, ...] | None = None) -> torch.Tensor:
        """One tensor; ``shape``, when given, must be its shape."""
        if name not in self._names:
            raise EngineFault(f"{self._label}: tensor {name} is missing")
        mapped = name in self._places and math.prod(self._places[name][1]) > 0
        tensor: torch.Tensor = self._map(name) if mapped else self._open().get_tensor(name)
        if shape is not None and tuple(tensor.shape) != shape:
            raise EngineFault(f"{self._label}: tensor {name} has shape {tuple(tensor.shape)}, expected {shape}")
        return tensor
