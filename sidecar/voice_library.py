"""The voices that a tenant stores, within bounds, and for a while the anchors of recordings that came with requests.

Built on ``VoiceShelf``: speech never waits long for the store, and what was used lately is there while it is away.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace

from sidecar.faults import BadRequest, Conflict, DamagedVoice, Fault, NotFound, StoreUnavailable, TooLarge
from sidecar.ports import Clock, Store, Stored
from sidecar.read_through import ReadThrough
from sidecar.voice_shelf import KIND, VoiceShelf
from voices.anchor import SpeakerAnchor
from voices.binary import DamagedValue
from voices.record import MAX_HEAD_BYTES, MAX_RECORD_BYTES, VoiceCard, VoiceRecord

log = logging.getLogger(__name__)

CLIP_KIND = "clip"
"""Kind of the anchors of recordings that came with requests (``VoiceRecord``s), by fingerprint of the request."""

_CLIP_NAME = "clip"
_MAX_CLIPS_CACHED = 256


@dataclass(frozen=True, slots=True)
class LibraryLimits:
    """``max_voices`` of one tenant, each of at most ``MAX_RECORD_BYTES``; anchors of recordings stay ``clip_ttl_s``.

    Of these a tenant has at most ``max_clips``; more are not kept.
    """

    max_voices: int = 1_000
    clip_ttl_s: float = 3_600.0
    max_clips: int = 512


@dataclass(slots=True)
class _Census:
    """What a tenant has: the versions by name, and the date of the newest voice."""

    versions: dict[str, int]
    newest_s: int


class VoiceLibrary:
    """Voices by tenant and name. To be used from one event loop.

    Every call raises ``StoreUnavailable`` while the store is away, except ``get`` for voices that were used lately,
    and those that say otherwise.
    """

    def __init__(self, store: Store, clock: Clock, limits: LibraryLimits | None = None) -> None:
        self._store = store
        self._clock = clock
        self._limits = limits or LibraryLimits()
        self._shelf = VoiceShelf(store, clock)
        self._clips = ReadThrough(store, clock, CLIP_KIND, _clip_anchor, _MAX_CLIPS_CACHED)
        self._following: asyncio.Task[None] | None = None
        self._saving = asyncio.Lock()

    @property
    def shelf(self) -> VoiceShelf:
        """The same voices without bounds, and the carries of their dialogs."""
        return self._shelf

    async def start(self) -> None:
        """Follow what other instances change. The store is started already. Idempotent."""
        await self._shelf.start()
        if self._following is None:
            self._following = asyncio.create_task(self._clips.follow())

    async def close(self) -> None:
        """Stop following. Idempotent."""
        following, self._following = self._following, None
        if following is not None:
            following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await following
        await self._shelf.close()

    async def use(self, store: Store) -> None:
        """Keep voices in another store from now on; before ``start``."""
        self._store = store
        self._clips.use(store)
        await self._shelf.use(store)

    # ------------------------------------------------------------ reading
    async def get(self, tenant: str, name: str) -> VoiceRecord | None:
        """The voice, or None; see ``VoiceShelf.get``. Raises ``DamagedVoice``."""
        return await self._shelf.get(tenant, name)

    async def state(self, tenant: str, name: str) -> tuple[VoiceRecord | None, int | None]:
        """The voice as the store has it now, and the version to give to ``save`` (None: the name is free).

        A damaged value has a version but no voice.
        """
        stored = await self._store.get(tenant, KIND, name)
        if stored is None:
            return None, None
        return _record(tenant, name, stored), stored.version

    async def cards(self, tenant: str) -> list[VoiceCard]:
        """All voices of a tenant, sorted by name; damaged ones are left out."""
        return list((await self._shelf.list(tenant)).cards)

    async def records(self, tenant: str) -> list[VoiceRecord]:
        """All voices of a tenant with their anchors, sorted by name; damaged ones are left out. Megabytes."""
        return (await self.records_and_damaged(tenant))[0]

    async def records_and_damaged(self, tenant: str) -> tuple[list[VoiceRecord], list[str]]:
        """What ``records`` gives, and the names of the damaged ones."""
        heads = await self._store.heads(tenant, KIND, MAX_RECORD_BYTES)
        found = await asyncio.to_thread(lambda: [(key, _record(tenant, key, stored)) for key, stored in heads])
        return [record for _, record in found if record is not None], [key for key, record in found if record is None]

    # ------------------------------------------------------------ writing
    async def save(self, record: VoiceRecord, replaces: int | None) -> VoiceRecord:
        """Store a voice in place of version ``replaces`` (None: as a new one); returns it with date and version.

        ``created_s`` becomes now, or one second more than that of the tenant's newest voice. Raises ``Conflict`` when
        somebody else was faster, ``BadRequest`` when the tenant has as many voices as it may have, ``TooLarge``.
        """
        async with self._saving:
            return await self._save(record, replaces, await self._census(record.owner))

    async def save_all(self, owner: str, records: Iterable[VoiceRecord], replacing: bool) -> dict[str, Fault | None]:
        """Store voices of one owner one after another, by name: None, or why one was not stored.

        ``replacing``: also those whose names are taken.
        """
        outcome: dict[str, Fault | None] = {}
        async with self._saving:
            census = await self._census(owner)
            for record in records:
                outcome[record.name] = None
                try:
                    version = census.versions.get(record.name)
                    if version is not None and not replacing:
                        raise Conflict("The name is taken.")
                    await self._save(record, version, census)
                except (BadRequest, Conflict, TooLarge) as fault:
                    outcome[record.name] = fault
        return outcome

    async def _census(self, owner: str) -> _Census:
        listed = await self._shelf.list(owner)
        versions = {card.name: card.version for card in listed.cards}
        for name in listed.damaged:
            _, version = await self.state(owner, name)
            versions |= {name: version} if version is not None else {}
        return _Census(versions, max((card.created_s for card in listed.cards), default=0))

    async def _save(self, record: VoiceRecord, replaces: int | None, census: _Census) -> VoiceRecord:
        count = len(census.versions)
        if replaces is None and count >= self._limits.max_voices:
            raise BadRequest(f"There are {count} stored voices, as many as there may be; delete some.")
        census.newest_s = max(int(self._clock.unix_s()), census.newest_s + 1)
        try:
            saved = await self._shelf.save(replace(record, created_s=census.newest_s), replaces)
        except Conflict:
            raise Conflict(f"The voice '{record.name}' was changed by somebody else meanwhile.") from None
        census.versions[saved.name] = saved.version
        return saved

    async def delete(self, tenant: str, name: str) -> None:
        """Delete a voice and what hangs on it: carries of its dialogs, anchors kept of its recording.

        Raises ``NotFound``.
        """
        record, _ = await self.state(tenant, name)
        try:
            await self._shelf.delete(tenant, name)
        except NotFound:
            raise NotFound(f"Voice '{name[:64]}' not found.", param="name") from None
        recordings = {anchor.fingerprint for anchor in record.anchors if anchor.fingerprint} if record else set()
        if recordings:
            await self._delete_clips(tenant, recordings)

    async def _delete_clips(self, tenant: str, recordings: set[str]) -> None:
        for key, head in await self._store.heads(tenant, CLIP_KIND, MAX_HEAD_BYTES):
            with contextlib.suppress(DamagedValue):
                if VoiceCard.from_bytes(head.value).description in recordings:
                    await self._store.delete(tenant, CLIP_KIND, key)
                    self._clips.forget(tenant, key)

    # ------------------------------------------------------------ anchors of recordings in requests
    async def clip(self, tenant: str, fingerprint: str) -> SpeakerAnchor | None:
        """The anchor that was kept under ``fingerprint``; a store that is away has none."""
        try:
            return await self._clips.get(tenant, fingerprint)
        except Fault:
            return None

    async def keep_clip(self, tenant: str, fingerprint: str, anchor: SpeakerAnchor) -> None:
        """Keep an anchor for a while; a store that is away does not, nor one that has as many as may be."""
        record = VoiceRecord(name=_CLIP_NAME, owner=tenant, anchors=(anchor,), description=anchor.fingerprint)
        try:
            value = record.to_bytes()
            if len(await self._store.keys(tenant, CLIP_KIND)) >= self._limits.max_clips:
                return
            await self._store.put(tenant, CLIP_KIND, fingerprint, value, ttl_s=self._limits.clip_ttl_s)
        except (StoreUnavailable, ValueError):
            log.info("the anchor of a recording was not kept")
        self._clips.forget(tenant, fingerprint)


def _record(tenant: str, key: str, stored: Stored) -> VoiceRecord | None:
    """The voice under this name, if it is that tenant's and whole: a record may have been copied or restored amiss."""
    try:
        record = VoiceRecord.from_bytes(stored.value, stored.version)
    except (DamagedValue, ValueError) as error:
        log.warning("a stored voice is damaged: %s", error)
        return None
    if (record.owner, record.name) != (tenant, key):
        log.warning("a stored voice is damaged: it belongs elsewhere")
        return None
    return record


def _clip_anchor(tenant: str, key: str, stored: Stored) -> SpeakerAnchor:
    record = _record(tenant, _CLIP_NAME, stored)
    if record is None or not record.anchors:
        raise DamagedVoice("The kept anchor of a recording cannot be used.")
    return record.anchors[0]
