"""A checkpoint folder: validated configurations and lazily read tensors, or a ``ConfigError`` that says what is wrong.

Only JSON, the two vocabulary files and safetensors are opened; nothing in a checkpoint is ever executed.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch

from adapters.engines.qwen3_tts.codec_config import (
    CODEC_FOLDER,
    CodecConfig,
    SpeakerEncoderConfig,
    codec_config,
    read_json,
    speaker_encoder_config,
)
from adapters.engines.qwen3_tts.config import TalkerConfig, TransformerConfig, talker_config
from adapters.engines.qwen3_tts.hub import why_not_fetched
from adapters.engines.qwen3_tts.stages import CODEBOOKS
from adapters.engines.qwen3_tts.tensors import TensorFile
from sidecar.faults import ConfigError, EngineFault

WEIGHTS = "model.safetensors"
VOCABULARY = ("vocab.json", "merges.txt")
HUB_PATTERNS = ("*.json", "merges.txt", "*.safetensors")
"""What ``resolve`` takes from a hub repository: never code, never pickled weights."""

_ID_SAMPLES, _ID_SAMPLE_BYTES = 256, 4_096
_FLOATS = (torch.bfloat16, torch.float16, torch.float32)


def resolve(path_or_id: str | Path, *, offline: bool = False) -> Path:
    """The local folder of a checkpoint.

    A folder is taken as it is. Anything of the form ``owner/name`` is looked up in the local hub cache and, unless
    ``offline`` (or ``HF_HUB_OFFLINE`` is set), downloaded. Raises ``ConfigError`` with a way out.
    """
    folder = Path(path_or_id).expanduser()
    if folder.is_dir():
        return folder
    name = str(path_or_id)
    if name.count("/") != 1 or name.startswith((".", "/", "~")) or "\\" in name:
        raise ConfigError([f"checkpoint {name}: no such folder, and not a hub id such as owner/name"])
    try:
        hub: Any = importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise ConfigError(
            [f"checkpoint {name}: not a folder, and hub ids need the package huggingface_hub (not installed)"]
        ) from error
    patterns = list(HUB_PATTERNS)
    try:
        return Path(hub.snapshot_download(name, allow_patterns=patterns, local_files_only=True))
    except Exception as error:  # every miss of the local cache, whatever the library calls it
        if offline or bool(getattr(hub.constants, "HF_HUB_OFFLINE", False)):
            raise ConfigError([f"checkpoint {name}: not in the local hub cache, and there is no network"]) from error
    try:
        return Path(hub.snapshot_download(name, allow_patterns=patterns))
    except Exception as error:  # network, unknown repository, gated repository, full disk
        raise ConfigError([f"checkpoint {name}: download failed: {why_not_fetched(error)}"]) from error


class Weights:
    """Tensors of one safetensors file, each read when asked for and checked for name, shape and a float dtype.

    Satisfies ``tensors.Tensors``. Where the loader maps files, an unconverted tensor costs memory only where it is
    touched. Raises ``EngineFault`` naming the file and the tensor.
    """

    def __init__(self, path: Path) -> None:
        self.label = "/".join(path.parts[-2:])
        self._file = TensorFile(path)

    def names(self) -> tuple[str, ...]:
        """All names, sorted."""
        return self._file.names()

    def get(self, name: str, shape: tuple[int, ...] | None = None) -> torch.Tensor:
        """The tensor as stored (bfloat16, float16 or float32)."""
        tensor = self._file.get(name, shape)
        if tensor.dtype not in _FLOATS:
            raise EngineFault(f"{self.label}: tensor {name} has dtype {tensor.dtype}, expected a float type")
        return tensor


@dataclass(frozen=True)
class Checkpoint:
    """One validated checkpoint folder. Weights are opened on first use of ``weights`` and ``codec_weights``."""

    folder: Path
    talker: TalkerConfig
    codec: CodecConfig
    speaker_encoder: SpeakerEncoderConfig | None
    generation: Mapping[str, Any]

    @cached_property
    def weights(self) -> Weights:
        """``model.safetensors``: talker, code predictor, and in Base checkpoints the speaker encoder."""
        return Weights(self.folder / WEIGHTS)

    @cached_property
    def codec_weights(self) -> Weights:
        """``speech_tokenizer/model.safetensors``: encoder and decoder of the codec."""
        return Weights(self.folder / CODEC_FOLDER / WEIGHTS)

    @cached_property
    def codec_id(self) -> str:
        """``codec_id`` of this checkpoint's codec."""
        return codec_id(self.folder / CODEC_FOLDER / WEIGHTS)


def codec_id(path: Path) -> str:
    """A name for the codec's weights, the same wherever this file is read: for those who decode elsewhere.

    A digest of the file's length, its head and evenly spread samples: the whole would take seconds to read, and
    what is to be told apart are codecs, not forgeries. Raises ``OSError`` if the file cannot be read.
    """
    size = path.stat().st_size
    digest = blake2b(size.to_bytes(8, "little"), digest_size=8, person=b"sidecar.codec")
    with path.open("rb") as file:
        for at in range(_ID_SAMPLES):
            file.seek(size * at // _ID_SAMPLES)
            digest.update(file.read(_ID_SAMPLE_BYTES))
    return f"qwen3-tts-12hz-{digest.hexdigest()}"


def open_checkpoint(path_or_id: str | Path, *, offline: bool = False, weights: bool = True) -> Checkpoint:
    """Resolve and validate a checkpoint; with ``weights`` also that every tensor of stage 0 is there with its shape.

    The check reads headers, not tensors. Raises ``ConfigError`` listing every problem of every file.
    """
    folder = resolve(path_or_id, offline=offline)
    problems: list[str] = []
    talker: TalkerConfig | None = None
    codec: CodecConfig | None = None
    encoder: SpeakerEncoderConfig | None = None
    root: Mapping[str, Any] = {}
    try:
        root = read_json(folder / "config.json")
        talker = talker_config(root, where="config.json")
    except EngineFault as fault:
        problems.append(fault.message)
    except ConfigError as error:
        problems.extend(error.problems)
    try:
        codec = codec_config(read_json(folder / CODEC_FOLDER / "config.json"))
        if root.get("tts_model_type") == "base":
            encoder = speaker_encoder_config(root)
    except EngineFault as fault:
        problems.append(fault.message)
    generation: Mapping[str, Any] = {}
    if (folder / "generation_config.json").exists():
        try:
            generation = read_json(folder / "generation_config.json")
        except EngineFault as fault:
            problems.append(fault.message)
    problems.extend(f"{name} is missing" for name in VOCABULARY if not (folder / name).is_file())
    if talker is not None and codec is not None:
        if codec.decoder.codebook_size != talker.codes:
            problems.append(
                f"{CODEC_FOLDER}/config.json: codebook_size is {codec.decoder.codebook_size}, "
                f"but config.json draws codes below {talker.codes}"
            )
        if encoder is not None and encoder.width != talker.talker.hidden:
            problems.append(f"config.json: enc_dim is {encoder.width}, but the talker is {talker.talker.hidden} wide")
    if talker is None or codec is None or problems:
        raise ConfigError([f"checkpoint {folder.name}: {problem}" for problem in problems])
    checkpoint = Checkpoint(folder, talker, codec, encoder, generation)
    if weights:
        problems = weight_problems(checkpoint)
        if problems:
            raise ConfigError([f"checkpoint {folder.name}: {problem}" for problem in problems])
    return checkpoint


def weight_problems(checkpoint: Checkpoint) -> list[str]:
    """What is wrong with the two weight files: unreadable, truncated, or a tensor of stage 0 missing or misshapen."""
    problems: list[str] = []
    for name in ("codec_weights", "weights"):
        try:
            opened: Weights = getattr(checkpoint, name)
        except EngineFault as fault:
            problems.append(fault.message)
            continue
        if name == "weights":
            problems.extend(_shape_problems(opened, stage0_shapes(checkpoint.talker)))
    return problems


def _shape_problems(weights: Weights, shapes: Mapping[str, tuple[int, ...]]) -> list[str]:
    problems: list[str] = []
    for name, shape in shapes.items():
        try:
            weights.get(name, shape)
        except EngineFault as fault:
            problems.append(fault.message)
    if len(problems) > 8:  # one wrong width makes hundreds of wrong tensors
        return [*problems[:8], f"and {len(problems) - 8} more tensors of {weights.label}"]
    return problems


def stage0_shapes(config: TalkerConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor of talker and code predictor with its shape (released sizes: 402 or 404 tensors)."""
    width, text = config.talker.hidden, config.text_hidden
    shapes: dict[str, tuple[int, ...]] = {
        "talker.model.text_embedding.weight": (config.text_vocab, text),
        "talker.model.codec_embedding.weight": (config.codec_vocab, width),
        "talker.text_projection.linear_fc1.weight": (text, text),
        "talker.text_projection.linear_fc1.bias": (text,),
        "talker.text_projection.linear_fc2.weight": (width, text),
        "talker.text_projection.linear_fc2.bias": (width,),
        "talker.codec_head.weight": (config.codec_vocab, width),
        **_transformer_shapes("talker.model", config.talker),
        **_transformer_shapes("talker.code_predictor.model", config.predictor),
    }
    prefix = "talker.code_predictor"
    for group in range(CODEBOOKS - 1):
        shapes[f"{prefix}.model.codec_embedding.{group}.weight"] = (config.codes, width)
        shapes[f"{prefix}.lm_head.{group}.weight"] = (config.codes, config.predictor.hidden)
    if config.predictor.hidden != width:
        shapes[f"{prefix}.small_to_mtp_projection.weight"] = (config.predictor.hidden, width)
        shapes[f"{prefix}.small_to_mtp_projection.bias"] = (config.predictor.hidden,)
    return shapes


def _transformer_shapes(prefix: str, config: TransformerConfig) -> dict[str, tuple[int, ...]]:
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    shapes: dict[str, tuple[int, ...]] = {f"{prefix}.norm.weight": (config.hidden,)}
    for index in range(config.layers):
        layer = f"{prefix}.layers.{index}"
        shapes |= {
            f"{layer}.input_layernorm.weight": (config.hidden,),
            f"{layer}.post_attention_layernorm.weight": (config.hidden,),
            f"{layer}.self_attn.q_proj.weight": (queries, config.hidden),
            f"{layer}.self_attn.k_proj.weight": (keys, config.hidden),
            f"{layer}.self_attn.v_proj.weight": (keys, config.hidden),
            f"{layer}.self_attn.o_proj.weight": (config.hidden, queries),
            f"{layer}.self_attn.q_norm.weight": (config.head_dim,),
            f"{layer}.self_attn.k_norm.weight": (config.head_dim,),
            f"{layer}.mlp.gate_proj.weight": (config.intermediate, config.hidden),
            f"{layer}.mlp.up_proj.weight": (config.intermediate, config.hidden),
            f"{layer}.mlp.down_proj.weight": (config.hidden, config.intermediate),
        }
    return shapes
