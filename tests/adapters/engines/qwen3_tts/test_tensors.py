"""Tensors mapped one by one are those the library reads."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from adapters.engines.qwen3_tts.tensors import TensorFile
from sidecar.faults import EngineFault

TENSORS = {
    "a": torch.arange(5, dtype=torch.uint8),  # what follows may lie at an odd place
    "b": torch.randn(3, 7),
    "c": torch.randn(1, 4097).bfloat16(),
    "d": torch.randn(2, 3, 5).half(),
    "e": torch.arange(4),
    "f": torch.zeros(0, 8),
    "g": torch.randn(()),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    save_file(TENSORS, tmp_path / "model.safetensors", metadata={"format": "pt"})
    return tmp_path / "model.safetensors"


def test_every_type_and_shape(path: Path) -> None:
    file = TensorFile(path)
    assert file.names() == tuple(sorted(TENSORS))
    for name, expected in TENSORS.items():
        found = file.get(name, tuple(expected.shape))
        assert found.dtype == expected.dtype
        assert torch.equal(found, expected)


def test_a_tensor_written_to_leaves_the_file_alone(path: Path) -> None:
    before = path.read_bytes()
    file = TensorFile(path)
    file.get("b").zero_()
    assert path.read_bytes() == before
    assert torch.equal(file.get("b"), TENSORS["b"])


@pytest.mark.parametrize("left_bytes", [None, 100])
def test_a_file_that_vanishes_or_shrinks_is_a_fault(path: Path, left_bytes: int | None) -> None:
    file = TensorFile(path)
    if left_bytes is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:left_bytes])
    with pytest.raises(EngineFault, match=r"model\.safetensors cannot be read"):
        file.get("c")
