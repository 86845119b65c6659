"""``sidecar drift``: fits the drift meters to a voice, and reports how steady a dialog's voice is.

Both take recordings (a folder with ``NAME.wav`` and ``NAME.txt`` for each segment, in the order of their names), or
speak with the configured engine.
"""

from __future__ import annotations

import asyncio
import json
import wave
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soxr
from numpy.typing import NDArray

from segmenter import SegmentOptions
from sidecar.clock import SystemClock
from sidecar.config import Config
from sidecar.core.events import ReplyAudio, SegmentEnded, SegmentStarted
from sidecar.drift_texts import dialog
from sidecar.faults import BadRequest, ConfigError
from sidecar.http.speech_fields import iso_language
from sidecar.ports import SAMPLE_RATE_HZ, Engine
from sidecar.reply import Reply, ReplyLimits, Voicing, fatal
from sidecar.telemetry import configure_logging
from sidecar.voicebook import VoiceBook
from sidecar.wiring import make_engine
from voices.drift_calibrate import MIN_SEGMENTS, CleanSegment, calibrate
from voices.drift_html import report_html
from voices.drift_limits import MAX_JSON_BYTES, DriftLimits, limits_from_json, limits_to_json
from voices.drift_meter import DriftMeter, SpokenSegment
from voices.features import measure

MAX_SEGMENTS = 2_000
"""Of a recorded dialog."""

MAX_TEXT_BYTES = 1_000_000
MAX_WAV_BYTES = 64_000_000

_RATES_HZ = (8_000, 192_000)


@dataclass(frozen=True, slots=True)
class DriftOptions:
    """What the command line asked for. ``source``: a folder of recordings, a text to speak, or None."""

    source: Path | None
    voice: str | None
    language: str | None
    seed: int


async def run_calibrate(config: Config, options: DriftOptions, output: Path, segments: int) -> str:
    """Fit limits and write them to ``output``; returns a line about them. Raises ``Fault`` or ``ConfigError``."""
    configure_logging("warning", False)
    if options.source is None and iso_language(options.language) not in (None, "en"):
        raise BadRequest(f"The built-in sentences are English; give a text with {MIN_SEGMENTS} or more sentences.")
    measured: list[CleanSegment] = []
    async with aclosing(_segments(config, options, dialog(options.seed, segments))) as spoken:
        async for segment in spoken:
            measured.append(CleanSegment(segment.text, measure(segment.pcm)))
    try:
        limits = calibrate(measured)
    except ValueError as error:
        raise BadRequest(f"Cannot calibrate: {error}; there are {len(measured)} segments in all.") from None
    _write(output, limits_to_json(limits))
    seconds = sum(one.features.active_s for one in measured)
    return f"wrote {output} (from {len(measured)} segments, {seconds:.0f} s of speech)"


async def run_report(config: Config, options: DriftOptions, output: Path, limits: Path | None) -> str:
    """Judge a dialog; write a page (``.html``) or the figures (``.json``). Returns a line about it."""
    configure_logging("warning", False)
    meter = DriftMeter(DriftLimits() if limits is None else read_limits(limits))
    async with aclosing(_segments(config, options, dialog(options.seed, 20))) as spoken:
        async for segment in spoken:
            meter.feed(segment)
    report = meter.report()
    if not report.segments:
        raise BadRequest("There is nothing to report on: no segment was found.")
    text = json.dumps(report.to_json(), indent=1) if output.suffix == ".json" else report_html(report)
    _write(output, text)
    verdicts = ", ".join(f"{count} {name}" for name, count in report.verdicts.items() if count)
    return f"wrote {output} ({report.segments} segments: {verdicts})"


def read_limits(path: Path) -> DriftLimits:
    """Limits from a file; raises ``ConfigError`` that says what is wrong with it."""
    try:
        return limits_from_json(_read_text(path, MAX_JSON_BYTES))
    except ValueError as error:
        raise ConfigError([f"{path}: {error}"]) from None


async def _segments(config: Config, options: DriftOptions, otherwise: list[str]) -> AsyncGenerator[SpokenSegment, None]:
    """The recordings, or the lines of a text (each one reply) as the engine speaks them, or ``otherwise`` spoken."""
    source = options.source
    if source is not None and source.is_dir():
        for segment in recorded_segments(source):
            yield segment
        return
    replies = otherwise
    if source is not None:
        replies = [line.strip() for line in _read_text(source, MAX_TEXT_BYTES).splitlines() if line.strip()]
    engine = make_engine(config, SystemClock())
    await engine.start()
    try:
        voices = VoiceBook(engine.traits, config.voices.aliases, config.voices.default)
        voice = voices.resolve(options.voice)
        for index, text in enumerate(replies):
            voicing = Voicing(voice, options.seed, index, iso_language(options.language))
            async with aclosing(_spoken(engine, voicing, text)) as spoken:
                async for segment in spoken:
                    yield segment
    finally:
        await engine.close()


async def _spoken(engine: Engine, voicing: Voicing, text: str) -> AsyncGenerator[SpokenSegment, None]:
    """One reply, segment by segment. Raises the fault that a segment ends with."""
    parts: list[NDArray[np.float32]] = []
    pause_ms: float | None = None
    async with Reply(engine, SystemClock(), voicing, SegmentOptions(), ReplyLimits()) as reply:
        feeding = asyncio.create_task(_feed(reply, text))
        try:
            async with aclosing(reply.events()) as events:
                async for event in events:
                    if isinstance(event, SegmentStarted):
                        parts = []
                    elif isinstance(event, ReplyAudio) and event.is_pause:
                        pause_ms = 1_000 * len(event.pcm) / SAMPLE_RATE_HZ
                    elif isinstance(event, ReplyAudio):
                        parts.append(event.pcm)
                    elif isinstance(event, SegmentEnded):
                        if fault := fatal(event, heard_anything=False):
                            raise fault
                        segment = event.segment
                        yield SpokenSegment(
                            np.concatenate(parts), segment.spoken, voicing.reply_index, segment.index, pause_ms
                        )
                        pause_ms = 0.0
            await feeding
        finally:
            feeding.cancel()


async def _feed(reply: Reply, text: str) -> None:
    await reply.feed(text)
    reply.finish()


def recorded_segments(folder: Path) -> Iterator[SpokenSegment]:
    """The recordings of a folder in the order of their names, as one reply. Raises ``BadRequest``."""
    files = sorted(folder.glob("*.wav"))
    if len(files) > MAX_SEGMENTS:
        raise BadRequest(f"There are more than {MAX_SEGMENTS} recordings in {folder.name}.")
    if not files:
        raise BadRequest(f"There are no .wav files in {folder.name}.")
    for index, file in enumerate(files):
        text = _read_text(file.with_suffix(".txt"), MAX_TEXT_BYTES).strip()
        yield SpokenSegment(read_wav(file), text, 0, index)


def read_wav(path: Path) -> NDArray[np.float32]:
    """The first channel of a 16-bit PCM WAV file at 24 kHz, whatever rate it has. Raises ``BadRequest``."""
    try:
        if path.stat().st_size > MAX_WAV_BYTES:
            raise BadRequest(f"{path.name} is too long.")
        with wave.open(str(path), "rb") as file:
            rate_hz, channels, width = file.getframerate(), file.getnchannels(), file.getsampwidth()
            data = file.readframes(file.getnframes())
    except (OSError, EOFError, wave.Error):
        raise BadRequest(f"{path.name} is not a readable PCM WAV file.") from None
    if width != 2 or channels < 1 or not _RATES_HZ[0] <= rate_hz <= _RATES_HZ[1]:
        raise BadRequest(f"{path.name} must have 16-bit samples and a rate of 8 to 192 kHz.")
    whole = data[: len(data) // (2 * channels) * 2 * channels]
    samples: NDArray[np.float32] = np.frombuffer(whole, "<i2")[::channels].astype(np.float32) / np.float32(32_768)
    if rate_hz != SAMPLE_RATE_HZ:
        samples = soxr.resample(samples, rate_hz, SAMPLE_RATE_HZ)
    return samples


def _read_text(path: Path, most: int) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
        text = data.decode("utf-8")
    except (OSError, UnicodeDecodeError):
        raise BadRequest(f"{path.name} is not a readable UTF-8 text file.") from None
    if len(data) > most:
        raise BadRequest(f"{path.name} is longer than {most} bytes.")
    return text


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError([f"cannot write {path}: {error.strerror}"]) from None
