"""Puts a checkpoint's parts together: configuration, tokenizer, talker, decoder."""

from __future__ import annotations

import logging
from dataclasses import replace

import torch

from adapters.engines.qwen3_tts.checkpoint import Checkpoint, open_checkpoint
from adapters.engines.qwen3_tts.cloning import CheckpointEncoder
from adapters.engines.qwen3_tts.code2wav import Code2Wav
from adapters.engines.qwen3_tts.engine import Loaded, Qwen3TtsSettings
from adapters.engines.qwen3_tts.linear import Precision
from adapters.engines.qwen3_tts.runtime import Stages
from adapters.engines.qwen3_tts.stage0 import Stage0
from adapters.engines.qwen3_tts.tokenizer import TextTokenizer
from adapters.engines.qwen3_tts.utterances import Model

_log = logging.getLogger(__name__)


def load(settings: Qwen3TtsSettings) -> Loaded:
    """Read a checkpoint into memory. Raises ``ConfigError`` and ``EngineFault`` that name what is wrong."""
    checkpoint = open_checkpoint(settings.checkpoint, offline=settings.offline)
    config = checkpoint.talker
    if settings.threads:
        torch.set_num_threads(settings.threads)
    settings = replace(settings, device=chosen_device(settings.device))
    precision = chosen_precision(settings)
    tokenizer = TextTokenizer.load(checkpoint.folder, config)
    # A lone row in float32 takes other kernels than two: a companion row makes it the same sums. Integer sums are
    # exact anyway; in bfloat16 only one batch shape is the same for all.
    company = {"float32": 2, "int8": 1, "bfloat16": settings.max_rows}[precision]
    talker = Stage0.load(
        checkpoint,
        tokenizer.role_ids,
        device=settings.device,
        precision=precision,
        rows=settings.max_rows,
        positions=settings.max_positions,
        fill_to=company if settings.same_alone_and_together else 1,
    )
    decoder = Code2Wav(
        checkpoint.codec.decoder,
        checkpoint.codec_weights,
        device=settings.decoder_device or settings.device,
        threads=settings.threads or None,
    )
    _log.info("%s: talker in %s on %s", checkpoint.folder.name, precision, settings.device)
    deterministic = settings.same_alone_and_together or precision == "int8"
    encoder = CheckpointEncoder(checkpoint, device=settings.device) if config.kind == "base" else None
    return Loaded(model_of(checkpoint, tokenizer), Stages(talker, decoder), deterministic, encoder)


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


def chosen_precision(settings: Qwen3TtsSettings) -> Precision:
    """What ``auto`` means: bfloat16 on a GPU; on a CPU float32, which alone equals the reference code for code."""
    if settings.precision != "auto":
        return settings.precision
    return "float32" if settings.device.partition(":")[0] == "cpu" else "bfloat16"
