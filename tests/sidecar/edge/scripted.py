"""A speech server that sends codec tokens by a script, and the same speech as samples, from a tiny checkpoint."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from websockets.asyncio.server import ServerConnection, serve

from sidecar.codec_wire import RESET, CodecWriter, Packet, pack, start_event
from sidecar.wiring import make_codec, make_codes_decoder

Codes = NDArray[np.int16]
Decoder = Any


def codes_of(text: str, seed: int, frames: int | None = None) -> Codes:
    """Some codes of the tiny codebooks (128 entries), the same for the same text and seed."""
    rng = np.random.default_rng([seed, *text.encode()])
    return rng.integers(0, 128, (frames or 4 + len(text) % 9, 16)).astype(np.int16)


@dataclass
class Script:
    """How the server behaves. ``packets`` are frames per packet, repeated; ``before`` are events sent first."""

    decoder: Decoder
    packets: tuple[int, ...] = (1,)
    frames: int | None = None
    resets_at: int | None = None
    before: list[dict[str, Any]] = field(default_factory=list)
    start: dict[str, Any] = field(default_factory=dict)
    done: dict[str, Any] = field(default_factory=dict)
    off_by: int = 0
    heard: list[dict[str, Any]] = field(default_factory=list)
    hold: asyncio.Event | None = None
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)

    async def talk(self, connection: ServerConnection) -> None:
        config: dict[str, Any] = {}
        text, utterance = "", 0
        async for frame in connection:
            message = json.loads(frame)
            self.heard.append(message)
            match message["type"]:
                case "session.config":
                    config = message
                case "input.text":
                    text += message["text"]
                case "input.cancel":
                    self.cancelled.set()
                case "input.done":
                    for event in self.before:
                        await connection.send(json.dumps(event))
                    units = [part.strip() + "." for part in text.split(".") if part.strip()]
                    speaking = [self._unit(connection, config, utterance, at, unit) for at, unit in enumerate(units)]
                    task = asyncio.ensure_future(self._utterance(connection, speaking, utterance))
                    if self.hold is None:
                        await task
                    text, utterance = "", utterance + 1

    async def _utterance(self, connection: ServerConnection, speaking: list[Any], utterance: int) -> None:
        for unit in speaking:
            await unit
        done = {"type": "session.done", "utterance_index": utterance, "total_sentences": len(speaking)}
        await connection.send(json.dumps(done))

    async def _unit(
        self, connection: ServerConnection, config: dict[str, Any], utterance: int, at: int, text: str
    ) -> None:
        codes = codes_of(text, config.get("seed", 0), self.frames)
        where = {"utterance_index": utterance, "sentence_index": at}
        if config.get("output_mode") != "codec_tokens":
            await self._samples(connection, codes, where)
            return
        start = start_event(decoder_id=self.decoder.decoder_id, codebook_size=self.decoder.codebook_size)
        await connection.send(json.dumps({**start, **where, "sentence_text": text, **self.start}))
        writer, sent, number = CodecWriter(), 0, 0
        while sent < len(codes):
            size = self.packets[number % len(self.packets)]
            piece = codes[sent : sent + size]
            data = writer.frames(piece)
            if sent == self.resets_at:
                data = pack(Packet(number, piece, RESET))
            await connection.send(data)
            sent, number = sent + len(piece), number + 1
            if self.hold is not None and number == 1:
                await self.hold.wait()
            if self.cancelled.is_set():
                break
        if not self.done.get("error"):
            await connection.send(writer.end())
        done = writer.done(cancelled=self.cancelled.is_set()) | where | self.done
        done["total_frames"] += self.off_by
        await connection.send(json.dumps(done))

    async def _samples(self, connection: ServerConnection, codes: Codes, where: dict[str, Any]) -> None:
        encoder = make_codec().start("pcm", streaming=True)
        pcm = await asyncio.to_thread(self.decoder.decode, self.decoder.new_state(), codes)
        await connection.send(json.dumps({"type": "audio.start", **where, "format": "pcm", "sample_rate": 24_000}))
        data = encoder.feed(pcm) + encoder.finish()
        await connection.send(data)
        await connection.send(json.dumps({"type": "audio.done", **where, "total_bytes": len(data), "error": False}))


@asynccontextmanager
async def speaking(script: Script) -> AsyncIterator[str]:
    """The address of a server that follows the script."""
    async with serve(script.talk, "127.0.0.1", 0) as server:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def load(folder: Any) -> Decoder:
    return make_codes_decoder(str(folder), threads=1)
