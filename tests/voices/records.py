"""Voices and carries for tests."""

import random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voices.anchor import SpeakerAnchor
from voices.carry import Carry, KeptCarry
from voices.record import VoiceRecord


def embedding(width: int, seed: int = 1) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(width).astype(np.float32)


def codes(frames: int, seed: int = 1) -> NDArray[np.int16]:
    return np.random.default_rng(seed).integers(0, 2_048, (frames, 16)).astype(np.int16)


def anchor(width: int = 1_024, frames: int = 0, seed: int = 1) -> SpeakerAnchor:
    if not frames:
        return SpeakerAnchor(embedding(width, seed), fingerprint="ab" * 16)
    return SpeakerAnchor(embedding(width, seed), codes(frames, seed), "Was hier gesagt wird.", "cd" * 16)


def record(**changes: Any) -> VoiceRecord:
    fields: dict[str, Any] = {
        "name": "anna",
        "owner": "local",
        "anchors": (anchor(1_024, 100), anchor(2_048, 100)),
        "consent": "consent-17",
        "language": "de",
        "description": "Warm, ruhig.\nZweite Zeile.",
        "base_voice": "heart",
        "base_seed": 2**63 - 1,
        "level_db": -23.5,
        "created_s": 1_764_000_000,
        "media_type": "audio/wav",
        "recording_bytes": 240_044,
        "said": "Was hier gesagt wird.",
    }
    return VoiceRecord(**(fields | changes))


def carry(frames: int = 50, text: str = "Und so weiter.") -> KeptCarry:
    return KeptCarry(Carry(codes(frames), text), "f" * 32, "de", 1_764_000_000, 3)


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Bytes changed, cut, doubled, inserted, or those of something else."""
    match chance.randrange(7):
        case 0:
            place = chance.randrange(len(data))
            return data[:place] + bytes([data[place] ^ 1 << chance.randrange(8)]) + data[place + 1 :]
        case 1:
            return data[: chance.randrange(len(data))]
        case 2:
            place = chance.randrange(len(data))
            return data[:place] + chance.randbytes(chance.randrange(1, 9)) + data[place:]
        case 3:
            start = chance.randrange(len(data))
            return data[:start] + data[start + chance.randrange(1, 99) :]
        case 4:
            return chance.randbytes(chance.randrange(200))
        case 5:
            start = chance.randrange(32)
            return data[:start] + chance.randbytes(4) + data[start + 4 :]
        case _:
            return data + chance.randbytes(chance.randrange(1, 99))
