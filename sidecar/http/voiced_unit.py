"""The audio of one unit of a speech socket on its way: encoder, codec packets or word times, and its figures."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import Any

from sidecar.codec_wire import CodecWriter, start_event
from sidecar.core.session import Unit
from sidecar.core.word_stamps import ChunkEvents, WordStamps
from sidecar.http.service import Service
from sidecar.http.speech_fields import SessionConfig
from sidecar.ports import SAMPLE_RATE_HZ, AudioEncoder
from sidecar.speech_line import Audio
from sidecar.telemetry import ReplyTimer
from voices.anchor import SpeakerAnchor

Frame = tuple[bytes | dict[str, Any], int]
"""A frame to send and how many bytes of audio are in it."""


class VoicedUnit:
    """The audio of the unit that is being sent: its encoder, its bytes, its figures."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.unit: Unit[SessionConfig] | None = None
        self.bytes_sent = 0
        self._config = SessionConfig()
        self._encoder: AudioEncoder | None = None
        self._codes: CodecWriter | None = None
        self._reference_frames = 0
        self._pieces: list[bytes] = []
        self._words: WordStamps | None = None
        self._chunks = ChunkEvents()
        self._timer: ReplyTimer | None = None
        self._speaking = ExitStack()

    def opened(self, unit: Unit[SessionConfig], anchor: SpeakerAnchor | None = None) -> None:
        """A new unit begins, spoken as ``anchor``."""
        codes = anchor.codes if anchor is not None and self._service.engine.traits.anchor_codes else None
        self._reference_frames = 0 if codes is None else len(codes)
        config = self._config = unit.config
        self.unit = unit
        self.bytes_sent = 0
        self._pieces = []
        self._timer = self._service.metrics.reply_started(
            "stream", self._service.clock.now_ms(), streamed=config.stream_audio
        )
        self._speaking.enter_context(self._service.metrics.active())
        self._codes = CodecWriter() if config.output_mode == "codec_tokens" else None
        if self._codes is not None:
            return
        if config.word_timestamps:
            self._words, self._chunks = WordStamps(unit.text.spoken), ChunkEvents()
        speed = 1.0 if config.speed is None else config.speed
        self._encoder = self._service.codec.start(config.response_format, streaming=config.stream_audio, speed=speed)

    def start_event(self) -> dict[str, Any]:
        """The event that opens the bracket."""
        config = self._config
        if self._codes is not None:
            return start_event(
                decoder_id=self._service.engine.traits.codec_id,
                model=config.model,
                reference_frames=self._reference_frames,
            )
        event: dict[str, Any] = {"type": "audio.start", "format": config.response_format}
        if config.stream_audio:
            event |= {"sample_rate": SAMPLE_RATE_HZ, "channels": 1}
        if config.mode == "live":
            event["mode"] = self._service.mode_of("live")
        if self._words is not None:
            event["word_timestamps"] = True
        return event

    async def audio(self, event: Audio[Unit[SessionConfig]]) -> list[Frame]:
        """What to send now; nothing while the whole file is being collected."""
        if self._timer is not None:
            self._timer.audio(self._service.clock.now_ms(), event.chunk.samples)
        if self._codes is not None:
            return [] if event.chunk.codes is None else self._framed(self._codes.frames(event.chunk.codes))
        if self._encoder is None:
            return []
        if self._words is not None:
            self._words.feed(event.chunk.pcm)
        if self._config.response_format in ("pcm", "wav"):
            piece = self._encoder.feed(event.chunk.pcm)
        else:
            piece = await asyncio.to_thread(self._encoder.feed, event.chunk.pcm)
        if self._config.stream_audio:
            return self._framed(piece)
        self._pieces.append(piece)
        return []

    async def finish(self, outcome: str) -> list[Frame]:
        """The last frames of a unit that is ``completed``; none of one that is ``cancelled`` or ``failed``."""
        last: list[Frame] = []
        if self._encoder is not None and outcome == "completed":
            rest = await asyncio.to_thread(self._encoder.finish)
            last = self._framed(rest if self._config.stream_audio else b"".join([*self._pieces, rest]))
            if self._words is not None:
                last.append((self._chunks.last(await asyncio.to_thread(self._words.stamps)), 0))
        self._ended(outcome)
        self._encoder, self._pieces, self._words, self.unit = None, [], None, None
        return last

    def over(self, *, failed: bool = False) -> tuple[bytes, dict[str, Any]]:
        """The frame that must close the bracket, if any (none of one that failed), and the event that does; after
        ``finish``."""
        codes, self._codes = self._codes, None
        if codes is None:
            return b"", {"type": "audio.done", "total_bytes": self.bytes_sent}
        closing = b"" if failed else codes.end()
        return closing, codes.done()

    def abandoned(self) -> None:
        """The socket is gone, perhaps in the middle of a unit."""
        self._ended("cancelled")

    def _ended(self, outcome: str) -> None:
        if self._timer is not None:
            self._timer.ended(self._service.clock.now_ms(), outcome)
            self._timer = None
        self._speaking.close()

    def _framed(self, piece: bytes) -> list[Frame]:
        if not piece:
            return []
        return [(piece if self._words is None else self._chunks.audio(piece), len(piece))]
