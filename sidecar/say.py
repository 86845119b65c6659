"""``sidecar say``: speaks a text, or a token stream on standard input, into a file or a pipe."""

from __future__ import annotations

import asyncio
import codecs
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from segmenter import ReasoningFilter
from sidecar.clock import SystemClock
from sidecar.config import Config
from sidecar.core.events import ReplyAudio, SegmentEnded, SegmentStarted
from sidecar.faults import BadRequest, ConfigError, UnsupportedFormat
from sidecar.http.reply_rules import segment_options, sound_rules
from sidecar.http.speech_fields import iso_language
from sidecar.ports import SAMPLE_RATE_HZ, AudioEncoder
from sidecar.reply import Reply, ReplyLimits, Voicing, fatal
from sidecar.speech_line import LineLimits
from sidecar.telemetry import configure_logging
from sidecar.voicebook import VoiceBook
from sidecar.wiring import make_codec, make_engine
from voices.seeds import new_dialog_seed

_READ_BYTES = 65_536
_TO_STDOUT = "-"
_ENDINGS = {"ogg": "opus", "raw": "pcm"}
"""Other names of formats."""


@dataclass(frozen=True, slots=True)
class SayOptions:
    """What the command line asked for."""

    output: str
    format: str | None
    voice: str | None
    language: str | None
    seed: int | None


async def say_text(config: Config, text: str | None, options: SayOptions) -> None:
    """Speak ``text``, or standard input if None. Raises ``Fault`` or ``ConfigError``."""
    configure_logging("warning", False)
    streaming = options.output == _TO_STDOUT
    encoder = make_codec().start(_format(options), streaming=streaming)
    engine = make_engine(config, SystemClock())
    await engine.start()
    try:
        voices = VoiceBook(engine.traits, config.voices.aliases, config.voices.default)
        voicing = Voicing(
            voice=voices.resolve(options.voice),
            dialog_seed=options.seed if options.seed is not None else new_dialog_seed(),
            language=iso_language(options.language),
        )
        chat = config.chat
        reply = Reply(
            engine,
            SystemClock(),
            voicing,
            segment_options(config),
            ReplyLimits(LineLimits(chat.ahead_segments), chat.unspoken_chars, sys.maxsize),
            sound=sound_rules(config),
        )
        source = standard_input() if text is None else _whole(text)
        with _sink(options.output) as sink:
            samples = await _speak(reply, source, encoder, sink, config.llm.starts_in_think)
        if not streaming:
            seconds = samples / SAMPLE_RATE_HZ
            Console(stderr=True).print(f"wrote {options.output} ({seconds:.1f} s)", highlight=False)
    finally:
        await engine.close()


def _format(options: SayOptions) -> str:
    if options.format:
        return _ENDINGS.get(options.format, options.format)
    if options.output == _TO_STDOUT:
        return "wav"
    ending = Path(options.output).suffix.lower().lstrip(".")
    format = _ENDINGS.get(ending, ending)
    if format not in make_codec().formats:
        known = ", ".join([*make_codec().formats, *_ENDINGS])
        raise UnsupportedFormat(f"'{options.output}' does not end in a known format ({known}); give --format.")
    return format


@contextmanager
def _sink(output: str) -> Iterator[BinaryIO]:
    """Where the bytes go. A file appears, or is replaced, only once it is whole."""
    if output == _TO_STDOUT:
        with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as pipe:
            yield pipe
        return
    path = Path(output)
    special = path.exists() and not path.is_file()  # a pipe or a device is written as it is
    target = path if special else path.with_name(f".{path.name}.part")
    try:
        file = target.open("wb")
    except OSError as error:
        raise ConfigError([f"cannot write {output}: {error.strerror}"]) from None
    try:
        with file:
            yield file
        if not special:
            target.replace(path)
    finally:
        if not special:
            target.unlink(missing_ok=True)


async def _whole(text: str) -> AsyncIterator[str]:
    yield text


async def standard_input() -> AsyncIterator[str]:
    """Text from standard input, in pieces as they come, cut on character boundaries."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while data := await asyncio.to_thread(os.read, sys.stdin.fileno(), _READ_BYTES):
        yield decoder.decode(data)
    yield decoder.decode(b"", final=True)


async def _speak(
    reply: Reply, source: AsyncIterator[str], encoder: AudioEncoder, sink: BinaryIO, starts_in_think: bool
) -> int:
    samples = 0
    progress = Progress(
        SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(),
        console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty(),
    )  # fmt: skip
    async with reply:
        feeding = asyncio.create_task(_feed(reply, source, starts_in_think))
        with progress:
            task = progress.add_task("listening", total=None)
            async with aclosing(reply.events()) as events:
                async for event in events:
                    if isinstance(event, ReplyAudio):
                        samples += len(event.pcm)
                        sink.write(await asyncio.to_thread(encoder.feed, event.pcm))
                        sink.flush()
                    elif isinstance(event, SegmentStarted):
                        progress.update(task, description=" ".join(event.segment.spoken.split())[:60])
                    elif isinstance(event, SegmentEnded) and event.fault is not None:
                        if fault := fatal(event, samples > 0):
                            raise fault
                        progress.console.print(f"left out: {event.fault.message}", highlight=False)
        await feeding
    if not samples:
        raise BadRequest("There is nothing to say in this text.")
    sink.write(encoder.finish())
    return samples


async def _feed(reply: Reply, source: AsyncIterator[str], starts_in_think: bool) -> None:
    visible = ReasoningFilter(starts_in_think)
    try:
        async for piece in source:
            await reply.feed(visible.feed(piece))
        await reply.feed(visible.flush())
    finally:
        reply.finish()
