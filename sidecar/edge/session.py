"""One utterance as an edge client hears it: told what came and when, it says what to decode. No socket, no tensor."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from sidecar.codec_wire import FRAME_RATE_HZ, CodecFormat, CodecReader, Codes
from sidecar.faults import EngineFault
from sidecar.play_clock import PlayClock
from sidecar.ports import SAMPLE_RATE_HZ, Pcm

_MAX_MESSAGE_CHARS = 300
_MAX_ERRORS = 100
_FAMILY_SEPARATOR = "-"


class Decoder(Protocol):
    """Codes to samples, with a state that is passed in."""

    codebook_size: int
    decoder_id: str

    def new_state(self) -> Any:
        """The state before the first frame of a unit."""

    def decode(self, state: Any, codes: Codes) -> Pcm:
        """The next frames, ``(frames, codebooks)``, as ``frames * 1920`` samples; the state goes on."""


@dataclass(frozen=True, slots=True, eq=False)
class Decode:
    """Codes to decode. ``fresh``: with a new state."""

    codes: Codes
    fresh: bool


@dataclass(frozen=True, slots=True)
class Finished:
    """The utterance is over."""


Effect = Decode | Finished


@dataclass(slots=True)
class EdgeReport:
    """What an utterance came to. Times are milliseconds since the request was sent.

    ``referenced_units`` go on from a reference recording, whose codes the server's decoder hears and this one does not.
    """

    units: int = 0
    frames: int = 0
    referenced_units: int = 0
    wire_bytes: int = 0
    first_packet_ms: float | None = None
    playback_start_ms: float | None = None
    decode_ms: float = 0.0
    cancelled: bool = False
    errors: list[str] = field(default_factory=list)
    unknown_events: int = 0
    clock: PlayClock = field(default_factory=PlayClock)

    @property
    def first_audio_ms(self) -> float | None:
        """When the first samples were there."""
        return self.clock.first_ms

    @property
    def smooth_start_ms(self) -> float | None:
        """When playing could have begun so that it never ran dry."""
        return self.clock.smooth_start_ms

    @property
    def sound_s(self) -> float:
        """Seconds of sound."""
        return self.clock.sound_ms / 1000

    @property
    def decode_factor(self) -> float | None:
        """Time spent decoding, per sound."""
        return self.decode_ms / self.clock.sound_ms if self.clock.sound_ms else None

    @property
    def wire_bytes_per_s(self) -> float | None:
        """Bytes of codec packets per second of sound."""
        return self.wire_bytes * FRAME_RATE_HZ / self.frames if self.frames else None

    def decoded(self, samples: int, at_ms: float, took_ms: float) -> None:
        """So many samples were there at ``at_ms``, after ``took_ms`` of decoding."""
        self.decode_ms += took_ms
        if samples:
            self.clock.piece(at_ms, 1000 * samples / SAMPLE_RATE_HZ)


class EdgeSession:
    """One utterance, from its request to ``session.done``."""

    def __init__(self, codebook_size: int, decoder_id: str) -> None:
        self._codebook_size = codebook_size
        self._decoder_id = decoder_id
        self._reader: CodecReader | None = None
        self._fresh = True
        self.finished = False
        self.report = EdgeReport()

    def text(self, data: str) -> list[Effect]:
        """A text frame of the server's. Raises ``EngineFault`` for a stream that cannot be decoded here.

        Events of a type that is not known are counted and passed over.
        """
        try:
            message = json.loads(data)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            raise EngineFault("The server sent text that is no event.")
        match message.get("type"):
            case "codec.start":
                self._start(message)
            case "codec.done":
                self._done(message)
            case "audio.start":
                raise EngineFault("The server sends sound instead of codec tokens: it does not know output_mode.")
            case "error":
                self._error(message.get("message"))
            case "input.cancelled":
                self.report.cancelled = True
                self.finished = True
                return [Finished()]
            case "session.done":
                self.finished = True
                return [Finished()]
            case _:
                self.report.unknown_events += 1
        return []

    def binary(self, data: bytes, at_ms: float) -> list[Effect]:
        """A binary frame. Raises ``EngineFault`` if it is none of the bracket's packets."""
        if self._reader is None:
            raise EngineFault("A codec packet came outside codec.start and codec.done.")
        packet = self._reader.packet(data)
        report = self.report
        report.wire_bytes += len(data)
        if report.first_packet_ms is None:
            report.first_packet_ms = at_ms
        fresh = self._fresh or packet.resets
        if not len(packet.codes):
            self._fresh = fresh
            return []
        report.frames += len(packet.codes)
        self._fresh = False
        return [Decode(packet.codes, fresh)]

    def _start(self, message: Mapping[str, Any]) -> None:
        if self._reader is not None:
            raise EngineFault("A codec.start came inside another unit.")
        format = CodecFormat.of(message)
        if _other(format.decoder_id, self._decoder_id):
            raise EngineFault(
                f"The server's codes are for the decoder {format.decoder_id[:64]}, this one is {self._decoder_id}."
            )
        # The same decoder refuses codes that it has not; of another one only the size tells.
        if format.codebook_size != self._codebook_size and format.decoder_id != self._decoder_id:
            raise EngineFault(
                f"The server's codes come from codebooks of {format.codebook_size} entries, this decoder has "
                f"{self._codebook_size}: load the checkpoint that the server speaks with."
            )
        self._reader, self._fresh = CodecReader(format), True
        self.report.units += 1
        self.report.referenced_units += bool(format.reference_frames)

    def _done(self, message: Mapping[str, Any]) -> None:
        if self._reader is None:
            raise EngineFault("A codec.done came without its codec.start.")
        self._reader.done(message)
        self._reader = None
        if message.get("cancelled"):
            self.report.cancelled = True
        if message.get("error") and not self.report.errors:
            self._error("a unit failed")

    def _error(self, said: object) -> None:
        if len(self.report.errors) < _MAX_ERRORS:
            self.report.errors.append(str(said)[:_MAX_MESSAGE_CHARS])


def _other(theirs: str, ours: str) -> bool:
    """True if both names are of the same family (all but what follows the last dash), and differ."""
    family = ours.rpartition(_FAMILY_SEPARATOR)[0] + _FAMILY_SEPARATOR
    return theirs.startswith(family) and theirs != ours
