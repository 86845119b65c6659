"""Puts a checkpoint's parts together: configuration, tokenizer, talker, decoder."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from adapters.engines.qwen3_tts.checkpoint import Checkpoint, open_checkpoint
from adapters.engines.qwen3_tts.cloning import CheckpointEncoder
from adapters.engines.qwen3_tts.code2wav import Code2Wav
from adapters.engines.qwen3_tts.decoding import Stages
from adapters.engines.qwen3_tts.engine import Loaded, Qwen3TtsSettings
from adapters.engines.qwen3_tts.graphs import graphs_for
from adapters.engines.qwen3_tts.linear import Place, Precision
from adapters.engines.qwen3_tts.memory import Plan, budget_bytes, plan
from adapters.engines.qwen3_tts.stage0 import Stage0
from adapters.engines.qwen3_tts.stages import Frames
from adapters.engines.qwen3_tts.tokenizer import TextTokenizer
from adapters.engines.qwen3_tts.utterances import Model
from sidecar.faults import EngineFault

_log = logging.getLogger(__name__)

CPU_ROWS = 8
"""More rows at once than a CPU can speak in time."""

PREFIX_POSITIONS = 256
"""Positions of constant prompt heads that are kept."""

FREE_SHARE = 0.9
"""Of a GPU's free memory, where no budget is set."""


def load(settings: Qwen3TtsSettings) -> Loaded:
    """Read a checkpoint into memory. Raises ``ConfigError`` and ``EngineFault`` that name what is wrong."""
    checkpoint = open_checkpoint(settings.checkpoint, offline=settings.offline)
    config = checkpoint.talker
    if settings.threads:
        torch.set_num_threads(settings.threads)
    device = torch.device(chosen_device(settings.device))
    place = Place(device, chosen_precision(settings, device))
    rows = sized(settings, checkpoint, place)
    tokenizer = TextTokenizer.load(checkpoint.folder, config)
    # A lone row in float32 takes other kernels than two: a companion row makes it the same sums. Integer sums are
    # exact anyway; in bfloat16 only one batch shape is the same for all.
    company = {"float32": 2, "int8": 1, "bfloat16": rows.rows}[place.precision]
    talker = Stage0.load(
        checkpoint,
        tokenizer.role_ids,
        device=str(device),
        precision=place.precision,
        rows=rows.rows,
        positions=rows.positions,
        prefix_positions=PREFIX_POSITIONS,
        fill_to=company if settings.same_alone_and_together else 1,
        wrap=graphs_for(device) if settings.graphs else None,
    )
    decoder, apart = decoder_of(settings, checkpoint, device)
    _log.info(
        "%s: talker in %s on %s, decoder on %s, %d rows of %d positions, up to %.1f GB",
        checkpoint.folder.name,
        place.precision,
        device,
        settings.decoder_device or device,
        rows.rows,
        rows.positions,
        rows.total_bytes / 1e9,
    )
    deterministic = settings.same_alone_and_together or place.precision == "int8"
    encoder = CheckpointEncoder(checkpoint, device=str(device)) if config.kind == "base" else None
    model = replace(model_of(checkpoint, tokenizer), decodes=not isinstance(decoder, NoDecoder))
    return Loaded(model, Stages(talker, decoder, apart=apart), deterministic, encoder)


class NoDecoder:
    """Stands where a decoder would be when only codec frames are wanted; nothing may ask it for sound."""

    def new_state(self) -> Any:
        """No stream of it has a state."""
        raise EngineFault("No decoder is loaded.")

    def decode(self, pieces: Sequence[tuple[Any, Frames]]) -> list[NDArray[np.float32]]:
        """Nothing can be decoded."""
        raise EngineFault("No decoder is loaded.")


def decoder_of(
    settings: Qwen3TtsSettings, checkpoint: Checkpoint, talkers: torch.device
) -> tuple[Code2Wav | NoDecoder, bool]:
    """The decoder, and whether it runs apart from the talker on a device of its own."""
    if settings.decoder_device == "none":
        return NoDecoder(), False
    device = torch.device(settings.decoder_device or talkers)
    decoder = Code2Wav(
        checkpoint.codec.decoder,
        checkpoint.codec_weights,
        device=device,
        threads=settings.threads or None,
        one_by_one=settings.same_alone_and_together and device.type == "cpu",
    )
    return decoder, device != talkers


def sized(settings: Qwen3TtsSettings, checkpoint: Checkpoint, place: Place) -> Plan:
    """How many rows of which length; on a GPU the process is held to it too. Raises ``ConfigError``."""
    cuda = place.device.type == "cuda"
    budget: int | None = None
    total = 0
    if settings.memory_budget:
        total = torch.cuda.get_device_properties(place.device).total_memory if cuda else memory_bytes()
        budget = budget_bytes(settings.memory_budget, total)
    elif cuda:
        free, _ = torch.cuda.mem_get_info(place.device)
        budget = int(free * FREE_SHARE)
    most = settings.max_rows if cuda else min(settings.max_rows, CPU_ROWS)
    found = plan(
        checkpoint,
        place,
        rows=most,
        positions=settings.max_positions,
        prefix_positions=PREFIX_POSITIONS,
        budget=budget,
    )
    if cuda and settings.memory_budget and budget is not None:
        torch.cuda.set_per_process_memory_fraction(min(1.0, budget / total), place.device)
    return found


def memory_bytes() -> int:
    """Memory of this machine; 0 where the system does not tell."""
    if not hasattr(os, "sysconf"):
        return 0
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def model_of(checkpoint: Checkpoint, tokenizer: TextTokenizer) -> Model:
    """What this checkpoint can say."""
    config = checkpoint.talker
    return Model(
        name=checkpoint.folder.name,
        kind=config.kind,
        languages=config.offered_languages,
        speakers=tuple(config.speakers),
        takes_instructions=config.takes_instructions,
        width=config.talker.hidden,
        tokens=tokenizer,
        dialects=config.dialects,
        codec_id=checkpoint.codec_id,
    )


def chosen_device(device: str) -> str:
    """What ``auto`` means: the first GPU, else the CPU."""
    if device != "auto":
        return device
    return "cuda:0" if torch.cuda.is_available() else "cpu"


def chosen_precision(settings: Qwen3TtsSettings, device: torch.device) -> Precision:
    """What ``auto`` means: bfloat16 on a GPU; on a CPU float32, which alone equals the reference code for code."""
    if settings.precision != "auto":
        return settings.precision
    return "float32" if device.type == "cpu" else "bfloat16"
