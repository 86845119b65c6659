"""Sets of voices: what was packed comes back, what was tampered with is refused or harmless."""

from __future__ import annotations

import random

import numpy as np
import pytest
from safetensors.numpy import save

from sidecar.voice_sets import UnreadableSet, checked_vector, packed_set, read_set
from tests.voices.records import anchor, embedding, mutated, record
from voices.record import VoiceRecord

WIDTHS = (1_024, 2_048)


def voices() -> list[VoiceRecord]:
    return [
        record(name="anna", anchors=(anchor(1_024, 30), anchor(2_048, 30))),
        record(name="käthe 日本", anchors=(anchor(2_048),), language="", description="", consent="", level_db=None),
        record(name="based", anchors=(), base_voice="alto"),
    ]


def test_there_and_back() -> None:
    found = read_set(packed_set(voices()), "local", WIDTHS)
    assert found.refused == {}
    assert {one.name for one in found.records} == {one.name for one in voices()}
    for read in found.records:
        packed = next(one for one in voices() if one.name == read.name)
        assert read.fingerprint == packed.fingerprint
        assert (read.consent, read.description, read.created_s) == (packed.consent, packed.description, 0)
        for a, b in zip(read.anchors, packed.anchors, strict=True):
            assert a.same_as(b)
            assert a.fingerprint == b.fingerprint


def test_the_owner_is_who_reads_it() -> None:
    assert {one.owner for one in read_set(packed_set(voices()), "other", WIDTHS).records} == {"other"}


def test_other_widths_refuse_their_voice_alone() -> None:
    found = read_set(packed_set(voices()), "local", (1_024,))
    assert [one.name for one in found.records] == ["based"]
    assert set(found.refused) == {"anna", "käthe 日本"}


def test_names_that_become_one() -> None:
    found = read_set(save({"Anna": embedding(1_024), "anna ": embedding(1_024, 2)}), "local", WIDTHS)
    assert len(found.records) == 1
    assert len(found.refused) == 1


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30, 1e-9, 0.0])
def test_numbers_that_are_no_voice(value: float) -> None:
    with pytest.raises(ValueError, match=r"finite|norm"):
        checked_vector(np.full(1_024, value, np.float32), WIDTHS)


def test_3000_tampered_files() -> None:
    data, chance = packed_set(voices()), random.Random(5)
    refused = 0
    for _ in range(3_000):
        try:
            found = read_set(mutated(data, chance), "local", WIDTHS)
        except UnreadableSet:
            refused += 1
            continue
        for one in found.records:
            assert all(np.isfinite(a.embedding).all() for a in one.anchors)
            assert one.owner == "local"
    assert refused > 300


def test_a_file_of_very_many_tensors_is_refused_unread() -> None:
    data = save({f"v{number}": np.zeros(0, np.float32) for number in range(90_000)})
    with pytest.raises(UnreadableSet, match="more than"):
        read_set(data, "local", WIDTHS)
