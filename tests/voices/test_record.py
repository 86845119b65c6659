"""Stored voices: whole or refused."""

import json
import random
import struct
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.voices.records import anchor, codes, embedding, mutated, record
from voices.anchor import SpeakerAnchor
from voices.binary import DamagedValue
from voices.record import FORM, MAX_HEAD_BYTES, MAX_RECORD_BYTES, VoiceCard, VoiceRecord, voice_name


def same(one: VoiceRecord, other: VoiceRecord) -> bool:
    return (
        one.card() == other.card()
        and len(one.anchors) == len(other.anchors)
        and all(
            a.same_as(b) and a.fingerprint == b.fingerprint for a, b in zip(one.anchors, other.anchors, strict=True)
        )
    )


# ---------------------------------------------------------------- there and back
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"anchors": (), "base_voice": "heart"},
        {"anchors": (anchor(64),), "base_voice": ""},
        {"anchors": (anchor(1_024), anchor(2_048, 63))},
        {"anchors": (anchor(1_024, 40, seed=1), anchor(2_048, 40, seed=2))},
        {"level_db": None, "base_seed": 0, "created_s": 0, "consent": "", "language": "", "description": ""},
        {"name": "käthe 日本", "description": "😀" * 250},
    ],
    ids=["full", "base-voice", "tiny", "mixed", "two-recordings", "empty", "unicode"],
)
def test_there_and_back(changes: dict[str, Any]) -> None:
    voice = record(**changes)
    read = VoiceRecord.from_bytes(voice.to_bytes(), version=7)
    assert same(read, record(**changes, version=7))
    assert read.to_bytes() == voice.to_bytes()


@given(
    st.text(st.characters(exclude_categories=("C", "Z"), exclude_characters="/\\"), min_size=1, max_size=20),
    st.integers(0, 2**63 - 1),
    st.none() | st.floats(-90, 0),
    st.integers(1, 60),
    st.integers(0, 40),
)
def test_any_voice_comes_back(name: str, seed: int, level_db: float | None, width: int, frames: int) -> None:
    voice = record(
        name=voice_name(name), base_seed=seed, level_db=level_db, anchors=(anchor(width, frames, seed=width),)
    )
    assert same(VoiceRecord.from_bytes(voice.to_bytes()), voice)


def test_two_families_with_eight_seconds_of_codes_fit() -> None:
    # 2,048 + 1,024 floats alone are 12 KiB.
    voice = record(description="d" * 500, consent="c" * 128)
    assert len(voice.to_bytes()) <= MAX_RECORD_BYTES


def test_a_shared_recording_is_written_once() -> None:
    once = record(anchors=(anchor(1_024, 100),))
    twice = record(anchors=(anchor(1_024, 100), anchor(2_048, 100)))
    assert len(twice.to_bytes()) - len(once.to_bytes()) < 4 * 2_048 + 100


def test_too_much_to_store_is_refused() -> None:
    with pytest.raises(ValueError, match="takes"):
        record(anchors=(anchor(2_048, 375), anchor(1_024, 375, seed=2))).to_bytes()


def test_the_card_is_read_from_the_beginning_alone() -> None:
    voice = record(description="😀" * 500, consent="😀" * 128, owner="😀" * 64, name="😀" * 64, base_voice="😀" * 64)
    data = record().to_bytes()
    assert VoiceCard.from_bytes(data[:1_024], version=3) == record(version=3).card()
    small = record(anchors=(anchor(16),), description=voice.description, consent=voice.consent, owner=voice.owner)
    assert VoiceCard.from_bytes(small.to_bytes()[:MAX_HEAD_BYTES]) == small.card()
    with pytest.raises(DamagedValue):
        VoiceCard.from_bytes(data[:100])


@pytest.mark.parametrize("read", [VoiceCard.from_bytes, VoiceRecord.from_bytes])
def test_a_version_below_nought_is_damaged(read: Callable[[bytes, int], object]) -> None:
    with pytest.raises(DamagedValue, match="version"):
        read(record().to_bytes(), -3)


def test_arrays_are_copies_that_cannot_be_changed() -> None:
    source = embedding(64)
    made = SpeakerAnchor(source)
    source[0] = 99
    assert made.embedding[0] != 99
    for array in (made.embedding, VoiceRecord.from_bytes(record().to_bytes()).anchors[0].embedding):
        with pytest.raises(ValueError):
            array[0] = 1


# ---------------------------------------------------------------- what is heard
def test_the_fingerprint_tells_what_can_be_heard() -> None:
    prints = {
        record(**changes).fingerprint
        for changes in (
            {},
            {"base_seed": 1},
            {"level_db": None},
            {"language": "en"},
            {"base_voice": "other"},
            {"anchors": (anchor(1_024, 100),)},
            {"anchors": (anchor(1_024, 100), anchor(2_048))},
        )
    }
    assert len(prints) == 7
    silent = {"name": "b", "owner": "o", "consent": "", "description": "", "created_s": 1, "version": 9}
    assert record(**silent).fingerprint == record().fingerprint


def test_the_first_width_that_fits_is_taken() -> None:
    voice = record()
    found = voice.anchor([2_048, 1_024])
    assert found is not None
    assert found.width == 2_048
    assert voice.anchor([64]) is None


# ---------------------------------------------------------------- what is refused
@pytest.mark.parametrize(
    "changes",
    [
        {"name": "Anna"},
        {"name": ""},
        {"name": "a/b"},
        {"owner": ""},
        {"owner": "x" * 65},
        {"description": "x" * 501},
        {"description": "\x00"},
        {"consent": "\ud800"},
        {"anchors": (), "base_voice": ""},
        {"anchors": (anchor(64), anchor(64, seed=2))},
        {"anchors": tuple(anchor(width) for width in range(1, 6))},
        {"base_seed": -1},
        {"base_seed": 2**63},
        {"level_db": float("nan")},
        {"level_db": 1.0},
        {"created_s": -1},
    ],
)
def test_senseless_fields_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        record(**changes)


@pytest.mark.parametrize("raw", ["", "  ", ".", "..", "a/b", "a\\b", "a\x00", "a\nb", "x" * 65, "\ud800", "a\u202e"])
def test_impossible_names(raw: str) -> None:
    with pytest.raises(ValueError):
        voice_name(raw)


def test_names_are_trimmed_and_lower_case() -> None:
    assert voice_name("  Änne B ") == "änne b"


@pytest.mark.parametrize(
    "wrong",
    [
        np.zeros(1_024, np.float32),
        np.full(1_024, np.nan, np.float32),
        np.full(1_024, np.inf, np.float32),
        np.full(1_024, 1e30),
        np.full(1_024, 1e300),
        np.ones((2, 512), np.float32),
        np.ones(0, np.float32),
        np.ones(4_097, np.float32),
        np.array(["a"]),
        np.array([1j]),
    ],
)
def test_what_is_no_embedding_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError):
        SpeakerAnchor(wrong)


@pytest.mark.parametrize(
    "wrong",
    [codes(751), codes(0), codes(4)[:, :8], codes(4) - 2_000, codes(4) + 2_000, codes(4).astype(np.float32)],
)
def test_what_are_no_codes_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError):
        SpeakerAnchor(embedding(64), wrong, "text")


def test_a_transcript_needs_codes() -> None:
    with pytest.raises(ValueError):
        SpeakerAnchor(embedding(64), None, "text")


# ---------------------------------------------------------------- damage
def test_ten_thousand_mutated_records_are_refused_or_unchanged() -> None:
    chance = random.Random(5)
    sources = [record().to_bytes(), record(anchors=(anchor(8, 3),)).to_bytes(), record(anchors=()).to_bytes()]
    for turn in range(10_000):
        data = mutated(sources[turn % 3], chance)
        if data in sources:
            continue
        with pytest.raises(DamagedValue):
            VoiceRecord.from_bytes(data)


def sealed(head: object, body: bytes, *, schema: int = 1, magic: bytes = b"SdVo") -> bytes:
    """A value with right sums, whatever it says."""
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    fixed = struct.pack("<4sHHI8s", magic, schema, len(text), len(body), blake2b(body, digest_size=8).digest())
    return fixed + blake2b(fixed + text, digest_size=8).digest() + text + body


def test_mutations_under_right_sums_are_refused_or_whole() -> None:
    """Whoever writes right sums still cannot make half a voice, or one that is not finite."""
    chance = random.Random(6)
    source = record(anchors=(anchor(8, 3), anchor(16)))
    head, body = FORM.unpack(source.to_bytes())
    odd: list[Any] = [None, -1, 0, 1, 2**31, 2**70, 1.5, "", "x", [], [[1]], [[8, 1, 0]], {}, True, float("nan")]
    taken = 0
    for _ in range(10_000):
        changed, changed_body = dict(head), body
        if chance.random() < 0.7:
            changed[chance.choice(list(head))] = chance.choice(odd)
        else:
            changed_body = mutated(body, chance)
        try:
            read = VoiceRecord.from_bytes(sealed(changed, changed_body))
        except DamagedValue:
            continue
        taken += 1
        assert all(np.isfinite(kept.embedding).all() for kept in read.anchors)
        assert same(VoiceRecord.from_bytes(read.to_bytes()), read)
    assert taken > 0


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"SdVo",
        bytes(100),
        sealed({}, b""),
        sealed([], b""),
        sealed(b"{", b""),
        sealed(b"[" * 2_000, b""),
        sealed(b"\xff\xff", b""),
        b'{"v": 1}',
        bytes(MAX_RECORD_BYTES + 1),
    ],
)
def test_foreign_values_are_refused(data: bytes) -> None:
    with pytest.raises(DamagedValue):
        VoiceRecord.from_bytes(data)
    with pytest.raises(DamagedValue):
        VoiceCard.from_bytes(data)


def test_another_schema_or_kind_is_refused() -> None:
    head, body = FORM.unpack(record().to_bytes())
    assert same(VoiceRecord.from_bytes(sealed(head, body)), record())
    for other in (sealed(head, body, schema=2), sealed(head, body, schema=0), sealed(head, body, magic=b"SdCa")):
        with pytest.raises(DamagedValue):
            VoiceRecord.from_bytes(other)


def test_a_floating_nan_under_right_sums_is_refused() -> None:
    head, body = FORM.unpack(record(anchors=(anchor(8),)).to_bytes())
    with pytest.raises(DamagedValue):
        VoiceRecord.from_bytes(sealed(head, struct.pack("<f", float("nan")) + body[4:]))


def test_composed_and_decomposed_letters_are_one_name() -> None:
    assert voice_name("Rene\u0301") == voice_name("ren\u00e9") == "ren\u00e9"
