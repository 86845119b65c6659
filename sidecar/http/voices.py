"""GET, POST and DELETE /v1/audio/voices: vLLM-Omni's shapes and OpenAI's custom voices in one answer."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any

from litestar import HttpMethod, Request, delete, post, route
from litestar.params import FromPath
from litestar.types import ASGIApp

from sidecar.faults import BadRequest, Fault, NotFound, StoreUnavailable, TooBusy, Unauthorized
from sidecar.gate import Caller
from sidecar.http.auditions import audition_answer, wished_seeds
from sidecar.http.service import Injected, Service
from sidecar.http.speech_fields import iso_language, vector_anchor
from sidecar.http.uploads import Form, UploadedFile, read_form
from sidecar.http.wire import (
    fault_response,
    json_response,
    omni_error,
    openai_error,
    unless_gone,
)
from sidecar.voice_choice import checked_transcript
from voices.anchor import SpeakerAnchor
from voices.record import MAX_SAID_CHARS, VoiceCard, VoiceRecord, voice_name
from voices.seeds import new_dialog_seed

_READ = (HttpMethod.GET, HttpMethod.HEAD)

MEDIA_TYPES = {
    "mp3": "audio/mpeg",
    "wav": "audio/wav",
    "ogg": "audio/ogg",
    "oga": "audio/ogg",
    "opus": "audio/ogg",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "webm": "audio/webm",
    "mp4": "audio/mp4",
    "m4a": "audio/mp4",
}
"""By file name ending, for files of no particular type."""

_TAKEN = {*MEDIA_TYPES.values(), "audio/x-wav", "audio/wave", "audio/vnd.wave", "audio/mp3", "audio/x-m4a"}
_TAKEN |= {"audio/m4a", "audio/x-flac", "audio/opus", "video/mp4", "video/webm", "application/ogg"}
_ANY = ("application/octet-stream", "")


# ---------------------------------------------------------------- list
@route("/v1/audio/voices", http_method=_READ)
async def list_voices(request: Request[Any, Any, Any], service: Injected) -> ASGIApp:
    """Every voice that a request can name.

    ``voices`` are the names (or objects, by ``voices.list_as``), ``uploaded_voices`` what is stored, ``details`` ids
    and readable names. Without a key only the engine's voices and the aliases, where lists are open at all.
    """
    try:
        caller = _lister(request, service)
        cards = await stored_cards(service, caller.tenant) if caller is not None else []
    except Fault as fault:
        service.answered(fault)
        return fault_response(fault, openai_error).to_asgi_response(app=None, request=request)
    stored = {card.name: card for card in cards if not service.voices.reserved(card.name)}
    details = [entry for entry in service.voices.describe(stored) if entry["id"] not in stored]
    details += [{"id": name, "name": card.description or name} for name, card in stored.items()]
    details.sort(key=lambda entry: entry["id"])
    names = [entry["id"] for entry in details]
    body = {
        "voices": details if service.config.voices.list_as == "objects" else names,
        "uploaded_voices": [uploaded(card) for card in cards],
        "details": details,
    }
    return json_response(body).to_asgi_response(app=None, request=request)


def _lister(request: Request[Any, Any, Any], service: Service) -> Caller | None:
    """Who asks for a list; None for somebody without a good key, whom open lists answer too."""
    try:
        return service.authenticate(request)
    except (Unauthorized, TooBusy):
        if not service.config.auth.open_lists:
            raise
        return None


async def stored_cards(service: Service, tenant: str) -> list[VoiceCard]:
    """The stored voices; none while the store is away, so that the others are still listed."""
    try:
        return await service.library.cards(tenant)
    except StoreUnavailable as fault:
        service.answered(fault)
        return []


def uploaded(card: VoiceCard) -> dict[str, Any]:
    """A stored voice as vLLM-Omni lists it, with what else there is to know."""
    direct = not card.media_type
    entry: dict[str, Any] = {
        "name": card.name,
        "consent": card.consent,
        "created_at": card.created_s,
        "file_size": 4 * sum(card.widths) if direct else card.recording_bytes,
        "mime_type": card.media_type or "application/octet-stream",
        "embedding_source": "direct" if direct else "audio",
        "embedding_dim": card.widths[0] if direct and card.widths else None,
        "id": card.name,
        "object": "audio.voice",
        "language": card.language or None,
        "widths": list(card.widths),
        "in_context": bool(card.with_codes),
        "version": card.version,
    }
    if card.said:
        entry["ref_text"] = card.said
    if card.description:
        entry["speaker_description"] = card.description
    return entry


# ---------------------------------------------------------------- upload
@dataclass(frozen=True, slots=True)
class _Wanted:
    """A checked upload, before anything is decoded."""

    name: str
    consent: str
    language: str
    description: str
    said: str
    seed: int
    file: UploadedFile | None
    vector: SpeakerAnchor | None
    audition: int


@post("/v1/audio/voices", status_code=200)
async def upload_voice(request: Request[Any, Any, Any], service: Injected) -> ASGIApp:
    """Store a voice from a recording or a vector. An older one of that name stays until the new one is good.

    With ``audition`` (how many seeds to try) the answer is an event stream: the voice as it is stored, how far the
    audition has come, and the voice with the best seed.
    """
    try:
        caller = service.authenticate(request)
        caller.require("voices:write")
        form = await read_form(request, service.config.server.body_timeout_s)
        wanted = _wanted(form, service)
        saved, notes = await unless_gone(request, _stored(wanted, caller, service))
        body = _upload_answer(saved.card(), notes)
        if not wanted.audition:
            return json_response(body).to_asgi_response(app=None, request=request)
        stack = AsyncExitStack()
        try:
            await stack.enter_async_context(service.place(caller, 1))
        except BaseException:
            await stack.aclose()
            raise
        return audition_answer(service, saved, body, wanted.audition, stack)
    except Fault as fault:
        service.answered(fault)
        return fault_response(fault, omni_error).to_asgi_response(app=None, request=request)


def _wanted(form: Form, service: Service) -> _Wanted:
    """Raises ``BadRequest``, naming the field."""
    if form.text("type") not in ("", "audio_sample"):
        raise BadRequest("Voices are made from recordings (type 'audio_sample') or vectors here.", param="type")
    name = checked_name(form.text("name"), service)
    if not form.text("consent"):
        raise BadRequest("'consent' is required: the id under which the speaker agreed.", param="consent")
    file, numbers = form.files.get("audio_sample"), form.text("speaker_embedding")
    if (file is None) == (not numbers):
        raise BadRequest("Exactly one of 'audio_sample' and 'speaker_embedding' is needed.", param="audio_sample")
    if "audio_sample" in form.fields:
        raise BadRequest("'audio_sample' must be a file.", param="audio_sample")
    return _Wanted(
        name=name,
        consent=form.text("consent"),
        language=iso_language(form.text("language") or None) or "",
        description="" if numbers else form.text("speaker_description"),
        said="" if numbers else checked_transcript(form.text("ref_text")),
        seed=checked_seed(form.text("seed")),
        file=replace(file, media_type=_media_type(file)) if file is not None else None,
        vector=_vector(numbers, service) if numbers else None,
        audition=wished_seeds(form.text("audition")),
    )


def checked_name(raw: str, service: Service, param: str = "name") -> str:
    """The name a stored voice may have. Raises ``BadRequest``."""
    try:
        name = voice_name(raw)
    except ValueError as error:
        raise BadRequest(f"'{param}': {error}.", param=param) from None
    if service.voices.reserved(name):
        raise BadRequest(f"The voice name '{name}' is reserved.", param=param)
    return name


def checked_seed(raw: Any) -> int:
    """A dialog seed, a new one for None and an empty string. Raises ``BadRequest``."""
    if raw is None or raw == "":
        return new_dialog_seed()
    try:
        seed = int(raw) if isinstance(raw, str) and raw.isascii() and len(raw) < 20 else raw
    except ValueError:
        seed = None
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 1 << 63:
        raise BadRequest("'seed' must be a whole number from 0 to 2^63 - 1.", param="seed")
    return seed


def _media_type(file: UploadedFile) -> str:
    kind = file.media_type
    if kind in _ANY:
        return MEDIA_TYPES.get(file.filename.rpartition(".")[2].lower(), "audio/wav")
    if kind not in _TAKEN:
        raise BadRequest(f"Files of the type '{kind[:40]}' are not taken; recordings are.", param="audio_sample")
    return kind


def _vector(text: str, service: Service) -> SpeakerAnchor:
    try:
        numbers = json.loads(text)
    except (ValueError, RecursionError):
        raise BadRequest("speaker_embedding must be a JSON list of numbers.", param="speaker_embedding") from None
    return vector_anchor(numbers, service.engine.traits.clone_widths)


async def _stored(wanted: _Wanted, caller: Caller, service: Service) -> tuple[VoiceRecord, tuple[str, ...]]:
    """The voice as it was stored, and what might be better about its recording."""
    _, version = await service.library.state(caller.tenant, wanted.name)
    notes: tuple[str, ...] = ()
    level_db = None
    anchor = wanted.vector
    if wanted.file is not None:
        pcm = await service.chooser.uploaded(wanted.file.data, "audio_sample")
        enrolled = await service.chooser.enrol(pcm, wanted.said, "audio_sample")
        anchor, notes, level_db = enrolled.anchor, enrolled.clip.notes, enrolled.clip.level_db
    record = made_record(
        name=wanted.name,
        owner=caller.tenant,
        anchors=(anchor,) if anchor is not None else (),
        consent=wanted.consent,
        language=wanted.language,
        description=wanted.description,
        base_seed=wanted.seed,
        level_db=level_db,
        media_type=wanted.file.media_type if wanted.file is not None else "",
        recording_bytes=len(wanted.file.data) if wanted.file is not None else 0,
        said=wanted.said[:MAX_SAID_CHARS],
    )
    return await service.library.save(record, version), notes


def made_record(**fields: Any) -> VoiceRecord:
    """A record. Raises ``BadRequest`` for fields out of their bounds."""
    try:
        return VoiceRecord(**fields)
    except ValueError as error:
        raise BadRequest(f"The voice cannot be stored: {error}.") from None


def _upload_answer(card: VoiceCard, notes: tuple[str, ...]) -> dict[str, Any]:
    entry = uploaded(card)
    names = ["name", "consent", "created_at"]
    names += ["mime_type", "file_size"] if card.media_type else ["embedding_source", "embedding_dim"]
    voice = {name: entry[name] for name in (*names, "ref_text", "speaker_description") if name in entry}
    return {
        "success": True,
        "voice": voice,
        "id": card.name,
        "object": "audio.voice",
        "name": card.name,
        "created_at": card.created_s,
        "type": "audio_sample",
        "version": card.version,
        "notes": list(notes),
    }


# ---------------------------------------------------------------- delete
@delete("/v1/audio/voices/{name:str}", status_code=200)
async def delete_voice(request: Request[Any, Any, Any], service: Injected, name: FromPath[str]) -> ASGIApp:
    """Delete a stored voice; the engine's own are not found here."""
    try:
        caller = service.authenticate(request)
        caller.require("voices:write")
        deleted = await deleted_voice(service, caller.tenant, name)
        body = {
            "success": True,
            "message": f"Voice '{deleted}' deleted successfully",
            "id": deleted,
            "deleted": True,
            "object": "audio.voice.deleted",
        }
        return json_response(body).to_asgi_response(app=None, request=request)
    except Fault as fault:
        service.answered(fault)
        return fault_response(fault, omni_error).to_asgi_response(app=None, request=request)


async def deleted_voice(service: Service, tenant: str, name: str) -> str:
    """Delete a stored voice; its name. Raises ``NotFound``, also for what is no name."""
    try:
        key = voice_name(name)
    except ValueError:
        raise NotFound(f"Voice '{name[:64]}' not found.", param="name") from None
    await service.library.delete(tenant, key)
    return key
