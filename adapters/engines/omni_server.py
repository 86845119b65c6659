"""One speech server: its connections, its health, and what it can do."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import httpx2
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidURI, WebSocketException

from adapters.engines.omni_abilities import (
    TASKS,
    Abilities,
    is_omni,
    listed_widths,
    model_ids,
    refuses_task,
    stored_names,
    told_by_sidecar,
    voice_names,
    widths_named,
)
from adapters.engines.omni_settings import SPEECH_PATH, OmniSettings, base_url, socket_url
from adapters.engines.omni_words import codes_probe_messages, event_of, probe_messages
from sidecar.faults import EngineFault
from sidecar.ports import Clock

MAX_FRAME_BYTES = 1 << 20
MAX_FRAMES = 8
"""Frames that a socket holds unread before it takes no more from the network."""

MAX_ANSWER_BYTES = 4 << 20
_PROBE_EVENTS = 32
_CLOSE_TIMEOUT_S = 1.0


class ServerAway(Exception):
    """The server could not be reached, broke off or fell silent. The message is safe to log."""


class Server:
    """The connections to one server. ``http`` is shared by all; ``close`` leaves it open."""

    def __init__(self, url: str, settings: OmniSettings, clock: Clock, http: httpx2.AsyncClient) -> None:
        self.url = base_url(url)
        self.abilities = Abilities()
        self.closed = False
        self._settings = settings
        self._clock = clock
        self._http = http
        self._idle: deque[tuple[ClientConnection, float]] = deque()

    # ------------------------------------------------------------ health and abilities
    async def check(self) -> None:
        """Ask for its health. Raises ``ServerAway``."""
        self._drop_old()
        status, _ = await self._get("/health")
        if status >= 500:
            raise ServerAway(f"its health is {status}")

    async def probe(self) -> Abilities:
        """Find out what it can do; see ``abilities``. Raises ``ServerAway``."""
        await self.check()
        _, told = await self._get("/v1/audio/models")
        status, listing = await self._get("/v1/audio/voices")
        if status in (401, 403):
            raise ServerAway("it does not accept the key")
        voices = voice_names(listing) or tuple(sorted({name.lower() for name in self._settings.voices}))
        known = told_by_sidecar(told, voices, stored_names(listing))
        if known is None:
            kind = Abilities(kind="omni" if is_omni(listing) else "plain", voices=voices)
            known = await self._probe_tasks(kind, listing) if kind.kind == "omni" else kind
        sockets, cancels = await self._probe_socket()
        known = dataclasses.replace(known, sockets=sockets, cancels=cancels)
        if self._settings.codes is not None and sockets and known.kind == "omni":
            known = dataclasses.replace(known, codes_out=await self._probe_codes())
        self.abilities = known
        return self.abilities

    async def _probe_tasks(self, known: Abilities, listing: object) -> Abilities:
        """A blank text is refused, but a task that the checkpoint does not have is refused first."""
        tasks = []
        for task in TASKS:
            status, answer = await self._post({"input": " ", "task_type": task, "response_format": "pcm"})
            if not refuses_task(status, answer):
                tasks.append(task)
        _, models = await self._get("/v1/models")
        widths = listed_widths(listing) or widths_named(model_ids(models))
        return dataclasses.replace(
            known,
            voices=stored_names(listing) if tasks == ["Base"] else known.voices,
            tasks=tuple(tasks) or ("CustomVoice",),
            clone_widths=widths if "Base" in tasks else (),
        )

    async def _probe_socket(self) -> tuple[bool, bool]:
        """Whether it has the speech socket, and knows ``input.cancel`` there. Nothing is spoken."""
        told = await self._answers(probe_messages(self._settings.model), until=("session.done",))
        return "session.done" in told, "input.cancelled" in told

    async def _probe_codes(self) -> bool:
        """Whether it has codec tokens: a short word tells. Servers that do not know of them answer with sound."""
        told = await self._answers(
            codes_probe_messages(self._settings.model), until=("codec.start", "audio.start", "error", "session.done")
        )
        return "codec.start" in told

    async def _answers(self, messages: Iterable[str], until: Collection[str]) -> list[str]:
        """The types of the events that messages on a new socket are answered by, up to one of ``until``."""
        told: list[str] = []
        try:
            connection = await self._connect()
        except _NoSocket:
            return told
        try:
            async with asyncio.timeout(self._settings.answer_timeout_s):
                for message in messages:
                    await connection.send(message)
                while len(told) < _PROBE_EVENTS and (not told or told[-1] not in until):
                    frame = await connection.recv()
                    told.append(str(event_of(frame).get("type")) if isinstance(frame, str) else "")
        except (WebSocketException, OSError, TimeoutError, EngineFault):
            pass
        finally:
            await hang_up(connection)
        return told

    # ------------------------------------------------------------ sockets
    async def socket(self, *, fresh: bool = False) -> tuple[ClientConnection, bool]:
        """A speech socket, and whether it was used before. Raises ``ServerAway``."""
        self._drop_old()
        while self._idle and not fresh:
            connection, _ = self._idle.pop()
            if connection.state.name == "OPEN":
                return connection, True
            connection.transport.abort()
        try:
            return await self._connect(), False
        except _NoSocket as refused:
            raise ServerAway(f"it has no speech socket ({refused})") from None

    def keep(self, connection: ClientConnection) -> None:
        """The utterance on this socket is over; another one may use it."""
        if self.closed or len(self._idle) >= self._settings.idle_sockets or connection.state.name != "OPEN":
            connection.transport.abort()
            return
        self._idle.append((connection, self._clock.now_ms()))

    async def close(self) -> None:
        """Close every socket that is not in use. Idempotent."""
        self.closed = True
        idle, self._idle = list(self._idle), deque()
        await asyncio.gather(*(hang_up(connection) for connection, _ in idle))

    def _drop_old(self) -> None:
        """Before the server does: it closes sockets that say nothing for long."""
        oldest_ms = self._clock.now_ms() - self._settings.idle_socket_s * 1e3
        while self._idle and self._idle[0][1] < oldest_ms:
            self._idle.popleft()[0].transport.abort()

    async def _connect(self) -> ClientConnection:
        try:
            return await connect(
                socket_url(self.url),
                additional_headers=self._settings.headers,
                compression=None,
                proxy=None,
                open_timeout=self._settings.connect_timeout_s,
                close_timeout=_CLOSE_TIMEOUT_S,
                # A reader that pauses must not answer pings late; who is silent is found out by its silence.
                ping_interval=None,
                max_size=MAX_FRAME_BYTES,
                max_queue=MAX_FRAMES,
            )
        except (InvalidHandshake, InvalidURI) as refused:
            raise _NoSocket(type(refused).__name__) from None
        except (OSError, TimeoutError, EOFError, WebSocketException) as error:
            raise ServerAway(f"no connection ({type(error).__name__})") from None

    # ------------------------------------------------------------ HTTP
    async def post(self, body: bytes) -> httpx2.Response:
        """POST a speech request; the answer's body is still to be read, and closed. Raises ``ServerAway``."""
        request = self._http.build_request(
            "POST",
            self.url + SPEECH_PATH,
            content=body,
            headers={**self._settings.headers, "content-type": "application/json", "accept-encoding": "identity"},
            timeout=self._timeout(self._settings.silent_after_s),
        )
        try:
            async with asyncio.timeout(self._settings.answer_timeout_s):
                return await self._http.send(request, stream=True)
        except (httpx2.HTTPError, OSError, TimeoutError) as error:
            raise ServerAway(f"no answer ({type(error).__name__})") from None

    async def _post(self, fields: Mapping[str, Any]) -> tuple[int, object]:
        response = await self.post(json.dumps(fields).encode())
        return response.status_code, await read_json(response, self._settings.answer_timeout_s)

    async def _get(self, path: str) -> tuple[int, object]:
        request = self._http.build_request(
            "GET",
            self.url + path,
            headers={**self._settings.headers, "accept-encoding": "identity"},
            timeout=self._timeout(self._settings.connect_timeout_s),
        )
        try:
            async with asyncio.timeout(self._settings.answer_timeout_s):
                response = await self._http.send(request, stream=True)
        except (httpx2.HTTPError, OSError, TimeoutError) as error:
            raise ServerAway(f"no answer ({type(error).__name__})") from None
        return response.status_code, await read_json(response, self._settings.answer_timeout_s)

    def _timeout(self, read_s: float) -> httpx2.Timeout:
        return httpx2.Timeout(read_s, connect=self._settings.connect_timeout_s, pool=self._settings.answer_timeout_s)


class _NoSocket(Exception):
    """The server answers, but not with a WebSocket."""


async def read_body(response: httpx2.Response, within_s: float) -> bytes:
    """The body of an answer, and the end of it. Raises ``ServerAway``, also for one that is too long."""
    parts, left = [], MAX_ANSWER_BYTES
    try:
        async with asyncio.timeout(within_s):
            async for part in response.aiter_raw():
                parts.append(part)
                left -= len(part)
                if left < 0:
                    raise ServerAway("its answer is too long")
    except (httpx2.HTTPError, OSError, TimeoutError) as error:
        raise ServerAway(f"its answer broke off ({type(error).__name__})") from None
    finally:
        await response.aclose()
    return b"".join(parts)


async def read_json(response: httpx2.Response, within_s: float) -> object:
    """The body as JSON, None if it is none or was refused with a status of 500 and above. Raises ``ServerAway``."""
    content = await read_body(response, within_s)
    try:
        found: object = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return found


async def hang_up(connection: ClientConnection) -> None:
    """End a connection at once."""
    connection.transport.abort()
    with contextlib.suppress(WebSocketException, OSError, TimeoutError):
        await connection.wait_closed()
