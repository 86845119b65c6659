"""Codec tokens on the speech socket: one bracket of ``codec.start``, binary packets, ``codec.done``.

A packet is a header ``<IHB`` (sequence number, frames, flags; little-endian) and then int16 codes, row by row. The
server writes, clients read. Protocol: the codec-token branch of vLLM-Omni, version 1.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sidecar.faults import EngineFault
from sidecar.ports import FRAME_SAMPLES, SAMPLE_RATE_HZ

VERSION = 1
HEADER_FORMAT = "<IHB"
HEADER_BYTES = struct.calcsize(HEADER_FORMAT)
CODEBOOKS = 16
CODEBOOK_SIZE = 2_048
FRAME_RATE_HZ = SAMPLE_RATE_HZ / FRAME_SAMPLES

EOS = 1
"""The last packet of its bracket."""
SEGMENT_END = 2
"""A passage ends here; nothing follows from it for a decoder."""
RESET = 4
"""Forget the decoder's state before these frames."""

MAX_FRAMES = 0xFFFF
"""Frames of one packet."""

_SEQUENCES = 1 << 32
_LARGEST_ID = 0x7FFF

Codes = NDArray[np.int16]
"""Shape ``(frames, codebooks)``."""


@dataclass(frozen=True, slots=True, eq=False)
class Packet:
    """One binary frame. ``flags`` may hold bits that are not known here; they mean nothing."""

    seq: int
    codes: Codes
    flags: int = 0

    @property
    def ends(self) -> bool:
        """True for the last packet of its bracket."""
        return bool(self.flags & EOS)

    @property
    def resets(self) -> bool:
        """True if the decoder starts anew with these frames."""
        return bool(self.flags & RESET)


def pack(packet: Packet) -> bytes:
    """The bytes of a packet. Raises ``ValueError`` for numbers that do not fit the header."""
    frames = len(packet.codes)
    if packet.codes.ndim != 2 or frames > MAX_FRAMES:
        raise ValueError(f"a packet holds at most {MAX_FRAMES} rows of codes")
    if not (0 <= packet.seq < _SEQUENCES and 0 <= packet.flags <= 0xFF):
        raise ValueError("the sequence number has 32 bits, the flags 8")
    return struct.pack(HEADER_FORMAT, packet.seq, frames, packet.flags) + packet.codes.astype("<i2").tobytes()


def unpack(data: bytes, codebooks: int = CODEBOOKS, codebook_size: int = CODEBOOK_SIZE) -> Packet:
    """The packet in these bytes.

    Raises ``EngineFault`` unless they are exactly one packet whose codes lie in ``0..codebook_size - 1``.
    """
    if len(data) < HEADER_BYTES:
        raise EngineFault(f"A codec packet has at least {HEADER_BYTES} bytes, not {len(data)}.")
    seq, frames, flags = struct.unpack_from(HEADER_FORMAT, data)
    expected = HEADER_BYTES + 2 * frames * codebooks
    if len(data) != expected:
        raise EngineFault(f"A codec packet of {frames} frames has {expected} bytes, not {len(data)}.")
    codes = np.frombuffer(data, "<i2", offset=HEADER_BYTES).reshape(frames, codebooks).astype(np.int16)
    if codes.size and not (codes.min() >= 0 and codes.max() < codebook_size):
        raise EngineFault(f"A codec packet holds codes outside 0..{codebook_size - 1}.")
    return Packet(seq, codes, flags)


def sounding(codes: ArrayLike, codebook_size: int = CODEBOOK_SIZE) -> Codes:
    """The rows of ``codes (frames, codebooks)`` that are sound: control rows hold an id outside the codebooks."""
    rows = np.asarray(codes)
    if rows.ndim != 2:
        raise ValueError("codes have two dimensions: frames and codebooks")
    kept: Codes = rows[((rows >= 0) & (rows < codebook_size)).all(axis=1)].astype(np.int16)
    return kept


class CodecWriter:
    """The packets of one bracket, numbered from 0. ``first_seq`` is there for tests of the wrap-around."""

    def __init__(self, first_seq: int = 0) -> None:
        self._seq = first_seq
        self._last = -1
        self.total_frames = 0
        self.ended = False

    def frames(self, codes: ArrayLike, *, last: bool = False) -> bytes:
        """A packet of codes ``(frames, codebooks)``, at most ``MAX_FRAMES``; ``last`` ends the bracket.

        Raises ``ValueError`` once it has ended.
        """
        if self.ended:
            raise ValueError("the bracket has ended")
        packet = Packet(self._seq, np.asarray(codes, np.int16), EOS if last else 0)
        data = pack(packet)
        self._last, self._seq = self._seq, (self._seq + 1) % _SEQUENCES
        self.total_frames += len(packet.codes)
        self.ended = last
        return data

    def end(self, codebooks: int = CODEBOOKS) -> bytes:
        """The empty packet that ends a bracket whose last frames did not say so; empty once it has ended."""
        return b"" if self.ended else self.frames(np.zeros((0, codebooks), np.int16), last=True)

    def done(self, *, error: bool = False, cancelled: bool = False) -> dict[str, Any]:
        """The ``codec.done`` event, without its indices."""
        return {
            "type": "codec.done",
            "total_frames": self.total_frames,
            "seq_last": self._last,
            "error": error,
            "cancelled": cancelled,
        }


def start_event(
    *,
    decoder_id: str,
    model: str | None = None,
    codebooks: int = CODEBOOKS,
    codebook_size: int = CODEBOOK_SIZE,
    reference_frames: int = 0,
) -> dict[str, Any]:
    """The ``codec.start`` event, without indices and ``sentence_text``. ``decoder_id`` names the decoder's weights.

    ``reference_frames``: of a voice's reference, which a decoder of the server's would hear before these codes and
    which are no part of them; told where there are any.
    """
    return {
        "type": "codec.start",
        "version": VERSION,
        "model": model,
        "codebooks": codebooks,
        "codebook_size": codebook_size,
        "frame_rate_hz": FRAME_RATE_HZ,
        "sample_rate": SAMPLE_RATE_HZ,
        "decoder_id": decoder_id,
        "header_format": HEADER_FORMAT,
        **({"reference_frames": reference_frames} if reference_frames else {}),
    }


@dataclass(frozen=True, slots=True)
class CodecFormat:
    """What ``codec.start`` says of the packets that follow it."""

    codebooks: int = CODEBOOKS
    codebook_size: int = CODEBOOK_SIZE
    decoder_id: str = ""
    reference_frames: int = 0

    @staticmethod
    def of(message: Mapping[str, Any]) -> CodecFormat:
        """Read a ``codec.start``; members that are absent have the values of version 1.

        Raises ``EngineFault`` for a version, header, rate or shape that is not understood here.
        """
        expected = {
            "version": VERSION,
            "header_format": HEADER_FORMAT,
            "sample_rate": SAMPLE_RATE_HZ,
            "frame_rate_hz": FRAME_RATE_HZ,
        }
        for name, value in expected.items():
            if message.get(name, value) != value:
                raise EngineFault(f"The server's codec stream has another {name} than {value}.")
        sizes = message.get("codebooks", CODEBOOKS), message.get("codebook_size", CODEBOOK_SIZE)
        for size in sizes:
            if isinstance(size, bool) or not isinstance(size, int) or not 0 < size <= _LARGEST_ID + 1:
                raise EngineFault("The server's codec stream has no usable number or size of codebooks.")
        decoder_id = message.get("decoder_id")
        reference = message.get("reference_frames")
        frames = reference if isinstance(reference, int) and reference > 0 else 0
        return CodecFormat(*sizes, decoder_id if isinstance(decoder_id, str) else "", int(frames))


class CodecReader:
    """Checks one bracket: packets in order, none after the last, as many frames as ``codec.done`` says."""

    def __init__(self, format: CodecFormat) -> None:
        self._format = format
        self._next: int | None = None
        self._last = -1
        self.total_frames = 0
        self.ended = False

    def packet(self, data: bytes) -> Packet:
        """The next binary frame. Raises ``EngineFault`` if it is broken, out of order or too late."""
        packet = unpack(data, self._format.codebooks, self._format.codebook_size)
        if self.ended:
            raise EngineFault("A codec packet came after the last one of its bracket.")
        if packet.seq != (0 if self._next is None else self._next):
            raise EngineFault(f"Codec packet {packet.seq} came instead of {self._next or 0}.")
        self._next = (packet.seq + 1) % _SEQUENCES
        self._last = packet.seq
        self.total_frames += len(packet.codes)
        self.ended = packet.ends
        return packet

    def done(self, message: Mapping[str, Any]) -> None:
        """The bracket's ``codec.done``. Of a unit that failed nothing more is checked.

        Raises ``EngineFault`` if frames are missing or the end was not marked.
        """
        if message.get("error"):
            return
        told = message.get("total_frames"), message.get("seq_last")
        if told != (self.total_frames, self._last):
            raise EngineFault(
                f"codec.done tells of {told[0]} frames up to packet {told[1]}; "
                f"{self.total_frames} up to packet {self._last} came."
            )
        if not self.ended:
            raise EngineFault("The codec stream ended without its last packet.")
