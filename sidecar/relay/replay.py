"""Plays the client's side of a recorded socket against a server, and notes what that one answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI

from sidecar.faults import ConfigError, EngineFault
from sidecar.ports import Clock
from sidecar.redaction import redact_url
from sidecar.relay.compare import Ending, Step
from sidecar.relay.hiding import parsed
from sidecar.relay.recording import Entry
from sidecar.relay.seen import Side
from sidecar.relay.sound import SoundReader
from sidecar.relay.tally import Tally
from sidecar.relay.watch import MAX_MESSAGE_BYTES

MAX_EVENTS = 100_000


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """``speed``: 2 sends twice as fast, 0 without pauses. ``patience_s``: how long to wait for an answer that came when
    it was recorded."""

    speed: float = 1.0
    patience_s: float = 30.0
    api_key: str | None = None


async def replay(url: str, steps: list[Step], ending: Ending, clock: Clock, options: ReplayOptions) -> Tally:
    """Do the steps on a new socket to ``url``, wait for the ``ending`` and cut the connection.

    Raises ``ConfigError`` if the socket cannot be opened, ``EngineFault`` if it brings no end of events.
    """
    headers = {"Authorization": f"Bearer {options.api_key}"} if options.api_key else {}
    try:
        connection = await connect(
            url, additional_headers=headers, compression=None, max_size=MAX_MESSAGE_BYTES, proxy=None
        )
    except InvalidStatus as refused:
        raise ConfigError(
            [f"{redact_url(url)} refused the socket with status {refused.response.status_code}"]
        ) from None
    except (OSError, TimeoutError, InvalidHandshake, InvalidURI, EOFError) as error:
        raise ConfigError([f"{redact_url(url)} cannot be reached: {type(error).__name__}"]) from None
    return await _Player(connection, clock, options).play(steps, ending)


class _Player:
    def __init__(self, connection: ClientConnection, clock: Clock, options: ReplayOptions) -> None:
        self._connection = connection
        self._clock = clock
        self._options = options
        self._start_ms = clock.now_ms()
        self._sound = SoundReader()
        self._changed = asyncio.Event()
        self._changed_ms = 0.0
        self._over = False
        self.tally = Tally()

    async def play(self, steps: list[Step], ending: Ending) -> Tally:
        listening = asyncio.create_task(self._listen())
        try:
            for step in steps:
                await self._do(step)
                if self._over:
                    break
            await self._until(
                lambda: not ending.over and len(self.tally.events) >= ending.events,
                self._options.patience_s + ending.after_ms / 1000,
            )
        finally:
            self._connection.transport.abort()
            await asyncio.wait({listening})
        listening.result()
        return self.tally

    async def _do(self, step: Step) -> None:
        """Wait until it is time for a step, and do it."""
        before_ms = self._now_ms()
        waited = await self._until(
            lambda: self.tally.answers >= step.after_answers and (self.tally.sounding or not step.after_sound),
            self._options.patience_s,
        )
        if self._options.speed > 0:
            since_ms = max(before_ms, self._changed_ms) if waited else before_ms
            await self._clock.sleep(since_ms + step.wait_ms / self._options.speed - self._now_ms())
        try:
            if step.payload is not None:
                self._note_asked(step.payload)
                await self._connection.send(step.payload)
            elif step.close_code is not None:
                await self._connection.close(step.close_code)
            else:
                self._connection.transport.abort()
        except ConnectionClosed:
            self._over = True

    async def _until(self, reached: Callable[[], bool], patience_s: float) -> bool:
        """Wait for what the server says, as long as patience lasts. Returns whether there was something to wait for."""
        waited = False
        try:
            async with asyncio.timeout(patience_s):
                while not (reached() or self._over):
                    waited = True
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            pass
        return waited

    def _now_ms(self) -> float:
        return self._clock.now_ms() - self._start_ms

    def _note_asked(self, payload: str | bytes) -> None:
        message = parsed(payload) if isinstance(payload, str) else None
        if message is not None:
            self.tally.entry(Entry(self._now_ms(), Side.CLIENT, message=message))

    async def _listen(self) -> None:
        try:
            async for data in self._connection:
                self._heard(data)
                self._tell()
            self._closed()
        except ConnectionClosed:
            self._closed()
        finally:
            self._over = True
            self._tell()

    def _tell(self) -> None:
        self._changed_ms = self._now_ms()
        self._changed.set()

    def _heard(self, data: str | bytes) -> None:
        at_ms = self._now_ms()
        if isinstance(data, bytes):
            sound_ms = self._sound.frame(data).sound_ms
            self.tally.entry(Entry(at_ms, Side.SERVER, data=data, data_bytes=len(data), sound_ms=sound_ms))
            return
        message = parsed(data)
        if message is None:
            self.tally.entry(Entry(at_ms, Side.SERVER, text=data))
        else:
            heard = self._sound.message(message)
            sound_ms = heard.sound_ms if heard is not None else None
            self.tally.entry(Entry(at_ms, Side.SERVER, message=message, sound_ms=sound_ms))
        if len(self.tally.events) > MAX_EVENTS:
            raise EngineFault(f"The server sent more than {MAX_EVENTS} events.")

    def _closed(self) -> None:
        code = self._connection.close_code
        if code is not None and code != 1006:
            self.tally.entry(Entry(self._now_ms(), Side.SERVER, close_code=code))
