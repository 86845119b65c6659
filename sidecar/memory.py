"""Keeps what was said under each ``audio.id``, in the store, per tenant. A store that is away never stops a reply."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable
from dataclasses import replace

from sidecar.core.dialog import SpokenTurn
from sidecar.core.playhead import Heard, HeardRecord
from sidecar.faults import Fault, StoreUnavailable, UnknownAudio
from sidecar.ports import Clock, Store

log = logging.getLogger(__name__)

KIND = "spoken-turn"
WORDS_KIND = "spoken-words"


def new_audio_id() -> str:
    """128 random bits: an id cannot be guessed."""
    return f"audio_{secrets.token_hex(16)}"


class DialogMemory:
    """Spoken turns by audio id."""

    def __init__(self, store: Store, clock: Clock, ttl_s: int) -> None:
        self._store = store
        self._clock = clock
        self.ttl_s = ttl_s

    def use(self, store: Store) -> None:
        """Keep turns in another store from now on."""
        self._store = store

    def expiry(self) -> int:
        """Unix seconds at which a turn spoken now will be forgotten."""
        return int(self._clock.unix_s()) + self.ttl_s

    async def recall(self, tenant: str, audio_ids: Iterable[str]) -> dict[str, SpokenTurn]:
        """The turns that are still known. Raises ``StoreUnavailable``."""
        turns = {}
        for audio_id in set(audio_ids):
            stored = await self._store.get(tenant, KIND, audio_id)
            turn = SpokenTurn.from_bytes(stored.value) if stored is not None else None
            if turn is not None:
                turns[audio_id] = turn
        return turns

    async def remember(self, tenant: str, audio_id: str, turn: SpokenTurn) -> None:
        """Keep a turn; a store that is away is logged, not raised: the reply has already been spoken."""
        await self._keep(tenant, KIND, audio_id, turn.to_bytes())

    async def keep_words(self, tenant: str, audio_id: str, record: HeardRecord) -> None:
        """Keep when the words of a turn sound, for ``correct``; never raises for the store either."""
        await self._keep(tenant, WORDS_KIND, audio_id, record.to_bytes())

    async def correct(self, tenant: str, audio_id: str, played_ms: float | None) -> Heard:
        """A turn that has been spoken was heard only up to ``played_ms`` (None: all of it). What that is.

        Any number of times, until it expires. Raises ``UnknownAudio``, ``StoreUnavailable``.
        """
        turn = (await self.recall(tenant, [audio_id])).get(audio_id)
        kept = await self._store.get(tenant, WORDS_KIND, audio_id)
        record = HeardRecord.from_bytes(kept.value) if kept is not None else None
        left_s = turn.expires_at - self._clock.unix_s() if turn is not None else 0.0
        if turn is None or record is None or left_s <= 0:
            raise UnknownAudio("The audio is unknown or has expired.", param="audio_id")
        heard = record.heard(played_ms)
        corrected = replace(turn, transcript=heard.text, cut=heard.chars < record.heard().chars)
        await self._store.put(tenant, KIND, audio_id, corrected.to_bytes(), ttl_s=left_s)
        return heard

    async def _keep(self, tenant: str, kind: str, audio_id: str, value: bytes) -> None:
        try:
            await self._store.put(tenant, kind, audio_id, value, ttl_s=self.ttl_s)
        except StoreUnavailable:
            log.warning("a spoken turn could not be kept: the store does not answer")
        except Fault as fault:
            log.warning("a spoken turn could not be kept: %s", fault.code)
