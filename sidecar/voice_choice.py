"""Which voice a request speaks with: one of the engine's, a stored one, a recording or a vector of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

from sidecar.faults import BadRequest, EngineLost, NotFound, StoreUnavailable, TooBusy, TooLarge, UnsupportedByEngine
from sidecar.ports import ClipReader, Engine, Pcm
from sidecar.voice_library import VoiceLibrary
from sidecar.voicebook import PLACEHOLDER, VoiceBook
from voices.anchor import MAX_TRANSCRIPT_CHARS, SpeakerAnchor, checked_text
from voices.enroll import Clip, UnusableClip, prepared
from voices.record import VoiceRecord, voice_name

ENCODING_AT_ONCE = 2
ENCODING_WAITING = 8
"""Recordings that may be encoded at once, and wait for it."""

ENCODE_TIMEOUT_S = 60.0
LOAD_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class ChosenVoice:
    """``voice`` is one of the engine's, empty where ``anchor`` speaks instead.

    ``seed`` is the dialog seed of requests that bring none, ``language`` (ISO 639-1, or empty) their language,
    ``stored`` the name of the stored voice that was chosen, ``level_db`` the speech level it is known to have.
    ``fingerprint`` changes with anything of it that can be heard.
    """

    voice: str
    anchor: SpeakerAnchor | None = None
    seed: int | None = None
    language: str = ""
    stored: str = ""
    level_db: float | None = None
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class Enrolled:
    """What became of a recording: its anchor, and the part of it that was used."""

    anchor: SpeakerAnchor
    clip: Clip


class VoiceChooser:
    """Finds voices for requests. ``engine_id`` names the engine and its weights: anchors of others are of no use."""

    def __init__(
        self,
        engine: Engine,
        library: VoiceLibrary,
        clips: ClipReader,
        book: Callable[[], VoiceBook],
        engine_id: str,
    ) -> None:
        self._engine = engine
        self._library = library
        self._clips = clips
        self._book = book
        self._engine_id = engine_id
        self._turns = asyncio.Semaphore(ENCODING_AT_ONCE)
        self._waiting = 0

    # ------------------------------------------------------------ by name
    async def named(
        self,
        tenant: str,
        name: str | None,
        *,
        param: str = "voice",
        vector_only: bool = False,
        said: str | None = None,
    ) -> ChosenVoice:
        """The voice of that name: the engine's own, the tenant's stored one, what an alias stands for; in this order.

        ``vector_only`` leaves out a stored voice's reference codes, ``said`` replaces the transcript of them. Raises
        ``UnknownVoice``, ``UnsupportedByEngine`` for a stored voice that this engine cannot speak with, ``BadRequest``
        for a transcript without codes, ``StoreUnavailable`` for a name that only the store could know.
        """
        book = self._book()
        key = (name or PLACEHOLDER).strip().lower()
        if (own := book.own(key)) is not None:
            return ChosenVoice(own)
        target = book.target(key)
        record = None
        try:
            record = await self._stored(tenant, key)
        except StoreUnavailable:
            # An alias of one of the engine's voices needs no store.
            if not target or book.own(target) is None:
                raise
        if record is not None:
            return self._chosen(record, param, vector_only, said)
        if target and (own := book.own(target)) is not None:
            return ChosenVoice(own)
        if target and (record := await self._stored(tenant, target)) is not None:
            return self._chosen(record, param, vector_only, said)
        raise book.unknown(name, await self._stored_names(tenant), param)

    async def stored(self, tenant: str, name: str, *, vector_only: bool = False, param: str = "name") -> ChosenVoice:
        """A stored voice and nothing else. Raises ``NotFound``, ``UnsupportedByEngine``, ``StoreUnavailable``."""
        record = await self._stored(tenant, name.strip().lower())
        if record is None:
            raise NotFound(f"There is no stored voice '{name[:64]}'.", param=param)
        return self._chosen(record, param, vector_only, None)

    async def _stored(self, tenant: str, key: str) -> VoiceRecord | None:
        if key == PLACEHOLDER:
            return None
        try:
            name = voice_name(key)
        except ValueError:
            return None
        return await self._library.get(tenant, name)

    async def _stored_names(self, tenant: str) -> list[str]:
        try:
            return [card.name for card in await self._library.cards(tenant)]
        except StoreUnavailable:
            return []

    def _chosen(self, record: VoiceRecord, param: str, vector_only: bool, said: str | None) -> ChosenVoice:
        traits = self._engine.traits
        anchor = record.anchor(traits.clone_widths)
        language = record.language if record.language in traits.languages else ""
        if anchor is not None:
            anchor = _as_asked(anchor, vector_only or not traits.anchor_codes, said)
            return ChosenVoice("", anchor, record.base_seed, language, record.name, record.level_db, record.fingerprint)
        if record.base_voice and (own := self._book().own(record.base_voice)) is not None:
            return ChosenVoice(own, None, record.base_seed, language, record.name, record.level_db, record.fingerprint)
        has = " and ".join(str(one.width) for one in record.anchors) or "none"
        takes = " or ".join(map(str, traits.clone_widths))
        can = f"takes vectors of width {takes}" if takes else "speaks with its own voices only"
        raise UnsupportedByEngine(
            f"The stored voice '{record.name}' has a vector of width {has}, but the engine '{traits.name}' {can}.",
            param=param,
        )

    # ------------------------------------------------------------ by recording
    async def recorded(self, tenant: str, source: str, said: str | None, param: str = "ref_audio") -> ChosenVoice:
        """The voice of a recording that came with the request; ``said``, its transcript, makes it a reference.

        What was encoded is kept for a while, under a fingerprint of recording and transcript. Raises what
        ``ClipReader.load`` and ``enrol`` raise.
        """
        text = checked_transcript(said)
        pcm: Pcm | None = None
        if source.lstrip()[:5].lower() in ("http:", "https"):
            pcm = await self._loaded(source, param)
            content = pcm.tobytes()
        else:
            content = source.encode("utf-8", "surrogatepass")
        fingerprint = self._fingerprint(content, text)
        anchor = await self._library.clip(tenant, fingerprint)
        if anchor is None:
            enrolled = await self.enrol(pcm if pcm is not None else await self._loaded(source, param), text, param)
            anchor = enrolled.anchor
            await self._library.keep_clip(tenant, fingerprint, anchor)
        return ChosenVoice("", anchor)

    async def enrol(self, pcm: Pcm, said: str | None, param: str) -> Enrolled:
        """The anchor of a recording at 24 kHz, of the part of it that serves best.

        Raises ``BadRequest`` (too short, too long, silent, a transcript that cannot be what is said),
        ``UnsupportedByEngine``, ``TooBusy``, and what ``Engine.encode_voice`` raises.
        """
        traits = self._engine.traits
        if not traits.clone_widths:
            raise UnsupportedByEngine(f"The engine '{traits.name}' speaks with its own voices only.", param=param)
        text = checked_transcript(said)
        in_context = bool(text) and traits.anchor_codes
        try:
            clip = await asyncio.to_thread(prepared, pcm, text, in_context=in_context)
        except UnusableClip as why:
            named = "ref_text" if why.of_text else param
            raise BadRequest(f"The recording cannot be used: {why}.", param=named) from None
        if self._waiting >= ENCODING_WAITING:
            raise TooBusy("Too many recordings are being encoded; try again shortly.", retry_after_s=1.0)
        self._waiting += 1
        try:
            async with asyncio.timeout(ENCODE_TIMEOUT_S), self._turns:
                anchor = await self._engine.encode_voice(clip.pcm, text if in_context else None)
        except TimeoutError:
            raise EngineLost("The recording was not encoded in time.") from None
        finally:
            self._waiting -= 1
        return Enrolled(anchor, clip)

    async def uploaded(self, data: bytes, param: str) -> Pcm:
        """An uploaded file as 24 kHz mono. Raises ``BadRequest`` (too long, too), ``TooBusy``."""
        return await _in_time(self._clips.read(data, param), param)

    async def _loaded(self, source: str, param: str) -> Pcm:
        return await _in_time(self._clips.load(source, param), param)

    def _fingerprint(self, content: bytes, said: str) -> str:
        digest = blake2b(digest_size=16, person=b"sidecar.clip0001")
        for part in (self._engine_id.encode(), said.encode("utf-8", "surrogatepass"), content):
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
        return digest.hexdigest()


async def _in_time(reading: Coroutine[Any, Any, Pcm], param: str) -> Pcm:
    try:
        async with asyncio.timeout(LOAD_TIMEOUT_S):
            return await reading
    except TimeoutError:
        # Ours, not the client's: reading has a time of its own, which it would have told of.
        raise TooBusy("The recording could not be read in time; try again.", retry_after_s=2.0) from None
    except TooLarge as fault:
        # What clients know from vLLM-Omni: a recording that is too long is a bad one.
        raise BadRequest(fault.message, param=param) from None


def _as_asked(anchor: SpeakerAnchor, vector_only: bool, said: str | None) -> SpeakerAnchor:
    if vector_only:
        return SpeakerAnchor(anchor.embedding, fingerprint=anchor.fingerprint) if anchor.codes is not None else anchor
    text = (said or "").strip()
    if not text or text == anchor.transcript:
        return anchor
    if anchor.codes is None:
        raise BadRequest(
            "This voice was stored without a transcript, so there is no recording that ref_text could belong to; "
            "upload it again with ref_text.",
            param="ref_text",
        )
    try:
        return replace(anchor, transcript=text)
    except ValueError as error:
        raise BadRequest(f"ref_text: {error}.", param="ref_text") from None


def checked_transcript(said: str | None) -> str:
    """A transcript, trimmed. Raises ``BadRequest`` for one that is too long or not valid Unicode."""
    text = (said or "").strip()
    try:
        return checked_text(text, MAX_TRANSCRIPT_CHARS, "ref_text")
    except ValueError as error:
        raise BadRequest(f"{error}.", param="ref_text") from None
