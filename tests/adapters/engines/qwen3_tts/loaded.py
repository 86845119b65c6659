"""Tiny checkpoints on disk and stages on them, made once per test run; goldens of the reference."""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from adapters.engines.qwen3_tts.checkpoint import Checkpoint, open_checkpoint
from adapters.engines.qwen3_tts.stage0 import Stage0
from adapters.engines.qwen3_tts.stages import Frame, Prompt, Reference, Sampling
from adapters.engines.qwen3_tts.tokenizer import TextTokenizer
from tests.adapters.engines.qwen3_tts import tiny

GOLDENS = Path(__file__).parent / "goldens" / "stage0.npz"

torch.set_num_threads(1)


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="tiny-checkpoints-")


@functools.cache
def checkpoint(size: str = "tiny", kind: str = "base") -> Checkpoint:
    return open_checkpoint(tiny.write(Path(_folder().name) / f"{size}-{kind}", size=size, kind=kind))


@functools.cache
def tokenizer(size: str = "tiny", kind: str = "base") -> TextTokenizer:
    opened = checkpoint(size, kind)
    return TextTokenizer.load(opened.folder, opened.talker)


def stage0(size: str = "tiny", kind: str = "custom_voice", **options: Any) -> Stage0:
    options = {"rows": 1, "positions": 256, **options}
    return Stage0.load(checkpoint(size, kind), tokenizer(size, kind).role_ids, **options)


@functools.cache
def goldens() -> dict[str, np.ndarray]:
    with np.load(GOLDENS) as file:
        return dict(file)


@functools.cache
def cases() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(str(goldens()["cases"]))
    return found


def golden(case: dict[str, Any], array: str) -> np.ndarray | None:
    return goldens().get(f"{case['checkpoint']}/{case['at']}/{array}")


def prompt_of(case: dict[str, Any], **changes: Any) -> Prompt:
    """The case as a prompt, from its texts; reference voices from the golden."""
    tok = tokenizer(case["size"], case["kind"])
    reference = None
    if "clone" in case:
        codes = golden(case, "ref_codes")
        transcript = {"icl": "This is what the speaker said.", "short": "Hi.", "vector": ""}[case["clone"]]
        embedding = golden(case, "embedding")
        assert embedding is not None
        reference = Reference(embedding, codes, tok.reference_ids(transcript))
    fields: dict[str, Any] = {
        "text_ids": tok.body_ids(case["text"]),
        "layout": case["layout"],
        "language": case["language"],
        "speaker": case.get("speaker"),
        "instruct_ids": tok.instruct_ids(case.get("instruct", "")),
        "reference": reference,
        "sampling": Sampling(greedy="seed" not in case),
        **changes,
    }
    return Prompt(**fields)


def speak(stage: Stage0, prompt: Prompt, frames: int = 39, row: int = 0) -> np.ndarray:
    """Codes ``(frames, 16)`` of one prompt spoken alone."""
    stage.admit(row, prompt)
    found: list[Frame] = []
    while len(found) < frames:
        (stepped,) = stage.step([row])
        if stepped.frame is None:
            break
        found.append(stepped.frame)
    stage.release(row)
    return np.stack(found)
