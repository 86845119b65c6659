"""Drives vLLM-Omni servers, other sidecars, or any server with ``/v1/audio/speech``, as one engine.

Each utterance goes to the least busy server that can speak it, over the speech WebSocket or over REST. A server that
fails is left alone for a growing while; what it was asked for is asked for elsewhere with the same seed, and what the
listener has of it already is skipped. Protocol: ``docs/remote_engine.md``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Collection
from http.cookiejar import DefaultCookiePolicy
from typing import Literal

import httpx2

from adapters.engines.anchors import checked_embedding
from adapters.engines.builtin.languages import Languages, normal_code
from adapters.engines.omni_abilities import traits_of
from adapters.engines.omni_fleet import Fleet
from adapters.engines.omni_server import Server, ServerAway
from adapters.engines.omni_settings import CodesHere, OmniSettings
from adapters.engines.omni_sources import Ears
from adapters.engines.omni_speaking import OmniSpeaking
from adapters.engines.rows import Rows
from sidecar.faults import BadRequest, EngineFault, EngineLost, UnknownVoice, UnsupportedByEngine, UnsupportedLanguage
from sidecar.ports import Clock, EngineHealth, EngineTraits, Pcm, Utterance
from voices.anchor import SpeakerAnchor

__all__ = ["CodesHere", "OmniEngine", "OmniSettings"]

MAX_VOICES_TOLD = 60
_STOP_TIMEOUT_S = 5.0

_log = logging.getLogger(__name__)


class OmniEngine:
    """See ``sidecar.ports.Engine``. Lives in one event loop. ``chance`` spreads retries; numbers in [0, 1)."""

    def __init__(self, settings: OmniSettings, clock: Clock, *, chance: Callable[[], float] = random.random) -> None:
        self._settings = settings
        self._clock = clock
        self._http: httpx2.AsyncClient | None = None
        self._servers: list[Server] = []
        self._fleet = Fleet(
            len(settings.urls),
            check_every_ms=settings.check_every_s * 1e3,
            back_off_ms=settings.back_off_s * 1e3,
            back_off_max_ms=settings.back_off_max_s * 1e3,
            chance=chance,
        )
        self._rows = Rows(
            settings.max_rows, max_waiting=settings.max_waiting, wait_ms=settings.row_wait_ms, sleep=clock.sleep
        )
        self._ears = Ears(settings.codes) if settings.codes is not None else None
        self._detector = Languages()
        self._traits: EngineTraits | None = None
        self._state: Literal["new", "starting", "running", "closed"] = "new"
        self._speaking: set[OmniSpeaking] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._checkers: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()
        self._wake = [asyncio.Event() for _ in settings.urls]
        self._checked = [False for _ in settings.urls]

    # ------------------------------------------------------------ the port
    @property
    def traits(self) -> EngineTraits:
        """What the servers can do that were there at the start; raises ``EngineLost`` before ``start``."""
        if self._traits is None:
            raise EngineLost("The speech engine is not running.")
        return self._traits

    async def start(self) -> None:
        """Look at every server; raises ``EngineFault`` when none answers, ``EngineLost`` after ``close``."""
        if self._state == "closed":
            raise EngineLost("The speech engine was stopped.")
        if self._state != "new":
            return
        self._state = "starting"
        self._http = httpx2.AsyncClient(
            follow_redirects=False,  # the key and the text go where somebody has configured
            trust_env=False,
            limits=httpx2.Limits(max_connections=1_000, max_keepalive_connections=100, keepalive_expiry=3.0),
        )
        self._http.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        self._servers = [Server(url, self._settings, self._clock, self._http) for url in self._settings.urls]
        self._checkers = [asyncio.create_task(self._keep_checking(number)) for number in range(len(self._servers))]
        try:
            await asyncio.to_thread(self._detector.load)
            await self._until(lambda: self._fleet.any_up and all(self._checked), self._settings.start_wait_s)
            if not self._fleet.any_up:
                raise EngineFault(f"No speech server answers: {', '.join(server.url for server in self._servers)}.")
            self._traits = self._found_traits()
        except BaseException:
            await self.close()
            raise
        self._state = "running"

    async def open(self, utterance: Utterance) -> OmniSpeaking:
        """See ``Engine.open``; returns when a server has begun with it. Waits, bounded, while all are away."""
        if self._state != "running":
            raise EngineLost("The speech engine is not running.")
        language = await self._checked_language(utterance)
        self._check(utterance)
        await self._rows.take()
        if self._rows.closed:  # after the row was promised
            self._rows.give()
            raise EngineLost("The speech engine was stopped.")
        speaking = OmniSpeaking(self, self._settings, utterance, language, self._leave)
        self._speaking.add(speaking)
        self._tasks.add(speaking.task)
        speaking.task.add_done_callback(self._tasks.discard)
        try:
            await asyncio.shield(speaking.opened)
        except BaseException:
            speaking.cancel()
            raise
        return speaking

    async def encode_voice(self, pcm: Pcm, transcript: str | None) -> SpeakerAnchor:
        """Raises ``UnsupportedByEngine``: no speech server hands out what it makes of a recording."""
        raise UnsupportedByEngine(
            "The speech servers make no speaker vectors of recordings; send a vector, or a voice they have stored.",
            param="ref_audio",
        )

    async def health(self) -> EngineHealth:
        """Well while one server is."""
        if self._state != "running":
            return EngineHealth(False, "not running", self._rows.active)
        ok = self._fleet.any_up
        return EngineHealth(ok, "" if ok else "no speech server answers", self._rows.active)

    async def close(self) -> None:
        """End every utterance with ``EngineLost``, and every connection. Idempotent."""
        self._state = "closed"
        self._rows.close()
        for server in self._servers:
            server.closed = True
        for speaking in list(self._speaking):
            speaking.lose()
        checkers, self._checkers = self._checkers, []
        for task in checkers:
            task.cancel()
        await asyncio.gather(*(server.close() for server in self._servers))
        tasks = {*self._tasks, *checkers}
        if tasks:
            await asyncio.wait(tasks, timeout=_STOP_TIMEOUT_S)
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()
        self._tell_changed()

    # ------------------------------------------------------------ for the utterances
    async def pick(self, utterance: Utterance, avoid: Collection[int]) -> int:
        """See ``omni_speaking.Servers``."""
        number: int | None = None

        def chosen() -> bool:
            nonlocal number
            number = self._fleet.choose(
                lambda one: self._heard(one) and self._servers[one].abilities.can_speak(utterance), avoid
            )
            return number is not None

        if not await self._until(chosen, self._settings.server_wait_s) or number is None:
            raise EngineLost("No speech server answers that could speak this.", retry_after_s=5.0)
        self._fleet.begun(number)
        return number

    def server(self, number: int) -> Server:
        """See ``omni_speaking.Servers``."""
        return self._servers[number]

    def steady(self, number: int) -> bool:
        """See ``omni_speaking.Servers``."""
        told = self._settings.deterministic
        return self._servers[number].abilities.deterministic if told == "auto" else told == "yes"

    def ears(self, number: int) -> Ears | None:
        """See ``omni_speaking.Servers``."""
        known = self._servers[number].abilities
        if self._ears is None or not known.codes_out:
            return None
        return self._ears if known.codec_id in ("", self._ears.codes.decoder.decoder_id) else None

    def _heard(self, number: int) -> bool:
        """True if what it sends can be made sound here."""
        known = self._servers[number].abilities
        return known.pcm_out or (known.sockets and self.ears(number) is not None)

    def failed(self, number: int, why: str) -> None:
        """See ``omni_speaking.Servers``."""
        _log.warning("speech server %s: %s", self._servers[number].url, why)
        self._fleet.failed(number, self._clock.now_ms())
        self._wake[number].set()

    def over(self, number: int, *, served: bool) -> None:
        """See ``omni_speaking.Servers``."""
        self._fleet.over(number, served=served)

    # ------------------------------------------------------------ inside
    def _leave(self, speaking: OmniSpeaking) -> None:
        if speaking in self._speaking:
            self._speaking.remove(speaking)
            self._rows.give()

    async def _checked_language(self, utterance: Utterance) -> str:
        """The language it will sound in. Raises ``UnsupportedLanguage``."""
        offered = self.traits.languages
        if utterance.language is not None:
            asked = normal_code(utterance.language) or utterance.language
            if asked not in offered and not any(server.abilities.kind == "plain" for server in self._servers):
                known = ", ".join(offered[:MAX_VOICES_TOLD])
                raise UnsupportedLanguage(
                    f"The speech servers do not speak this; languages: {known}.", param="language"
                )
            return asked
        guess = await asyncio.to_thread(self._detector.guess, utterance.text, frozenset(offered))
        return guess.language if guess is not None and guess.language in offered else "en"

    def _check(self, utterance: Utterance) -> None:
        traits = self.traits
        if utterance.live:
            raise UnsupportedByEngine("The speech servers take whole texts only.")
        if utterance.output != "pcm":
            raise UnsupportedByEngine("The speech servers' codec tokens are decoded here.", param="output_mode")
        if not utterance.text.strip():
            raise BadRequest("There is no text to speak.", param="input")
        if utterance.anchor is not None:
            if not traits.clone_widths:
                raise UnsupportedByEngine("The speech servers cannot clone voices.", param="voice")
            checked_embedding(utterance.anchor, traits.clone_widths)
        elif utterance.voice not in {voice.name for voice in traits.voices}:
            names = [voice.name for voice in traits.voices][:MAX_VOICES_TOLD]
            raise UnknownVoice(f"Unknown voice; there are: {', '.join(names)}.", param="voice")

    def _found_traits(self) -> EngineTraits:
        """Raises ``EngineFault`` if nothing that the servers send can be made sound here."""
        told = self._settings.deterministic
        there = [number for number in range(len(self._servers)) if self._fleet.up(number) and self._heard(number)]
        if not there:
            raise EngineFault("The speech servers send codec tokens only: a checkpoint is needed to decode them.")
        found = [self._servers[number].abilities for number in there]
        return traits_of(found, self._settings.max_rows, None if told == "auto" else told == "yes")

    async def _keep_checking(self, number: int) -> None:
        """Ask for health as long as it is well; look at it anew when it was away: it may be another version now."""
        server, fleet = self._servers[number], self._fleet
        while True:
            was_up = fleet.up(number)
            try:
                if was_up:
                    await server.check()
                else:
                    await server.probe()
                    _log.info("speech server %s is there: %s", server.url, server.abilities.kind)
                if fleet.up(number) == was_up:  # nothing happened meanwhile
                    fleet.well(number, self._clock.now_ms())
            except ServerAway as away:
                if was_up or not self._checked[number]:
                    _log.warning("speech server %s: %s", server.url, away)
                fleet.failed(number, self._clock.now_ms())
            except Exception as error:  # whatever it is: this server is looked at again later
                _log.error("speech server %s could not be checked", server.url, exc_info=error)
                fleet.failed(number, self._clock.now_ms())
            self._checked[number] = True
            self._tell_changed()
            await self._pause(number)

    async def _pause(self, number: int) -> None:
        """Until the server is to be checked again, which a failure may bring nearer."""
        wake = self._wake[number]
        while (wait_ms := self._fleet.check_in_ms(number, self._clock.now_ms())) > 0:
            wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_ms / 1e3):
                    await wake.wait()

    async def _until(self, holds: Callable[[], bool], within_s: float) -> bool:
        """Wait until something about the servers holds; False if it does not in time, or the engine is closed."""
        try:
            async with asyncio.timeout(within_s):
                while not holds():
                    if self._state == "closed":
                        return False
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def _tell_changed(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
