"""/api/voice-vectors: stored voices as speaker vectors, for operators: make, replace, mix, compare, carry elsewhere.

The same voices as under /v1/audio/voices. Changing and comparing needs the scope ``admin``; reading vectors ``admin``
or ``voices:export``. Lists and cards never hold vectors.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from litestar import Request, Response, delete, get, post, put
from litestar.params import FromPath
from litestar.types import ASGIApp

from sidecar.faults import BadRequest, Conflict, DamagedVoice, Fault, Forbidden, NotFound
from sidecar.gate import Caller
from sidecar.http.service import Injected, Service
from sidecar.http.speech import spoken
from sidecar.http.speech_fields import iso_language, vector_anchor
from sidecar.http.voices import checked_name, checked_seed, deleted_voice, made_record, uploaded
from sidecar.http.wire import (
    fault_response,
    json_response,
    openai_error,
    parse_object,
    read_body,
    require_json,
)
from sidecar.voice_sets import checked_vector
from voices.anchor import EMBEDDING_WIDTHS, SpeakerAnchor
from voices.record import VoiceCard, VoiceRecord, voice_name

Work = Callable[[Caller], Awaitable[Response[bytes]]]


async def answered(request: Request[Any, Any, Any], service: Service, scopes: tuple[str, ...], work: Work) -> ASGIApp:
    """The answer of ``work`` for a caller with one of ``scopes``, or a fault in OpenAI's form."""
    try:
        caller = service.authenticate(request)
        if not caller.scopes.intersection(scopes):
            raise Forbidden(f"This API key needs the scope {' or '.join(scopes)}.")
        response = await work(caller)
    except Fault as fault:
        service.answered(fault)
        response = fault_response(fault, openai_error)
    return response.to_asgi_response(app=None, request=request)


async def members_of(request: Request[Any, Any, Any], service: Service) -> dict[str, Any]:
    """The members of a JSON body."""
    require_json(request)
    server = service.config.server
    return parse_object(await read_body(request, server.max_body_bytes, server.body_timeout_s))


def _card(card: VoiceCard) -> dict[str, Any]:
    """A stored voice as a vector: what there is to know but the numbers."""
    entry = uploaded(card)
    return {
        "name": card.name,
        "description": card.description,
        "dim": card.widths[0] if card.widths else None,
        "dims": list(card.widths),
        "created_at": card.created_s,
        "consent": card.consent,
        "language": card.language or None,
        "seed": card.base_seed,
        "version": card.version,
        "fingerprint": card.fingerprint,
        "embedding_source": entry["embedding_source"],
        "in_context": bool(card.with_codes),
    }


def carded(record: VoiceRecord, status: int) -> Response[bytes]:
    """The card of a voice, its version as ``ETag``."""
    return json_response(_card(record.card()), status=status, headers={"etag": f'"{record.version}"'})


# ---------------------------------------------------------------- list, read, delete
@get("/api/voice-vectors")
async def list_vectors(request: Request[Any, Any, Any], service: Injected) -> ASGIApp:
    """``{"vectors": [...]}``, sorted by name, without numbers."""

    async def work(caller: Caller) -> Response[bytes]:
        return json_response({"vectors": [_card(card) for card in await service.library.cards(caller.tenant)]})

    return await answered(request, service, ("speak", "admin"), work)


@get("/api/voice-vectors/{name:str}")
async def read_vector(request: Request[Any, Any, Any], service: Injected, name: FromPath[str]) -> ASGIApp:
    """One voice; with ``?embedding=true`` also its numbers, by width."""
    numbers = request.query_params.get("embedding", "").lower() in ("1", "true", "yes")

    async def work(caller: Caller) -> Response[bytes]:
        record, _ = await existing(service, caller, name)
        if not numbers:
            return carded(record, 200)
        vectors = {str(anchor.width): anchor.embedding.tolist() for anchor in record.anchors}
        first = record.anchors[0].embedding.tolist() if record.anchors else None
        return json_response(_card(record.card()) | {"embedding": first, "embeddings": vectors})

    return await answered(request, service, ("admin", "voices:export") if numbers else ("speak", "admin"), work)


@delete("/api/voice-vectors/{name:str}", status_code=200)
async def delete_vector(request: Request[Any, Any, Any], service: Injected, name: FromPath[str]) -> ASGIApp:
    """Delete a voice, on every instance."""

    async def work(caller: Caller) -> Response[bytes]:
        return json_response({"name": await deleted_voice(service, caller.tenant, name), "deleted": True})

    return await answered(request, service, ("admin",), work)


async def existing(service: Service, caller: Caller, name: str) -> tuple[VoiceRecord, int]:
    """The voice as the store has it now, and its version. Raises ``NotFound``, ``DamagedVoice``."""
    try:
        key = voice_name(name)
    except ValueError:
        raise not_found(name) from None
    record, version = await service.library.state(caller.tenant, key)
    if version is None:
        raise not_found(name)
    if record is None:
        raise damaged(key)
    return record, version


def not_found(name: str) -> NotFound:
    """The fault for a name that nothing is stored under."""
    return NotFound(f"There is no stored voice '{name[:64]}'.", param="name")


def damaged(name: str) -> DamagedVoice:
    """The fault for the name of a voice that is stored, but not whole."""
    return DamagedVoice(f"The stored voice '{name[:64]}' is damaged; delete it or store it again.", param="name")


# ---------------------------------------------------------------- make and replace
@post("/api/voice-vectors", status_code=201)
async def make_vector(request: Request[Any, Any, Any], service: Injected) -> ASGIApp:
    """Store ``{name, embedding, description?, consent?, language?, seed?}`` under a name that is free."""

    async def work(caller: Caller) -> Response[bytes]:
        members = await members_of(request, service)
        name = new_name(members.get("name"), service)
        record = record_of(members, name, caller, (given_vector(members.get("embedding"), service),))
        if (await service.library.state(caller.tenant, name))[1] is not None:
            raise Conflict(f"There is a voice '{name}' already; PUT replaces it.", param="name")
        return carded(await service.library.save(record, None), 201)

    return await answered(request, service, ("admin",), work)


@put("/api/voice-vectors/{name:str}", status_code=200)
async def replace_vector(request: Request[Any, Any, Any], service: Injected, name: FromPath[str]) -> ASGIApp:
    """Store under a name, free or not; what the body leaves out stays as it was.

    With ``If-Match: "<version>"`` only in place of that version; else the version at the time of the request counts.
    A new ``embedding`` takes the place of all anchors.
    """

    async def work(caller: Caller) -> Response[bytes]:
        members = await members_of(request, service)
        key = new_name(name, service)
        old, version = await service.library.state(caller.tenant, key)
        wanted = request.headers.get("if-match", "").strip().removeprefix("W/").strip('"')
        if wanted not in ("", "*") and (version is None or wanted != str(version)):
            raise Conflict(f"The voice '{key}' has another version.")
        if wanted == "*" and version is None:
            raise not_found(name)
        anchors = old.anchors if old is not None and "embedding" not in members else None
        if anchors is None:
            anchors = (given_vector(members.get("embedding"), service),)
        record = record_of(members, key, caller, anchors, old)
        return carded(await service.library.save(record, version), 201 if version is None else 200)

    return await answered(request, service, ("admin",), work)


def new_name(raw: Any, service: Service) -> str:
    """The name that a vector may be stored under. Raises ``BadRequest``."""
    if not isinstance(raw, str):
        raise BadRequest("'name' is required, a string.", param="name")
    return checked_name(raw, service)


def taken_widths(service: Service) -> tuple[int, ...]:
    """Widths that may be stored: those of the released checkpoints, and the engine's."""
    return tuple(sorted({*EMBEDDING_WIDTHS, *service.engine.traits.clone_widths}))


def given_vector(given: Any, service: Service, param: str = "embedding") -> SpeakerAnchor:
    """The anchor of numbers that may be stored. Raises ``BadRequest``."""
    widths = taken_widths(service)
    anchor = vector_anchor(given, widths, param)
    try:
        checked_vector(anchor.embedding, widths)
    except ValueError as error:
        raise BadRequest(f"{param}: {error}.", param=param) from None
    return anchor


def record_of(
    members: Mapping[str, Any],
    name: str,
    caller: Caller,
    anchors: tuple[SpeakerAnchor, ...],
    old: VoiceRecord | None = None,
) -> VoiceRecord:
    """A record of what a body says, over what was there. Raises ``BadRequest``."""
    texts: dict[str, str] = {}
    for field in ("description", "consent", "language"):
        value = members.get(field)
        if value is not None and not isinstance(value, str):
            raise BadRequest(f"'{field}' must be a string.", param=field)
        if value is not None:
            texts[field] = value.strip() if field != "language" else iso_language(value) or ""
    if old is None:
        seed = checked_seed(members.get("seed"))
        return made_record(name=name, owner=caller.tenant, anchors=anchors, base_seed=seed, **texts)
    seed = checked_seed(members["seed"]) if members.get("seed") is not None else old.base_seed
    fields: dict[str, Any] = {"anchors": anchors, "base_seed": seed, **texts}
    if anchors is not old.anchors:
        fields |= {"media_type": "", "recording_bytes": 0, "said": "", "level_db": None}
    try:
        return replace(old, **fields)
    except ValueError as error:
        raise BadRequest(f"The voice cannot be stored: {error}.") from None


# ---------------------------------------------------------------- speak
@post("/api/voice-vectors/{name:str}/speech", status_code=200)
async def speak_vector(request: Request[Any, Any, Any], service: Injected, name: FromPath[str]) -> ASGIApp:
    """A speech request with the stored vector alone; the fields of /v1/audio/speech, those of voices left aside."""
    return await spoken(request, service, stored=name)


HANDLERS = (list_vectors, read_vector, delete_vector, make_vector, replace_vector, speak_vector)
"""The routes of this file."""
