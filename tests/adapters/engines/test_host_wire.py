from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from adapters.engines.host_wire import (
    WireError,
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
from sidecar.ports import EngineTraits, EngineVoice, Utterance


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
    for wrong in ({}, {"voices": [{}]}, {"voices": []}):
        with pytest.raises(WireError):
            traits_from_json(wrong)
    with pytest.raises(WireError):
        utterance_from_json({"text": "x", "mood": 1})
    with pytest.raises(WireError):
        samples_from_bytes(b"123")
