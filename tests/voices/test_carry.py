"""Carries: small, whole or refused, and used only where they fit."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.voices.records import carry, codes, mutated
from voices.anchor import anchor_fingerprint
from voices.binary import DamagedValue, packed_codes, unpacked_codes
from voices.carry import MAX_CARRY_BYTES, MAX_GAP_S, Carry, KeptCarry
from voices.record import VoiceRecord


@given(st.integers(1, 100), st.text(st.characters(exclude_categories=["Cs"]), max_size=500))
def test_any_carry_comes_back_and_is_small(frames: int, text: str) -> None:
    kept = carry(frames, text)
    data = kept.to_bytes()
    assert len(data) <= MAX_CARRY_BYTES
    read = KeptCarry.from_bytes(data)
    assert np.array_equal(read.carry.codes, kept.carry.codes)
    assert replace(read, carry=kept.carry).to_bytes() == data
    assert (read.carry.text, read.voice, read.language) == (text, kept.voice, kept.language)
    assert (read.spoken_s, read.next_reply) == (kept.spoken_s, kept.next_reply)


@given(st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_codes_come_back_from_eleven_bits(frames: int, seed: int) -> None:
    plain = codes(frames, seed)
    packed = packed_codes(plain)
    assert len(packed) == frames * 16 * 11 // 8
    assert np.array_equal(unpacked_codes(packed, frames, 16), plain)


def test_packing_is_most_significant_bit_first() -> None:
    one = np.zeros((1, 16), np.int16)
    one[0, 0], one[0, 1] = 0b10000000001, 0b11111111111
    assert packed_codes(one)[:3] == bytes([0b10000000, 0b00111111, 0b11111100])


def test_limits() -> None:
    with pytest.raises(ValueError):
        Carry(codes(101), "")
    with pytest.raises(ValueError):
        Carry(codes(1), "x" * 501)
    with pytest.raises(ValueError):
        Carry(codes(1), "\ud800")
    with pytest.raises(ValueError):
        replace(carry(), next_reply=-1)


def test_ten_thousand_mutated_carries_are_refused() -> None:
    chance = random.Random(7)
    source = carry(3).to_bytes()
    for _ in range(10_000):
        data = mutated(source, chance)
        if data != source:
            with pytest.raises(DamagedValue):
                KeptCarry.from_bytes(data)


def test_a_carry_is_no_voice() -> None:
    with pytest.raises(DamagedValue):
        VoiceRecord.from_bytes(carry().to_bytes())


def test_when_a_carry_may_be_used() -> None:
    kept = carry()
    fitting: dict[str, Any] = {"voice": kept.voice, "language": "de", "now_s": kept.spoken_s + 5.0, "reply_index": 3}
    assert kept.usable(**fitting)
    assert kept.usable(**fitting | {"now_s": kept.spoken_s - 300.0})
    others: tuple[dict[str, Any], ...] = (
        {"voice": "g" * 32},
        {"language": "en"},
        {"reply_index": 4},
        {"reply_index": 2},
        {"now_s": kept.spoken_s + MAX_GAP_S + 1},
    )
    for other in others:
        assert not kept.usable(**fitting | other)


def test_anchor_fingerprints_tell_encoder_recording_and_transcript_apart() -> None:
    pcm = np.linspace(-1, 1, 240, dtype=np.float32)
    prints = [
        anchor_fingerprint("a", pcm),
        anchor_fingerprint("b", pcm),
        anchor_fingerprint("a", pcm[:-1]),
        anchor_fingerprint("a", pcm, "words"),
    ]
    assert len(set(prints)) == 4
    assert prints[0] == anchor_fingerprint("a", pcm.copy())
    assert prints[0] == "ffecb040934d3f4d6903a8c7c5f8fdbe"
