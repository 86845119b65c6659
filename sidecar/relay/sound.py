"""What a speech socket's binary frames are, and how much sound."""

from __future__ import annotations

import base64
import binascii
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sidecar.codec_wire import EOS, FRAME_RATE_HZ, RESET, CodecFormat, unpack
from sidecar.faults import EngineFault
from sidecar.ports import SAMPLE_RATE_HZ

_WAV_HEADER_BYTES = 44
_MAX_RATE_HZ = 384_000


@dataclass(frozen=True, slots=True)
class Heard:
    """One frame of sound. ``sound_ms`` is None where the format does not tell (mp3, opus); ``note`` is what it is in
    words."""

    note: str
    sound_ms: float | None


class SoundReader:
    """Follows the server's side of one socket, to know what its frames are."""

    def __init__(self) -> None:
        self._codec: CodecFormat | None = None
        self._format = "pcm"
        self._bytes_per_ms = 2 * SAMPLE_RATE_HZ / 1000

    def message(self, message: Mapping[str, Any]) -> Heard | None:
        """A JSON message of the server's; its sound if it holds some itself."""
        match message.get("type"):
            case "audio.start":
                self._codec = None
                self._format = str(message.get("format", "pcm"))
                self._bytes_per_ms = _bytes_per_ms(message)
            case "codec.start":
                try:
                    self._codec = CodecFormat.of(message)
                except EngineFault:
                    self._codec, self._format = None, "codec"
            case "audio.chunk":
                return _chunk(message)
        return None

    def frame(self, data: bytes) -> Heard:
        """A binary frame of the server's."""
        if self._codec is not None:
            return _tokens(data, self._codec)
        if data[:4] == b"RIFF" and len(data) >= _WAV_HEADER_BYTES:
            rate_hz, align = struct.unpack_from("<I", data, 24)[0], struct.unpack_from("<H", data, 32)[0]
            if 0 < rate_hz <= _MAX_RATE_HZ and align:
                return Heard("wav", 1000 * (len(data) - _WAV_HEADER_BYTES) / (rate_hz * align))
        if self._format == "pcm":
            return Heard(f"pcm {peak_of(data)}", len(data) / self._bytes_per_ms)
        return Heard(self._format[:16], None)


def _chunk(message: Mapping[str, Any]) -> Heard | None:
    encoded = message.get("audio_b64")
    try:
        data = base64.b64decode(encoded, validate=True) if isinstance(encoded, str) else b""
    except (binascii.Error, ValueError):
        return Heard("not base64", None)
    return Heard(f"pcm {peak_of(data)}", len(data) / _bytes_per_ms(message)) if data else None


def _tokens(data: bytes, format: CodecFormat) -> Heard:
    try:
        packet = unpack(data, format.codebooks, format.codebook_size)
    except EngineFault as fault:
        return Heard(f"broken codec packet: {fault.message}", None)
    flags = [name for name, bit in (("EOS", EOS), ("RESET", RESET)) if packet.flags & bit]
    note = " ".join([f"codec seq {packet.seq}", f"{len(packet.codes)} frames", *flags])
    return Heard(note, 1000 * len(packet.codes) / FRAME_RATE_HZ)


def _bytes_per_ms(message: Mapping[str, Any]) -> float:
    rate_hz = _whole(message.get("sample_rate"), SAMPLE_RATE_HZ, _MAX_RATE_HZ)
    return 2 * rate_hz * _whole(message.get("channels"), 1, 32) / 1000


def peak_of(data: bytes) -> str:
    """The peak of 16-bit samples in words."""
    samples = np.frombuffer(data[: len(data) // 2 * 2], "<i2")
    peak = int(np.abs(samples.astype(np.int32)).max(initial=0))
    return f"peak {20 * math.log10(peak / 32_768):.0f} dB" if peak else "silence"


def _whole(value: object, default: int, limit: int) -> int:
    good = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= limit
    return value if good and isinstance(value, int) else default
