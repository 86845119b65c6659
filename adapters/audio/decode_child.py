"""The process in which one uploaded recording is decoded: reads the file from its input, answers with samples.

Decoders are C code that reads what strangers send, and a small file can hold hours of sound. Here the time, the memory
and the number of decoded samples are limited, whatever the file says of itself, and a crash takes nothing with it.
Only sound in its own container is opened: no playlists, no files or addresses that the file names. Imports nothing of
ours, so that it starts fast.

Arguments: ``MAX_SECONDS MAX_RATE_HZ MAX_CHANNELS MAX_MEMORY_BYTES MAX_CPU_S``. Answer: one line of JSON, ``{"ok":
true}`` followed by 24 kHz mono float32 little-endian samples, or ``{"ok": false, "why": ...}``.
"""

import contextlib
import io
import json
import sys
from typing import Any

RATE_HZ = 24_000
CONTAINERS = "wav,w64,aiff,mp3,flac,ogg,mov,matroska,aac,caf,amr,au"
MAX_PACKETS_WITHOUT_SOUND = 4_096


class Refused(Exception):
    """The file is not taken; the argument says why, in words for its sender."""


def limit(memory_bytes: int, cpu_s: int) -> None:
    """Bound this process; where the system cannot, the parent's timeout is what is left."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def decode(data: bytes, max_s: float, max_rate_hz: int, max_channels: int) -> bytes:
    """The recording's samples. Raises ``Refused``."""
    import av

    av.logging.set_level(av.logging.PANIC)
    options = {"format_whitelist": CONTAINERS, "protocol_whitelist": ""}
    try:
        with av.open(io.BytesIO(data), options=options, metadata_errors="ignore") as container:
            if not container.streams.audio:
                raise Refused("it holds no sound")
            stream = container.streams.audio[0]
            stream.codec_context.thread_count = 1
            return _samples(container, stream, max_s, max_rate_hz, max_channels)
    except (av.FFmpegError, ValueError, OverflowError) as error:
        raise Refused("it cannot be read as a recording") from error


def _samples(container: Any, stream: Any, max_s: float, max_rate_hz: int, max_channels: int) -> bytes:
    import av

    resampler = av.AudioResampler(format="flt", layout="mono", rate=RATE_HZ)
    room = int(max_s * RATE_HZ)
    kept: list[bytes] = []
    heard = silent = 0

    def keep(frames: Any) -> None:
        nonlocal heard
        for frame in frames:
            heard += frame.samples
            if heard > room:
                raise Refused(f"it is longer than {max_s:g} s")
            kept.append(frame.to_ndarray().astype("<f4").tobytes())

    for packet in container.demux(stream):
        before = heard
        try:
            frames = packet.decode()
        except av.error.InvalidDataError:
            frames = []
        for frame in frames:
            if not 0 < frame.sample_rate <= max_rate_hz:
                raise Refused(f"its sample rate is not within 1 to {max_rate_hz} Hz")
            if not 0 < frame.layout.nb_channels <= max_channels:
                raise Refused(f"it has more than {max_channels} channels")
            keep(resampler.resample(frame))
        silent = silent + 1 if heard == before else 0
        if silent > MAX_PACKETS_WITHOUT_SOUND:
            raise Refused("it cannot be read as a recording")
    if heard:
        keep(resampler.resample(None))
    if not heard:
        raise Refused("it holds no sound")
    return b"".join(kept)


def main() -> None:
    """Decode what comes in."""
    max_s, max_rate_hz, max_channels, memory_bytes, cpu_s = (float(one) for one in sys.argv[1:6])
    limit(int(memory_bytes), int(cpu_s))
    out = sys.stdout.buffer
    try:
        samples = decode(sys.stdin.buffer.read(), max_s, int(max_rate_hz), int(max_channels))
    except Refused as refused:
        out.write(json.dumps({"ok": False, "why": str(refused)}).encode() + b"\n")
    except MemoryError:
        out.write(json.dumps({"ok": False, "why": "it takes too much memory to decode"}).encode() + b"\n")
    else:
        out.write(b'{"ok": true}\n' + samples)
    out.flush()


if __name__ == "__main__":
    main()
