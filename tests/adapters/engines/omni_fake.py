"""A speech server as vLLM-Omni is one, in several generations, whose utterances end as a test wants them to."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from sidecar.codec_wire import CODEBOOKS, CodecWriter, start_event
from sidecar.config import ServerConfig
from sidecar.http.wire import TRANSPORT
from sidecar.server import BackgroundServer

Way = Literal[
    "speak",
    "refuse",
    "die_before",
    "die_mid",
    "fail_before",
    "fail_mid",
    "short",
    "odd",
    "hang",
    "hang_mid",
    "rate",
    "skip",
]

FRAME = 1_920
FRAMES = 12


def voiced(text: str, seed: int, frames: int = FRAMES) -> bytes:
    """The sound of a text: noise that only the text and the seed decide."""
    digest = hashlib.blake2b(f"{seed} {text}".encode(), digest_size=8).digest()
    samples = np.random.default_rng(int.from_bytes(digest, "little")).integers(-9_000, 9_000, frames * FRAME)
    return samples.astype("<i2").tobytes()


def coded(seed: int, frames: int) -> np.ndarray:
    """The codec frames of a text."""
    return np.random.default_rng(seed).integers(0, 2_048, (frames, CODEBOOKS)).astype(np.int16)


@dataclass
class FakeOmni:
    """``generation`` as in the protocol's history; ``ways`` are those of the next utterances, then all are spoken."""

    generation: Literal["A", "C", "D", "E"] = "C"
    rest: bool = True
    sockets: bool = True
    listed: Any = field(default_factory=lambda: {"voices": ["default", "Vivian", "serena"], "uploaded_voices": []})
    models: tuple[str, ...] = ("Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice",)
    tasks: tuple[str, ...] = ("CustomVoice",)
    key: str | None = None
    healthy: bool = True
    drift: int = 0
    codes: bool = False
    ways: list[Way] = field(default_factory=list)
    rest_ways: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    posts: list[dict[str, Any]] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    connections: int = 0
    transports: list[Any] = field(default_factory=list)
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
        elif scope["type"] == "websocket":
            await self._socket(scope, receive, send)
        else:
            await self._http(scope, receive, send)

    # ------------------------------------------------------------ HTTP
    async def _http(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"]
        if self.key is not None and dict(scope["headers"]).get(b"authorization") != f"Bearer {self.key}".encode():
            await _json(send, 401, {"error": "no"})
        elif path == "/health":
            await _json(send, 200 if self.healthy else 503, {"status": "healthy" if self.healthy else "unhealthy"})
        elif path == "/v1/audio/voices" and self.listed is not None:
            await _json(send, 200, self.listed)
        elif path == "/v1/models":
            await _json(send, 200, {"object": "list", "data": [{"id": name} for name in self.models]})
        elif path == "/v1/audio/speech" and self.rest and scope["method"] == "POST":
            await self._speech(scope, await _body(receive), send)
        else:
            await _json(send, 404, {"detail": "Not Found"})

    async def _speech(self, scope: Any, fields: dict[str, Any], send: Any) -> None:
        task = fields.get("task_type", "CustomVoice")
        if task not in self.tasks:
            text = f"Qwen3-TTS checkpoint does not support task_type='{task}'."
            await _json(send, 400, {"error": {"message": text, "type": "BadRequestError", "param": None, "code": 400}})
            return
        if not fields["input"].strip():
            text = "Input text cannot be empty"
            await _json(send, 400, {"error": {"message": text, "type": "BadRequestError", "param": None, "code": 400}})
            return
        self.posts.append(fields)
        if self.rest_ways:
            await _json(send, *self.rest_ways.pop(0))
            return
        way = self.ways.pop(0) if self.ways and not self.sockets else "speak"
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"audio/pcm")]})
        for piece in self._pieces(fields, way, size=3_001):
            if piece is None and way == "hang_mid":
                await asyncio.sleep(3_600)
            if piece is None:
                scope["state"][TRANSPORT].abort()
                return
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    # ------------------------------------------------------------ WebSocket
    async def _socket(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        if not self.sockets or scope["path"] != "/v1/audio/speech/stream":
            await send({"type": "websocket.close"})
            return
        await send({"type": "websocket.accept"})
        self.connections += 1
        self.transports.append(scope["state"][TRANSPORT])
        config: dict[str, Any] = {}
        text, index = "", 0
        while (message := await receive())["type"] != "websocket.disconnect":
            event = json.loads(message["text"])
            self.events.append(event["type"])
            match event["type"]:
                case "session.config":
                    config = event
                case "input.text":
                    text += event["text"]
                case "input.cancel" if self.generation == "E":
                    await _event(send, {"type": "input.cancelled", "utterance_index": index})
                    text = ""
                case "input.done":
                    if not await self._utterance(scope, send, config | {"input": text}, index):
                        self.gone.set()
                        return
                    text, index = "", index + 1
                case kind:
                    await _event(send, {"type": "error", "message": f"Unknown message type: {kind}"})
        self.gone.set()

    async def _utterance(self, scope: Any, send: Any, fields: dict[str, Any], index: int) -> bool:
        """False once the socket is at its end."""
        place = {"utterance_index": index, "sentence_index": 0} if self.generation != "A" else {"sentence_index": 0}
        spoken = bool(fields["input"].strip())
        if spoken:
            self.asked.append(fields)
            way = self.ways.pop(0) if self.ways else "speak"
            if way == "die_before":
                scope["state"][TRANSPORT].abort()
                return False
            if way == "refuse":  # an invalid configuration: the old one stays, and is spoken with
                await _event(send, {"type": "error", "message": "Invalid session.config"})
                fields = fields | {"seed": 99}
            if way == "hang":
                await asyncio.sleep(3_600)
            await _event(send, {"type": "news.from.the.future", "of": [1, 2]})
            if not await self._unit(scope, send, fields, place, way):
                return False
        done = {"type": "session.done", "total_sentences": int(spoken)}
        await _event(send, done | ({"utterance_index": index} if self.generation != "A" else {}))
        if self.generation == "A":
            await send({"type": "websocket.close", "code": 1000})
        return self.generation != "A"

    async def _codes(self, send: Any, fields: dict[str, Any], place: dict[str, Any], way: Way) -> bool:
        """The unit as codec tokens, one packet a frame."""
        if not self.codes:
            await _event(send, {"type": "error", "message": "codec_tokens is not supported by this model"})
            return True
        writer, frames = CodecWriter(), min(FRAMES, fields.get("max_new_tokens", FRAMES))
        await _event(send, {**start_event(decoder_id="theirs"), **place, "sentence_text": fields["input"]})
        for number in range(frames):
            if way == "skip" and number == 3:
                writer.frames(coded(fields["seed"], 1))
            data = writer.frames(coded(fields.get("seed", 0), frames)[number : number + 1])
            await send({"type": "websocket.send", "bytes": data})
        await send({"type": "websocket.send", "bytes": writer.end()})
        await _event(send, {**writer.done(), **place})
        return True

    async def _unit(self, scope: Any, send: Any, fields: dict[str, Any], place: dict[str, Any], way: Way) -> bool:
        if fields.get("output_mode") == "codec_tokens" and self.generation == "E":
            return await self._codes(send, fields, place, way)
        start: dict[str, Any] = {"type": "audio.start", **place, "sentence_text": fields["input"], "format": "pcm"}
        if self.generation != "A":
            start["sample_rate"] = 44_100 if way == "rate" else 24_000
        if self.generation in "DE":
            start["channels"] = 1
        await _event(send, start)
        total, failed = 0, way in ("fail_before", "fail_mid")
        for piece in self._pieces(fields, way, size=2 * FRAME * 2):
            if piece is None and way == "hang_mid":
                await asyncio.sleep(3_600)
            if piece is None and way == "die_mid":
                scope["state"][TRANSPORT].abort()
                return False
            if piece is not None:
                total += len(piece)
                await send({"type": "websocket.send", "bytes": piece})
        if failed:
            await _event(send, {"type": "error", "message": "Generation failed: /secret/path 'quoted text'"})
        await _event(send, {"type": "audio.done", **place, "total_bytes": total + (way == "short"), "error": failed})
        return True

    def _pieces(self, fields: dict[str, Any], way: Way, size: int) -> list[bytes | None]:
        """What is sent; None: nothing more."""
        frames = min(FRAMES, fields.get("max_new_tokens", FRAMES))
        sound = voiced(fields["input"], fields.get("seed", 0) + self.drift, frames)
        pieces: list[bytes | None] = [sound[at : at + size] for at in range(0, len(sound), size)]
        if way == "odd":
            return [*pieces, b"\0"]
        if way == "fail_before":
            return []
        if way in ("die_mid", "fail_mid", "hang_mid"):
            return [*pieces[: len(pieces) // 2], None]
        return pieces


@asynccontextmanager
async def serving(fake: FakeOmni, port: int = 0) -> AsyncIterator[str]:
    """The address of the server while it runs."""
    async with BackgroundServer(fake, ServerConfig(port=port, shutdown_grace_s=0)) as server:
        yield server.url


async def _event(send: Any, event: dict[str, Any]) -> None:
    await send({"type": "websocket.send", "text": json.dumps(event)})


async def _json(send: Any, status: int, body: Any) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(body).encode()})


async def _body(receive: Any) -> dict[str, Any]:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return dict(json.loads(body))
