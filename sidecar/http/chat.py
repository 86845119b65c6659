"""POST /v1/chat/completions: a drop-in for OpenAI's; the words come from the model behind us, the voice from here."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, aclosing, suppress
from typing import Any

import numpy as np
from litestar import Request, post
from litestar.types import ASGIApp

from sidecar.chat_turn import ChatTurn, ChoiceOver, Heard, Passed, TurnEvent, Words
from sidecar.core.chat import ChatChunks, MessageBuilder, audio_tokens, spoken_usage
from sidecar.core.dialog import (
    AudioReference,
    SpokenTurn,
    audio_references,
    dialog_name_of,
    dialog_seed_of,
    last_turn,
    resolved_messages,
)
from sidecar.core.events import ReplyAudio, SegmentEnded, SegmentStarted
from sidecar.faults import Fault, StoreUnavailable, UnsupportedLanguage
from sidecar.gate import Caller
from sidecar.http.chat_fields import AudioWish, audio_wish, upstream_body, wants_audio
from sidecar.http.passing import SSE_HEADERS, passed_through
from sidecar.http.service import Injected, Service
from sidecar.http.speech_fields import iso_language
from sidecar.http.wire import (
    BodyStream,
    fault_response,
    in_pieces,
    openai_error,
    parse_object,
    read_body,
    request_id,
    require_json,
    to_json,
    unless_gone,
)
from sidecar.memory import new_audio_id
from sidecar.ports import FRAME_SAMPLES, SAMPLE_RATE_HZ, ChatOpened, ChatStream, EngineTraits, Pcm
from sidecar.reply import Reply, Voicing
from sidecar.reply_ears import ReplyEars
from sidecar.voice_choice import ChosenVoice
from voices.carry import KeptCarry

log = logging.getLogger(__name__)

DIALOG_HEADER = "x-sidecar-dialog"
"""Names the dialog in answers, for its drift report."""

CARRY_TTL_S = 600.0
"""A carry is of no use after a much shorter silence already."""

_SILENCE: Pcm = np.zeros(FRAME_SAMPLES, np.float32)


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
        kept = await _kept_carry(service, caller, voicing, dialog) if references else None
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


class SpokenAnswer:
    """One spoken answer, streamed or whole."""

    def __init__(
        self,
        service: Service,
        caller: Caller,
        wish: AudioWish,
        voicing: Voicing,
        stream: ChatStream,
        prompt_chars: int,
        *,
        audio_ids: list[str],
        dialog: str,
        kept: KeptCarry | None = None,
    ) -> None:
        self._dialog = dialog
        self._kept = kept
        self._ears: ReplyEars | None = None
        self._service = service
        self._caller = caller
        self._wish = wish
        self._voicing = voicing
        self._prompt_chars = prompt_chars
        self._upstream_headers = dict(stream.headers)
        self._timer = service.metrics.reply_started("chat", service.clock.now_ms(), streamed=wish.stream)
        self._audio_ids = audio_ids
        self._transcripts = [""] * wish.n
        self._expires_at = service.memory.expiry()
        self._turn = ChatTurn(stream, wish.n, self._reply, service.config.llm.starts_in_think)

    def _reply(self, choice: int) -> Reply:
        service = self._service
        # Several choices are no dialog: the first one goes on, the others are spoken without a past.
        ears = service.ears(self._caller, self._voicing, self._dialog, self._kept) if choice == 0 else None
        self._ears = self._ears or ears
        return Reply(
            service.engine,
            service.clock,
            self._voicing,
            service.segment_options(),
            service.reply_limits(),
            service.metrics,
            ears=ears,
            sound=service.sound_rules(),
        )

    async def _events(self) -> AsyncGenerator[TurnEvent, None]:
        """The turn's events, timed; whatever was heard is remembered, also when the listener hangs up."""
        outcome = "failed"
        over: set[int] = set()
        try:
            async with aclosing(self._turn.events()) as events:
                async for event in events:
                    if isinstance(event, Words):
                        self._timer.token(self._service.clock.now_ms())
                        self._transcripts[event.choice] += event.text
                    elif isinstance(event, Heard) and isinstance(event.event, ReplyAudio):
                        self._timer.audio(self._service.clock.now_ms(), len(event.event.pcm))
                    elif isinstance(event, ChoiceOver):
                        over.add(event.choice)
                        await self._remember(event.choice, self._transcripts[event.choice])
                        if event.choice == 0:
                            await self._keep_carry()
                    yield event
            outcome = "completed"
        except (GeneratorExit, asyncio.CancelledError):
            outcome = "cancelled"
            raise
        finally:
            self._timer.ended(self._service.clock.now_ms(), outcome)
            for choice in set(range(self._wish.n)) - over if self._wish.stream else ():
                await self._remember(choice, self._turn.heard_text(choice))

    async def _remember(self, choice: int, transcript: str) -> None:
        if transcript:
            turn = SpokenTurn(
                transcript, self._voicing.dialog_seed, self._voicing.reply_index, self._expires_at, self._dialog
            )
            remembering = self._service.memory.remember(self._caller.tenant, self._audio_ids[choice], turn)
            await asyncio.shield(remembering)

    async def _keep_carry(self) -> None:
        """Leave the dialog's next reply something to lean on; it was spoken to its end."""
        kept = self._ears.kept(self._service.clock.unix_s()) if self._ears is not None else None
        if kept is None:
            return
        service, shelf = self._service, self._service.library.shelf
        service.note_carry((self._caller.tenant, kept.voice, self._dialog), kept)
        try:
            await asyncio.shield(shelf.keep_carry(self._caller.tenant, self._dialog, kept, CARRY_TTL_S))
        except Fault as fault:
            log.warning("a carry could not be kept: %s", fault.code)

    # ------------------------------------------------------------ whole
    async def whole(self, request_id: str) -> ASGIApp:
        """The ``chat.completion`` object."""
        messages = [MessageBuilder() for _ in range(self._wish.n)]
        encoders = [self._service.codec.start(self._wish.format) for _ in range(self._wish.n)]
        audio: list[list[bytes]] = [[] for _ in range(self._wish.n)]
        finish = ["stop"] * self._wish.n
        opened: ChatOpened | None = None
        async with aclosing(self._events()) as events:
            async for event in events:
                if isinstance(event, ChatOpened):
                    opened = event
                elif isinstance(event, Passed):
                    messages[event.choice].add(event.delta)
                elif isinstance(event, ChoiceOver):
                    finish[event.choice] = event.finish_reason
                elif isinstance(event, Heard) and isinstance(event.event, ReplyAudio):
                    encoder = encoders[event.choice]
                    audio[event.choice].append(await asyncio.to_thread(encoder.feed, event.event.pcm))
        choices = []
        for index in range(self._wish.n):
            if self._transcripts[index] and not self._turn.samples(index):
                # Nothing of it could be spoken; a file without a single sample is none.
                audio[index].append(await asyncio.to_thread(encoders[index].feed, _SILENCE))
            audio[index].append(await asyncio.to_thread(encoders[index].finish))
            choices.append(
                {
                    "index": index,
                    "message": messages[index].message(self._audio_object(index, b"".join(audio[index]))),
                    "logprobs": None,
                    "finish_reason": finish[index],
                }
            )
        body: dict[str, Any] = {
            "id": opened.id if opened else f"chatcmpl-{self._audio_ids[0][6:]}",
            "object": "chat.completion",
            "created": opened.created if opened else int(self._service.clock.unix_s()),
            "model": opened.model if opened else "",
            "choices": choices,
            "usage": self._usage(),
            "system_fingerprint": opened.system_fingerprint if opened else None,
        }
        content = to_json(body)
        # Megabytes of audio are not left lying for a client that does not read them.
        return BodyStream(
            in_pieces(content),
            headers={
                "content-type": "application/json",
                "content-length": str(len(content)),
                "x-request-id": request_id,
                DIALOG_HEADER: self._dialog,
            },
            slow_consumer_s=self._service.config.server.slow_consumer_s,
        )

    def _audio_object(self, choice: int, data: bytes) -> dict[str, Any] | None:
        transcript = self._transcripts[choice]
        if not transcript:
            return None
        return {
            "id": self._audio_ids[choice],
            "data": base64.b64encode(data).decode("ascii"),
            "expires_at": self._expires_at,
            "transcript": transcript,
        }

    def _usage(self) -> dict[str, Any]:
        samples = sum(self._turn.samples(choice) for choice in range(self._wish.n))
        text_chars = sum(map(len, self._transcripts))
        return spoken_usage(self._turn.usage, audio_tokens(samples, SAMPLE_RATE_HZ), self._prompt_chars, text_chars)

    # ------------------------------------------------------------ streamed
    def streamed(self, stack: AsyncExitStack, request_id: str) -> ASGIApp:
        """Server-sent ``chat.completion.chunk`` objects. Only ``data:`` lines and comments: SDKs fail on others."""
        server = self._service.config.server
        return BodyStream(
            self._lines(),
            cleanup=stack,
            headers={
                **self._upstream_headers,
                "content-type": "text/event-stream; charset=utf-8",
                **SSE_HEADERS,
                "x-request-id": request_id,
                DIALOG_HEADER: self._dialog,
            },
            slow_consumer_s=server.slow_consumer_s,
            idle_bytes=b": keep-alive\n\n",
            idle_s=server.keep_alive_comment_s,
        )

    async def _lines(self) -> AsyncGenerator[bytes, None]:
        chunks: ChatChunks | None = None
        try:
            async with aclosing(self._events()) as events:
                async for event in events:
                    if isinstance(event, ChatOpened):
                        chunks = self._chunks(event)
                        yield _data(chunks.open(self._wish.n))
                    elif chunks is not None and (lines := _data(self._written(chunks, event))):
                        yield lines
                        self._note_sent(event)
            if chunks is not None:
                yield _data(chunks.usage(self._usage())) + b"data: [DONE]\n\n"
        except Exception as error:
            # SDKs take a body that merely ends for a whole one.
            fault = error if isinstance(error, Fault) else Fault("Internal error.")
            self._service.answered(fault)
            yield b"data: " + to_json(openai_error(fault)) + b"\n\n"
            raise

    def _note_sent(self, event: TurnEvent) -> None:
        if isinstance(event, Heard) and isinstance(event.event, ReplyAudio) and event.event.ready_s is not None:
            waited_s = asyncio.get_running_loop().time() - event.event.ready_s
            self._service.metrics.chunk_waited(waited_s * 1000)

    def _chunks(self, opened: ChatOpened) -> ChatChunks:
        return ChatChunks(
            id=opened.id,
            created=opened.created,
            model=opened.model,
            include_usage=self._wish.include_usage,
            mirror_content=self._service.config.chat.mirror_content,
            system_fingerprint=opened.system_fingerprint,
        )

    def _written(self, chunks: ChatChunks, event: TurnEvent) -> list[dict[str, Any]]:
        """The chunks of one event."""
        if isinstance(event, Words):
            return chunks.transcript(event.choice, event.text, self._audio_ids[event.choice])
        if isinstance(event, Passed):
            return chunks.passed(event.choice, event.delta)
        if isinstance(event, ChoiceOver):
            return chunks.close(event.choice, event.finish_reason, self._expires_at)
        if isinstance(event, Heard):
            if isinstance(event.event, ReplyAudio):
                return chunks.audio(event.choice, self._pcm16(event.event.pcm))
            if self._wish.segments:
                return chunks.beside(event.choice, segment=_segment_mark(event.event))
        return []

    def _pcm16(self, pcm: Pcm) -> bytes:
        return self._service.codec.start("pcm", streaming=True).feed(pcm)


def _segment_mark(event: SegmentStarted | SegmentEnded) -> dict[str, Any]:
    """The extension beside ``delta`` that marks segments (asked for with ``audio.segments: true``)."""
    segment = event.segment
    mark: dict[str, Any] = {"index": segment.index, "start": segment.start, "end": segment.end}
    if isinstance(event, SegmentStarted):
        start_ms = event.first_sample * 1000 // SAMPLE_RATE_HZ
        return mark | {
            "type": "started",
            "text": segment.text,
            "spoken": segment.spoken,
            "seed": event.seed,
            "voice": event.voice,
            "language": event.language,
            "start_ms": start_ms,
        }
    mark |= {"type": "ended", "duration_ms": event.samples * 1000 // SAMPLE_RATE_HZ}
    return mark | ({"error": event.fault.message} if event.fault is not None else {})


def _data(chunks: list[dict[str, Any]]) -> bytes:
    return b"".join(b"data: " + to_json(chunk) + b"\n\n" for chunk in chunks)
