"""How many rows of which length fit into a memory budget: reckoned before anything is loaded.

For machines shared with something else, such as a language model on the same GPU: the budget is divided into weights,
working space and rows. What is reckoned is an upper bound of what loading and speaking take (a test compares).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from adapters.engines.qwen3_tts.checkpoint import Checkpoint, stage0_shapes
from adapters.engines.qwen3_tts.linear import Place
from adapters.engines.qwen3_tts.talker import KvCache
from sidecar.faults import ConfigError

LEAST_POSITIONS = 512
"""Rows are made shorter than was asked, down to this (some 30 s of speech), before a budget is refused."""

CPU_BASE_BYTES = 550_000_000
"""A process with PyTorch, the tokenizer and what one decode call works in."""

GPU_BASE_BYTES = 1_000_000_000
"""A CUDA context with its libraries' workspaces and captured graphs."""

_TABLE_BYTES = 2
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


@dataclass(frozen=True, slots=True)
class Plan:
    """``rows`` of ``positions`` each; ``total_bytes`` is what all of it takes when every row is full."""

    rows: int
    positions: int
    total_bytes: int


def budget_bytes(text: str, device_bytes: int) -> int:
    """``"6GB"``, ``"512 MiB"``, or a share of the device's memory such as ``"0.25"``. Raises ``ConfigError``."""
    match = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,6})?)\s*([KMG]i?B|B)?\s*", text, re.IGNORECASE)
    if match is None:
        raise ConfigError([f"memory_budget {text[:40]!r} is neither a size such as 6GB nor a share such as 0.25"])
    number, unit = float(match[1]), (match[2] or "").upper()
    if not unit:
        if not 0 < number <= 1:
            raise ConfigError(
                [f"memory_budget {text!r}: a share lies above 0, up to 1; a size needs a unit, as in 6GB"]
            )
        if device_bytes <= 0:
            raise ConfigError([f"memory_budget {text!r}: this system tells no memory size; give a size such as 6GB"])
        return int(number * device_bytes)
    return int(number * _UNITS[unit])


def plan(
    checkpoint: Checkpoint, place: Place, *, rows: int, positions: int, prefix_positions: int, budget: int | None
) -> Plan:
    """The most rows, up to ``rows``, that keep within ``budget`` bytes (None: no budget).

    Raises ``ConfigError`` that names the least budget when not even one row of ``LEAST_POSITIONS`` fits.
    """
    positions = min(positions, checkpoint.talker.talker.max_positions)
    fixed = fixed_bytes(checkpoint, place, prefix_positions)
    if budget is None:
        return Plan(rows, positions, fixed + rows * row_bytes(checkpoint, place, positions))
    least = min(positions, LEAST_POSITIONS)
    if fixed + row_bytes(checkpoint, place, least) > budget:
        needed = fixed + row_bytes(checkpoint, place, least)
        raise ConfigError(
            [
                f"memory_budget: {budget / 1e9:.2f} GB do not hold {checkpoint.folder.name} in {place.precision}; "
                f"it needs {math.ceil(needed / 1e7) / 100:.2f} GB for one row"
            ]
        )
    per_position = KvCache.bytes_per_position(checkpoint.talker.talker, place)
    spare = budget - fixed - row_bytes(checkpoint, place, 0)
    positions = min(positions, spare // per_position)
    each = row_bytes(checkpoint, place, positions)
    fitting = min(rows, (budget - fixed) // each)
    return Plan(fitting, positions, fixed + fitting * each)


def fixed_bytes(checkpoint: Checkpoint, place: Place, prefix_positions: int) -> int:
    """What is taken before there are rows: process, weights, kept prompt heads."""
    base = CPU_BASE_BYTES if place.device.type == "cpu" else GPU_BASE_BYTES
    kept = prefix_positions * KvCache.bytes_per_position(checkpoint.talker.talker, place)
    return base + stage0_bytes(checkpoint, place) + codec_bytes(checkpoint) + kept


def row_bytes(checkpoint: Checkpoint, place: Place, positions: int) -> int:
    """One row's cache, decoder state and share of a batch."""
    state = 3 * decoder_state_bytes(checkpoint)  # its own, a copy in the batch, one kept for its voice
    return positions * KvCache.bytes_per_position(checkpoint.talker.talker, place) + state


def stage0_bytes(checkpoint: Checkpoint, place: Place) -> int:
    """Talker and code predictor: products in the precision chosen, tables as stored."""
    width = {"float32": 4, "bfloat16": 2, "int8": 1}[place.precision]
    total = 0
    for name, shape in stage0_shapes(checkpoint.talker).items():
        values = math.prod(shape)
        if "embedding" in name:
            total += values * _TABLE_BYTES
        else:
            total += values * width + (8 * shape[0] if place.precision == "int8" else 0)
    return total


def codec_bytes(checkpoint: Checkpoint) -> int:
    """The decoder in float32; for checkpoints that clone also the encoders, once they are used."""
    # Stored in float32: what is in memory is what is on disk, projected codebooks aside, which are twice as wide.
    path = checkpoint.folder / "speech_tokenizer" / "model.safetensors"
    config = checkpoint.codec.decoder
    codebooks = 16 * config.codebook_size * config.codebook_dim * 4
    return path.stat().st_size + codebooks


def decoder_state_bytes(checkpoint: Checkpoint) -> int:
    """What one stream carries through the decoder, an upper bound: keys and values of its window dominate."""
    config = checkpoint.codec.decoder
    window = 2 * config.layers * (config.sliding_window - 1) * config.heads * config.head_dim
    convolutions = 16 * (config.latent_dim + config.decoder_dim)
    return 4 * (window + convolutions)
