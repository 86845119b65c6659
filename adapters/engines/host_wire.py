"""What server and engine process say to each other: framed messages over a pair of connected sockets.

A message is two big-endian 32-bit lengths, a JSON object, and raw bytes (little-endian: float32 samples, then int16
codes). Neither side believes the other's lengths beyond a bound, and nothing that is read is ever executed.

To the engine process: ``start`` (factory, settings, window), ``open`` (id, utterance), ``append`` (id, text),
``finish`` (id), ``credit`` (id, samples), ``encode`` (id, transcript; samples), ``cancel`` (id), ``ping`` (n),
``stop``. From it: ``ready`` (traits), ``failed`` (fault), ``opened`` and ``done`` (id, language, text_tokens),
``audio`` (id, first, text_chars, frames of codes if any; samples, codes), ``encoded`` (id, anchor), ``fault`` (id,
fault), ``pong`` (n, ok, reason).
"""

from __future__ import annotations

import asyncio
import base64
import json
import struct
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

import numpy as np

from sidecar import faults
from sidecar.faults import EngineFault, Fault
from sidecar.ports import AudioChunk, Codes, Draws, EngineTraits, EngineVoice, Pcm, Utterance
from voices.anchor import CODEBOOKS, SpeakerAnchor
from voices.carry import Carry

MAX_HEADER_BYTES = 4 * 1024 * 1024
MAX_PAYLOAD_BYTES = 16 * 1024 * 1024

_LENGTHS = struct.Struct(">II")

Message = tuple[dict[str, Any], bytes]


class WireError(Exception):
    """The other side sent something that is no message."""


def pack(header: Mapping[str, Any], payload: bytes = b"") -> bytes:
    """One message. Raises ``ValueError`` when it is longer than the other side would take."""
    head = json.dumps(header, allow_nan=False, separators=(",", ":")).encode("ascii")
    if len(head) > MAX_HEADER_BYTES or len(payload) > MAX_PAYLOAD_BYTES:
        raise ValueError("the message is too long")
    return _LENGTHS.pack(len(head), len(payload)) + head + payload


async def read(reader: asyncio.StreamReader) -> Message | None:
    """The next message, or None at the end of the stream. Raises ``WireError``, also for a message that is cut."""
    try:
        lengths = await reader.readexactly(_LENGTHS.size)
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise WireError("cut within a message") from error
        return None
    except ConnectionError:
        return None
    head, payload = _LENGTHS.unpack(lengths)
    if head > MAX_HEADER_BYTES or payload > MAX_PAYLOAD_BYTES:
        raise WireError("a message is too long")
    try:
        header = json.loads(await reader.readexactly(head))
        body = await reader.readexactly(payload)
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        raise WireError("cut within a message") from error
    except ValueError as error:
        raise WireError("a header is not JSON") from error
    if not isinstance(header, dict):
        raise WireError("a header is not an object")
    return header, body


def samples_to_bytes(pcm: Pcm) -> bytes:
    """Samples ``(n,)`` as float32 little-endian."""
    return np.ascontiguousarray(pcm, dtype="<f4").tobytes()


def samples_from_bytes(body: bytes) -> Pcm:
    """The reverse; raises ``WireError``."""
    if len(body) % 4:
        raise WireError("samples are cut")
    return np.frombuffer(body, dtype="<f4").astype(np.float32)


def fault_to_json(error: BaseException) -> dict[str, Any]:
    """A fault; anything else becomes an ``EngineFault`` that tells nothing of the inside."""
    if not isinstance(error, Fault):
        error = EngineFault("The speech engine failed on this utterance.")
    return {
        "type": type(error).__name__,
        "message": error.message,
        "param": error.param,
        "retry_after_s": error.retry_after_s,
    }


def fault_from_json(body: Mapping[str, Any]) -> Fault:
    """The reverse; a type that is not known here is an ``EngineFault``."""
    found = getattr(faults, str(body.get("type")), None)
    known = isinstance(found, type) and issubclass(found, Fault) and found is not faults.UpstreamRefused
    kind: type[Fault] = found if known and found is not None else EngineFault
    param, retry = body.get("param"), body.get("retry_after_s")
    return kind(
        str(body.get("message", "The speech engine failed.")),
        param=param if isinstance(param, str) else None,
        retry_after_s=float(retry) if isinstance(retry, int | float) else None,
    )


def chunk_to_wire(chunk: AudioChunk) -> tuple[dict[str, Any], bytes]:
    """The members of an ``audio`` message and its raw bytes."""
    members: dict[str, Any] = {"first": chunk.first_sample}
    if chunk.text_chars is not None:
        members["text_chars"] = chunk.text_chars
    if chunk.codes is None:
        return members, samples_to_bytes(chunk.pcm)
    return {**members, "frames": len(chunk.codes)}, samples_to_bytes(chunk.pcm) + _codes_to_bytes(chunk.codes)


def chunk_from_wire(header: Mapping[str, Any], body: bytes) -> AudioChunk:
    """The reverse; raises ``WireError``."""
    first, frames, chars = header.get("first"), header.get("frames"), header.get("text_chars")
    if not isinstance(first, int) or not isinstance(frames, int | None) or not isinstance(chars, int | None):
        raise WireError("an audio message without its numbers")
    end = len(body) - (frames or 0) * 2 * CODEBOOKS
    if not 0 <= end <= len(body):
        raise WireError("codes are cut")
    codes = None if frames is None else _codes_from_bytes(body[end:])
    return AudioChunk(samples_from_bytes(body[:end]), first, codes, chars)


def anchor_to_json(anchor: SpeakerAnchor) -> dict[str, Any]:
    """Every field."""
    return {
        "embedding": _text(samples_to_bytes(anchor.embedding)),
        "codes": None if anchor.codes is None else _text(_codes_to_bytes(anchor.codes)),
        "transcript": anchor.transcript,
        "fingerprint": anchor.fingerprint,
    }


def anchor_from_json(body: Mapping[str, Any]) -> SpeakerAnchor:
    """The reverse; raises ``WireError``."""
    try:
        codes = None if body["codes"] is None else _codes_from_bytes(base64.b64decode(body["codes"]))
        embedding = samples_from_bytes(base64.b64decode(body["embedding"]))
        return SpeakerAnchor(embedding, codes, body["transcript"], body["fingerprint"])
    except (TypeError, KeyError, ValueError) as error:
        raise WireError("no such anchor") from error


def utterance_to_json(utterance: Utterance) -> dict[str, Any]:
    """Every field."""
    values = {one.name: getattr(utterance, one.name) for one in fields(Utterance)}
    if utterance.anchor is not None:
        values["anchor"] = anchor_to_json(utterance.anchor)
    if utterance.carry is not None:
        values["carry"] = {"codes": _text(_codes_to_bytes(utterance.carry.codes)), "text": utterance.carry.text}
    if utterance.draws is not None:
        values["draws"] = asdict(utterance.draws)
    return values


def utterance_from_json(body: Mapping[str, Any]) -> Utterance:
    """The reverse; raises ``WireError``."""
    values = dict(body)
    try:
        if values.get("anchor") is not None:
            values["anchor"] = anchor_from_json(values["anchor"])
        if (carry := values.get("carry")) is not None:
            values["carry"] = Carry(_codes_from_bytes(base64.b64decode(carry["codes"])), carry["text"])
        if values.get("draws") is not None:
            values["draws"] = Draws(**values["draws"])
        return Utterance(**values)
    except (TypeError, KeyError, ValueError) as error:
        raise WireError("no such utterance") from error


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _codes_to_bytes(codes: Codes) -> bytes:
    return np.ascontiguousarray(codes, dtype="<i2").tobytes()


def _codes_from_bytes(data: bytes) -> Codes:
    if len(data) % (2 * CODEBOOKS):
        raise WireError("codes are cut")
    return np.frombuffer(data, dtype="<i2").astype(np.int16).reshape(-1, CODEBOOKS)


def traits_to_json(traits: EngineTraits) -> dict[str, Any]:
    """Every field."""
    return asdict(traits)


def traits_from_json(body: Mapping[str, Any]) -> EngineTraits:
    """The reverse; raises ``WireError``."""
    known = {one.name for one in fields(EngineTraits)}
    try:
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in body.items()
        }
        values["voices"] = tuple(
            EngineVoice(**{**voice, "languages": tuple(voice["languages"])}) for voice in body["voices"]
        )
        return EngineTraits(**{name: value for name, value in values.items() if name in known})
    except (TypeError, KeyError) as error:
        raise WireError("no such traits") from error
