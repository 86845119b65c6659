"""``sidecar edge``: hear a server's codec tokens, write or play them, say how fast that was and how exact."""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from pathlib import Path

from sidecar.clock import SystemClock
from sidecar.edge.client import EdgeClient, EdgeRequest
from sidecar.edge.parity import Parity, parity
from sidecar.edge.play import Player, player_command
from sidecar.edge.session import EdgeReport
from sidecar.faults import ConfigError, EngineFault
from sidecar.ports import SAMPLE_RATE_HZ, AudioCodec, Clock, Pcm
from sidecar.telemetry import configure_logging
from sidecar.wiring import make_codec, make_codes_decoder

_BYTES_PER_MS = 2 * SAMPLE_RATE_HZ / 1000


@dataclass(frozen=True, slots=True)
class EdgeOptions:
    """What the command line asked for. ``prebuffer_ms`` of sound are gathered before playing begins."""

    url: str
    checkpoint: str
    request: EdgeRequest
    wav: Path | None = None
    play: bool = False
    prebuffer_ms: int = 200
    parity: bool = False
    threads: int = 0
    api_key: str | None = None


async def run_edge(options: EdgeOptions, text: str | AsyncIterator[str], say: Callable[[str], None]) -> bool:
    """Speak ``text``, tell ``say`` the figures. Returns False if ``parity`` was asked for and not reached.

    Raises ``ConfigError`` and ``EngineFault``; a file appears only once its speech is whole.
    """
    configure_logging("warning", False)
    if options.wav is not None and (options.wav.is_dir() or not options.wav.resolve().parent.is_dir()):
        raise ConfigError([f"--wav {options.wav}: there is no such folder, or it is a folder itself"])
    command = player_command() if options.play else None
    clock, codec = SystemClock(), make_codec()
    start_ms = clock.now_ms()
    decoder = make_codes_decoder(options.checkpoint, options.threads)
    decoder.warm_up()
    say(f"decoder         {decoder.decoder_id}, loaded in {(clock.now_ms() - start_ms) / 1000:.1f} s")
    async with EdgeClient(options.url, decoder, clock, api_key=options.api_key) as client, AsyncExitStack() as stack:
        player = await stack.enter_async_context(Player(command)) if command is not None else None
        pcm16 = await _hear(client, text, options, codec, clock, player)
        report = client.report
    for line in figures(report, options.play):
        say(line)
    if not pcm16:
        raise EngineFault("The server sent no sound.")
    if options.wav is not None:
        _write_wav(options.wav, pcm16, codec)
        say(f"wrote           {options.wav}")
    if not options.parity or not isinstance(text, str):
        return True
    async with EdgeClient(options.url, decoder, clock, api_key=options.api_key) as client:
        found = parity(pcm16, await client.server_pcm(text, options.request))
    say(parity_line(found, referenced=report.referenced_units > 0))
    return found.good


async def _hear(
    client: EdgeClient,
    text: str | AsyncIterator[str],
    options: EdgeOptions,
    codec: AudioCodec,
    clock: Clock,
    player: Player | None,
) -> bytes:
    """All samples as 16-bit PCM; played meanwhile, once enough of them are there."""
    encoder = codec.start("pcm", streaming=True)
    start_ms = clock.now_ms()
    whole, waiting, playing = bytearray(), bytearray(), False
    async with aclosing(client.speak(text, options.request)) as pieces:
        async for pcm in pieces:
            data = encoder.feed(pcm)
            whole += data
            if player is None:
                continue
            waiting += data
            if playing or len(waiting) >= options.prebuffer_ms * _BYTES_PER_MS:
                if not playing:
                    client.report.playback_start_ms = clock.now_ms() - start_ms
                playing = True
                await player.feed(bytes(waiting))
                waiting.clear()
    whole += encoder.finish()
    if player is not None and waiting:
        client.report.playback_start_ms = client.report.playback_start_ms or clock.now_ms() - start_ms
        await player.feed(bytes(waiting))
    return bytes(whole)


def _write_wav(path: Path, pcm16: bytes, codec: AudioCodec) -> None:
    import numpy as np

    samples: Pcm = (np.frombuffer(pcm16, "<i2") / 32_768).astype(np.float32)
    encoder = codec.start("wav")
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_bytes(encoder.feed(samples) + encoder.finish())
        part.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink()
        raise ConfigError([f"cannot write {path}: {error.strerror}"]) from None


def figures(report: EdgeReport, played: bool) -> list[str]:
    """The report in lines."""

    def ms(value: float | None) -> str:
        return "never" if value is None else f"{value:.0f} ms"

    lines = [
        f"first packet    {ms(report.first_packet_ms)} after the text was sent",
        f"first audio     {ms(report.first_audio_ms)}",
        f"playback start  {ms(report.smooth_start_ms)} at the earliest for sound without a gap",
    ]
    if played:
        lines.append(f"played from     {ms(report.playback_start_ms)}")
    rate = f", {report.wire_bytes_per_s:.0f} bytes a second" if report.wire_bytes_per_s else ""
    lines.append(f"sound           {report.sound_s:.2f} s in {report.units} units, {report.frames} frames{rate}")
    if report.decode_factor is not None and report.clock.realtime_factor is not None:
        lines.append(
            f"real-time       decoding {report.decode_factor:.3f}, "
            f"first to last sound {report.clock.realtime_factor:.3f}"
        )
    if report.cancelled:
        lines.append("cancelled       by the server or the client")
    return lines


def parity_line(found: Parity, *, referenced: bool = False) -> str:
    """The comparison with the server's own samples in a line. ``referenced``: the voice brings reference codes."""
    if found.ours != found.theirs:
        return f"parity          FAILED: {found.ours} samples here, {found.theirs} from the server"
    snr = "equal bit for bit" if math.isinf(found.snr_db) and found.snr_db > 0 else f"SNR {found.snr_db:.1f} dB"
    detail = f"{found.differing} of {found.ours} samples differ, by at most {found.largest_step}"
    if referenced and not found.good:
        return (
            "parity          not to be had: the server's decoder has heard the voice's reference recording before, "
            f"which no stream brings, so every sample may differ ({snr}; {detail})"
        )
    return f"parity          {'good' if found.good else 'FAILED'}: {snr}; {detail}"
