"""The AudioCodec port: samples in, wav, pcm, mp3, opus, flac or aac out, as they become ready."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import av
import numpy as np
from av.audio.stream import AudioStream
from av.error import FFmpegError

from adapters.audio.frames import audio_frame, single_cpu
from adapters.audio.pcm import cleaned, float_to_s16le, mono, wav_header
from adapters.audio.timing import Blocks, Resampler, Stage, Stretcher
from sidecar.faults import BadRequest, Fault, UnsupportedFormat
from sidecar.ports import SAMPLE_RATE_HZ, AudioEncoder, Pcm

MIN_RATE_HZ, MAX_RATE_HZ = 8_000, 96_000
"""Sample rates that a file may be asked to have."""

MIN_SPEED, MAX_SPEED = 0.25, 4.0
"""Range of ``speed``."""

_MEDIA_TYPES = {
    "wav": "audio/wav",
    "pcm": "audio/pcm",
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "flac": "audio/flac",
    "aac": "audio/aac",
}


@dataclass(frozen=True, slots=True)
class _Recipe:
    """How FFmpeg makes one format. ``rates_hz`` are those the codec can write (empty: any)."""

    codec: str
    container: str
    sample_format: str
    rates_hz: tuple[int, ...] = ()
    bit_rate: int = 0
    frame_ms: int = 0
    container_options: Mapping[str, str] = field(default_factory=dict)


_LAME_RATES_HZ = (8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)

_RECIPES = {
    # No Xing frame and no ID3 tag: bodies may be concatenated or cut anywhere.
    "mp3": _Recipe(
        codec="libmp3lame",
        container="mp3",
        sample_format="fltp",
        rates_hz=_LAME_RATES_HZ,
        bit_rate=64_000,
        container_options={"write_xing": "0", "id3v2_version": "0"},
    ),
    # A page per packet; the default would hold a second of audio back.
    "opus": _Recipe(
        codec="libopus",
        container="ogg",
        sample_format="flt",
        rates_hz=(8_000, 12_000, 16_000, 24_000, 48_000),
        bit_rate=48_000,
        container_options={"page_duration": "20000"},
    ),
    # Frames of 40 ms instead of 96, and no 8 kB of padding before the first of them.
    "flac": _Recipe(
        codec="flac",
        container="flac",
        sample_format="s16",
        frame_ms=40,
        container_options={"metadata_header_padding": "0"},
    ),
    "aac": _Recipe(
        codec="aac",
        container="adts",
        sample_format="fltp",
        rates_hz=(*_LAME_RATES_HZ, 64_000, 88_200, 96_000),
        bit_rate=64_000,
    ),
}


class PyAvCodec:
    """Encoders on PyAV; wav and pcm need no codec. ``formats`` are those that this build of FFmpeg can write."""

    def __init__(self) -> None:
        self.formats: tuple[str, ...] = tuple(
            name for name in _MEDIA_TYPES if name not in _RECIPES or _can_encode(_RECIPES[name])
        )

    def start(
        self, format: str, *, rate_hz: int = SAMPLE_RATE_HZ, streaming: bool = False, speed: float = 1.0
    ) -> AudioEncoder:
        """Return an encoder fed with 24 kHz samples. Encoders are independent; one may move between threads.

        The file plays at ``rate_hz``, or at the next rate that the codec knows (Opus always decodes to 48 kHz).
        A file that is not ``streaming`` and has a length in its header (wav, flac) comes whole from ``finish``.
        ``mp3`` and ``aac`` have no place to say where the sound ends: they decode to up to two codec frames more.
        Nothing fed: ``finish`` gives a WAV without samples, or ``b""`` for every other format.

        Raises ``UnsupportedFormat`` for a format or rate that is not offered, ``BadRequest`` for a speed out of
        range.
        """
        if format not in self.formats:
            raise UnsupportedFormat(f"Audio format must be one of: {', '.join(self.formats)}.", param="format")
        if not MIN_RATE_HZ <= rate_hz <= MAX_RATE_HZ:
            raise UnsupportedFormat(
                f"The sample rate must be between {MIN_RATE_HZ} and {MAX_RATE_HZ} Hz.", param="sample_rate"
            )
        if not (math.isfinite(speed) and MIN_SPEED <= speed <= MAX_SPEED):
            raise BadRequest(f"The speed must be between {MIN_SPEED} and {MAX_SPEED}.", param="speed")
        recipe = _RECIPES.get(format)
        file_rate_hz = _codec_rate_hz(recipe, rate_hz) if recipe else rate_hz
        writer: _Writer
        if recipe is not None:
            writer = _CodecWriter(recipe, file_rate_hz, whole=format == "flac" and not streaming)
        elif format == "wav":
            writer = _WavWriter(file_rate_hz, whole=not streaming)
        else:
            writer = _PcmWriter()
        return _Encoder(format, _stages(file_rate_hz, speed), writer)


class _Writer(Protocol):
    """Turns samples at the file's rate into bytes."""

    def write(self, pcm: Pcm) -> bytes: ...

    def end(self) -> bytes: ...


class _Encoder:
    """Samples through the stages into the writer."""

    def __init__(self, format: str, stages: list[Stage], writer: _Writer) -> None:
        self._format = format
        self._stages = stages
        self._writer = writer
        self._finished = False

    @property
    def media_type(self) -> str:
        return _MEDIA_TYPES[self._format]

    def feed(self, pcm: Pcm) -> bytes:
        """Raises ``ValueError`` for samples that are not mono, ``RuntimeError`` after ``finish``."""
        if self._finished:
            raise RuntimeError("the encoder is finished")
        # Writers clean what they write themselves; a resampler would spread what is broken first.
        samples = cleaned(pcm) if self._stages else mono(pcm)
        out = bytearray()
        # A second at a time: the memory needed does not grow with what is fed at once.
        for at in range(0, len(samples), SAMPLE_RATE_HZ):
            out += self._run(samples[at : at + SAMPLE_RATE_HZ], self._stages)
        return bytes(out)

    def finish(self) -> bytes:
        """Idempotent: a second call returns nothing."""
        if self._finished:
            return b""
        self._finished = True
        out = bytearray()
        for index, stage in enumerate(self._stages):
            out += self._run(stage.drain(), self._stages[index + 1 :])
        try:
            out += self._writer.end()
        except FFmpegError as error:
            raise self._fault() from error
        return bytes(out)

    def _run(self, pcm: Pcm, stages: list[Stage]) -> bytes:
        try:
            for stage in stages:
                pcm = stage.push(pcm)
            return self._writer.write(pcm) if len(pcm) else b""
        except FFmpegError as error:
            raise self._fault() from error

    def _fault(self) -> Fault:
        return Fault(f"The audio could not be encoded as {self._format}.")


class _PcmWriter:
    """Bare 16-bit samples."""

    def write(self, pcm: Pcm) -> bytes:
        return float_to_s16le(pcm)

    def end(self) -> bytes:
        return b""


class _WavWriter:
    """A WAV, in one piece with its true sizes or as a stream without them."""

    def __init__(self, rate_hz: int, *, whole: bool) -> None:
        self._rate_hz = rate_hz
        self._whole = whole
        self._held = bytearray()
        self._begun = False

    def write(self, pcm: Pcm) -> bytes:
        data = float_to_s16le(pcm)
        if self._whole:
            self._held += data
            return b""
        return self._stream_header() + data

    def end(self) -> bytes:
        if self._whole:
            return wav_header(self._rate_hz, len(self._held)) + bytes(self._held)
        return self._stream_header()

    def _stream_header(self) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        return wav_header(self._rate_hz, None)


class _PipeSink:
    """A file that FFmpeg can only append to; ``taken`` hands over what is there."""

    def __init__(self) -> None:
        self._data = bytearray()

    def write(self, data: bytes) -> int:
        self._data += data
        return len(data)

    def taken(self) -> bytes:
        data = bytes(self._data)
        self._data.clear()
        return data


class _CodecWriter:
    """A file that FFmpeg encodes and muxes into memory.

    ``whole``: the muxer may go back to fill in its header, so nothing is given away before the end.
    """

    def __init__(self, recipe: _Recipe, rate_hz: int, *, whole: bool) -> None:
        self._sample_format = recipe.sample_format
        self._rate_hz = rate_hz
        self._written_samples = 0
        self._sink = io.BytesIO() if whole else _PipeSink()
        self._container = av.open(
            self._sink,
            "w",
            format=recipe.container,
            container_options={"flush_packets": "1", **recipe.container_options},
        )
        self._stream = _add_stream(self._container, recipe, rate_hz)

    def write(self, pcm: Pcm) -> bytes:
        samples = cleaned(pcm)
        if self._sample_format == "s16":
            samples = np.frombuffer(float_to_s16le(samples), dtype=np.int16)
        frame = audio_frame(samples, self._sample_format, self._rate_hz, self._written_samples)
        if self._written_samples:
            packets = self._stream.encode(frame)
        else:
            with single_cpu():
                packets = self._stream.encode(frame)
        self._written_samples += len(samples)
        self._container.mux(packets)
        return self._taken()

    def end(self) -> bytes:
        if not self._written_samples:
            # Headers alone (Ogg) are a file that decoders refuse.
            return b""
        self._container.mux(self._stream.encode(None))
        self._container.close()
        return self._sink.getvalue() if isinstance(self._sink, io.BytesIO) else self._sink.taken()

    def _taken(self) -> bytes:
        return self._sink.taken() if isinstance(self._sink, _PipeSink) else b""


def _add_stream(container: av.container.OutputContainer, recipe: _Recipe, rate_hz: int) -> AudioStream:
    options = {"frame_size": str(rate_hz * recipe.frame_ms // 1_000)} if recipe.frame_ms else {}
    stream = container.add_stream(recipe.codec, rate=rate_hz, options=options)
    if not isinstance(stream, AudioStream):
        raise TypeError("not an audio codec")
    stream.codec_context.layout = "mono"
    stream.codec_context.format = recipe.sample_format
    stream.codec_context.thread_count = 1
    if recipe.bit_rate:
        # Narrow bands need less, and AAC refuses more than 6 bits per sample.
        stream.codec_context.bit_rate = min(recipe.bit_rate, 4 * rate_hz)
    return stream


def _stages(rate_hz: int, speed: float) -> list[Stage]:
    stages: list[Stage] = []
    if speed != 1.0:
        stages.append(Blocks(Stretcher(speed)))
    if rate_hz != SAMPLE_RATE_HZ:
        stages.append(Blocks(Resampler(rate_hz)))
    return stages


def _codec_rate_hz(recipe: _Recipe, rate_hz: int) -> int:
    if not recipe.rates_hz:
        return rate_hz
    return min((known for known in recipe.rates_hz if known >= rate_hz), default=max(recipe.rates_hz))


def _can_encode(recipe: _Recipe) -> bool:
    return recipe.codec in av.codecs_available and recipe.container in av.formats_available
