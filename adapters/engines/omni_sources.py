"""The sound of one utterance from one server, over its WebSocket or over REST."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator
from typing import Any, Protocol

import httpx2
import numpy as np
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import WebSocketException

from adapters.engines.omni_pcm import SampleJoiner
from adapters.engines.omni_server import Server, ServerAway, hang_up, read_body
from adapters.engines.omni_settings import CodesHere, OmniSettings
from adapters.engines.omni_words import (
    CANCEL,
    Begun,
    CodeFrames,
    Ended,
    Heard,
    Sound,
    UnitReader,
    event_of,
    refusal,
    rest_body,
    session_messages,
)
from sidecar.faults import EngineFault, Fault
from sidecar.ports import Pcm, Utterance

_CANCEL_TIMEOUT_S = 2.0
_DRAIN_FRAMES = 256
_SOUND_TYPES = ("audio/pcm", "audio/l16", "audio/x-pcm", "audio/raw", "application/octet-stream")


class UnitFailed(Exception):
    """The server is well, but this utterance failed there; ``fault`` says how, as far as the server told."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


class Source(Protocol):
    """An utterance being spoken by a server."""

    async def next(self) -> Pcm | None:
        """More samples (perhaps none), None at the end. Raises ``ServerAway``, ``UnitFailed``."""

    async def leave(self) -> None:
        """Stop it, if it is not at its end, and free what it held. May be cancelled."""


class Ears:
    """Turns codec frames into samples with one decoder, which is lent to one utterance at a time."""

    def __init__(self, codes: CodesHere) -> None:
        self.codes = codes
        self._turn = asyncio.Lock()

    async def decode(self, state: Any, frames: CodeFrames) -> tuple[Any, Pcm]:
        """The state after these frames, and their samples. Raises ``EngineFault`` for codes that are none."""
        async with self._turn:
            decoder = self.codes.decoder
            if state is None or frames.fresh:
                state = decoder.new_state()
            return state, await asyncio.to_thread(decoder.decode, state, frames.codes)


class SocketSource:
    """One utterance on a speech socket. Made by ``open``."""

    def __init__(self, server: Server, settings: OmniSettings, ears: Ears | None) -> None:
        self._server = server
        self._settings = settings
        self._ears = ears
        self._reader = UnitReader(ears.codes.open if ears is not None else None)
        self._joiner = SampleJoiner()
        self._heard: deque[Heard] = deque()
        self._connection: ClientConnection | None = None
        self._state: Any = None
        self._asked = False
        self._over = False

    @staticmethod
    async def open(server: Server, settings: OmniSettings, utterance: Utterance, ears: Ears | None) -> SocketSource:
        """Ask for the utterance and wait for its beginning. Raises ``ServerAway``, ``UnitFailed``, ``BadRequest``."""
        for fresh in (False, True):
            source = SocketSource(server, settings, ears)
            source._connection, used = await server.socket(fresh=fresh)
            try:
                await source._begin(utterance)
                return source
            except ServerAway:
                # A socket that was kept may have been closed there meanwhile: that says nothing of the server.
                await source.leave()
                if not used:
                    raise
            except BaseException:
                await source.leave()
                raise
        raise ServerAway("its sockets break off")

    async def _begin(self, utterance: Utterance) -> None:
        connection, abilities = self._open_connection(), self._server.abilities
        codes = self._ears is not None
        try:
            async with asyncio.timeout(self._settings.answer_timeout_s):
                for message in session_messages(utterance, abilities, self._settings.model, codes=codes):
                    await connection.send(message)
            self._asked = True
        except (WebSocketException, OSError, TimeoutError) as error:
            self._over = True
            raise ServerAway(f"it takes no text ({type(error).__name__})") from None
        while not self._heard:
            await self._listen(self._settings.answer_timeout_s)
        match self._heard[0]:
            case Begun():
                self._heard.popleft()
            case Ended(failed):
                self._end(failed)

    async def next(self) -> Pcm | None:
        """See ``Source``."""
        while not self._heard:
            await self._listen(self._settings.silent_after_s)
        match self._heard.popleft():
            case Sound(data):
                return self._joiner.feed(data)
            case CodeFrames() as frames if self._ears is not None:
                return await self._decoded(self._ears, frames)
            case Ended(failed):
                self._end(failed)
                return None
        return np.zeros(0, np.float32)

    async def leave(self) -> None:
        """See ``Source``. A server that knows how is told to stop, and the socket is kept for the next utterance."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if self._over or not self._asked or not self._server.abilities.cancels or self._server.closed:
            await hang_up(connection)
            return
        try:
            async with asyncio.timeout(_CANCEL_TIMEOUT_S):
                await connection.send(CANCEL)
                if await _quiet(connection):
                    self._server.keep(connection)
                    return
        except (WebSocketException, OSError, TimeoutError, EngineFault):
            pass
        except asyncio.CancelledError:
            connection.transport.abort()
            raise
        await hang_up(connection)

    async def _listen(self, within_s: float) -> None:
        try:
            async with asyncio.timeout(within_s):
                frame = await self._open_connection().recv()
        except TimeoutError:
            self._over = True
            raise ServerAway("it fell silent") from None
        except (WebSocketException, OSError) as error:
            self._over = True
            raise ServerAway(f"the socket broke off ({type(error).__name__})") from None
        try:
            self._heard += self._reader.text(frame) if isinstance(frame, str) else self._reader.binary(frame)
        except EngineFault as fault:
            self._over = True  # whatever else it has to say cannot be told apart from the next answer
            raise UnitFailed(fault) from None

    def _end(self, failed: bool) -> None:
        self._over = True
        if self._connection is not None and self._reader.sticky:
            self._server.keep(self._connection)
            self._connection = None
        if failed:
            raise UnitFailed(EngineFault("The speech server failed on this passage."))
        if self._joiner.broken:
            raise UnitFailed(EngineFault("The speech server's sound ends within a sample."))

    async def _decoded(self, ears: Ears, frames: CodeFrames) -> Pcm:
        try:
            self._state, pcm = await ears.decode(self._state, frames)
        except EngineFault as fault:
            raise UnitFailed(fault) from None
        return pcm

    def _open_connection(self) -> ClientConnection:
        if self._connection is None:
            raise ServerAway("the socket was left")
        return self._connection


async def _quiet(connection: ClientConnection) -> bool:
    """Read on until a cancelled utterance is over: it was asked for whole, so ``session.done`` comes in any case."""
    for _ in range(_DRAIN_FRAMES):
        frame = await connection.recv()
        if isinstance(frame, str) and event_of(frame).get("type") == "session.done":
            return True
    return False


class RestSource:
    """One utterance as the raw answer to a POST. Made by ``open``."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response
        self._parts: AsyncGenerator[bytes, None] = response.aiter_raw()
        self._joiner = SampleJoiner()

    @staticmethod
    async def open(server: Server, settings: OmniSettings, utterance: Utterance) -> RestSource:
        """Ask for the utterance and wait for the answer's head. Raises as ``SocketSource.open`` does."""
        response = await server.post(rest_body(utterance, server.abilities, settings.model))
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if response.status_code != 200:
            content = await read_body(response, settings.answer_timeout_s)
            raise UnitFailed(refusal(response.status_code, content, utterance))
        if kind not in _SOUND_TYPES:
            await response.aclose()
            raise UnitFailed(EngineFault("The speech server does not answer with pcm."))
        return RestSource(response)

    async def next(self) -> Pcm | None:
        """See ``Source``."""
        try:
            part = await anext(self._parts, None)
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
            raise ServerAway(f"its answer broke off ({type(error).__name__})") from None
        if part is not None:
            return self._joiner.feed(part)
        if self._joiner.broken:
            raise UnitFailed(EngineFault("The speech server's sound ends within a sample."))
        return None

    async def leave(self) -> None:
        """See ``Source``: closing the connection is all a server can be told."""
        with contextlib.suppress(httpx2.HTTPError, OSError):
            await self._response.aclose()
