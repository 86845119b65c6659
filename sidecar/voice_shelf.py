"""The stored voices of every tenant, read through a cache, and the carries of their dialogs."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sidecar.faults import BadRequest, Conflict, DamagedVoice, NotFound, TooLarge
from sidecar.ports import Clock, Store, Stored
from sidecar.read_through import ReadThrough
from voices.binary import DamagedValue
from voices.carry import KeptCarry
from voices.record import VoiceCard, VoiceRecord, voice_name

KIND = "voice"
CARRY_KIND = "carry"

SHORT_HEAD_BYTES = 1_024
"""Enough of most voices for their card."""

MAX_CARDS = 4_096
"""Cards kept between two lists."""

REPLACE_TRIES = 5


@dataclass(frozen=True, slots=True)
class Listed:
    """The voices of a tenant, and the names of those whose records are damaged."""

    cards: tuple[VoiceCard, ...]
    damaged: tuple[str, ...]


class VoiceShelf:
    """Voices by tenant and name. A voice that is read is the caller's to keep: a reply never asks twice.

    Every call raises ``StoreUnavailable`` when the store is away; ``get`` only for voices that were not used lately.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._cache = ReadThrough(store, clock, KIND, _read)
        self._cards: OrderedDict[tuple[str, str], tuple[int, VoiceCard]] = OrderedDict()
        self._following: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Follow what other instances change. The store is started already. Idempotent."""
        if self._following is None:
            self._following = asyncio.create_task(self._cache.follow())

    async def close(self) -> None:
        """Stop following. Idempotent."""
        following, self._following = self._following, None
        if following is not None:
            following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await following

    async def use(self, store: Store) -> None:
        """Keep voices in another store, which is started, from now on."""
        followed = self._following is not None
        await self.close()
        self._store = store
        self._cache.use(store)
        if followed:
            await self.start()

    async def get(self, tenant: str, name: str) -> VoiceRecord | None:
        """The voice, or None. Raises ``DamagedVoice`` and, for what is no name, ``BadRequest``."""
        return await self._cache.get(tenant, _name(name))

    async def list(self, tenant: str) -> Listed:
        """All voices, sorted by name."""
        cards, damaged = [], []
        for key, head in await self._store.heads(tenant, KIND, SHORT_HEAD_BYTES):
            card = self._known_card(tenant, key, head)
            if card is None and len(head.value) == SHORT_HEAD_BYTES:
                whole = await self._store.get(tenant, KIND, key)
                if whole is None:
                    continue
                card = _card(tenant, key, whole)
            if card is None:
                damaged.append(key)
            else:
                cards.append(card)
        return Listed(tuple(cards), tuple(damaged))

    def _known_card(self, tenant: str, key: str, head: Stored) -> VoiceCard | None:
        """The card of a head, read once for each state of a record."""
        mark = hash((head.version, head.value))
        known = self._cards.get((tenant, key))
        if known is not None and known[0] == mark:
            return known[1]
        card = _card(tenant, key, head)
        if card is not None:
            self._cards[tenant, key] = (mark, card)
            self._cards.move_to_end((tenant, key))
            if len(self._cards) > MAX_CARDS:
                self._cards.popitem(last=False)
        return card

    async def save(self, record: VoiceRecord, expected: int | None) -> VoiceRecord:
        """Store a voice under its owner and name if what is there has version ``expected`` (None: nothing is there).

        Returns it with its new version. Raises ``Conflict`` if somebody was faster, ``TooLarge``.
        """
        try:
            data = record.to_bytes()
        except ValueError as error:
            raise TooLarge(
                f"The voice {error}; use a shorter reference recording or description.", param="audio_sample"
            ) from error
        version = await self._store.swap(record.owner, KIND, record.name, data, expected)
        saved = replace(record, version=version)
        self._cache.put(record.owner, record.name, saved, Stored(data, version))
        return saved

    async def replace(self, record: VoiceRecord) -> VoiceRecord:
        """Store a voice whatever is there, even something damaged. Raises ``Conflict`` if others keep changing it."""
        for _ in range(REPLACE_TRIES):
            there = await self._store.get(record.owner, KIND, record.name)
            with contextlib.suppress(Conflict):
                return await self.save(record, None if there is None else there.version)
        raise Conflict("The voice is being changed by somebody else.")

    async def delete(self, tenant: str, name: str) -> None:
        """Delete a voice and the carries of its dialogs. Raises ``NotFound``."""
        key = _name(name)
        there = await self._store.get(tenant, KIND, key)
        deleted = await self._store.delete(tenant, KIND, key)
        self._cache.forget(tenant, key)
        if there is not None:
            card = _card(tenant, key, there)
            if card is not None:
                await self._delete_carries(tenant, card.fingerprint)
        if not deleted:
            raise NotFound(f"There is no voice '{name[:64]}'.", param="name")

    # ------------------------------------------------------------ carries
    async def keep_carry(self, tenant: str, dialog: str, carry: KeptCarry, ttl_s: float) -> None:
        """Keep what a dialog's next reply may lean on, on whatever instance it is spoken."""
        await self._store.put(tenant, CARRY_KIND, _carry_key(carry.voice, dialog), carry.to_bytes(), ttl_s=ttl_s)

    async def carry(self, tenant: str, voice: str, dialog: str) -> KeptCarry | None:
        """The carry of a dialog and voice (by fingerprint); None if there is none or it is damaged."""
        stored = await self._store.get(tenant, CARRY_KIND, _carry_key(voice, dialog))
        if stored is None:
            return None
        try:
            return KeptCarry.from_bytes(stored.value)
        except DamagedValue:
            return None

    async def _delete_carries(self, tenant: str, voice: str) -> None:
        keys: Sequence[str] = await self._store.keys(tenant, CARRY_KIND)
        for key in keys:
            if key.startswith(f"{voice}/"):
                await self._store.delete(tenant, CARRY_KIND, key)


def _carry_key(voice: str, dialog: str) -> str:
    return f"{voice}/{dialog}"


def _name(raw: str) -> str:
    try:
        return voice_name(raw)
    except ValueError as error:
        raise BadRequest(f"{str(error).capitalize()}.", param="name") from error


def _read(tenant: str, key: str, stored: Stored) -> VoiceRecord:
    """Raises ``DamagedVoice``."""
    try:
        record = VoiceRecord.from_bytes(stored.value, stored.version)
    except DamagedValue as error:
        raise DamagedVoice(f"The stored voice '{key}' cannot be used: {error}.", param="voice") from error
    if (record.owner, record.name) != (tenant, key):
        raise DamagedVoice(f"The stored voice '{key}' cannot be used: it belongs elsewhere.", param="voice")
    return record


def _card(tenant: str, key: str, head: Stored) -> VoiceCard | None:
    """None for a record that is damaged, belongs elsewhere, or whose card is longer than what is there."""
    try:
        card = VoiceCard.from_bytes(head.value, head.version)
    except DamagedValue:
        return None
    return card if (card.owner, card.name) == (tenant, key) else None
