"""The binary form that voice records and carries share: magic, version, bounded lengths, checksums.

Layout, little-endian::

    magic         4 bytes   what kind of value it is
    schema        uint16    version of the layout of this kind
    head bytes    uint16    length of the head
    body bytes    uint32    length of the body
    body sum      8 bytes   BLAKE2b of the body
    head sum      8 bytes   BLAKE2b of everything before it and the head
    head          JSON object, UTF-8
    body          bytes

The head can be read (and is checked) without the body. The sums tell damage and foreign values, not forgery: who can
write to the store can also compute them.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_HEAD_BYTES = 8 * 1024
"""Longest head of any kind."""

CODE_BITS = 11
"""Bits of one codec code, packed."""

_FIXED = struct.Struct("<4sHHI8s")
_SUM_BYTES = 8
_START = _FIXED.size + _SUM_BYTES


class DamagedValue(ValueError):
    """The bytes are not a whole value of the kind that was asked for: cut, altered, foreign or newer."""


@dataclass(frozen=True, slots=True)
class Form:
    """One kind of value: its ``magic`` (4 bytes), its ``schema`` version, and the most a whole value may take."""

    magic: bytes
    schema: int
    max_bytes: int

    def pack(self, head: Mapping[str, Any], body: bytes) -> bytes:
        """The bytes of a value. Raises ``ValueError`` if they would be too many."""
        text = json.dumps(head, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        total = _START + len(text) + len(body)
        if len(text) > MAX_HEAD_BYTES or total > self.max_bytes:
            raise ValueError(f"takes {total} bytes, may take {self.max_bytes}")
        fixed = _FIXED.pack(self.magic, self.schema, len(text), len(body), _sum(body))
        return fixed + _sum(fixed, text) + text + body

    def head(self, data: bytes) -> dict[str, Any]:
        """The head of a value of which at least the head is there. Raises ``DamagedValue``."""
        return self._head(data)[0]

    def unpack(self, data: bytes) -> tuple[dict[str, Any], bytes]:
        """Head and body of a whole value. Raises ``DamagedValue``."""
        head, start, body_bytes, body_sum = self._head(data)
        body = data[start:]
        if len(body) != body_bytes or _sum(body) != body_sum:
            raise DamagedValue("the body is damaged")
        return head, body

    def _head(self, data: bytes) -> tuple[dict[str, Any], int, int, bytes]:
        if len(data) < _START or len(data) > self.max_bytes:
            raise DamagedValue("not of a possible length")
        magic, schema, head_bytes, body_bytes, body_sum = _FIXED.unpack_from(data)
        if magic != self.magic:
            raise DamagedValue("another kind of value")
        if schema != self.schema:
            raise DamagedValue("written by another version of this program")
        end = _START + head_bytes
        if head_bytes > MAX_HEAD_BYTES or len(data) < end:
            raise DamagedValue("cut off")
        text = data[_START:end]
        if _sum(data[: _FIXED.size], text) != data[_FIXED.size : _START]:
            raise DamagedValue("the head is damaged")
        try:
            head = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise DamagedValue("the head cannot be read") from error
        if not isinstance(head, dict):
            raise DamagedValue("the head cannot be read")
        return head, end, body_bytes, body_sum


class Body:
    """Takes the parts of a body one after another. Raises ``DamagedValue`` for what is not there."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._taken = 0

    def take(self, size: int) -> bytes:
        """The next ``size`` bytes."""
        if size < 0 or self._taken + size > len(self._data):
            raise DamagedValue("the body is too short")
        part = self._data[self._taken : self._taken + size]
        self._taken += size
        return part

    def floats(self, count: int) -> NDArray[np.float32]:
        """The next ``count`` float32 numbers, as written."""
        return np.frombuffer(self.take(4 * count), "<f4").astype(np.float32)

    def text(self, size: int) -> str:
        """The next ``size`` bytes as UTF-8."""
        try:
            return self.take(size).decode()
        except UnicodeDecodeError as error:
            raise DamagedValue("a text is damaged") from error

    def codes(self, frames: int, codebooks: int) -> NDArray[np.int16]:
        """The next codes, ``(frames, codebooks)`` int16."""
        return unpacked_codes(self.take(packed_bytes(frames * codebooks)), frames, codebooks)

    def end(self) -> None:
        """Nothing may be left."""
        if self._taken != len(self._data):
            raise DamagedValue("the body is too long")


def packed_codes(codes: NDArray[np.int16]) -> bytes:
    """Codes in [0, 2048) as 11 bits each, most significant bit first, row by row."""
    bits = np.unpackbits(codes.astype(">u2").reshape(-1, 1).view(np.uint8), axis=1)
    return np.packbits(bits[:, 16 - CODE_BITS :]).tobytes()


def packed_bytes(count: int) -> int:
    """Bytes that ``count`` codes take."""
    return -(-count * CODE_BITS // 8)


def unpacked_codes(data: bytes, frames: int, codebooks: int) -> NDArray[np.int16]:
    """The inverse of ``packed_codes``: ``(frames, codebooks)`` int16."""
    count = frames * codebooks
    bits = np.unpackbits(np.frombuffer(data, np.uint8), count=count * CODE_BITS).reshape(count, CODE_BITS)
    wide = np.zeros((count, 16), np.uint8)
    wide[:, 16 - CODE_BITS :] = bits
    return np.packbits(wide, axis=1).view(">u2").astype(np.int16).reshape(frames, codebooks)


class Fields:
    """The members of a head, each checked. Raises ``DamagedValue`` for one that is absent or of another type."""

    def __init__(self, head: Mapping[str, Any]) -> None:
        self._head = head

    def text(self, name: str) -> str:
        """A string."""
        value = self._head.get(name)
        if not isinstance(value, str):
            raise DamagedValue(f"{name} is damaged")
        return value

    def integer(self, name: str, low: int, high: int) -> int:
        """An integer in [low, high]."""
        value = self._head.get(name)
        if type(value) is not int or not low <= value <= high:
            raise DamagedValue(f"{name} is damaged")
        return value

    def optional_number(self, name: str) -> float | None:
        """A finite number, or None."""
        value = self._head.get(name)
        if value is None:
            return None
        if type(value) not in (int, float) or abs(value) > 1e9 or not math.isfinite(value):
            raise DamagedValue(f"{name} is damaged")
        return float(value)

    def rows(self, name: str, columns: int, most: int) -> list[list[int]]:
        """A list of at most ``most`` rows of ``columns`` integers each, none negative, none above 2**31."""
        rows = self._head.get(name)
        if not isinstance(rows, list) or len(rows) > most:
            raise DamagedValue(f"{name} is damaged")
        for row in rows:
            if not isinstance(row, list) or len(row) != columns:
                raise DamagedValue(f"{name} is damaged")
            if not all(type(item) is int and 0 <= item < 1 << 31 for item in row):
                raise DamagedValue(f"{name} is damaged")
        return rows


def _sum(*parts: bytes) -> bytes:
    digest = blake2b(digest_size=_SUM_BYTES)
    for part in parts:
        digest.update(part)
    return digest.digest()
