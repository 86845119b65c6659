"""What every endpoint needs, in one place: configuration, ports, and the rules made from them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from litestar.connection import ASGIConnection
from litestar.di import NamedDependency

from segmenter import SegmentOptions
from sidecar.config import Config
from sidecar.core.admission import Admission, Ticket
from sidecar.faults import (
    ConfigError,
    EngineFault,
    Fault,
    StoreUnavailable,
    TooBusy,
    UnknownVoice,
    UpstreamFault,
    UpstreamRefused,
)
from sidecar.gate import Caller, Gate
from sidecar.http.speech_fields import SpeechRules
from sidecar.memory import DialogMemory
from sidecar.ports import AudioCodec, ClipReader, Clock, Engine, LanguageModel, Store
from sidecar.reply import ReplyLimits
from sidecar.speech_line import LineLimits
from sidecar.telemetry import Metrics
from sidecar.voice_choice import VoiceChooser
from sidecar.voice_library import VoiceLibrary
from sidecar.voicebook import PLACEHOLDER, VoiceBook

log = logging.getLogger(__name__)


@dataclass
class Service:
    """Built once by ``sidecar.wiring``; handed to every endpoint."""

    config: Config
    engine: Engine
    llm: LanguageModel
    store: Store
    codec: AudioCodec
    clock: Clock
    metrics: Metrics
    gate: Gate
    memory: DialogMemory
    library: VoiceLibrary
    clips: ClipReader
    spare_store: Store
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    warmed: asyncio.Event = field(default_factory=asyncio.Event)
    not_ready_reason: str = "starting"
    started: bool = False
    sockets: int = 0
    _admission: Admission = field(init=False)
    _admitted: dict[int, asyncio.Event] = field(default_factory=dict)

    def __post_init__(self) -> None:
        server = self.config.server
        self._admission = Admission(server.max_replies, server.queue_replies)

    @cached_property
    def voices(self) -> VoiceBook:
        """The engine's voices under their names and aliases."""
        voices = self.config.voices
        return VoiceBook(self.engine.traits, voices.aliases, voices.default)

    @cached_property
    def rules(self) -> SpeechRules:
        """What a speech request may ask of this engine."""
        speech = self.config.speech
        return SpeechRules(self.engine.traits, self.chooser, speech.max_input_chars, speech.max_instructions_chars)

    @cached_property
    def chooser(self) -> VoiceChooser:
        """Finds the voice of a request: the engine's, a stored one, or one of its own."""
        engine_id = f"{self.engine.traits.name} {self.engine.traits.clone_widths} {self.config.engine.checkpoint}"
        return VoiceChooser(self.engine, self.library, self.clips, lambda: self.voices, engine_id)

    async def start(self) -> None:
        """Open the store, load the engine, check the voices that are named. Once. Raises ``ConfigError``."""
        if self.started:
            return
        try:
            await self._start_store()
            await self.library.start()
            await self.engine.start()
            self._check_voices()
        except Fault as fault:
            await self.close()
            raise ConfigError([f"the server cannot start: {fault.message}"]) from fault
        except BaseException:
            await self.close()
            raise
        self.started = True

    async def close(self) -> None:
        """Free everything."""
        await self.llm.close()
        await self.engine.close()
        await self.library.close()
        await self.store.close()

    async def _start_store(self) -> None:
        try:
            await self.store.start()
        except StoreUnavailable as fault:
            if self.config.store.required:
                raise
            log.warning("keeping dialogs in memory only: %s", fault.message)
            self.store = self.spare_store
            self.memory.use(self.store)
            await self.store.start()
            await self.library.use(self.store)

    def _check_voices(self) -> None:
        """Every voice that the configuration names must exist, or may be stored where the engine takes such voices."""
        voices = self.config.voices
        named = {"voices.default": voices.default} | {f"voices.aliases.{k}": v for k, v in voices.aliases.items()}
        problems = []
        for key, name in named.items():
            try:
                self.voices.resolve(name)
            except UnknownVoice as fault:
                if not self.engine.traits.clone_widths:
                    problems.append(f"{key}: {fault.message}")
                elif name is not None and name != PLACEHOLDER:
                    log.info("%s is not one of the engine's voices; it is looked for among the stored ones", key)
        if problems:
            raise ConfigError(problems)

    async def until_ready(self) -> None:
        """Wait for the end of the warm-up. Raises ``EngineFault`` if it failed."""
        await self.warmed.wait()
        if not self.ready.is_set():
            raise EngineFault(f"The engine cannot speak: {self.not_ready_reason}")

    def line_limits(self) -> LineLimits:
        """How far speech runs ahead of its reader."""
        return LineLimits(ahead=self.config.chat.ahead_segments, chunk_timeout_s=self.config.engine.chunk_timeout_s)

    def reply_limits(self) -> ReplyLimits:
        """Bounds of one chat reply."""
        chat = self.config.chat
        return ReplyLimits(self.line_limits(), chat.unspoken_chars, chat.max_reply_chars)

    def segment_options(self) -> SegmentOptions:
        """How a chat reply is cut."""
        chat = self.config.chat
        return SegmentOptions(
            granularity=chat.granularity,
            first_by_clause=chat.first_by_clause,
            max_chars=chat.max_segment_chars,
            fragment_after_ms=chat.idle_flush_ms,
        )

    def authenticate(self, connection: ASGIConnection[Any, Any, Any, Any]) -> Caller:
        """Who calls. Raises ``Unauthorized`` or, after too many failures, ``TooBusy``."""
        client = connection.client.host if connection.client else ""
        return self.gate.authenticate(connection.headers.get("authorization"), client, self.clock.now_ms())

    def answered(self, fault: Fault) -> None:
        """Count a fault that a client is told; what is not the client's doing is logged too."""
        self.metrics.fault(fault.code)
        if fault.status < 500:
            return
        extra: dict[str, object] = {"code": fault.code}
        if isinstance(fault, UpstreamRefused):
            extra["upstream_status"] = fault.upstream_status
        if isinstance(fault, UpstreamFault):
            extra["llm"] = self.config.describe()["llm"]["url"]
        # Never the message: an upstream may quote what was said.
        log.warning("a request failed", extra=extra)

    @asynccontextmanager
    async def place(self, caller: Caller, places: int) -> AsyncIterator[None]:
        """Room for so many replies; waits a little for it. Raises ``TooBusy``."""
        server = self.config.server
        ticket = self._admission.ask(places)
        if ticket is None:
            raise TooBusy("All places are taken; try again.", retry_after_s=1.0)
        try:
            if not ticket.admitted:
                await self._wait(ticket, server.queue_wait_ms / 1000)
            with self.metrics.active(places):
                yield
        finally:
            for admitted in self._admission.leave(ticket):
                self._admitted[id(admitted)].set()

    async def _wait(self, ticket: Ticket, timeout_s: float) -> None:
        event = self._admitted[id(ticket)] = asyncio.Event()
        try:
            async with asyncio.timeout(timeout_s):
                await event.wait()
        except TimeoutError:
            raise TooBusy("All places are taken; try again.", retry_after_s=1.0) from None
        finally:
            del self._admitted[id(ticket)]


Injected = NamedDependency[Service]
"""The type of an endpoint's ``service`` argument."""
