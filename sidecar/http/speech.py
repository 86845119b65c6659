"""POST /v1/audio/speech: OpenAI's and vLLM-Omni's fields; the whole file, a raw stream, or server-sent events."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import logging
import math
from collections.abc import AsyncGenerator, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

from litestar import Request, post
from litestar.types import ASGIApp
from msgspec import UNSET
from msgspec.structs import replace

from segmenter import speakable
from sidecar.core.word_stamps import WordStamps, stamp_headers
from sidecar.faults import BadRequest, EngineFault, Fault, UnknownModel
from sidecar.gate import Caller
from sidecar.http.service import Injected, Service
from sidecar.http.speech_fields import SAMPLE_RATES_HZ, VOICE_FIELDS, SpeechBody, convert_body
from sidecar.http.wire import (
    BodyStream,
    fault_response,
    in_pieces,
    omni_error,
    openai_error,
    parse_object,
    read_body,
    request_id,
    require_json,
    to_json,
    unless_gone,
)
from sidecar.ports import FRAME_SAMPLES, SAMPLE_RATE_HZ, AudioChunk, Speaking, Utterance
from sidecar.speech_line import checked_chunks, longest_samples
from voices.seeds import new_dialog_seed

log = logging.getLogger(__name__)

_STREAMABLE = ("wav", "pcm")


@dataclass(frozen=True, slots=True)
class SpeechRequest:
    """A checked request: what to say and how to send it.

    ``again``: nothing in it says that it must be this very reading, so one that fails may be tried once more.
    """

    utterance: Utterance
    format: str
    rate_hz: int
    speed: float
    delivery: str  # "whole", "raw" or "sse"
    openai: bool
    word_times: bool = False
    again: bool = False


@post("/v1/audio/speech", status_code=200)
async def speech(request: Request[Any, Any, Any], service: Injected) -> ASGIApp:
    """Speak one text. Every error before the first byte is a plain HTTP answer in the endpoint's own form."""
    return await spoken(request, service)


async def spoken(request: Request[Any, Any, Any], service: Service, stored: str | None = None) -> ASGIApp:
    """The answer to a speech request; with the vector of a ``stored`` voice, whatever voice the request names."""
    render = omni_error
    try:
        caller = service.authenticate(request)
        require_json(request)
        body = await read_body(request, service.config.server.max_body_bytes, service.config.server.body_timeout_s)
        members = parse_object(body)
        if members.get("model") in service.config.speech.openai_models:
            # Known before the other fields are looked at: their errors are OpenAI's too.
            render = openai_error
        fields = convert_body(members, prefix="" if render is openai_error else "body")
        asked = await unless_gone(request, checked(fields, service, caller, stored=stored))
        async with opened(asked, service, service.place(caller, 1)) as (speaking, stack):
            answer = SpeechAnswer(asked, speaking, service, stack)
            work = answer.whole(request) if asked.delivery == "whole" else answer.stream(request_id(request))
            return await unless_gone(request, work)
    except Fault as fault:
        service.answered(fault)
        return fault_response(fault, render).to_asgi_response(app=None, request=request)


@asynccontextmanager
async def opened(
    asked: SpeechRequest, service: Service, place: AbstractAsyncContextManager[Any] | None = None
) -> AsyncGenerator[tuple[Speaking, AsyncExitStack], None]:
    """The utterance being spoken, and what holds its row (and ``place``): closed here only if this block fails."""
    stack = AsyncExitStack()
    try:
        if place is not None:
            await stack.enter_async_context(place)
        speaking = await service.engine.open(asked.utterance)
        stack.callback(speaking.cancel)
        yield speaking, stack
    except BaseException:
        await stack.aclose()
        raise


async def checked(
    fields: SpeechBody, service: Service, caller: Caller, *, whole: bool = False, stored: str | None = None
) -> SpeechRequest:
    """The request behind the fields, with its voice; ``whole``: to be sent as a file, whatever the fields say.

    ``stored``: with the vector of this stored voice, whatever voice the fields name. Raises ``UnknownModel``,
    ``BadRequest``, ``NotFound``, ``StoreUnavailable``.
    """
    if stored is not None:
        fields = replace(fields, references=None, **dict.fromkeys(VOICE_FIELDS))
    speech = service.config.speech
    openai = fields.model in speech.openai_models
    if fields.model and not openai and fields.model not in speech.models:
        raise UnknownModel(f"The model '{fields.model[:80]}' does not exist.", param="model")
    format = fields.response_format if fields.response_format is not UNSET else ("mp3" if openai else "wav")
    speed = fields.speed if fields.speed is not None else 1.0
    delivery = "whole" if whole else _delivery(fields, openai, format, speed)
    if fields.sample_rate is not None and fields.sample_rate not in SAMPLE_RATES_HZ:
        raise BadRequest("sample_rate must be 8000 or 24000.", param="sample_rate")
    fields = _with_reference(fields)
    text = fields.input
    if speech.clean_text if fields.clean_text is None else fields.clean_text:
        text = speakable(text) or text
    rules = service.rules
    rules.check(fields, text, fields.ref_audio, fields.max_new_tokens)
    if stored is not None:
        chosen = await service.chooser.stored(caller.tenant, stored, vector_only=True)
    else:
        chosen = await rules.choose(fields, fields.ref_audio, caller.tenant)
    utterance = rules.utterance(fields, text, chosen, fields.max_new_tokens)
    rate_hz = fields.sample_rate or SAMPLE_RATE_HZ
    again = fields.seed is None and fields.max_new_tokens is None
    return SpeechRequest(utterance, format, rate_hz, speed, delivery, openai, fields.word_timestamps, again)


def _with_reference(fields: SpeechBody) -> SpeechBody:
    """The fields with ``references`` in their usual places. Raises ``BadRequest`` for none, several, or both forms."""
    if fields.references is None:
        if isinstance(fields.ref_audio, list) and not fields.ref_audio:
            raise BadRequest("ref_audio must not be an empty list.", param="ref_audio")
        return fields
    if len(fields.references) != 1:
        raise BadRequest("references must have exactly one entry.", param="references")
    if fields.ref_audio is not None or fields.ref_text is not None:
        raise BadRequest("references and ref_audio or ref_text exclude each other.", param="references")
    (one,) = fields.references
    return replace(fields, ref_audio=one.audio_path, ref_text=one.text)


def _delivery(fields: SpeechBody, openai: bool, format: str, speed: float) -> str:
    """How the answer travels: "whole", "raw" or "sse". Raises ``BadRequest`` for what cannot be streamed."""
    asked = {"sse": "sse", "audio": "raw"}.get(fields.stream_format or "", "")
    if openai:
        # OpenAI streams every answer; only a WAV without an asked-for stream is kept whole, for its true sizes.
        delivery = asked or ("whole" if format == "wav" or fields.word_timestamps else "raw")
    else:
        delivery = asked or ("sse" if fields.stream else "whole")
    if delivery == "whole":
        return delivery
    if not openai and format not in _STREAMABLE:
        raise BadRequest(f"Streaming needs response_format 'pcm' or 'wav', not '{format}'.", param="response_format")
    if not openai and speed != 1.0:
        raise BadRequest("Streaming needs speed 1.0.", param="speed")
    if fields.word_timestamps:
        raise BadRequest("word_timestamps cannot be streamed over HTTP.", param="word_timestamps")
    return delivery


class SpeechAnswer:
    """One utterance on its way to one client. ``stack`` holds the row and the place until the audio has gone."""

    def __init__(self, asked: SpeechRequest, speaking: Speaking, service: Service, stack: AsyncExitStack) -> None:
        self._asked = asked
        self._service = service
        self._stack = stack
        self._timer = service.metrics.reply_started(
            "speech", service.clock.now_ms(), streamed=asked.delivery != "whole"
        )
        self._begin(speaking)

    def _begin(self, speaking: Speaking) -> None:
        asked, service = self._asked, self._service
        self._speaking = speaking
        self._samples = 0
        self._encoder = service.codec.start(
            asked.format, rate_hz=asked.rate_hz, streaming=asked.delivery != "whole", speed=asked.speed
        )
        self._chunks = checked_chunks(speaking, service.config.engine.chunk_timeout_s, longest_samples(asked.utterance))
        self._words = WordStamps(asked.utterance.text, asked.speed) if asked.word_times else None

    @property
    def media_type(self) -> str:
        """Of the file."""
        return self._encoder.media_type

    async def collected(self) -> bytes:
        """The complete file; the row is free then. A reading that goes wrong is tried once more with another seed."""
        async with self._stack:
            with self._outcome():
                try:
                    return await self._file()
                except EngineFault as fault:
                    # An engine that is lost or full does not get better by being asked again at once.
                    if type(fault) is not EngineFault or not self._asked.again:
                        raise
                log.info("a reading failed and is tried again")
                utterance = dataclasses.replace(self._asked.utterance, seed=new_dialog_seed())
                speaking = await self._service.engine.open(utterance)
                self._stack.callback(speaking.cancel)
                self._begin(speaking)
                return await self._file()

    async def _file(self) -> bytes:
        return b"".join([piece async for piece in self._encoded()])

    async def whole(self, request: Request[Any, Any, Any]) -> ASGIApp:
        """The complete file with usage headers, and the times of its words if they were asked for."""
        content = await self.collected()
        usage = self.usage()
        details = usage["input_token_details"]
        headers = {
            "x-vllm-omni-input-tokens": str(usage["input_tokens"]),
            "x-vllm-omni-output-tokens": str(usage["output_tokens"]),
            "x-vllm-omni-total-tokens": str(usage["total_tokens"]),
            "x-vllm-omni-input-text-tokens": str(details["text_tokens"]),
            "x-vllm-omni-input-audio-tokens": str(details["audio_tokens"]),
        }
        if self._words is not None:
            headers |= stamp_headers(await asyncio.to_thread(self._words.stamps))
        headers |= {
            "content-type": self.media_type,
            "content-length": str(len(content)),
            "x-request-id": request_id(request),
        }
        return BodyStream(
            in_pieces(content), headers=headers, slow_consumer_s=self._service.config.server.slow_consumer_s
        )

    async def stream(self, request_id: str) -> ASGIApp:
        """Bytes as they are made. The first samples are awaited before the 200, so that a failure is an error."""
        with self._outcome():
            first = await anext(self._chunks, None)
            if first is None:
                raise EngineFault("The speech engine produced no audio.")
        sse = self._asked.delivery == "sse"
        source = self._events(first) if sse else self._raw(first)
        headers = {
            "content-type": "text/event-stream; charset=utf-8" if sse else self._encoder.media_type,
            "cache-control": "no-cache",
            "x-accel-buffering": "no",
            "x-request-id": request_id,
        }
        server = self._service.config.server
        return BodyStream(
            source,
            cleanup=self._stack,
            headers=headers,
            slow_consumer_s=server.slow_consumer_s,
            idle_bytes=b": keep-alive\n\n" if sse else b"",
            idle_s=server.keep_alive_comment_s,
        )

    async def _encoded(self, first: AudioChunk | None = None) -> AsyncGenerator[bytes, None]:
        """The file's bytes as they are ready."""
        async with aclosing(self._chunks) as chunks:
            if first is not None:
                yield await self._feed(first)
            async for chunk in chunks:
                yield await self._feed(chunk)
            yield await asyncio.to_thread(self._encoder.finish)
        self._timer.ended(self._service.clock.now_ms(), "completed")

    async def _raw(self, first: AudioChunk) -> AsyncGenerator[bytes, None]:
        with self._outcome():
            async with aclosing(self._encoded(first)) as pieces:
                async for piece in pieces:
                    yield piece

    @contextmanager
    def _outcome(self) -> Iterator[None]:
        """Notes how the reply ended if this block does not get through."""
        try:
            yield
        except (GeneratorExit, asyncio.CancelledError):
            self._timer.ended(self._service.clock.now_ms(), "cancelled")
            raise
        except BaseException:
            self._timer.ended(self._service.clock.now_ms(), "failed")
            raise

    async def _feed(self, chunk: AudioChunk) -> bytes:
        self._timer.audio(self._service.clock.now_ms(), len(chunk.pcm))
        self._samples += len(chunk.pcm)
        if self._words is not None:
            self._words.feed(chunk.pcm)
        if self._asked.format in _STREAMABLE:
            return self._encoder.feed(chunk.pcm)
        return await asyncio.to_thread(self._encoder.feed, chunk.pcm)

    async def _events(self, first: AudioChunk) -> AsyncGenerator[bytes, None]:
        try:
            async with aclosing(self._raw(first)) as pieces:
                async for piece in pieces:
                    if piece:
                        delta: dict[str, Any] = {
                            "type": "speech.audio.delta",
                            "audio": base64.b64encode(piece).decode("ascii"),
                        }
                        if not self._asked.openai:
                            delta["response_format"] = self._asked.format
                        yield self._event(delta)
            yield self._event({"type": "speech.audio.done", "usage": self.usage()})
        except Fault as fault:
            yield self._event(self._error_event(fault))
            raise

    def _event(self, body: dict[str, Any]) -> bytes:
        head = b"" if self._asked.openai else b"event: " + body["type"].encode("ascii") + b"\n"
        return head + b"data: " + to_json(body) + b"\n\n"

    def _error_event(self, fault: Fault) -> dict[str, Any]:
        if self._asked.openai:
            return {"type": "error", **openai_error(fault)}
        error = {
            "message": fault.message,
            "type": "server_error",
            "param": None,
            "code": 500,
            "partial_audio": self._samples > 0,
            "action": "discard",
        }
        return {"type": "speech.audio.error", "error": error}

    def usage(self) -> dict[str, Any]:
        """Token counts: text tokens and the frames of a reference recording in, frames out."""
        text = self._speaking.text_tokens
        anchor = self._asked.utterance.anchor
        in_context = anchor is not None and self._service.engine.traits.anchor_codes
        audio = len(anchor.codes) if in_context and anchor is not None and anchor.codes is not None else 0
        frames = max(1, math.ceil(self._samples / FRAME_SAMPLES))
        return {
            "input_tokens": text + audio,
            "output_tokens": frames,
            "total_tokens": text + audio + frames,
            "input_token_details": {"text_tokens": text, "audio_tokens": audio},
        }
