"""WS /v1/audio/speech/stream: text in as it is written, speech out unit by unit.

The protocol is decided by ``sidecar.core.session``; here are the socket, the tasks and the engine. One task reads the
socket whatever the others do, so a cancel is seen at once; the next unit is prepared while one is sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from litestar import WebSocket, websocket

from segmenter import AUTO, SegmentOptions, SegmentStream, UnitSplitter
from sidecar.core.session import (
    Close,
    Effect,
    LiveText,
    SendBytes,
    SendJson,
    SessionLimits,
    SpeechSession,
    Splitter,
    StopSpeaking,
    Unit,
    UnitText,
)
from sidecar.faults import BadRequest, Fault, Forbidden, TooBusy, UnknownModel, UnsupportedByEngine, UnsupportedLanguage
from sidecar.gate import Caller
from sidecar.http.reply_rules import feed_limits, sound_rules
from sidecar.http.service import Injected, Service
from sidecar.http.speech_fields import SessionConfig, convert_config, iso_language
from sidecar.http.unit_heard import UnitListener
from sidecar.http.voiced_unit import Frame, VoicedUnit
from sidecar.http.wire import GOING_AWAY, TRANSPORT, fault_headers, openai_error, to_json
from sidecar.live_reply import LiveReply
from sidecar.live_speaking import LiveSpeaking
from sidecar.ports import Utterance
from sidecar.reply import Voicing
from sidecar.speech_line import Audio, Done, Opened, SpeechLine
from sidecar.voice_choice import ChosenVoice

log = logging.getLogger(__name__)

_KEY_PROTOCOL = "openai-insecure-api-key."
"""Browsers cannot set headers on a WebSocket; as OpenAI's clients do, they may offer their key as a subprotocol."""


@websocket("/v1/audio/speech/stream")
async def speech_stream(socket: WebSocket[Any, Any, Any], service: Injected) -> None:
    """One speech socket, from the handshake to the close."""
    try:
        caller, subprotocol = _admit(socket, service)
    except Fault as fault:
        await _refuse(socket, fault)
        return
    service.sockets += 1
    try:
        await socket.accept(subprotocols=subprotocol)
        await _Conversation(socket, service, caller).run()
    finally:
        service.sockets -= 1


def _admit(socket: WebSocket[Any, Any, Any], service: Service) -> tuple[Caller, str | None]:
    """Who it is and the subprotocol to accept.

    Raises ``Unauthorized``, ``Forbidden`` (a page of another origin), ``TooBusy``.
    """
    offered = [p.strip() for p in socket.headers.get("sec-websocket-protocol", "").split(",") if p.strip()]
    key = next((p for p in offered if p.startswith(_KEY_PROTOCOL)), None)
    origin = socket.headers.get("origin")
    allowed = service.config.server.cors_origins
    if origin and not (_same_site(origin, socket) or origin in allowed or "*" in allowed):
        raise Forbidden("This origin may not open a speech socket.")
    client = socket.client.host if socket.client else ""
    header = socket.headers.get("authorization") or (f"Bearer {key[len(_KEY_PROTOCOL) :]}" if key else None)
    caller = service.gate.authenticate(header, client, service.clock.now_ms())
    if service.sockets >= service.config.stream.max_sockets:
        raise TooBusy("Too many sockets are open.", retry_after_s=1.0)
    return caller, next((p for p in offered if p != key), None)


def _same_site(origin: str, socket: WebSocket[Any, Any, Any]) -> bool:
    return urlsplit(origin).netloc.lower() == socket.headers.get("host", "").lower()


async def _refuse(socket: WebSocket[Any, Any, Any], fault: Fault) -> None:
    """An HTTP answer instead of the handshake."""
    headers = [(k.encode("latin-1"), v.encode("latin-1")) for k, v in fault_headers(fault).items()]
    headers.append((b"content-type", b"application/json"))
    send: Any = socket.send
    await send({"type": "websocket.http.response.start", "status": fault.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": to_json(openai_error(fault))})


class _PlainSplitter:
    """vLLM-Omni's rules: units are the client's own text, spoken as it is."""

    def __init__(self, granularity: str) -> None:
        self._splitter = UnitSplitter(granularity)
        self._chars = 0

    def feed(self, text: str) -> list[UnitText]:
        self._chars += len(text)
        return self._units(self._splitter.feed(text))

    def flush(self) -> list[UnitText]:
        return self._units(self._splitter.flush())

    def _units(self, units: list[str]) -> list[UnitText]:
        self._chars = max(0, self._chars - sum(map(len, units)))
        return [UnitText(unit, unit) for unit in units]

    @property
    def pending_chars(self) -> int:
        return self._chars


def _segment_language(name: str | None) -> str:
    """The language to cut by; one that is not known is told with the first unit, not here."""
    try:
        return iso_language(name) or AUTO
    except UnsupportedLanguage:
        return AUTO


class _SpeakableSplitter:
    """The sidecar's own rules: sentences or clauses, with Markdown and the like turned into what a person says."""

    def __init__(self, options: SegmentOptions) -> None:
        self._stream = SegmentStream(options)

    def feed(self, text: str) -> list[UnitText]:
        return [UnitText(s.text.strip(), s.spoken) for s in self._stream.feed(text) if s.spoken]

    def flush(self) -> list[UnitText]:
        return [UnitText(s.text.strip(), s.spoken) for s in self._stream.flush() if s.spoken]

    @property
    def pending_chars(self) -> int:
        chars: int = self._stream.pending_chars
        return chars


class _Conversation:
    """The tasks of one socket around its state machine."""

    def __init__(self, socket: WebSocket[Any, Any, Any], service: Service, caller: Caller) -> None:
        stream = service.config.stream
        self._caller = caller
        self._socket = socket
        self._service = service
        self._limits = SessionLimits(
            config_timeout_ms=stream.config_timeout_s * 1000,
            idle_timeout_ms=stream.idle_timeout_s * 1000,
            max_config_chars=stream.max_config_chars,
            max_message_chars=stream.max_message_chars,
            max_buffered_chars=stream.max_buffered_chars,
            max_queued_utterances=stream.max_queued_utterances,
        )
        self._session: SpeechSession[SessionConfig] = SpeechSession(
            self._limits, self._parse_config, self._splitter, service.clock.now_ms(), self._is_live
        )
        self._line: SpeechLine[Unit[SessionConfig]] = SpeechLine(service.engine, service.line_limits(), service.metrics)
        self._sending = asyncio.Lock()
        self._changed = asyncio.Event()
        self._voiced = VoicedUnit(service)
        self._listener = UnitListener()
        self._recorded: tuple[SessionConfig, ChosenVoice] | None = None

    async def run(self) -> None:
        """Until the socket closes, from whichever side."""
        async with self._line:
            tasks = [
                asyncio.create_task(work()) for work in (self._read, self._prepare, self._play, self._watch_deadline)
            ]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                results = await asyncio.gather(*tasks, return_exceptions=True)
        self._voiced.abandoned()
        for error in results:
            if isinstance(error, Exception) and not isinstance(error, _Gone):
                log.error("a speech socket failed", exc_info=error)
        if not self._session.closed and any(isinstance(e, Exception) and not isinstance(e, _Gone) for e in results):
            await self._perform([SendJson({"type": "error", "message": "Internal error."}), Close(1011)])

    # ------------------------------------------------------------ the four tasks
    async def _read(self) -> None:
        while not self._session.closed:
            message: Any = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            if message.get(GOING_AWAY):
                await self._perform(self._session.going_away())
                continue
            now_ms = self._service.clock.now_ms()
            cancels = self._session.cancels
            text = message.get("text")
            if text is not None:
                effects = self._session.text_frame(text, now_ms)
            else:
                effects = self._session.binary_frame(now_ms)
            if self._session.cancels > cancels:
                self._service.metrics.cancelled()
                effects = self._listener.cut(effects, self._session.cut_ms)
            self._changed.set()
            await self._perform(effects)

    async def _prepare(self) -> None:
        while True:
            unit = self._session.next_unit()
            if unit is None:
                self._changed.clear()
                await self._changed.wait()
                continue
            make = partial(self._utterance, unit, await self._voice(unit))
            opener = None if unit.live is None else partial(self._open_live, unit, unit.live)
            await self._line.say(unit, make, opener=opener)

    async def _play(self) -> None:
        async for event in self._line.events():
            unit = event.ticket
            effects: list[Effect] = []
            if isinstance(event, Opened):
                self._voiced.opened(unit, event.utterance.anchor)
                effects = self._session.unit_opened(unit, self._voiced.start_event())
                self._listener.opened(unit)
            elif isinstance(event, Audio):
                effects = self._frames(unit, await self._voiced.audio(event))
                self._listener.audio(unit, event.chunk, sent=bool(effects))
            else:
                effects = await self._unit_over(event)
            self._changed.set()
            await self._perform(effects)

    async def _unit_over(self, event: Done[Unit[SessionConfig]]) -> list[Effect]:
        unit, session, voiced = event.ticket, self._session, self._voiced
        effects: list[Effect] = []
        unheard = voiced.unit is not unit and event.fault is not None and session.wants(unit)
        if unheard and not self._without_bracket(unit.config):
            voiced.opened(unit)
            effects += session.unit_opened(unit, voiced.start_event())
        outcome = "cancelled" if event.cancelled else "failed" if event.fault is not None else "completed"
        effects += self._frames(unit, await voiced.finish(outcome))
        closing, done = voiced.over(failed=event.fault is not None)
        if event.cancelled:
            done["cancelled"] = True
        done |= self._listener.over(unit, whole=event.fault is None)
        if event.fault is not None and session.wants(unit):
            self._service.answered(event.fault)
        return effects + session.unit_done(unit, done, event.fault, self._service.clock.now_ms(), closing)

    def _without_bracket(self, config: SessionConfig) -> bool:
        """Units that fail for what the session asks of the server get an error only, no start and done."""
        codes = config.output_mode == "codec_tokens"
        return (config.word_timestamps and not config.stream_audio) or (
            codes and not self._service.engine.traits.codes_out
        )

    def _frames(self, unit: Unit[SessionConfig], frames: Sequence[Frame]) -> list[Effect]:
        """These frames, unless the unit takes no more audio."""
        effects: list[Effect] = []
        for frame, audio_bytes in frames:
            sent = self._session.unit_audio(unit, frame, self._service.clock.now_ms())
            self._voiced.bytes_sent += audio_bytes if sent else 0
            effects += sent
        return effects

    async def _watch_deadline(self) -> None:
        while not self._session.closed:
            deadline_ms = self._session.deadline_ms()
            now_ms = self._service.clock.now_ms()
            if deadline_ms is not None and now_ms >= deadline_ms:
                await self._perform(self._session.timeout(now_ms))
            else:
                await self._service.clock.sleep(min(1000.0, (deadline_ms or now_ms + 1000.0) - now_ms + 1))

    # ------------------------------------------------------------ deciding what to say
    def _parse_config(self, message: dict[str, Any]) -> SessionConfig:
        config = convert_config(message)
        speech = self._service.config.speech
        if config.model and config.model not in (*speech.models, *speech.openai_models):
            raise UnknownModel(f"The model '{config.model[:80]}' does not exist.", param="model")
        return config

    def _is_live(self, config: SessionConfig) -> bool:
        return config.mode == "live" and self._service.mode_of("live") == "live"

    def _splitter(self, config: SessionConfig) -> Splitter:
        if (config.split_rules or self._service.config.stream.split_rules) == "vllm":
            return _PlainSplitter(config.split_granularity)
        chat = self._service.config.chat
        return _SpeakableSplitter(
            SegmentOptions(
                granularity=config.split_granularity,
                language=_segment_language(config.language),
                first_by_clause=config.split_granularity == "clause",
                max_chars=chat.max_segment_chars,
                verbalise=chat.verbalise,
            )
        )

    async def _voice(self, unit: Unit[SessionConfig]) -> ChosenVoice | Fault:
        """The voice of a unit, or why it has none: to be told in the unit's turn."""
        config, rules = unit.config, self._service.rules
        try:
            rules.check(config, unit.text.spoken, config.ref_audio, config.max_new_tokens)
            if config.ref_audio is None:
                return await rules.choose(config, None, self._caller.tenant)
            if self._recorded is None or self._recorded[0] is not config:
                self._recorded = config, await rules.choose(config, config.ref_audio, self._caller.tenant)
            return self._recorded[1]
        except Fault as fault:
            return fault
        except Exception as error:
            log.error("no voice for a unit", exc_info=error)
            return Fault("Internal error.")

    def _utterance(self, unit: Unit[SessionConfig], chosen: ChosenVoice | Fault) -> Utterance:
        config = unit.config
        if not self._session.wants(unit):
            raise BadRequest("Cancelled before it was spoken.")
        codes = config.output_mode == "codec_tokens"
        if codes and not self._service.engine.traits.codes_out:
            name = self._service.engine.traits.name
            raise UnsupportedByEngine(f"The engine '{name}' has no codec tokens.", param="output_mode")
        if config.word_timestamps and not config.stream_audio:
            raise BadRequest("word_timestamps needs stream_audio and response_format 'pcm'.", param="word_timestamps")
        if isinstance(chosen, Fault):
            raise chosen
        place = (unit.utterance_index, unit.sentence_index)
        asked = self._service.rules.utterance(config, unit.text.spoken, chosen, config.max_new_tokens, place)
        if unit.live is not None:
            return replace(asked, text="", live=True)
        if codes:
            asked = replace(asked, output="codes")
        before = self._line.last_opened
        if asked.language is None and before is not None and before.ticket.utterance_index == unit.utterance_index:
            # A short unit says too little about its language; one utterance keeps one voice.
            return replace(asked, language=before.language)
        return asked

    async def _open_live(self, unit: Unit[SessionConfig], text: LiveText, asked: Utterance) -> LiveSpeaking:
        """The utterance as a live reply, for which the line takes it."""
        service = self._service
        voicing = Voicing(
            voice=asked.voice,
            dialog_seed=asked.seed,
            reply_index=unit.utterance_index,
            language=asked.language,
            instructions=asked.instructions,
            anchor=asked.anchor,
        )
        reply = LiveReply(
            service.engine,
            service.clock,
            voicing,
            service.reply_limits(),
            feed_limits(service.config),
            service.metrics,
            sound=sound_rules(service.config),
        )
        speaking = LiveSpeaking(reply, text)
        text.changed = speaking.text_changed
        self._listener.live(unit, speaking)
        return await speaking.open()

    # ------------------------------------------------------------ sending
    async def _perform(self, effects: list[Effect]) -> None:
        if any(isinstance(effect, StopSpeaking) for effect in effects):
            self._line.cancel_all()
        frames = [effect for effect in effects if not isinstance(effect, StopSpeaking)]
        if not frames:
            return
        async with self._sending:
            for effect in frames:
                await self._send(effect)

    async def _send(self, effect: Effect) -> None:
        send: Any = self._socket.send
        timeout_s = self._service.config.server.slow_consumer_s
        try:
            async with asyncio.timeout(timeout_s):
                if isinstance(effect, SendJson):
                    await send({"type": "websocket.send", "text": to_json(effect.message).decode("utf-8")})
                elif isinstance(effect, SendBytes):
                    await send({"type": "websocket.send", "bytes": effect.data})
                elif isinstance(effect, Close):
                    await send({"type": "websocket.close", "code": effect.code, "reason": effect.reason})
        except TimeoutError:
            # Nothing more fits into this socket, not even a close frame.
            self._session.slow_consumer()
            transport = self._socket.scope.get("state", {}).get(TRANSPORT)
            if transport is not None:
                transport.abort()
            raise _Gone from None
        except (RuntimeError, OSError) as error:
            raise _Gone from error


class _Gone(Exception):
    """The socket cannot be written to any more."""
