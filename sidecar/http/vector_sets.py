"""/api/voice-vectors, what is done with many voices at once: mixing, comparing, export and import."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from litestar import Request, Response, get, post
from litestar.types import ASGIApp

from sidecar.faults import BadRequest, Conflict
from sidecar.gate import Caller
from sidecar.http.service import Injected, Service
from sidecar.http.uploads import read_form
from sidecar.http.vectors import (
    answered,
    carded,
    damaged,
    existing,
    given_vector,
    members_of,
    new_name,
    not_found,
    record_of,
    taken_widths,
)
from sidecar.http.wire import json_response, read_body, unless_gone
from sidecar.voice_sets import UnreadableSet, packed_set, read_set
from voices.anchor import SpeakerAnchor
from voices.record import VoiceRecord
from voices.vectors import MAX_MIXED, mixed, nearest

MAX_NEAREST = 100

LEFT_OUT_HEADER = "x-sidecar-left-out"
"""How many damaged voices are not in an exported set."""


# ---------------------------------------------------------------- mix and compare
@post("/api/voice-vectors/mix", status_code=201)
async def mix_vectors(request: Request[Any, Any, Any], service: Injected) -> ASGIApp:
    """Store ``{name, voices: [{name, weight}], ...}``: the weighted sum, in every width that all of them have."""

    async def work(caller: Caller) -> Response[bytes]:
        members = await members_of(request, service)
        name = new_name(members.get("name"), service)
        parts = _parts(members.get("voices"))
        records = [(await existing(service, caller, part))[0] for part, _ in parts]
        anchors = _mixture(records, [weight for _, weight in parts])
        consents = ",".join(dict.fromkeys(record.consent for record in records if record.consent))
        record = record_of({"consent": consents} | members, name, caller, anchors)
        if (await service.library.state(caller.tenant, name))[1] is not None:
            raise Conflict(f"There is a voice '{name}' already.", param="name")
        return carded(await service.library.save(record, None), 201)

    return await answered(request, service, ("admin",), work)


def _parts(given: Any) -> list[tuple[str, float]]:
    if not isinstance(given, list) or not 1 <= len(given) <= MAX_MIXED:
        raise BadRequest(f"'voices' is a list of 1 to {MAX_MIXED} objects with 'name' and 'weight'.", param="voices")
    parts = []
    for entry in given:
        fields: Mapping[str, Any] = entry if isinstance(entry, Mapping) else {}
        name, weight = fields.get("name"), fields.get("weight", 1.0)
        if not isinstance(name, str) or type(weight) not in (int, float) or not abs(weight) <= 1e6:
            raise BadRequest("Each of 'voices' has a 'name' and a finite 'weight'.", param="voices")
        parts.append((name, float(weight)))
    return parts


def _mixture(records: list[VoiceRecord], weights: list[float]) -> tuple[SpeakerAnchor, ...]:
    widths = set.intersection(*({anchor.width for anchor in record.anchors} for record in records))
    if not widths:
        raise BadRequest("These voices have no vectors of one width.", param="voices")
    try:
        chosen = [[record.anchor((width,)) for record in records] for width in sorted(widths)]
        return tuple(
            SpeakerAnchor(mixed([anchor.embedding for anchor in row if anchor is not None], weights)) for row in chosen
        )
    except ValueError as error:
        raise BadRequest(f"The voices cannot be mixed: {error}.", param="voices") from None


@post("/api/voice-vectors/nearest", status_code=200)
async def nearest_vectors(request: Request[Any, Any, Any], service: Injected) -> ASGIApp:
    """The stored voices most alike to one, by cosine, nearest first.

    JSON with one of ``embedding``, ``voice`` (a stored name), ``ref_audio`` (a data URL), or a form with the file
    ``audio_sample``; ``k`` says how many.
    """

    async def work(caller: Caller) -> Response[bytes]:
        wanted, most = await _compared(request, service, caller)
        records = await service.library.records(caller.tenant)
        known = [(record.name, anchor.embedding) for record in records for anchor in record.anchors]
        found = await asyncio.to_thread(nearest, wanted.embedding, known, most)
        return json_response({"nearest": [{"name": name, "similarity": cosine} for name, cosine in found]})

    return await answered(request, service, ("admin",), work)


async def _compared(request: Request[Any, Any, Any], service: Service, caller: Caller) -> tuple[SpeakerAnchor, int]:
    """What is to be compared, and how many are wanted."""
    if not request.headers.get("content-type", "").startswith("application/json"):
        form = await read_form(request, service.config.server.body_timeout_s)
        file = form.files.get("audio_sample")
        if file is None:
            raise BadRequest("'audio_sample' is needed, a file.", param="audio_sample")
        pcm = await service.chooser.uploaded(file.data, "audio_sample")
        enrolled = await unless_gone(request, service.chooser.enrol(pcm, None, "audio_sample"))
        return enrolled.anchor, _most(form.text("k") or 5)
    members = await members_of(request, service)
    most = _most(members.get("k", 5))
    given = [key for key in ("embedding", "voice", "ref_audio") if members.get(key) is not None]
    if len(given) != 1:
        raise BadRequest("Exactly one of 'embedding', 'voice' and 'ref_audio' is needed.", param="embedding")
    value = members[given[0]]
    if given[0] == "embedding":
        return given_vector(value, service), most
    if not isinstance(value, str):
        raise BadRequest(f"'{given[0]}' must be a string.", param=given[0])
    if given[0] == "ref_audio":
        chosen = await unless_gone(request, service.chooser.recorded(caller.tenant, value, None))
        if chosen.anchor is not None:
            return chosen.anchor, most
    record, _ = await existing(service, caller, value)
    anchor = record.anchor(service.engine.traits.clone_widths) or next(iter(record.anchors), None)
    if anchor is None:
        raise BadRequest(f"The voice '{record.name}' has no vector.", param="voice")
    return anchor, most


def _most(given: Any) -> int:
    try:
        most = int(given) if isinstance(given, str) and given.isascii() else given
    except ValueError:
        most = None
    if not isinstance(most, int) or isinstance(most, bool) or not 1 <= most <= MAX_NEAREST:
        raise BadRequest(f"'k' must be a whole number from 1 to {MAX_NEAREST}.", param="k")
    return most


# ---------------------------------------------------------------- carry elsewhere
@get("/api/voice-vectors/export")
async def export_vectors(request: Request[Any, Any, Any], service: Injected) -> ASGIApp:
    """All voices of the tenant as one ``.safetensors`` file; ``?name=a&name=b`` only some.

    ``x-sidecar-left-out`` says how many are not in it because they are damaged; one that was named is a fault.
    """
    names = {name.strip().lower() for name in request.query_params.getall("name", [])}

    async def work(caller: Caller) -> Response[bytes]:
        records, broken = await service.library.records_and_damaged(caller.tenant)
        if missing := sorted(names - {record.name for record in records}):
            raise damaged(missing[0]) if missing[0] in broken else not_found(missing[0])
        chosen = [record for record in records if not names or record.name in names]
        content = await asyncio.to_thread(packed_set, chosen)
        headers = {
            "content-disposition": 'attachment; filename="voices.safetensors"',
            LEFT_OUT_HEADER: str(0 if names else len(broken)),
        }
        return Response(content=content, media_type="application/octet-stream", headers=headers)

    return await answered(request, service, ("admin", "voices:export"), work)


@post("/api/voice-vectors/import", status_code=200)
async def import_vectors(request: Request[Any, Any, Any], service: Injected) -> ASGIApp:
    """Store the voices of a ``.safetensors`` file, each by itself: ``{imported: [name], refused: [{name, reason}]}``.

    ``?replace=true`` also those whose names are taken; ``?consent=`` for voices that bring no consent id. A file that
    cannot be read changes nothing.
    """
    replacing = request.query_params.get("replace", "").lower() in ("1", "true", "yes")
    consent = request.query_params.get("consent", "")

    async def work(caller: Caller) -> Response[bytes]:
        server = service.config.server
        data = await read_body(request, server.max_body_bytes, server.body_timeout_s)
        try:
            found = await asyncio.to_thread(read_set, data, caller.tenant, taken_widths(service))
        except UnreadableSet as why:
            raise BadRequest(f"The file cannot be read: {why}.", param="file") from None
        refused = dict(found.refused)
        taken = []
        for record in found.records:
            try:
                taken.append(_with_consent(record, service, consent))
            except BadRequest as fault:
                refused[record.name] = fault.message
        outcome = await service.library.save_all(caller.tenant, taken, replacing)
        imported = [name for name, fault in outcome.items() if fault is None]
        refused |= {name: fault.message for name, fault in outcome.items() if fault is not None}
        reasons = [{"name": name, "reason": reason} for name, reason in refused.items()]
        return json_response({"imported": imported, "refused": reasons})

    return await answered(request, service, ("admin",), work)


def _with_consent(record: VoiceRecord, service: Service, consent: str) -> VoiceRecord:
    """A voice that may be stored. Raises ``BadRequest``."""
    new_name(record.name, service)
    if record.consent or not consent:
        return record
    try:
        return replace(record, consent=consent)
    except ValueError as error:
        raise BadRequest(f"It cannot be stored: {error}.", param="consent") from None


HANDLERS = (mix_vectors, nearest_vectors, export_vectors, import_vectors)
"""The routes of this file."""
