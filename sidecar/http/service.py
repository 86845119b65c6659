"""What every endpoint needs, in one place: configuration, ports, and the rules made from them."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

from litestar.connection import ASGIConnection
from litestar.di import NamedDependency

from sidecar.config import Config
from sidecar.core.admission import Admission, Ticket
from sidecar.core.playhead import Heard
from sidecar.drift_watch import DriftWatch
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
from sidecar.ports import SAMPLE_RATE_HZ, AudioCodec, ClipReader, Clock, Engine, LanguageModel, Store
from sidecar.reply import ReplyLimits, Voicing
from sidecar.reply_ears import ReplyEars, WatchedDialog
from sidecar.speech_line import LineLimits
from sidecar.telemetry import Metrics
from sidecar.voice_choice import VoiceChooser
from sidecar.voice_library import VoiceLibrary
from sidecar.voicebook import PLACEHOLDER, VoiceBook
from voices.carry import MAX_GAP_S, KeptCarry
from voices.continuity import Continuity
from voices.guard import Guard

log = logging.getLogger(__name__)

WATCHED_REPLIES = 8
"""While more speak at once their voices are not watched: sound goes first."""

MAX_GUARDS = 256
MAX_CARRIES = 256
GUARDED_SAMPLES = 20 * SAMPLE_RATE_HZ


class SpeakingReply(Protocol):
    """A chat reply that can be interrupted."""

    async def heard(self, audio_id: str, played_ms: float | None) -> Heard:
        """Its listener stopped at ``played_ms``: it says no more, and is remembered so."""


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
    speaking: int = 0
    own_carries: OrderedDict[tuple[str, str, str], KeptCarry] = field(default_factory=OrderedDict)
    """What dialogs of this instance left behind, by tenant, voice and dialog: for a store that lost it."""
    replies: dict[tuple[str, str], SpeakingReply] = field(default_factory=dict)
    """Chat replies that speak now, by tenant and audio id."""
    _guards: OrderedDict[str, Guard] = field(default_factory=OrderedDict)
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
        traits = self.engine.traits
        engine_id = f"{traits.name} {traits.codec_id} {traits.clone_widths} {self.config.engine.checkpoint}"
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
        if "drift" in self.__dict__:
            await self.drift.close()
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

    @cached_property
    def drift(self) -> DriftWatch:
        """Listens to the voices of all dialogs."""
        return DriftWatch(self.clock, observer=self.metrics)

    def ears(self, caller: Caller, voicing: Voicing, dialog: str, kept: KeptCarry | None) -> ReplyEars | None:
        """What listens along to a chat reply: for its carry, and for drift; None where there is nothing to gain.

        ``dialog`` is its name, ``kept`` what the dialog's reply before left behind.
        """
        voices, traits = self.config.voices, self.engine.traits
        continuity = None
        if voices.carry and traits.carry:
            continuity = Continuity(kept, reply_index=voicing.reply_index, now_s=self.clock.unix_s())
        watched = None
        if voices.drift != "off" and self.speaking <= WATCHED_REPLIES:
            guard = self._guard(dialog) if voices.drift == "guard" else None
            watched = WatchedDialog(caller.tenant, dialog, self.drift, guard)
        if continuity is None and watched is None:
            return None
        return ReplyEars(voicing.reply_index, voicing.dialog_seed, continuity, watched)

    def note_carry(self, key: tuple[str, str, str], kept: KeptCarry) -> None:
        """Remember what a dialog left behind, for its next reply on this instance."""
        self.own_carries[key] = kept
        self.own_carries.move_to_end(key)
        stale_s = self.clock.unix_s() - MAX_GAP_S
        while len(self.own_carries) > MAX_CARRIES or next(iter(self.own_carries.values())).spoken_s < stale_s:
            self.own_carries.popitem(last=False)
            if not self.own_carries:
                return

    def _guard(self, dialog: str) -> Guard:
        guard = self._guards.setdefault(dialog, Guard())
        self._guards.move_to_end(dialog)
        if len(self._guards) > MAX_GUARDS:
            self._guards.popitem(last=False)
        return guard

    def mode_of(self, wished: str | None, voice: str = "") -> str:
        """``live`` where it is wished, or configured for the voice or for all, and the engine can; else ``segment``."""
        wished = wished or self.config.chat.voice_modes.get(voice.lower()) or self.config.chat.mode
        return "live" if wished == "live" and self.engine.traits.live_text else "segment"

    def reply_limits(self) -> ReplyLimits:
        """Bounds of one chat reply."""
        chat = self.config.chat
        line = self.line_limits()
        if self.config.voices.drift == "guard":
            # A segment is judged whole, so it must be complete before anybody hears of it.
            line = replace(line, held_samples=GUARDED_SAMPLES)
        return ReplyLimits(line, chat.unspoken_chars, chat.max_reply_chars)

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
            self.speaking += places
            try:
                with self.metrics.active(places):
                    yield
            finally:
                self.speaking -= places
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
