"""Stored voices through the cache: fresh within a second, whole or refused, owned by one tenant."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from adapters.stores.local import LocalStore
from sidecar.faults import BadRequest, Conflict, DamagedVoice, NotFound, StoreUnavailable, TooLarge
from sidecar.ports import Stored
from sidecar.read_through import FRESH_MS, STALE_MS
from sidecar.voice_shelf import CARRY_KIND, KIND, Listed, VoiceShelf
from tests.voices.records import anchor, carry, mutated, record
from voices.record import VoiceRecord


class HandClock:
    def __init__(self) -> None:
        self.ms = 1_000.0

    def now_ms(self) -> float:
        return self.ms

    def unix_s(self) -> float:
        return 1_700_000_000 + self.ms / 1_000

    async def sleep(self, ms: float) -> None:
        self.ms += ms


class CountingStore(LocalStore):
    """Counts what is read; can be away, and can hold an answer back."""

    def __init__(self) -> None:
        super().__init__(None)
        self.reads = 0
        self.away = False
        self.gate: asyncio.Event | None = None

    async def get(self, tenant: str, kind: str, key: str) -> Stored | None:
        self.reads += 1
        if self.away:
            raise StoreUnavailable("away")
        stored = await super().get(tenant, kind, key)
        if self.gate is not None:
            await self.gate.wait()
        return stored


@pytest.fixture
async def store() -> AsyncIterator[CountingStore]:
    store = CountingStore()
    await store.start()
    yield store
    await store.close()


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def shelf(store: CountingStore, clock: HandClock) -> VoiceShelf:
    return VoiceShelf(store, clock)


async def seed_of(shelf: VoiceShelf, name: str = "anna") -> int | None:
    found = await shelf.get("local", name)
    return None if found is None else found.base_seed


# ---------------------------------------------------------------- voices
async def test_a_saved_voice_is_found_by_its_tenant_alone(shelf: VoiceShelf) -> None:
    saved = await shelf.save(record(), None)
    assert saved.version == 1
    found = await shelf.get("local", "  ANNA ")
    assert found is not None
    assert found.card() == saved.card()
    assert await shelf.get("other", "anna") is None
    assert await shelf.list("other") == Listed((), ())


async def test_the_loser_of_two_writers_is_told(shelf: VoiceShelf) -> None:
    saved = await shelf.save(record(), None)
    with pytest.raises(Conflict):
        await shelf.save(record(base_seed=2), None)
    assert (await shelf.save(record(base_seed=3), saved.version)).version == 2
    with pytest.raises(Conflict):
        await shelf.save(record(base_seed=4), saved.version)
    assert await seed_of(shelf) == 3
    assert (await shelf.replace(record(base_seed=5))).version == 3
    assert await seed_of(shelf) == 5


async def test_lists_are_sorted_and_name_what_is_damaged(shelf: VoiceShelf, store: CountingStore) -> None:
    long = "ä" * 500
    for name in ("b", "a", "d"):
        await shelf.save(record(name=name, anchors=(anchor(64, 9),), description=long if name == "a" else ""), None)
    await store.put("local", KIND, "c", b"something else")
    await store.put("local", KIND, "e", record(name="b").to_bytes())
    await store.put("local", KIND, "f", record(name="f", owner="other").to_bytes())
    listed = await shelf.list("local")
    assert [card.name for card in listed.cards] == ["a", "b", "d"]
    assert listed.cards[0].description == long
    assert listed.cards[0] == (await shelf.get("local", "a")).card()  # type: ignore[union-attr]
    assert listed.damaged == ("c", "e", "f")


async def test_damaged_voices_are_refused_and_can_be_replaced_and_deleted(
    shelf: VoiceShelf, store: CountingStore, clock: HandClock
) -> None:
    chance = random.Random(3)
    whole = record().to_bytes()
    for _ in range(50):
        data = mutated(whole, chance)
        await store.put("local", KIND, "anna", data)
        clock.ms += FRESH_MS
        if data == whole:
            continue
        for _ in range(2):
            with pytest.raises(DamagedVoice):
                await shelf.get("local", "anna")
    assert (await shelf.replace(record(base_seed=1))).base_seed == 1
    assert await seed_of(shelf) == 1
    await store.put("local", KIND, "anna", b"")
    await shelf.delete("local", "anna")
    assert await seed_of(shelf) is None


async def test_a_voice_too_large_to_store_is_refused(shelf: VoiceShelf) -> None:
    with pytest.raises(TooLarge):
        await shelf.save(record(anchors=(anchor(2_048, 600),)), None)


@pytest.mark.parametrize("name", ["", "a/b", "..", "x" * 65])
async def test_impossible_names_are_the_callers_fault(shelf: VoiceShelf, name: str) -> None:
    with pytest.raises(BadRequest):
        await shelf.get("local", name)
    with pytest.raises(BadRequest):
        await shelf.delete("local", name)


# ---------------------------------------------------------------- the cache
async def test_a_second_look_does_not_ask_the_store(shelf: VoiceShelf, store: CountingStore, clock: HandClock) -> None:
    await shelf.save(record(), None)
    one, two = await shelf.get("local", "anna"), await shelf.get("local", "anna")
    assert one is two
    assert store.reads == 1
    assert await seed_of(shelf, "nobody") is None
    assert await seed_of(shelf, "nobody") is None
    assert store.reads == 2
    clock.ms += FRESH_MS
    assert await shelf.get("local", "anna") is one
    assert store.reads == 3


async def test_what_nobody_told_of_is_seen_after_a_second(
    shelf: VoiceShelf, store: CountingStore, clock: HandClock
) -> None:
    await shelf.save(record(base_seed=1), None)
    assert await seed_of(shelf) == 1
    await store.put("local", KIND, "anna", record(base_seed=2).to_bytes())
    assert await seed_of(shelf) == 1
    clock.ms += FRESH_MS
    assert await seed_of(shelf) == 2
    await store.delete("local", KIND, "anna")
    clock.ms += FRESH_MS
    assert await seed_of(shelf) is None
    # Made anew it has the old version number again.
    await store.put("local", KIND, "anna", record(base_seed=3).to_bytes())
    clock.ms += FRESH_MS
    assert await seed_of(shelf) == 3


async def test_what_is_told_is_seen_at_once(shelf: VoiceShelf, store: CountingStore) -> None:
    await shelf.start()
    await shelf.save(record(base_seed=1), None)
    assert await seed_of(shelf) == 1
    await store.put("local", KIND, "anna", record(base_seed=2).to_bytes())
    async with asyncio.timeout(10):
        while await seed_of(shelf) != 2:
            await asyncio.sleep(0)
    await shelf.close()


async def test_what_was_just_written_serves_while_the_store_is_away(shelf: VoiceShelf, store: CountingStore) -> None:
    await shelf.start()
    await shelf.save(record(base_seed=7), None)
    await asyncio.sleep(0.01)  # its echo comes
    store.away = True
    assert await seed_of(shelf) == 7
    await shelf.close()


async def test_many_who_ask_at_once_share_one_answer(shelf: VoiceShelf, store: CountingStore) -> None:
    await shelf.save(record(), None)
    store.gate = asyncio.Event()
    waiting = [asyncio.create_task(shelf.get("local", "anna")) for _ in range(20)]
    await asyncio.sleep(0.01)
    waiting[0].cancel()
    store.gate.set()
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(answers[0], asyncio.CancelledError)
    assert len({id(answer) for answer in answers[1:]}) == 1
    assert store.reads == 1


async def test_an_answer_overtaken_by_a_change_is_not_kept(shelf: VoiceShelf, store: CountingStore) -> None:
    await shelf.save(record(base_seed=1), None)
    store.gate = asyncio.Event()
    slow = asyncio.create_task(seed_of(shelf))
    await asyncio.sleep(0.01)
    await shelf.save(record(base_seed=2), 1)
    store.gate.set()
    assert await slow == 1
    assert await seed_of(shelf) == 2


async def test_known_voices_outlive_the_store_for_a_while(
    shelf: VoiceShelf, store: CountingStore, clock: HandClock
) -> None:
    await shelf.save(record(base_seed=1), None)
    await seed_of(shelf)
    store.away = True
    reads = store.reads
    clock.ms += FRESH_MS
    for _ in range(3):
        assert await seed_of(shelf) == 1
    assert store.reads == reads + 1
    with pytest.raises(StoreUnavailable):
        await seed_of(shelf, "other")
    clock.ms += STALE_MS
    with pytest.raises(StoreUnavailable):
        await seed_of(shelf)
    store.away = False
    assert await seed_of(shelf) == 1


async def test_another_store_takes_over(shelf: VoiceShelf, clock: HandClock) -> None:
    await shelf.start()
    await shelf.save(record(base_seed=1), None)
    assert await seed_of(shelf) == 1
    spare = CountingStore()
    await spare.start()
    await shelf.use(spare)
    assert await seed_of(shelf) is None
    await spare.close()
    await shelf.close()
    await shelf.close()


# ---------------------------------------------------------------- carries
async def test_carries_go_with_their_voice(shelf: VoiceShelf, store: CountingStore) -> None:
    voice: VoiceRecord = await shelf.save(record(), None)
    print_ = voice.fingerprint
    fields: dict[str, Any] = {"language": "de", "spoken_s": 1, "next_reply": 1}
    mine = type(carry())(carry().carry, print_, **fields)
    for dialog in ("d1", "d2"):
        await shelf.keep_carry("local", dialog, mine, 60)
    await shelf.keep_carry("local", "d1", carry(), 60)
    found = await shelf.carry("local", print_, "d1")
    assert found is not None
    assert found.to_bytes() == mine.to_bytes()
    assert await shelf.carry("local", print_, "d3") is None
    assert await shelf.carry("other", print_, "d1") is None
    await store.put("local", CARRY_KIND, f"{print_}/bad", b"x")
    assert await shelf.carry("local", print_, "bad") is None
    await shelf.delete("local", "anna")
    assert list(await store.keys("local", CARRY_KIND)) == [f"{carry().voice}/d1"]
    with pytest.raises(NotFound):
        await shelf.delete("local", "anna")
