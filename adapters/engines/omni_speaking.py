"""One utterance of remote engines: asked for again elsewhere when a server fails, gone on with where it broke off."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from typing import Literal, Protocol

from adapters.engines.live_text import WholeText
from adapters.engines.omni_pcm import Passage
from adapters.engines.omni_server import Server, ServerAway
from adapters.engines.omni_settings import OmniSettings
from adapters.engines.omni_sources import Ears, RestSource, SocketSource, Source, UnitFailed
from adapters.engines.omni_words import drawn
from sidecar.faults import BadRequest, EngineFault, EngineLost, Fault, PassageLost
from sidecar.ports import FRAME_SAMPLES, SAMPLE_RATE_HZ, AudioChunk, Utterance

_log = logging.getLogger(__name__)


class Servers(Protocol):
    """Those that may be asked."""

    async def pick(self, utterance: Utterance, avoid: Collection[int]) -> int:
        """The server to ask next, which is counted as busy until ``over``. Waits, bounded. Raises ``EngineLost``."""

    def server(self, number: int) -> Server:
        """That server."""

    def steady(self, number: int) -> bool:
        """True if it says the same again for the same seed."""

    def ears(self, number: int) -> Ears | None:
        """What decodes its codec tokens; None if it is to send samples."""

    def failed(self, number: int, why: str) -> None:
        """It broke off, fell silent or could not be reached."""

    def over(self, number: int, *, served: bool) -> None:
        """The utterance is over there."""


class OmniSpeaking(WholeText):
    """See ``Speaking``. ``leave`` is called once, when the row is free."""

    def __init__(
        self,
        servers: Servers,
        settings: OmniSettings,
        utterance: Utterance,
        language: str,
        leave: Callable[[OmniSpeaking], None],
    ) -> None:
        self._servers = servers
        self._settings = settings
        self._utterance = utterance
        self._language = language
        self._leave = leave
        frames, first = utterance.max_frames, utterance.first_chunk_frames
        self._passage = Passage(
            max_samples=None if frames is None else max(1, frames) * FRAME_SAMPLES,
            first_samples=first * FRAME_SAMPLES if first else None,
        )
        self._ahead_samples = int(settings.ahead_s * SAMPLE_RATE_HZ)
        self._steady = True
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._end: Literal["ended", "cancelled"] | Fault | None = None
        self._started = False
        self._paused = False
        self._left = False
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(self._work())

    # ------------------------------------------------------------ for the reader
    @property
    def language(self) -> str:
        """See ``Speaking``: as asked, else the text's own."""
        return self._language

    @property
    def text_tokens(self) -> int:
        """An estimate, one for every four characters: servers do not tell while they speak."""
        return max(1, len(self._utterance.text) // 4)

    def chunks(self) -> AsyncIterator[AudioChunk]:
        """See ``Speaking``; raises ``PassageLost`` when the rest cannot be said as it was begun."""
        if self._started:
            raise RuntimeError("chunks() can be iterated only once")
        self._started = True
        return self._chunks()

    def cancel(self) -> None:
        """See ``Speaking``; the server is told."""
        self._finish("cancelled")

    def lose(self) -> None:
        """The engine is closed: ``chunks`` ends with ``EngineLost``, whatever has come already."""
        self._finish(EngineLost("The speech engine was stopped."))

    async def _chunks(self) -> AsyncIterator[AudioChunk]:
        passage = self._passage
        try:
            while True:
                if self._end == "cancelled":
                    return
                taken = passage.take()
                if taken is not None:
                    self._room.set()
                    yield AudioChunk(*taken)
                elif isinstance(self._end, Fault):
                    raise self._end
                elif self._end == "ended":
                    return
                else:
                    self._changed.clear()
                    await self._changed.wait()
        finally:
            self._finish("cancelled")

    # ------------------------------------------------------------ the task
    async def _work(self) -> None:
        try:
            await self._speak_somewhere()
            self._say_end("ended")
        except Fault as fault:
            self._say_end(fault)
        except Exception as error:
            _log.error("a remote utterance failed", exc_info=error)
            self._say_end(EngineFault("The speech engine failed."))

    def _say_end(self, how: Literal["ended"] | Fault) -> None:
        self._end = how
        self._passage.whole = True
        self._tell_opened()
        self._changed.set()

    def _tell_opened(self) -> None:
        if self.opened.done():
            return
        if isinstance(self._end, Fault):
            self.opened.set_exception(self._end)
            self.opened.exception()  # read by whoever waits, if anybody still does
        else:
            self.opened.set_result(None)

    def _finish(self, how: Literal["cancelled"] | Fault) -> None:
        if self._left:
            return
        self._left = True
        self._end = how
        self._passage.drop()
        self._tell_opened()
        self._changed.set()
        self.task.cancel()
        self._leave(self)

    async def _speak_somewhere(self) -> None:
        """At one server after another, until it is said."""
        failed_at: list[int] = []
        attempts, passage = 0, self._passage
        fault: Fault = EngineLost("The speech servers do not answer.", retry_after_s=1.0)
        while attempts < self._settings.max_attempts:
            number = await self._servers.pick(self._utterance, failed_at)
            served, before = False, passage.put_samples
            self._paused = False
            try:
                if number in failed_at and not isinstance(fault, EngineLost):
                    raise fault
                self._check_steady(number)
                await self._speak_at(number)
                served = True
                return
            except ServerAway as away:
                if not self._paused:  # else it has only lost patience with a slow reader
                    self._servers.failed(number, str(away))
                fault = EngineLost("The speech server broke off.", retry_after_s=1.0)
            except UnitFailed as failed:
                fault = failed.fault
                if passage.put_samples or isinstance(fault, BadRequest):
                    raise fault from None
            finally:
                self._servers.over(number, served=served)
            if passage.put_samples > before:
                attempts, failed_at = 0, []
            attempts += 1
            failed_at.append(number)
        raise fault

    def _check_steady(self, number: int) -> None:
        """Raises ``PassageLost`` if what was begun elsewhere cannot be gone on with at this server."""
        steady = self._servers.steady(number)
        if self._passage.put_samples and not (self._steady and steady):
            raise PassageLost("The speech server broke off; the rest of this passage is lost.")
        self._steady = steady

    async def _speak_at(self, number: int) -> None:
        """The utterance from one server. A failure on the socket is asked about over REST, which tells why."""
        server, passage = self._servers.server(number), self._passage
        ways: list[Callable[[], Awaitable[Source]]] = []
        abilities, ears = server.abilities, self._servers.ears(number)
        if abilities.sockets and not (abilities.pcm_out and drawn(self._utterance)):
            ways.append(lambda: SocketSource.open(server, self._settings, self._utterance, ears))
        if abilities.pcm_out:
            ways.append(lambda: RestSource.open(server, self._settings, self._utterance))
        for way in ways:
            passage.begin()
            try:
                await self._listen(await way())
                return
            except UnitFailed:
                if passage.begun or way is ways[-1]:
                    raise
                _log.warning("speech server %s failed on its socket; it is asked again over REST", server.url)

    async def _listen(self, source: Source) -> None:
        passage = self._passage
        try:
            self._tell_opened()
            while not passage.full and (pcm := await source.next()) is not None:
                if not passage.put(pcm):
                    raise PassageLost("The speech server said it differently; the rest of this passage is lost.")
                self._changed.set()
                while passage.waiting > self._ahead_samples:
                    self._paused = True
                    self._room.clear()
                    await self._room.wait()
            if passage.short:
                raise PassageLost("The speech server said less than before; the rest of this passage is lost.")
        finally:
            await source.leave()
