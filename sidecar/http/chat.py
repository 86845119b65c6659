"""POST /v1/chat/completions: a drop-in for OpenAI's; the words come from the model behind us, the voice from here."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from typing import Any

from litestar import Request, post
from litestar.types import ASGIApp

from sidecar.core.dialog import (
    AudioReference,
    SpokenTurn,
    audio_references,
    dialog_name_of,
    dialog_seed_of,
    last_turn,
    resolved_messages,
)
from sidecar.faults import Fault, StoreUnavailable, UnsupportedLanguage
from sidecar.gate import Caller
from sidecar.http.chat_fields import AudioWish, audio_wish, upstream_body, wants_audio
from sidecar.http.passing import passed_through
from sidecar.http.service import Injected, Service
from sidecar.http.speech_fields import iso_language
from sidecar.http.spoken import SpokenAnswer
from sidecar.http.wire import (
    fault_response,
    openai_error,
    parse_object,
    read_body,
    request_id,
    require_json,
    to_json,
    unless_gone,
)
from sidecar.memory import new_audio_id
from sidecar.ports import EngineTraits
from sidecar.reply import Voicing
from sidecar.voice_choice import ChosenVoice
from voices.carry import KeptCarry

log = logging.getLogger(__name__)


@post("/v1/chat/completions", status_code=200)
async def chat_completions(request: Request[Any, Any, Any], service: Injected) -> ASGIApp:
    """Text-only requests pass through byte for byte; with audio in ``modalities`` the answer is spoken."""
    named = request_id(request)
    try:
        caller = service.authenticate(request)
        require_json(request)
        server = service.config.server
        raw = await read_body(request, server.max_body_bytes, server.body_timeout_s)
        # A client may also leave while the model has not yet answered at all.
        return await unless_gone(request, _answer(service, caller, raw, dict(request.headers), named))
    except Fault as fault:
        service.answered(fault)
        response = fault_response(fault, openai_error)
        response.headers.setdefault("x-request-id", named)
        return response.to_asgi_response(app=None, request=request)


async def _answer(service: Service, caller: Caller, raw: bytes, headers: Mapping[str, str], named: str) -> ASGIApp:
    body = parse_object(raw)
    headers = {**headers, "x-request-id": named}
    references = audio_references(body.get("messages"))
    wish = audio_wish(body) if wants_audio(body) else None
    chosen = None
    if wish is not None:
        _check_language(wish, service.engine.traits)
        chosen = await service.chooser.named(caller.tenant, wish.voice, param="audio.voice")
    turns = await _recalled(service, caller, references)
    messages = resolved_messages(body["messages"], references, turns) if references else None
    if wish is None or chosen is None:
        if messages is not None:
            raw = to_json({**body, "messages": messages})
        answer = await service.llm.forward("/chat/completions", raw, headers)
        return await passed_through(service, answer, named)
    audio_ids = [new_audio_id() for _ in range(wish.n)]
    # A dialog is known by its first reply, whether anything is remembered of that or not.
    first_id = references[0].audio_id if references else audio_ids[0]
    turn = last_turn(references, turns)
    voicing = _voicing(wish, chosen, turn, first_id, len(references))
    dialog = turn.dialog if turn is not None and turn.dialog else dialog_name_of(first_id)
    stack = AsyncExitStack()
    try:
        await stack.enter_async_context(service.place(caller, wish.n))
        stream = await service.llm.stream(upstream_body(body, messages), headers)
        stack.push_async_callback(stream.aclose)
        leans = bool(references) and not (turn is not None and turn.cut)
        kept = await _kept_carry(service, caller, voicing, dialog) if leans else None
        spoken = SpokenAnswer(
            service,
            caller,
            wish,
            voicing,
            stream,
            _chars(body.get("messages")),
            audio_ids=audio_ids,
            dialog=dialog,
            kept=kept,
        )
        if wish.stream:
            return spoken.streamed(stack, named)
        async with stack:
            return await spoken.whole(named)
    except BaseException:
        await stack.aclose()
        raise


async def _recalled(service: Service, caller: Caller, references: list[AudioReference]) -> dict[str, SpokenTurn]:
    """What is remembered; a store that is away matters only to a message that does not bring its own words."""
    if not references:
        return {}
    try:
        return await service.memory.recall(caller.tenant, (reference.audio_id for reference in references))
    except StoreUnavailable:
        if not all(reference.has_words for reference in references):
            raise
        return {}


def _check_language(wish: AudioWish, traits: EngineTraits) -> None:
    """Before a word is written that nobody could hear. Raises ``UnsupportedLanguage``."""
    language = iso_language(wish.language)
    if language is not None and traits.languages and language not in traits.languages:
        raise UnsupportedLanguage(
            f"The engine '{traits.name}' does not speak '{language}'; its languages: {', '.join(traits.languages)}.",
            param="audio.language",
        )


async def _kept_carry(service: Service, caller: Caller, voicing: Voicing, dialog: str) -> KeptCarry | None:
    """What the dialog's reply before left behind; a store that is away costs the listener nothing but that."""
    if not (service.config.voices.carry and service.engine.traits.carry):
        return None
    kept = None
    with suppress(StoreUnavailable):
        kept = await service.library.shelf.carry(caller.tenant, voicing.name, dialog)
    return kept or service.own_carries.get((caller.tenant, voicing.name, dialog))


def _voicing(
    wish: AudioWish, chosen: ChosenVoice, turn: SpokenTurn | None, first_id: str, replies_before: int
) -> Voicing:
    seed, reply_index = dialog_seed_of(first_id) if chosen.seed is None else chosen.seed, replies_before
    if turn is not None:
        seed, reply_index = turn.dialog_seed, turn.reply_index + 1
    return Voicing(
        voice=chosen.voice,
        anchor=chosen.anchor,
        stored=chosen.stored,
        level_db=chosen.level_db,
        fingerprint=chosen.fingerprint,
        dialog_seed=wish.seed if wish.seed is not None else seed,
        reply_index=reply_index,
        language=iso_language(wish.language) or chosen.language or None,
        instructions=wish.instructions,
    )


def _chars(messages: Any) -> int:
    return sum(len(str(m.get("content") or "")) for m in messages or [] if isinstance(m, Mapping))
