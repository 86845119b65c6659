"""The edge client's socket: sends text, receives codec tokens, decodes them in a thread, yields samples."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI

from sidecar.edge.session import Decode, Decoder, EdgeReport, EdgeSession, Effect, Finished
from sidecar.faults import ConfigError, EngineFault, EngineLost
from sidecar.ports import Clock, Pcm
from sidecar.redaction import redact_url

PATH = "/v1/audio/speech/stream"
MAX_PIECE_FRAMES = 25
"""Frames decoded at once: what has come is decoded together, so a decoder that lags catches up."""

_WAITING_EFFECTS = 256
_MAX_FRAME_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class EdgeRequest:
    """How to speak. ``config`` holds further members of ``session.config``, such as ``voice`` or ``language``."""

    seed: int | None = None
    config: dict[str, Any] = field(default_factory=dict)

    def message(self, output_mode: str) -> dict[str, Any]:
        """The ``session.config``."""
        fixed = {"stream_audio": True, "response_format": "pcm", "output_mode": output_mode}
        seed = {} if self.seed is None else {"seed": self.seed}
        return {"type": "session.config", **self.config, **seed, **fixed}


class EdgeClient:
    """Speaks through a server's codec tokens. ``async with``: connected from entry to exit.

    ``url`` is ``ws://host:port`` or the whole address of the speech socket. Entry raises ``ConfigError`` if it cannot
    be reached. One utterance at a time.
    """

    def __init__(self, url: str, decoder: Decoder, clock: Clock, *, api_key: str | None = None) -> None:
        self._url = address_of(url)
        self._decoder = decoder
        self._clock = clock
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._connection: ClientConnection | None = None
        self.report = EdgeReport()

    async def __aenter__(self) -> EdgeClient:
        self._connection = await opened(self._url, self._headers)
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._connection is not None:
            await self._connection.close()

    async def speak(self, text: str | AsyncIterator[str], request: EdgeRequest) -> AsyncGenerator[Pcm]:
        """Yield the samples of ``text`` as they are decoded, float32 at 24 kHz; ``report`` grows meanwhile.

        Raises ``EngineFault`` when the server refuses or fails, after everything that came has been yielded, and
        ``EngineLost`` if the connection ends. A consumer that stops early should close the generator.
        """
        connection = self._open_connection()
        session = EdgeSession(self._decoder.codebook_size, self._decoder.decoder_id)
        self.report = session.report
        start_ms = self._clock.now_ms()
        effects: asyncio.Queue[Effect | Exception] = asyncio.Queue(_WAITING_EFFECTS)
        writing = asyncio.create_task(_told(_write(connection, text, request.message("codec_tokens")), effects))
        reading = asyncio.create_task(_told(self._read(connection, session, effects, start_ms), effects))
        try:
            async for piece in self._pieces(effects):
                before_ms = self._clock.now_ms()
                if piece.fresh:
                    state = self._decoder.new_state()
                pcm = await asyncio.to_thread(self._decoder.decode, state, piece.codes)
                now_ms = self._clock.now_ms()
                self.report.decoded(len(pcm), now_ms - start_ms, now_ms - before_ms)
                yield pcm
        finally:
            for task in (writing, reading):
                task.cancel()
            await asyncio.gather(writing, reading, return_exceptions=True)
            if not session.finished:  # what is left of this utterance must not be taken for the next one's
                connection.transport.abort()
        if self.report.errors:
            raise EngineFault(f"The server says: {self.report.errors[0]}")

    async def cancel(self) -> None:
        """Ask the server to stop; ``speak`` ends when it has."""
        with contextlib.suppress(ConnectionClosed):
            await self._open_connection().send(json.dumps({"type": "input.cancel"}))

    async def server_pcm(self, text: str, request: EdgeRequest) -> bytes:
        """The server's own samples for the same request: 16-bit PCM of all units. Raises like ``speak``."""
        connection = self._open_connection()
        await _write(connection, _whole(text), request.message("pcm"))
        pcm, errors = bytearray(), list[str]()
        while True:
            frame = await _received(connection)
            if isinstance(frame, bytes):
                pcm += frame
                continue
            message = _event(frame)
            if message.get("type") == "error":
                errors.append(str(message.get("message"))[:300])
            if message.get("type") == "session.done":
                break
        if errors:
            raise EngineFault(f"The server says: {errors[0]}")
        return bytes(pcm)

    def _open_connection(self) -> ClientConnection:
        if self._connection is None:
            raise RuntimeError("not connected: use 'async with'")
        return self._connection

    async def _read(
        self,
        connection: ClientConnection,
        session: EdgeSession,
        effects: asyncio.Queue[Effect | Exception],
        start_ms: float,
    ) -> None:
        while not session.finished:
            frame = await _received(connection, session.report.errors)
            if isinstance(frame, bytes):
                found = session.binary(frame, self._clock.now_ms() - start_ms)
            else:
                found = session.text(frame)
            for effect in found:
                await effects.put(effect)

    async def _pieces(self, effects: asyncio.Queue[Effect | Exception]) -> AsyncIterator[Decode]:
        """Codes to decode, what is waiting joined up to ``MAX_PIECE_FRAMES``."""
        kept: Effect | Exception | None = None
        while True:
            effect = kept if kept is not None else await effects.get()
            kept = None
            if isinstance(effect, Exception):
                raise effect
            if isinstance(effect, Finished):
                return
            codes, frames = [effect.codes], len(effect.codes)
            while frames < MAX_PIECE_FRAMES and not effects.empty():
                more = effects.get_nowait()
                if not isinstance(more, Decode) or more.fresh:
                    kept = more
                    break
                codes.append(more.codes)
                frames += len(more.codes)
            yield Decode(np.concatenate(codes), effect.fresh)


def address_of(url: str) -> str:
    """The speech socket's address: ``url`` itself if it has a path. Raises ``ConfigError`` for what is no ws URL."""
    scheme, separator, rest = url.partition("://")
    scheme = {"http": "ws", "https": "wss"}.get(scheme.lower(), scheme.lower())
    if not separator or scheme not in ("ws", "wss") or not rest.strip("/"):
        raise ConfigError([f"{redact_url(url)}: give ws://host:port or wss://host"])
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host}{slash}{path}" if path else f"{scheme}://{host}{PATH}"


async def opened(url: str, headers: dict[str, str]) -> ClientConnection:
    """A connection. Raises ``ConfigError`` that says why there is none."""
    try:
        return await connect(url, additional_headers=headers, compression=None, max_size=_MAX_FRAME_BYTES, proxy=None)
    except InvalidStatus as refused:
        raise ConfigError(
            [f"{redact_url(url)} refused the socket with status {refused.response.status_code}"]
        ) from None
    except (OSError, TimeoutError, InvalidHandshake, InvalidURI, EOFError) as error:
        raise ConfigError([f"{redact_url(url)} cannot be reached: {type(error).__name__}"]) from None


async def _received(connection: ClientConnection, errors: list[str] | None = None) -> str | bytes:
    try:
        return await connection.recv()
    except ConnectionClosed as closed:
        code = closed.rcvd.code if closed.rcvd is not None else 1006
        said = f": {errors[0]}" if errors else ""
        raise EngineLost(f"The server closed the socket ({code}){said}") from None


async def _told(work: Awaitable[None], effects: asyncio.Queue[Effect | Exception]) -> None:
    """Do some work; what it raises reaches the consumer in its turn."""
    try:
        await work
    except Exception as error:
        await effects.put(error)


def _event(frame: str) -> dict[str, Any]:
    try:
        message = json.loads(frame)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise EngineFault("The server sent text that is no event.")
    return message


async def _write(connection: ClientConnection, text: str | AsyncIterator[str], config: dict[str, Any]) -> None:
    # A server that has hung up is told by the reading side.
    with contextlib.suppress(ConnectionClosed):
        await connection.send(json.dumps(config))
        async for piece in _whole(text) if isinstance(text, str) else text:
            await connection.send(json.dumps({"type": "input.text", "text": piece}))
        await connection.send('{"type": "input.done"}')


async def _whole(text: str) -> AsyncIterator[str]:
    yield text
