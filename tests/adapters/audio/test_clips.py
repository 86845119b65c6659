"""Recordings that users send: what is read, what is refused, and what a hostile one costs."""

from __future__ import annotations

import asyncio
import base64
import io
import struct
import wave
import zlib
from collections.abc import Sequence
from typing import Any

import av
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters.audio import decode_child
from adapters.audio.clips import ClipLimits, Clips
from sidecar.faults import BadRequest, TooBusy, TooLarge


def tone(seconds: float, rate: int = 24_000, channels: int = 1) -> np.ndarray:
    t = np.arange(int(seconds * rate)) / rate
    return np.repeat((0.5 * np.sin(2 * np.pi * 220 * t))[:, None], channels, 1)


def wav(samples: np.ndarray, rate: int = 24_000) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(samples.shape[1])
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((samples * 32_767).astype("<i2").tobytes())
    return out.getvalue()


def encoded(format: str, codec: str, samples: np.ndarray, rate: int = 24_000) -> bytes:
    out = io.BytesIO()
    with av.open(out, "w", format=format) as container:
        stream: Any = container.add_stream(codec, rate=rate, layout="mono")
        frame = av.AudioFrame.from_ndarray((samples[:, 0] * 32_767).astype("<i2")[None], format="s16", layout="mono")
        frame.sample_rate = rate
        resampler = av.AudioResampler(
            format=stream.codec_context.format.name, rate=rate, frame_size=stream.codec_context.frame_size or 0
        )
        for part in [*resampler.resample(frame), *resampler.resample(None)]:
            container.mux(stream.encode(part))
        container.mux(stream.encode(None))
    return out.getvalue()


@pytest.mark.parametrize(
    ("format", "codec", "rate"),
    [
        ("mp3", "libmp3lame", 24_000),
        ("ogg", "libopus", 24_000),
        ("flac", "flac", 44_100),
        ("mp4", "aac", 44_100),
        ("webm", "libopus", 48_000),
        ("adts", "aac", 16_000),
    ],
)
async def test_the_usual_formats_are_read(format: str, codec: str, rate: int) -> None:
    pcm = await Clips().read(encoded(format, codec, tone(2.0, rate), rate), "file")
    assert pcm.dtype == np.float32
    assert abs(len(pcm) - 48_000) < 4_000  # lossy coders pad
    spectrum = np.abs(np.fft.rfft(pcm[8_000:32_000]))
    assert int(spectrum.argmax()) == 220
    assert 0.3 < np.abs(pcm).max() < 0.7


async def test_channels_are_averaged_and_rates_converted() -> None:
    both = tone(1.0, 48_000, 2)
    both[:, 1] = 0
    pcm = await Clips().read(wav(both, 48_000), "file")
    assert abs(len(pcm) - 24_000) < 50
    assert 0.2 < np.abs(pcm[2_000:20_000]).max() < 0.4


async def test_sources() -> None:
    data = wav(tone(1.0))
    text = base64.b64encode(data).decode()
    clips = Clips()
    expected = await clips.read(data, "ref_audio")
    for source in (
        f"data:audio/wav;base64,{text}",
        f"data:audio/wav;codecs=1;base64,{text}",
        f"DATA:;base64,{text}",
        text,
        f"  {text[:50]}\n{text[50:]} ",
    ):
        np.testing.assert_array_equal(await clips.load(source, "ref_audio"), expected)


@pytest.mark.parametrize(
    "source",
    [
        "file:///etc/passwd",
        "ftp://example.org/a.wav",
        "gopher://example.org",
        "/etc/passwd",
        "../voice.wav",
        "http://example.org/a.wav",
        "https://example.org/a.wav",
        "data:audio/wav,abc",
        "data:text/html;base64,AAAA",
        "data:audio/wav;base64,@@@@",
        "data:" + ";a" * 50_000,
        "",
        "AAAA",
    ],
)
async def test_other_sources_are_refused(source: str) -> None:
    with pytest.raises(BadRequest) as refused:
        await Clips().load(source, "ref_audio")
    assert refused.value.param == "ref_audio"
    assert "/etc" not in refused.value.message


def _header(rate: int, channels: int, size: int, bits: int = 16) -> bytes:
    block = min(channels * bits // 8, 65_535)
    fmt = struct.pack("<HHIIHH", 1, channels, rate, min(rate * block, 0xFFFFFFFF), block, bits)
    return (
        b"RIFF"
        + struct.pack("<I", 0xFFFFFFFF)
        + b"WAVEfmt "
        + struct.pack("<I", 16)
        + fmt
        + b"data"
        + struct.pack("<I", size)
    )


BOMBS = {
    "longer than it may be": wav(tone(31.0)),
    "opus of an hour of silence": encoded("ogg", "libopus", np.zeros((24_000 * 60, 1))),
    "flac of silence": encoded("flac", "flac", np.zeros((24_000 * 300, 1))),
    "0 Hz": _header(0, 1, 4_000) + bytes(4_000),
    "1 GHz": _header(1_000_000_000, 1, 4_000) + bytes(4_000),
    "65,535 channels": _header(24_000, 65_535, 4_000) + bytes(400_000),
    "playlist": b"#EXTM3U\n#EXTINF:5,\nfile:///etc/hostname\n",
    "concat": b"ffconcat version 1.0\nfile '/etc/hostname'\n",
    "zip": b"PK\x03\x04" + zlib.compress(bytes(1_000_000)),
    "nothing": b"\x00",
    "header alone": _header(24_000, 1, 0xFFFFFFFF),
    "text": b"hello " * 10_000,
}


@pytest.mark.parametrize("bomb", BOMBS)
async def test_bombs_are_refused(bomb: str) -> None:
    with pytest.raises((BadRequest, TooLarge)) as refused:
        await Clips().read(BOMBS[bomb], "file")
    assert refused.value.param == "file"
    assert refused.value.status in (400, 413)


async def test_a_stream_of_unknown_size_is_read() -> None:
    samples = (tone(1.0)[:, 0] * 32_767).astype("<i2").tobytes()
    assert len(await Clips().read(_header(24_000, 1, 0xFFFFFFFF) + samples, "file")) == 24_000


async def test_bytes_and_waiting_are_bounded() -> None:
    with pytest.raises(TooLarge):
        await Clips(ClipLimits(max_file_bytes=100)).read(bytes(101), "file")
    with pytest.raises(TooLarge):
        await Clips(ClipLimits(max_file_bytes=100)).load("A" * 200, "file")
    clips = Clips(ClipLimits(at_once=1, max_waiting=2))
    answers = await asyncio.gather(*(clips.read(wav(tone(0.5)), "file") for _ in range(3)), return_exceptions=True)
    assert [type(answer) for answer in answers].count(TooBusy) == 1


async def test_a_decoder_that_hangs_is_ended() -> None:
    with pytest.raises(BadRequest, match="too long"):
        await Clips(ClipLimits(timeout_s=0.01)).read(wav(tone(1.0)), "file")


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_damaged_files_are_refused_or_read(data: st.DataObject) -> None:
    """In this process, as the child does it: whatever bytes come, samples or a refusal."""
    whole = data.draw(st.sampled_from(_SEEDS))
    damaged = bytearray(whole[: data.draw(st.integers(0, len(whole)))])
    for _ in range(data.draw(st.integers(0, 8))):
        if damaged:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        samples = decode_child.decode(bytes(damaged), 30.0, 48_000, 2)
    except decode_child.Refused:
        return
    assert 0 < len(samples) <= 30 * 24_000 * 4


_SEEDS: Sequence[bytes] = (
    wav(tone(0.2)),
    encoded("ogg", "libopus", tone(0.2)),
    encoded("flac", "flac", tone(0.2)),
    encoded("mp3", "libmp3lame", tone(0.2)),
    encoded("mp4", "aac", tone(0.2)),
)
