"""Seeds of a dialog: every spoken segment gets its own, and any instance can derive it again.

One seed for all segments would correlate how sentences begin; random ones could not be repeated after a
crash. So each segment's seed is a keyed hash of where the segment stands in its dialog.
"""

from __future__ import annotations

import operator
import secrets
import struct
from hashlib import blake2b

_PERSON = b"sidecar.segment1"
_SEED_MASK = (1 << 63) - 1
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1


def new_dialog_seed() -> int:
    """Return a fresh, unpredictable dialog seed in ``[0, 2**63)``."""
    return secrets.randbits(63)


def segment_seed(dialog_seed: int, reply_index: int, segment_index: int) -> int:
    """Return the seed, in ``[0, 2**63)``, of one segment of one reply of a dialog.

    The same three numbers give the same seed on every machine and in every release: it is the 8-byte BLAKE2b
    digest (read as little-endian, top bit cleared) with the key ``dialog_seed`` (8 bytes,
    little-endian, two's complement), the personalisation ``sidecar.segment1``, over ``reply_index`` and
    ``segment_index`` (8 bytes each, little-endian). Not a secret: who knows the dialog seed knows them all.

    ``dialog_seed`` is any signed 64-bit integer, the indices count from 0. Raises ``ValueError`` for numbers
    out of range, ``TypeError`` for what is not an integer.
    """
    seed = operator.index(dialog_seed)
    reply, segment = operator.index(reply_index), operator.index(segment_index)
    if not _INT64_MIN <= seed <= _INT64_MAX:
        raise ValueError("dialog_seed must be a signed 64-bit integer")
    if not (0 <= reply <= _INT64_MAX and 0 <= segment <= _INT64_MAX):
        raise ValueError("reply_index and segment_index must be in [0, 2**63)")
    digest = blake2b(
        struct.pack("<qq", reply, segment), digest_size=8, key=struct.pack("<q", seed), person=_PERSON
    ).digest()
    return int.from_bytes(digest, "little") & _SEED_MASK
