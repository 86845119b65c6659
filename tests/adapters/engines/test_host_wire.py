from __future__ import annotations

import asyncio
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.engines.host_wire import (
    WireError,
    anchor_from_json,
    anchor_to_json,
    chunk_from_wire,
    chunk_to_wire,
    fault_from_json,
    fault_to_json,
    pack,
    read,
    samples_from_bytes,
    samples_to_bytes,
    traits_from_json,
    traits_to_json,
    utterance_from_json,
    utterance_to_json,
)
from sidecar.faults import BadRequest, EngineFault, Fault, UpstreamRefused
from sidecar.ports import AudioChunk, EngineTraits, EngineVoice, Utterance
from voices.anchor import SpeakerAnchor
from voices.carry import Carry


async def from_bytes(data: bytes) -> Any:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    return await read(reader)


async def test_messages_arrive_as_they_were_sent() -> None:
    body = samples_to_bytes(np.array([0.5, -1, 1e-9], np.float32))
    assert await from_bytes(pack({"op": "audio", "text": "ü\ud800"}, body)) == (
        {"op": "audio", "text": "ü\ud800"},
        body,
    )
    assert samples_from_bytes(body).tolist() == np.array([0.5, -1, 1e-9], np.float32).tolist()
    assert await from_bytes(b"") is None


@pytest.mark.parametrize(
    "data",
    [
        b"\0",
        pack({"op": "x"})[:-1],
        pack({"op": "x"}, b"1234")[:-2],
        b"\xff\xff\xff\xff\0\0\0\0",
        b"\0\0\0\0\xff\xff\xff\xff",
        b"\0\0\0\2\0\0\0\0[]",
        b"\0\0\0\2\0\0\0\0{]",
    ],
)
async def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        await from_bytes(data)


def test_faults_cross() -> None:
    back = fault_from_json(fault_to_json(BadRequest("no", param="voice", retry_after_s=2)))
    assert (type(back), back.message, back.param, back.retry_after_s) == (BadRequest, "no", "voice", 2.0)
    hidden = fault_from_json(fault_to_json(RuntimeError("secret")))
    assert type(hidden) is EngineFault
    assert "secret" not in hidden.message
    assert isinstance(fault_from_json({"type": "ConfigError", "message": "x"}), EngineFault)
    assert isinstance(fault_from_json({"type": "Mapping"}), EngineFault)
    refused = UpstreamRefused("x", upstream_status=400, upstream_error={})
    assert isinstance(fault_from_json(fault_to_json(refused)), Fault)


def test_utterances_and_traits_cross() -> None:
    asked = Utterance("text", "v", 2**63, "en", "slowly", 4, 1)
    assert utterance_from_json(utterance_to_json(asked)) == asked
    traits = EngineTraits("e", (EngineVoice("v", ("en", "de"), "d"),), "v", ("en",), 3, True, (1024,), True)
    assert traits_from_json(traits_to_json(traits)) == traits
    for wrong in list[dict[str, Any]](({}, {"voices": [{}]}, {"voices": []})):
        with pytest.raises(WireError):
            traits_from_json(wrong)
    with pytest.raises(WireError):
        utterance_from_json({"text": "x", "mood": 1})
    with pytest.raises(WireError):
        samples_from_bytes(b"123")


CODES = np.arange(48, dtype=np.int16).reshape(3, 16)
EMBEDDING = np.array([0.5, -2, 1e-9, 3], np.float32)


@pytest.mark.parametrize("anchor", [SpeakerAnchor(EMBEDDING), SpeakerAnchor(EMBEDDING, CODES, "so s\u00e4id", "f00")])
def test_voices_and_what_they_said_cross(anchor: SpeakerAnchor) -> None:
    asked = Utterance("text", "", 2**63, anchor=anchor, carry=Carry(CODES[:2], "before"), output="codes", live=True)
    back = utterance_from_json(json.loads(json.dumps(utterance_to_json(asked))))
    assert back.anchor is not None
    assert back.carry is not None
    assert back.anchor.same_as(anchor)
    assert back.anchor.fingerprint == anchor.fingerprint
    assert (back.carry.codes.tolist(), back.carry.text) == (CODES[:2].tolist(), "before")
    assert (back.output, back.live, back.seed) == ("codes", True, 2**63)


@pytest.mark.parametrize(
    "changes",
    [
        {"embedding": "AAAA"},
        {"embedding": "?"},
        {"embedding": None},
        {"codes": "AAAA"},
        {"codes": 4},
        {"transcript": 5},
        {"fingerprint": "f" * 1_000},
    ],
)
def test_damaged_anchors_are_refused(changes: dict[str, Any]) -> None:
    body = {**anchor_to_json(SpeakerAnchor(EMBEDDING, CODES, "said")), **changes}
    with pytest.raises(WireError):
        anchor_from_json(body)
    with pytest.raises(WireError):
        utterance_from_json({"text": "x", "voice": "v", "seed": 1, "anchor": body})
    with pytest.raises(WireError):
        utterance_from_json({"text": "x", "voice": "v", "seed": 1, "carry": {"codes": "AAAA", "text": "x"}})


@given(st.integers(0, 4), st.integers(0, 50), st.booleans(), st.none() | st.integers(0, 10**6))
def test_chunks_cross(frames: int, samples: int, with_codes: bool, chars: int | None) -> None:
    codes = np.full((frames, 16), 2_047, np.int16) if with_codes else None
    chunk = AudioChunk(np.linspace(-1, 1, samples, dtype=np.float32), 1_920 * frames, codes, chars)
    members, body = chunk_to_wire(chunk)
    back = chunk_from_wire(json.loads(json.dumps(members)), body)
    assert np.array_equal(back.pcm, chunk.pcm)
    assert (back.first_sample, back.text_chars) == (chunk.first_sample, chars)
    assert (back.codes is None) == (codes is None)
    if codes is not None and back.codes is not None:
        assert np.array_equal(back.codes, codes)


@pytest.mark.parametrize(
    ("header", "body"),
    [
        ({}, b""),
        ({"first": "0"}, b""),
        ({"first": 0, "frames": 2}, b"\0" * 33),
        ({"first": 0, "frames": -1}, b""),
        ({"first": 0, "frames": "2"}, b""),
        ({"first": 0, "text_chars": 1.5}, b""),
        ({"first": 0}, b"123"),
    ],
)
def test_damaged_chunks_are_refused(header: dict[str, Any], body: bytes) -> None:
    with pytest.raises(WireError):
        chunk_from_wire(header, body)
