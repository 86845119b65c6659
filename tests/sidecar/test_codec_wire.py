"""Codec packets: exact bytes, a round trip for everything, a clear fault for anything else."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar import codec_wire
from sidecar.codec_wire import (
    EOS,
    HEADER_BYTES,
    RESET,
    CodecFormat,
    CodecReader,
    CodecWriter,
    Packet,
    pack,
    sounding,
    start_event,
    unpack,
)
from sidecar.faults import EngineFault


def codes(frames: int, seed: int = 0, size: int = 2_048) -> np.ndarray[Any, np.dtype[np.int16]]:
    return np.random.default_rng(seed).integers(0, size, (frames, 16)).astype(np.int16)


def test_the_bytes_are_those_of_the_protocol() -> None:
    rows = np.arange(32, dtype=np.int16).reshape(2, 16)
    data = pack(Packet(0x01020304, rows, EOS | RESET))
    assert data[:7] == b"\x04\x03\x02\x01" + b"\x02\x00" + b"\x05"
    assert data[7:11] == b"\x00\x00\x01\x00"
    assert len(data) == 7 + 2 * 16 * 2
    assert HEADER_BYTES == 7


@given(st.integers(0, 2**32 - 1), st.integers(0, 40), st.integers(0, 255), st.integers(1, 32), st.integers(1, 4_096))
def test_what_was_packed_comes_out(seq: int, frames: int, flags: int, books: int, size: int) -> None:
    rows = np.random.default_rng(seq).integers(0, size, (frames, books)).astype(np.int16)
    back = unpack(pack(Packet(seq, rows, flags)), books, size)
    assert (back.seq, back.flags) == (seq, flags)
    assert np.array_equal(back.codes, rows)
    assert (back.ends, back.resets) == (bool(flags & 1), bool(flags & 4))


@given(st.binary(max_size=300))
def test_any_bytes_are_a_packet_or_a_fault(data: bytes) -> None:
    try:
        packet = unpack(data)
    except EngineFault:
        return
    assert pack(packet) == data


@given(st.binary(min_size=1, max_size=8), st.integers(0, 120))
def test_a_packet_that_is_cut_or_longer_is_refused(more: bytes, at: int) -> None:
    data = pack(Packet(3, codes(4), 0))
    for broken in (data[: min(at, len(data) - 1)], data + more):
        with pytest.raises(EngineFault):
            unpack(broken)


@pytest.mark.parametrize("wrong", [-1, 2_048, 2_150])
def test_a_code_outside_the_codebooks_is_refused(wrong: int) -> None:
    rows = codes(2)
    rows[1, 7] = wrong
    with pytest.raises(EngineFault, match="outside"):
        unpack(pack(Packet(0, rows)))


@pytest.mark.parametrize(
    "packet",
    [
        Packet(-1, codes(1)),
        Packet(2**32, codes(1)),
        Packet(0, codes(1), 256),
        Packet(0, np.zeros(16, np.int16)),
        Packet(0, np.zeros((65_536, 1), np.int16)),
    ],
)
def test_what_does_not_fit_the_header_is_not_packed(packet: Packet) -> None:
    with pytest.raises(ValueError):
        pack(packet)


def test_control_rows_are_no_sound() -> None:
    rows = codes(5).astype(np.int32)
    rows[0, 0], rows[2, 0], rows[3, 9] = -1, 2_150, 2_048
    assert np.array_equal(sounding(rows), rows[[1, 4]])
    assert sounding(np.zeros((0, 16))).shape == (0, 16)
    with pytest.raises(ValueError):
        sounding([1, 2])


# ---------------------------------------------------------------- a bracket
@given(st.lists(st.integers(0, 6), max_size=6), st.booleans(), st.integers(0, 2))
def test_a_written_bracket_can_be_read(lengths: list[int], last_says_so: bool, seed: int) -> None:
    writer, reader = CodecWriter(), CodecReader(CodecFormat())
    pieces = [codes(n, seed) for n in lengths]
    sent = [writer.frames(piece, last=last_says_so and index == len(pieces) - 1) for index, piece in enumerate(pieces)]
    sent += [data for data in (writer.end(),) if data]
    heard = [reader.packet(data) for data in sent]
    reader.done(writer.done())
    assert reader.ended
    assert reader.total_frames == sum(lengths)
    assert [packet.seq for packet in heard] == list(range(len(sent)))
    assert np.array_equal(np.concatenate([packet.codes for packet in heard]), np.concatenate([*pieces, codes(0)]))


def test_sequence_numbers_wrap() -> None:
    writer = CodecWriter(first_seq=2**32 - 1)
    assert [unpack(writer.frames(codes(1))).seq for _ in range(2)] == [2**32 - 1, 0]


def test_nothing_is_written_after_the_end() -> None:
    writer = CodecWriter()
    writer.frames(codes(1), last=True)
    assert writer.end() == b""
    with pytest.raises(ValueError, match="ended"):
        writer.frames(codes(1))


def test_an_empty_bracket() -> None:
    writer, reader = CodecWriter(), CodecReader(CodecFormat())
    assert writer.done()["seq_last"] == -1
    assert len(writer.end()) == HEADER_BYTES
    with pytest.raises(EngineFault, match="without its last packet"):
        reader.done({"total_frames": 0, "seq_last": -1, "error": False})
    reader.done({"total_frames": 0, "seq_last": 0, "error": True})


def test_packets_lost_doubled_late_or_miscounted_are_noticed() -> None:
    writer = CodecWriter()
    first, second, third = writer.frames(codes(1)), writer.frames(codes(1)), writer.frames(codes(1), last=True)
    for *good, bad in ([second], [first, first], [first, third], [first, second, third, first]):
        reader = CodecReader(CodecFormat())
        for data in good:
            reader.packet(data)
        with pytest.raises(EngineFault):
            reader.packet(bad)
    reader = CodecReader(CodecFormat())
    reader.packet(first)
    with pytest.raises(EngineFault, match="3 frames"):
        reader.done(writer.done())


# ---------------------------------------------------------------- codec.start
def test_the_start_event_says_everything_once() -> None:
    event = start_event(decoder_id="d", model="m")
    assert event == {
        "type": "codec.start",
        "version": 1,
        "model": "m",
        "codebooks": 16,
        "codebook_size": 2_048,
        "frame_rate_hz": 12.5,
        "sample_rate": 24_000,
        "decoder_id": "d",
        "header_format": "<IHB",
    }
    assert CodecFormat.of(event) == CodecFormat(16, 2_048, "d")
    assert CodecFormat.of({}) == CodecFormat()
    assert CodecFormat.of(start_event(decoder_id="d", reference_frames=7)) == CodecFormat(
        decoder_id="d", reference_frames=7
    )
    for senseless in (-1, "7", None, 2.5):
        assert CodecFormat.of({"reference_frames": senseless}) == CodecFormat()
    assert struct.calcsize(str(event["header_format"])) == codec_wire.HEADER_BYTES


@pytest.mark.parametrize(
    "members",
    [
        {"version": 2},
        {"header_format": ">IHB"},
        {"sample_rate": 16_000},
        {"frame_rate_hz": 25},
        {"codebooks": 0},
        {"codebooks": True},
        {"codebooks": "16"},
        {"codebook_size": 40_000},
        {"codebook_size": None},
    ],
)
def test_a_stream_that_is_not_understood_is_refused(members: dict[str, object]) -> None:
    with pytest.raises(EngineFault):
        CodecFormat.of({**start_event(decoder_id=""), **members})
