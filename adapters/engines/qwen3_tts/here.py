"""What of the embedded runtime this machine can run, for whoever asks before loading anything."""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass
from pathlib import Path

import torch

from adapters.engines.qwen3_tts.checkpoint import open_checkpoint, resolve
from adapters.engines.qwen3_tts.linear import int8_available, kernels
from adapters.engines.qwen3_tts.loading import chosen_device
from sidecar.faults import ConfigError


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing the runtime needs or can use. ``here``: it is there; ``detail`` says what, or what to do."""

    what: str
    here: bool
    detail: str


def found_here(device: str) -> list[Finding]:
    """PyTorch with the device that ``device`` (a setting; ``auto`` too) means, transformers, the int8 kernels."""
    return [_torch(device), _transformers(), _int8()]


def found_checkpoint(path_or_id: str | Path) -> Finding:
    """A folder is opened (its headers, not its weights); of a hub id it is told whether it was fetched already."""
    name = Path(path_or_id).name
    try:
        folder = resolve(path_or_id, offline=True)
    except ConfigError:
        missing = f"{path_or_id}: neither a folder nor fetched yet; a hub id is fetched when the engine starts"
        return Finding("checkpoint", False, missing)
    try:
        kind = open_checkpoint(folder).talker.kind
    except ConfigError as error:
        return Finding("checkpoint", False, f"{name}: {'; '.join(error.problems)}")
    return Finding("checkpoint", True, f"{name}, kind {kind}")


def _torch(device: str) -> Finding:
    chosen = chosen_device(device)
    version = f"torch {torch.__version__}"
    try:
        place = torch.device(chosen)
        torch.empty(1, device=place)
    except (RuntimeError, AssertionError):  # how the library says that there is no such device
        return Finding("device", False, f"{version} has no device '{chosen}' here (engine.device)")
    if place.type == "cuda":
        return Finding("device", True, f"{version}, {chosen}: {torch.cuda.get_device_name(place)}")
    return Finding("device", True, f"{version}, {chosen}")


def _transformers() -> Finding:
    try:
        version = importlib.metadata.version("transformers")
    except importlib.metadata.PackageNotFoundError:
        return Finding("transformers", False, "not installed: no cloning with a transcript (ref_text)")
    return Finding("transformers", True, f"{version}, for cloning with a transcript")


def _int8() -> Finding:
    if not int8_available(torch.device("cpu")):
        return Finding("int8", False, "needs an x86 CPU and PyTorch's oneDNN; engine.precision float32 works")
    if kernels() is not None:
        return Finding("int8", True, "with kernels of its own (engine.precision = int8)")
    reason = "the CPU has no instructions for them" if _installed("llvmlite") else "pip install 'sidecar-speech[fast]'"
    return Finding("int8", True, f"with PyTorch's kernels; faster ones of its own are not usable: {reason}")


def _installed(name: str) -> bool:
    try:
        return bool(importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return False
