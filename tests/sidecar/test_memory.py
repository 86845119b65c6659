"""What is remembered of spoken replies, and how a later word on what was heard corrects it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from adapters.stores.local import LocalStore
from sidecar.core.dialog import SpokenTurn
from sidecar.core.playhead import HeardRecord
from sidecar.faults import StoreUnavailable, UnknownAudio
from sidecar.memory import DialogMemory
from tests.adapters.engines.clocks import ManualClock

TURN = SpokenTurn("One two three.", 7, 2, expires_at=60, dialog="dialog_1")
WORDS = HeardRecord("One two three.", 900, (300, 600, 900), (3, 7, 13))


@pytest.fixture
async def store() -> AsyncIterator[LocalStore]:
    store = LocalStore(None)
    await store.start()
    yield store
    await store.close()


async def test_any_instance_corrects_what_another_has_remembered(store: LocalStore) -> None:
    clock = ManualClock()
    one, other = DialogMemory(store, clock, 60), DialogMemory(store, clock, 60)
    await one.remember("anna", "audio_1", TURN)
    await one.keep_words("anna", "audio_1", WORDS)
    for played_ms, text, cut in ((650.0, "One two", True), (0.0, "", True), (None, "One two three", False)):
        heard = await other.correct("anna", "audio_1", played_ms)
        turn = (await one.recall("anna", ["audio_1"]))["audio_1"]
        assert (heard.text, turn.transcript, turn.cut) == (text, text, cut)
        assert (turn.dialog_seed, turn.reply_index, turn.expires_at, turn.dialog) == (7, 2, 60, "dialog_1")


async def test_what_is_not_known_cannot_be_corrected(store: LocalStore) -> None:
    clock = ManualClock()
    memory = DialogMemory(store, clock, 60)
    await memory.remember("anna", "audio_1", TURN)
    with pytest.raises(UnknownAudio):
        await memory.correct("anna", "audio_1", 1.0)
    await memory.keep_words("anna", "audio_1", WORDS)
    for tenant, audio_id in (("bert", "audio_1"), ("anna", "audio_2")):
        with pytest.raises(UnknownAudio):
            await memory.correct(tenant, audio_id, 1.0)
    await clock.advance(60_000)
    with pytest.raises(UnknownAudio):
        await memory.correct("anna", "audio_1", 1.0)


async def test_a_store_that_is_away_is_told_only_to_who_asks(store: LocalStore) -> None:
    memory = DialogMemory(store, ManualClock(), 60)
    await store.close()
    await memory.remember("anna", "audio_1", TURN)
    await memory.keep_words("anna", "audio_1", WORDS)
    with pytest.raises(StoreUnavailable):
        await memory.correct("anna", "audio_1", 1.0)
