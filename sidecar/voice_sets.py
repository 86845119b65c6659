"""A set of stored voices as one ``.safetensors`` file, and back.

A voice's embedding is the tensor ``<name>/<width>`` (float32, one row), its reference codes are
``<name>/<width>/codes`` (int16, frames x 16). ``__metadata__`` has ``format`` ``sidecar-voices-1`` and ``voices``, a
JSON object of what else there is to each name. Files of others are read too: there a tensor of one row is a voice
under its own name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from voices.anchor import SpeakerAnchor
from voices.record import VoiceRecord, voice_name

FORMAT = "sidecar-voices-1"
MAX_VOICES = 10_000
NORM_RANGE = (1e-3, 1e4)
"""Length of the embeddings that are taken."""

_MAX_HEAD_BYTES = 16 << 20
_CODES = "codes"
_PLAIN = ("consent", "language", "description", "base_voice", "base_seed", "level_db")
_MORE = ("media_type", "recording_bytes", "said")


class UnreadableSet(ValueError):
    """The bytes are no set of voices; the message says why."""


TENSORS_PER_VOICE = 8
"""A vector and codes of each width."""


@dataclass(frozen=True, slots=True)
class ReadSet:
    """The voices of a file that are good, without dates, and why each of the others is not, by name."""

    records: tuple[VoiceRecord, ...]
    refused: Mapping[str, str]


def packed_set(records: Iterable[VoiceRecord]) -> bytes:
    """The file of some voices of different names."""
    tensors: dict[str, NDArray[Any]] = {}
    about: dict[str, Any] = {}
    for record in records:
        about[record.name] = {field: getattr(record, field) for field in (*_PLAIN, *_MORE)}
        about[record.name]["anchors"] = {
            str(anchor.width): {"transcript": anchor.transcript, "fingerprint": anchor.fingerprint}
            for anchor in record.anchors
        }
        for anchor in record.anchors:
            tensors[f"{record.name}/{anchor.width}"] = np.ascontiguousarray(anchor.embedding)
            if anchor.codes is not None:
                tensors[f"{record.name}/{anchor.width}/{_CODES}"] = np.ascontiguousarray(anchor.codes)
    return save(tensors, {"format": FORMAT, "voices": json.dumps(about, ensure_ascii=False)})


def read_set(data: bytes, owner: str, widths: Iterable[int]) -> ReadSet:
    """The voices of a file, as those of ``owner``, each with embeddings of ``widths`` only.

    Each voice stands for itself: one that is not good does not keep the others out. Raises ``UnreadableSet``.
    """
    about = _about(data)
    if _tensors_told(data) > MAX_VOICES * TENSORS_PER_VOICE:
        raise UnreadableSet(f"it has more than {MAX_VOICES} voices")
    try:
        tensors = load(data)
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise UnreadableSet("it is not a .safetensors file, or damaged") from error
    grouped = _by_voice(tensors, about)
    if len(grouped) > MAX_VOICES:
        raise UnreadableSet(f"it has more than {MAX_VOICES} voices")
    records: dict[str, VoiceRecord] = {}
    refused: dict[str, str] = {}
    allowed = tuple(widths)
    for raw, parts in grouped.items():
        try:
            record = _record(raw, owner, parts, about.get(raw, {}), allowed)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            refused[raw[:64]] = str(error) if isinstance(error, ValueError) else "what is said of it is damaged"
            continue
        if record.name in records:
            refused[raw[:64]] = "the name is there twice"
        else:
            records[record.name] = record
    return ReadSet(tuple(records.values()), refused)


def checked_vector(vector: NDArray[Any], widths: tuple[int, ...]) -> NDArray[np.float32]:
    """A speaker embedding of one of ``widths``, ``(width,)`` float32. Raises ``ValueError`` for what is none."""
    if vector.ndim != 1 or vector.dtype.kind != "f":
        raise ValueError("an embedding is one row of floating-point numbers")
    if vector.shape[0] not in widths:
        raise ValueError(f"it has {vector.shape[0]} numbers; {' or '.join(map(str, sorted(widths)))} are needed")
    with np.errstate(over="ignore", invalid="ignore"):
        norm = float(np.linalg.norm(vector.astype(np.float64)))
    low, high = NORM_RANGE
    if not math.isfinite(norm):
        raise ValueError("it has numbers that are not finite")
    if not low <= norm <= high:
        raise ValueError(f"its norm is {norm:.3g}; from {low:g} to {high:g} are taken")
    return vector.astype(np.float32)


def _about(data: bytes) -> dict[str, Any]:
    """What our own files say of their voices; nothing for files of others."""
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 or not 0 < size <= min(_MAX_HEAD_BYTES, len(data) - 8):
        raise UnreadableSet("it is not a .safetensors file, or damaged")
    try:
        metadata = json.loads(data[8 : 8 + size]).get("__metadata__") or {}
        about = json.loads(metadata["voices"]) if metadata.get("format") == FORMAT else {}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnreadableSet("its head cannot be read") from error
    if not isinstance(about, dict):
        raise UnreadableSet("its head cannot be read")
    return about


def _tensors_told(data: bytes) -> int:
    """Tensors that the head of a file tells of: reading many costs seconds, whatever they hold."""
    size = int.from_bytes(data[:8], "little")
    return data[8 : 8 + size].count(b'"data_offsets"')


def _by_voice(tensors: Mapping[str, NDArray[Any]], about: Mapping[str, Any]) -> dict[str, dict[str, NDArray[Any]]]:
    """Tensors by name of voice, then by what follows it: ``width`` or ``width/codes``; empty in files of others."""
    grouped: dict[str, dict[str, NDArray[Any]]] = {name: {} for name in about}
    for key, tensor in tensors.items():
        name, _, rest = key.partition("/") if about else (key, "", "")
        grouped.setdefault(name, {})[rest] = tensor
    return grouped


def _record(
    raw: str, owner: str, parts: Mapping[str, NDArray[Any]], about: Mapping[str, Any], widths: tuple[int, ...]
) -> VoiceRecord:
    anchors = []
    said_of = about.get("anchors", {})
    for rest, tensor in parts.items():
        width, _, what = rest.partition("/")
        if what == _CODES:
            continue
        codes = parts.get(f"{width}/{_CODES}") if width else None
        of_anchor = said_of.get(width, {})
        anchors.append(
            SpeakerAnchor(
                checked_vector(tensor, widths),
                codes,
                of_anchor.get("transcript", "") if codes is not None else "",
                of_anchor.get("fingerprint", ""),
            )
        )
    fields = {field: about[field] for field in (*_PLAIN, *_MORE) if field in about}
    if not all(isinstance(fields.get(field, ""), str) for field in ("consent", "language", "description", "said")):
        raise ValueError("what is said of it is damaged")
    record = VoiceRecord(name=voice_name(raw), owner=owner, anchors=tuple(anchors), **fields)
    # What cannot be read back is not taken in.
    return VoiceRecord.from_bytes(record.to_bytes())
