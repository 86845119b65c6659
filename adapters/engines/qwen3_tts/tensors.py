"""Named tensors of a safetensors file, checked when they are read. Nothing but safetensors is ever opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open

from sidecar.faults import EngineFault


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

    def _open(self) -> Any:
        opener: Any = safe_open  # untyped
        try:
            return opener(str(self._path), framework="pt", device="cpu")
        except (OSError, SafetensorError) as error:
            raise EngineFault(f"{self._label} cannot be read: missing, truncated or not a safetensors file") from error

    def names(self) -> tuple[str, ...]:
        """All names in the file, sorted."""
        return tuple(sorted(self._names))

    def get(self, name: str, shape: tuple[int, ...] | None = None) -> torch.Tensor:
        """One tensor; ``shape``, when given, must be its shape."""
        if name not in self._names:
            raise EngineFault(f"{self._label}: tensor {name} is missing")
        # Opened anew each time: a mapping stays in memory, with all that was read through it, while one of its tensors
        # does. Embedding tables are kept, so one mapping for all would keep the whole file.
        tensor: torch.Tensor = self._open().get_tensor(name)
        if shape is not None and tuple(tensor.shape) != shape:
            raise EngineFault(f"{self._label}: tensor {name} has shape {tuple(tensor.shape)}, expected {shape}")
        return tensor
