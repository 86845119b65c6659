"""What every AudioCodec promises. Another codec joins by an entry in ``CODECS``."""

import asyncio
import io
import struct
import threading
from collections.abc import Callable, Sequence

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from adapters.audio.encode import PyAvCodec
from sidecar.faults import BadRequest, UnsupportedFormat
from sidecar.ports import SAMPLE_RATE_HZ, AudioCodec, Pcm

CODECS: dict[str, Callable[[], AudioCodec]] = {"pyav": PyAvCodec}
FORMATS = ("wav", "pcm", "mp3", "opus", "flac", "aac")
EXACT = ("wav", "pcm", "flac")
RATES_HZ = (8_000, 11_025, 16_000, 22_050, 24_000, 44_100, 48_000)
CODEC_FRAME_SAMPLES = {"mp3": 576, "aac": 1_024}
"""mp3 (at 24 kHz and less) and aac round up to whole frames, and say nothing of their delay."""

Decoded = tuple[NDArray[np.float64], int, int]


@pytest.fixture(params=sorted(CODECS))
def codec(request: pytest.FixtureRequest) -> AudioCodec:
    return CODECS[request.param]()


def tone(seconds: float, hz: float = 440.0) -> Pcm:
    times = np.arange(round(seconds * SAMPLE_RATE_HZ)) / SAMPLE_RATE_HZ
    return (0.5 * np.sin(2 * np.pi * hz * times)).astype(np.float32)


def encode(
    codec: AudioCodec,
    format: str,
    pcm: Pcm,
    *,
    cuts: Sequence[int] = (),
    rate_hz: int = SAMPLE_RATE_HZ,
    streaming: bool = False,
    speed: float = 1.0,
) -> bytes:
    encoder = codec.start(format, rate_hz=rate_hz, streaming=streaming, speed=speed)
    pieces = np.split(pcm, sorted(cut % (len(pcm) + 1) for cut in cuts))
    return b"".join([*(encoder.feed(piece) for piece in pieces), encoder.finish()])


def decode(format: str, data: bytes, rate_hz: int = SAMPLE_RATE_HZ) -> Decoded:
    """Samples in [-1, 1], rate, channels, as an independent decoder sees them."""
    if format == "pcm":
        return np.frombuffer(data, dtype="<i2") / 32_768.0, rate_hz, 1
    # Two frames of ADTS are too few to guess from; a client knows the media type.
    with av.open(io.BytesIO(data), "r", format="ogg" if format == "opus" else format) as container:
        stream = container.streams.audio[0]
        frames = [frame.to_ndarray() for frame in container.decode(stream)]
        rate, channels = stream.rate, stream.channels
    if not frames:
        return np.zeros(0), rate, channels
    samples = np.concatenate(frames, axis=1)
    scale = 32_768.0 if samples.dtype == np.int16 else 1.0
    return samples[0].astype(np.float64) / scale, rate, channels


def loudest_hz(samples: NDArray[np.float64], rate_hz: int) -> float:
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(np.argmax(spectrum)) * rate_hz / len(samples)


def tolerance_s(format: str, rate_hz: int) -> float:
    return max(0.1, 3 * CODEC_FRAME_SAMPLES.get(format, 0) / rate_hz)


# ---------------------------------------------------------------- every format
def test_knows_the_formats(codec: AudioCodec) -> None:
    assert sorted(codec.formats) == sorted(FORMATS)


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("format", FORMATS)
def test_a_tone_stays_a_tone(codec: AudioCodec, format: str, streaming: bool) -> None:
    samples, rate_hz, channels = decode(format, encode(codec, format, tone(2.05), streaming=streaming))
    assert channels == 1
    assert rate_hz == (48_000 if format == "opus" else SAMPLE_RATE_HZ)
    assert len(samples) / rate_hz == pytest.approx(2.05, abs=0.1)
    assert loudest_hz(samples, rate_hz) == pytest.approx(440, abs=1.5)
    middle = samples[rate_hz // 2 : -rate_hz // 2]
    assert np.sqrt(np.mean(middle**2)) == pytest.approx(0.5 / np.sqrt(2), rel=0.05)


@pytest.mark.parametrize("format", EXACT)
def test_exact_formats_return_the_samples(codec: AudioCodec, format: str) -> None:
    pcm = tone(0.5137, hz=1_234)
    samples, _, _ = decode(format, encode(codec, format, pcm))
    assert len(samples) == len(pcm)
    assert np.abs(samples - pcm).max() <= 0.5 / 32_768 + 1e-7


@pytest.mark.parametrize("rate_hz", RATES_HZ)
@pytest.mark.parametrize("format", FORMATS)
def test_every_rate_plays_at_the_right_length_and_pitch(codec: AudioCodec, format: str, rate_hz: int) -> None:
    samples, played_hz, channels = decode(format, encode(codec, format, tone(1.3), rate_hz=rate_hz), rate_hz)
    assert channels == 1
    if format != "opus":
        assert played_hz == rate_hz
    assert len(samples) / played_hz == pytest.approx(1.3, abs=tolerance_s(format, rate_hz))
    assert loudest_hz(samples, played_hz) == pytest.approx(440, abs=2)
    if format in EXACT:
        assert len(samples) == round(1.3 * rate_hz)


@pytest.mark.parametrize("format", FORMATS)
def test_media_type(codec: AudioCodec, format: str) -> None:
    expected = {"mp3": "audio/mpeg", "opus": "audio/ogg"}.get(format, f"audio/{format}")
    assert codec.start(format).media_type == expected


@pytest.mark.parametrize("format", FORMATS)
def test_streams_give_bytes_before_the_end(codec: AudioCodec, format: str) -> None:
    encoder = codec.start(format, streaming=True)
    sizes = [len(encoder.feed(piece)) for piece in np.split(tone(1.0), 50)]
    ready = sum(sizes)
    rest = len(encoder.finish())
    assert sum(sizes[:10]) > 0, "something to play within 200 ms of audio"
    assert rest < ready / 3


# ---------------------------------------------------------------- nothing and little
@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(("rate_hz", "speed"), [(24_000, 1.0), (8_000, 4.0), (48_000, 0.25)])
def test_nothing_fed(codec: AudioCodec, format: str, streaming: bool, rate_hz: int, speed: float) -> None:
    for feeds in (0, 2):
        encoder = codec.start(format, rate_hz=rate_hz, streaming=streaming, speed=speed)
        data = b"".join(encoder.feed(np.zeros(0, dtype=np.float32)) for _ in range(feeds)) + encoder.finish()
        assert data == b"" or len(decode(format, data)[0]) == 0


@pytest.mark.parametrize("speed", [0.25, 1.0, 4.0])
@pytest.mark.parametrize("samples", [1, 2, 10, 479, 1_000])
@pytest.mark.parametrize("format", FORMATS)
def test_a_little_is_never_lost(codec: AudioCodec, format: str, samples: int, speed: float) -> None:
    data = encode(codec, format, tone(1.0)[:samples], speed=speed)
    assert len(decode(format, data)[0]) >= 1


# ---------------------------------------------------------------- speed
@pytest.mark.parametrize("format", FORMATS)
def test_double_speed_halves_the_length_and_keeps_the_pitch(codec: AudioCodec, format: str) -> None:
    samples, rate_hz, _ = decode(format, encode(codec, format, tone(3.0), speed=2.0, streaming=True))
    assert len(samples) / rate_hz == pytest.approx(1.5, abs=0.1)
    assert loudest_hz(samples, rate_hz) == pytest.approx(440, abs=2)


@pytest.mark.parametrize("speed", [0.25, 0.3, 0.5, 0.77, 0.999, 1.001, 1.3, 2.0, 2.5, 3.3, 4.0])
@pytest.mark.parametrize("rate_hz", [24_000, 16_000])
def test_every_speed_has_the_right_length_and_pitch(codec: AudioCodec, speed: float, rate_hz: int) -> None:
    pcm = tone(2.0)
    samples, _, _ = decode("wav", encode(codec, "wav", pcm, speed=speed, rate_hz=rate_hz))
    assert len(samples) / rate_hz == pytest.approx(2.0 / speed, rel=0.02)
    assert loudest_hz(samples, rate_hz) == pytest.approx(440, abs=4)
    loudness = np.sqrt(np.mean(samples**2))
    assert loudness == pytest.approx(0.5 / np.sqrt(2), rel=0.1)


def test_speed_keeps_the_order_and_the_ends(codec: AudioCodec) -> None:
    pcm = np.concatenate([tone(1.0, 300), tone(1.0, 900), tone(1.0, 2_000)])
    for speed in (0.5, 1.7, 4.0):
        samples, rate_hz, _ = decode("wav", encode(codec, "wav", pcm, speed=speed))
        thirds = np.array_split(samples, 3)
        assert [round(loudest_hz(third, rate_hz) / 50) * 50 for third in thirds] == [300, 900, 2_000]
        assert np.abs(samples[-240:]).max() > 0.2, "the last sound is not lost"


# ---------------------------------------------------------------- any cut
@pytest.mark.parametrize("format", EXACT)
@settings(max_examples=15, deadline=None)
@given(
    samples=st.integers(0, 9_000),
    cuts=st.lists(st.integers(0, 9_000), max_size=12),
    rate_hz=st.sampled_from([8_000, 24_000, 44_100]),
    speed=st.sampled_from([0.5, 1.0, 3.0]),
    streaming=st.booleans(),
)
def test_any_cut_gives_the_same_bytes(
    format: str, samples: int, cuts: list[int], rate_hz: int, speed: float, streaming: bool
) -> None:
    pcm = np.random.default_rng(samples).uniform(-1, 1, samples).astype(np.float32)
    for make in CODECS.values():
        whole, cut = (
            encode(make(), format, pcm, cuts=at, rate_hz=rate_hz, speed=speed, streaming=streaming) for at in ((), cuts)
        )
        assert whole == cut


@pytest.mark.parametrize("format", ["mp3", "opus", "aac"])
@settings(max_examples=10, deadline=None)
@given(samples=st.integers(1, 9_000), cuts=st.lists(st.integers(0, 9_000), max_size=12))
def test_any_cut_sounds_the_same(format: str, samples: int, cuts: list[int]) -> None:
    pcm = tone(0.375)[:samples]
    for make in CODECS.values():
        whole, cut = (decode(format, encode(make(), format, pcm, cuts=at))[0] for at in ((), cuts))
        assert len(whole) == len(cut)
        assert np.array_equal(whole, cut)


# ---------------------------------------------------------------- containers
def wav_sizes(data: bytes) -> tuple[int, int]:
    riff, riff_size, wave = struct.unpack_from("<4sI4s", data)
    marker, data_size = struct.unpack_from("<4sI", data, 36)
    assert (riff, wave, marker) == (b"RIFF", b"WAVE", b"data")
    return riff_size, data_size


def test_whole_wav_has_true_sizes(codec: AudioCodec) -> None:
    data = encode(codec, "wav", tone(0.5))
    assert wav_sizes(data) == (len(data) - 8, len(data) - 44) == (24_036, 24_000)


def test_streamed_wav_has_unknown_sizes_and_sends_its_header_first(codec: AudioCodec) -> None:
    encoder = codec.start("wav", streaming=True)
    first = encoder.feed(tone(0.02))
    assert wav_sizes(first) == (0xFFFFFFFF, 0xFFFFFFFF)
    assert len(first) == 44 + 960
    assert len(encoder.feed(tone(0.02))) == 960
    assert encoder.finish() == b""


def test_mp3_bodies_can_be_concatenated(codec: AudioCodec) -> None:
    one, two = encode(codec, "mp3", tone(0.6)), encode(codec, "mp3", tone(0.6, 880))
    for body in (one, two):
        assert body[0] == 0xFF
        assert body[1] & 0xE0 == 0xE0
        assert not any(mark in body for mark in (b"ID3", b"Xing", b"Info", b"TAG"))
    both, _, _ = decode("mp3", one + two)
    assert len(both) == len(decode("mp3", one)[0]) + len(decode("mp3", two)[0])
    assert loudest_hz(both[: len(both) // 2 - 2_000], SAMPLE_RATE_HZ) == pytest.approx(440, abs=3)
    assert loudest_hz(both[len(both) // 2 + 2_000 :], SAMPLE_RATE_HZ) == pytest.approx(880, abs=3)


def test_file_signatures(codec: AudioCodec) -> None:
    opus = encode(codec, "opus", tone(0.3), streaming=True)
    assert opus.startswith(b"OggS")
    assert b"OpusHead" in opus[:64]
    assert encode(codec, "flac", tone(0.3), streaming=True).startswith(b"fLaC")
    aac = encode(codec, "aac", tone(0.3), streaming=True)
    assert aac[0] == 0xFF
    assert aac[1] & 0xF6 == 0xF0


def test_whole_flac_says_how_long_it_is(codec: AudioCodec) -> None:
    data = encode(codec, "flac", tone(0.7))
    assert int.from_bytes(data[18:26], "big") & (2**36 - 1) == 16_800


# ---------------------------------------------------------------- bad samples, bad requests
@pytest.mark.parametrize("speed", [1.0, 1.5])
@pytest.mark.parametrize("rate_hz", [24_000, 48_000])
@pytest.mark.parametrize("format", FORMATS)
def test_broken_samples_do_no_harm(codec: AudioCodec, format: str, rate_hz: int, speed: float) -> None:
    pcm = tone(0.6)
    pcm[1_000:1_100] = np.nan
    pcm[2_000] = np.inf
    pcm[3_000] = -np.inf
    data = encode(codec, format, pcm, rate_hz=rate_hz, speed=speed)
    samples, played_hz, _ = decode(format, data, rate_hz)
    assert np.isfinite(samples).all()
    assert np.abs(samples).max() < 0.9
    tail = samples[-played_hz // 5 : -played_hz // 20]
    assert np.abs(tail).max() > 0.4, "the sound goes on afterwards"


@pytest.mark.parametrize("format", EXACT)
def test_too_loud_is_clipped_and_does_not_wrap(codec: AudioCodec, format: str) -> None:
    pcm = np.array([0.0, 1.0, 1.5, 1e30, -1.0, -1.5, -1e30], dtype=np.float32)
    samples, _, _ = decode(format, encode(codec, format, pcm))
    top = 32_767 / 32_768
    assert samples.tolist() == [0.0, top, top, top, -1.0, -1.0, -1.0]


@pytest.mark.parametrize("format", ["", "WAV", "ogg", "mulaw", "wav\n", "../wav"])
def test_unknown_format_is_refused_with_the_list(codec: AudioCodec, format: str) -> None:
    with pytest.raises(UnsupportedFormat) as caught:
        codec.start(format)
    assert all(known in caught.value.message for known in FORMATS)


@pytest.mark.parametrize("rate_hz", [0, -24_000, 1, 10**9])
def test_senseless_rate_is_refused(codec: AudioCodec, rate_hz: int) -> None:
    with pytest.raises(UnsupportedFormat):
        codec.start("wav", rate_hz=rate_hz)


@pytest.mark.parametrize("speed", [0.0, -1.0, 0.2499, 4.001, float("nan"), float("inf")])
def test_senseless_speed_is_refused(codec: AudioCodec, speed: float) -> None:
    with pytest.raises(BadRequest):
        codec.start("wav", speed=speed)


# ---------------------------------------------------------------- threads
async def test_encoders_work_in_parallel_threads(codec: AudioCodec) -> None:
    pcm = tone(0.8)
    jobs = [(format, speed) for format in FORMATS for speed in (1.0, 1.5)]
    expected = [decode(format, encode(codec, format, pcm, speed=speed))[0] for format, speed in jobs]

    async def in_turns(format: str, speed: float) -> bytes:
        # Every feed may run in another thread.
        encoder = codec.start(format, speed=speed)
        parts = [await asyncio.to_thread(encoder.feed, piece) for piece in np.split(pcm, 20)]
        return b"".join([*parts, await asyncio.to_thread(encoder.finish)])

    for (format, _), data, samples in zip(
        jobs, await asyncio.gather(*(in_turns(*job) for job in jobs)), expected, strict=True
    ):
        assert np.array_equal(decode(format, data)[0], samples)


@pytest.mark.parametrize("format", FORMATS)
def test_abandoned_encoders_leave_no_thread(codec: AudioCodec, format: str) -> None:
    before = threading.active_count()
    for _ in range(3):
        encoder = codec.start(format, speed=1.2)
        encoder.feed(tone(0.3))
        del encoder
    assert threading.active_count() == before
