"""The library of stored voices over a store in memory: bounds, dates, what a deletion takes along."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from adapters.stores.local import LocalStore
from sidecar.clock import SystemClock
from sidecar.faults import BadRequest, Conflict, NotFound, StoreUnavailable, TooLarge
from sidecar.voice_library import CLIP_KIND, LibraryLimits, VoiceLibrary
from sidecar.voice_shelf import KIND
from tests.voices.records import anchor, carry, record
from voices.anchor import SpeakerAnchor


@pytest.fixture
async def store() -> AsyncIterator[LocalStore]:
    store = LocalStore(None)
    await store.start()
    yield store
    await store.close()


@pytest.fixture
async def library(store: LocalStore) -> AsyncIterator[VoiceLibrary]:
    library = VoiceLibrary(store, SystemClock(), LibraryLimits(max_voices=3))
    await library.start()
    yield library
    await library.close()


async def test_saved_listed_read_replaced(library: VoiceLibrary) -> None:
    saved = await library.save(record(), None)
    assert saved.version == 1
    read = await library.get("local", "anna")
    assert read is not None
    assert read.card() == saved.card()
    again = await library.save(replace(saved, description="New."), saved.version)
    assert (again.version, again.created_s > saved.created_s) == (2, True)
    assert [card.description for card in await library.cards("local")] == ["New."]
    state, version = await library.state("local", "anna")
    assert (version, state is not None and state.description) == (2, "New.")
    assert await library.state("local", "bert") == (None, None)
    assert await library.get("other", "anna") is None


async def test_dates_rise_even_within_a_second_and_behind_a_clock(library: VoiceLibrary) -> None:
    first = await library.save(record(name="a"), None)
    second, third = await asyncio.gather(
        library.save(record(name="b"), None), library.save(record(name="c", created_s=5), None)
    )
    assert len({first.created_s, second.created_s, third.created_s}) == 3
    assert min(second.created_s, third.created_s) > first.created_s


async def test_who_comes_late_is_refused(library: VoiceLibrary) -> None:
    saved = await library.save(record(), None)
    for replaces in (None, saved.version + 1):
        with pytest.raises(Conflict):
            await library.save(record(), replaces)
    results = await asyncio.gather(
        *(library.save(record(description=str(n)), saved.version) for n in range(5)), return_exceptions=True
    )
    assert sum(isinstance(result, Conflict) for result in results) == 4


async def test_no_more_than_may_be(library: VoiceLibrary) -> None:
    for name in "abc":
        await library.save(record(name=name), None)
    with pytest.raises(BadRequest, match="3 stored voices"):
        await library.save(record(name="d"), None)
    await library.save(record(name="a"), 1)
    await library.save(record(name="d", owner="other"), None)
    with pytest.raises(TooLarge):
        await library.save(record(name="a", anchors=(anchor(2_048, 375), anchor(1_024, 375, seed=2))), 2)


async def test_a_deletion_takes_carries_and_recordings_along(library: VoiceLibrary, store: LocalStore) -> None:
    mine = SpeakerAnchor(anchor().embedding, fingerprint="11" * 16)
    other = SpeakerAnchor(anchor().embedding, fingerprint="22" * 16)
    saved = await library.save(record(anchors=(mine,)), None)
    await library.keep_clip("local", "k1", mine)
    await library.keep_clip("local", "k2", other)
    await library.keep_clip("other", "k1", mine)
    assert await library.clip("local", "k1") is not None
    await library.shelf.keep_carry("local", "d1", replace(carry(), voice=saved.fingerprint), 60)
    await library.shelf.keep_carry("local", "d2", carry(), 60)
    await library.delete("local", "anna")
    assert await library.get("local", "anna") is None
    assert list(await store.keys("local", CLIP_KIND)) == ["k2"]
    assert list(await store.keys("other", CLIP_KIND)) == ["k1"]
    assert await library.clip("local", "k1") is None
    assert await library.shelf.carry("local", saved.fingerprint, "d1") is None
    assert await library.shelf.carry("local", "f" * 32, "d2") is not None
    with pytest.raises(NotFound):
        await library.delete("local", "anna")


async def test_no_more_recordings_than_may_be(store: LocalStore) -> None:
    library = VoiceLibrary(store, SystemClock(), LibraryLimits(max_clips=2))
    for key in ("k1", "k2", "k3"):
        await library.keep_clip("local", key, anchor())
    await library.keep_clip("other", "k1", anchor())
    assert [await library.clip("local", key) is not None for key in ("k1", "k2", "k3")] == [True, True, False]
    assert await library.clip("other", "k1") is not None


async def test_damaged_values_are_no_voices_and_can_be_replaced(library: VoiceLibrary, store: LocalStore) -> None:
    await store.put("local", KIND, "anna", b"garbage")
    await store.put("local", CLIP_KIND, "k", b"garbage")
    assert await library.clip("local", "k") is None
    assert await library.cards("local") == []
    assert await library.records("local") == []
    assert await library.state("local", "anna") == (None, 1)
    assert (await library.save(record(), 1)).version == 2


class Stuck(LocalStore):
    """A store that can be made to keep silent, or to be away."""

    how = "well"

    async def get(self, *name: str) -> Any:
        if self.how == "away":
            raise StoreUnavailable("away")
        if self.how == "silent":
            await asyncio.Event().wait()
        return await super().get(*name)


class HandClock(SystemClock):
    ahead_ms = 0.0

    def now_ms(self) -> float:
        return super().now_ms() + self.ahead_ms


@pytest.mark.parametrize("how", ["away", "silent"])
async def test_what_was_used_is_there_without_the_store(how: str) -> None:
    store, clock = Stuck(None), HandClock()
    await store.start()
    library = VoiceLibrary(store, clock)
    await library.start()
    await library.save(record(), None)
    assert await library.get("local", "anna") is not None
    store.how = how
    clock.ahead_ms += 10_000
    async with asyncio.timeout(30):
        assert await library.get("local", "anna") is not None
        if how == "away":
            with pytest.raises(StoreUnavailable):
                await library.get("local", "never")
            assert await library.clip("local", "k") is None
            await library.keep_clip("local", "k", anchor())
    await library.close()
    await store.close()


async def test_a_record_that_lies_amiss_is_nobodys(library: VoiceLibrary, store: LocalStore) -> None:
    """Copied or restored under another tenant or name, it is damaged there: not read, not exported, not changed."""
    await library.save(record(), None)
    stored = await store.get("local", KIND, "anna")
    assert stored is not None
    for tenant, key in (("other", "anna"), ("local", "bert")):
        await store.put(tenant, KIND, key, stored.value)
        voice, version = await library.state(tenant, key)
        assert (voice, version) == (None, 1)
    assert await library.records("other") == []
    assert [one.name for one in await library.records("local")] == ["anna"]
