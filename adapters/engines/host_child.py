"""The engine process: one engine, reached through a socket that it was started with.

Started by ``adapters.engines.host`` as ``python -m adapters.engines.host_child FD LIFELINE_FD``. It ends when the
socket ends; should its event loop be stuck then, the lifeline, read by a thread that does nothing else, ends it. So it
never outlives the server. Signals of the terminal and of a service manager are the server's business: ignored here.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from adapters.engines.host_wire import (
    Message,
    WireError,
    anchor_to_json,
    chunk_to_wire,
    fault_to_json,
    pack,
    read,
    samples_from_bytes,
    traits_to_json,
    utterance_from_json,
)
from sidecar.faults import BadRequest, ConfigError, EngineFault, Fault
from sidecar.ports import AudioChunk, Engine, Speaking

_log = logging.getLogger(__name__)

LAST_WORDS_S = 5.0
"""How long the engine may take to close once the server is gone."""


class _Voice:
    """One utterance in the engine's process: sends chunks as long as the server has taken the ones before."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._under_way = 0
        self._room = asyncio.Event()
        self._room.set()
        self.speaking: Speaking | None = None
        self.task: asyncio.Task[None] | None = None
        self.early: list[tuple[str, str]] = []

    def sent(self, samples: int) -> None:
        self._under_way += samples
        self._set()

    def taken(self, samples: int) -> None:
        self._under_way = max(0, self._under_way - samples)
        self._set()

    def _set(self) -> None:
        # At most one chunk goes over the window: the bound is window + the longest chunk.
        if self._under_way < self._window:
            self._room.set()
        else:
            self._room.clear()

    async def room(self) -> None:
        await self._room.wait()


class Child:
    """Answers the messages of ``host_wire`` with the engine that ``start`` names."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._engine: Engine | None = None
        self._voices: dict[int, _Voice] = {}
        self._clips: dict[int, asyncio.Task[None]] = {}
        self._window = 1
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Until ``stop`` or the end of the socket."""
        try:
            first = await read(self._reader)
            if first is None or not await self._start(first[0]):
                return
            while (message := await read(self._reader)) is not None:
                if message[0].get("op") == "stop":
                    return
                self._heed(message)
        except WireError:
            _log.exception("the server sent something unreadable")
        finally:
            await self._end()

    async def _start(self, header: Mapping[str, Any]) -> bool:
        try:
            self._window = int(header["window"])
            self._engine = _factory(str(header["factory"]))(header["settings"])
            await self._engine.start()
            self._send({"op": "ready", "traits": traits_to_json(self._engine.traits)})
        except ConfigError as error:
            self._send({"op": "failed", "fault": fault_to_json(EngineFault("; ".join(error.problems)))})
        except Fault as fault:
            self._send({"op": "failed", "fault": fault_to_json(fault)})
        except Exception as error:
            _log.exception("the engine could not be started")
            hidden = EngineFault(f"The speech engine could not be started ({type(error).__name__}).")
            self._send({"op": "failed", "fault": fault_to_json(hidden)})
        else:
            return True
        await self._flush()
        return False

    async def _end(self) -> None:
        engine, self._engine = self._engine, None
        for voice in self._voices.values():
            if voice.task is not None:
                voice.task.cancel()
        for clip in list(self._clips.values()):
            clip.cancel()
        if engine is not None:
            await engine.close()
        await self._flush()
        self._writer.close()

    def _heed(self, message: Message) -> None:
        header = message[0]
        op, id = header.get("op"), header.get("id")
        if op == "ping":
            self._background(self._pong(int(header["n"])))
        elif not isinstance(id, int):
            raise WireError("a message without an id")
        elif op == "open":
            voice = self._voices[id] = _Voice(self._window)
            voice.task = self._background(self._speak(id, voice, header))
        elif op == "encode":
            clip = self._clips[id] = self._background(self._encode(id, header, message[1]))
            clip.add_done_callback(lambda _: self._clips.pop(id, None))
        elif op == "cancel" and id in self._clips:
            self._clips[id].cancel()
        elif (voice_ := self._voices.get(id)) is None:
            return  # it has ended; the message was on its way
        elif op == "credit":
            voice_.taken(int(header["samples"]))
        elif op == "cancel":
            self._cancel(id, voice_)
        elif op in ("append", "finish"):
            self._text(id, voice_, str(op), str(header.get("text", "")))

    def _background(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _cancel(self, id: int, voice: _Voice) -> None:
        del self._voices[id]
        if voice.speaking is not None:
            voice.speaking.cancel()
        if voice.task is not None:
            voice.task.cancel()

    def _text(self, id: int, voice: _Voice, op: str, text: str) -> None:
        if voice.speaking is None:
            voice.early.append((op, text))
            return
        try:
            if op == "append":
                voice.speaking.append(text)
            else:
                voice.speaking.finish()
        except Fault as fault:
            self._send({"op": "fault", "id": id, "fault": fault_to_json(fault)})
            self._cancel(id, voice)

    async def _encode(self, id: int, header: Mapping[str, Any], body: bytes) -> None:
        try:
            if self._engine is None:
                raise EngineFault("The speech engine is not running.")
            anchor = await self._engine.encode_voice(samples_from_bytes(body), str(header["transcript"]))
            self._send({"op": "encoded", "id": id, "anchor": anchor_to_json(anchor)})
        except Exception as error:
            if not isinstance(error, Fault):
                _log.exception("a recording could not be encoded")
            self._send({"op": "fault", "id": id, "fault": fault_to_json(error)})

    async def _pong(self, n: int) -> None:
        if self._engine is not None:
            health = await self._engine.health()
            self._send({"op": "pong", "n": n, "ok": health.ok, "reason": health.reason})

    async def _speak(self, id: int, voice: _Voice, header: Mapping[str, Any]) -> None:
        try:
            voice.speaking = await self._open(header)
            self._send({"op": "opened", "id": id, **_facts(voice.speaking)})
            for op, text in voice.early:
                self._text(id, voice, op, text)
            chunks = voice.speaking.chunks()
            while (chunk := await _next(chunks)) is not None:
                members, payload = chunk_to_wire(chunk)
                self._send({"op": "audio", "id": id, **members}, payload)
                voice.sent(chunk.samples)
                await self._flush()
                await voice.room()
            self._send({"op": "done", "id": id, **_facts(voice.speaking)})
        except asyncio.CancelledError:
            if voice.speaking is not None:
                voice.speaking.cancel()
            raise
        except Exception as error:
            if not isinstance(error, Fault):
                _log.exception("an utterance failed")
            self._send({"op": "fault", "id": id, "fault": fault_to_json(error)})
        finally:
            if self._voices.get(id) is voice:
                del self._voices[id]

    async def _open(self, header: Mapping[str, Any]) -> Speaking:
        if self._engine is None:
            raise EngineFault("The speech engine is not running.")
        try:
            utterance = utterance_from_json(header["utterance"])
        except WireError as error:
            raise BadRequest("The utterance has fields that this engine process does not know.") from error
        return await self._engine.open(utterance)

    def _send(self, header: Mapping[str, Any], payload: bytes = b"") -> None:
        self._writer.write(pack(header, payload))

    async def _flush(self) -> None:
        with contextlib.suppress(ConnectionError):  # the reader of the socket sees its end
            await self._writer.drain()


async def _next(chunks: AsyncIterator[AudioChunk]) -> AudioChunk | None:
    try:
        return await anext(chunks)
    except StopAsyncIteration:
        return None


def _facts(speaking: Speaking) -> dict[str, Any]:
    return {"language": speaking.language, "text_tokens": speaking.text_tokens}


def _factory(name: str) -> Callable[[Mapping[str, Any]], Engine]:
    module, _, member = name.partition(":")
    found: Callable[[Mapping[str, Any]], Engine] = getattr(importlib.import_module(module), member)
    return found


def _watch(lifeline: int) -> None:
    """End the process some time after the server has gone, whatever it is doing."""
    while os.read(lifeline, 1):
        pass
    time.sleep(LAST_WORDS_S)
    os._exit(70)


async def _serve(fd: int) -> None:
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=fd))
    await Child(reader, writer).run()


def main() -> None:
    """Serve one server, then exit."""
    fd, lifeline = int(sys.argv[1]), int(sys.argv[2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    logging.basicConfig(level=logging.WARNING, format="engine process: %(levelname)s %(name)s: %(message)s")
    os.dup2(2, 1)  # what libraries print must not mix with what the server prints
    threading.Thread(target=_watch, args=(lifeline,), daemon=True, name="lifeline").start()
    asyncio.run(_serve(fd))
    os._exit(0)  # threads of native libraries are not waited for


if __name__ == "__main__":
    main()
