"""What PyAvCodec promises beyond the port."""

import gc
import os
import sys
from pathlib import Path

import av
import numpy as np
import pytest

from adapters.audio import encode
from adapters.audio.encode import PyAvCodec
from adapters.audio.frames import single_cpu
from adapters.audio.timing import Blocks, Resampler, Stretcher
from sidecar.faults import Fault, UnsupportedFormat
from sidecar.ports import SAMPLE_RATE_HZ, Pcm

CODEC_FORMATS = ("mp3", "opus", "flac", "aac")


def noise(samples: int) -> Pcm:
    return np.random.default_rng(1).uniform(-0.5, 0.5, samples).astype(np.float32)


def native_threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


# ---------------------------------------------------------------- the encoder
@pytest.mark.parametrize("format", PyAvCodec().formats)
def test_finish_is_the_end(format: str) -> None:
    encoder = PyAvCodec().start(format)
    encoder.feed(noise(1_000))
    assert encoder.finish() != b"" or format == "pcm"
    assert encoder.finish() == b""
    with pytest.raises(RuntimeError):
        encoder.feed(noise(1))


def test_stereo_is_refused() -> None:
    with pytest.raises(ValueError):
        PyAvCodec().start("wav").feed(np.zeros((2, 100), dtype=np.float32))


def test_what_is_fed_is_not_changed() -> None:
    pcm = np.full(2_000, 3.0, dtype=np.float32)
    PyAvCodec().start("wav", speed=2.0, rate_hz=8_000).feed(pcm)
    assert (pcm == 3.0).all()


@pytest.mark.parametrize(
    ("format", "audio_ms"), [("wav", 20), ("pcm", 20), ("mp3", 100), ("opus", 60), ("flac", 60), ("aac", 120)]
)
def test_first_payload_needs_little_audio(format: str, audio_ms: int) -> None:
    encoder = PyAvCodec().start(format, streaming=True)
    header = encoder.feed(np.zeros(1, dtype=np.float32))
    data = b"".join(encoder.feed(noise(480)) for _ in range(audio_ms // 20))
    assert len(data) > 50 if header else data


def test_flac_has_no_padding_before_its_sound() -> None:
    encoder = PyAvCodec().start("flac", streaming=True)
    assert len(encoder.feed(np.zeros(1, dtype=np.float32))) < 200


def test_opus_pages_hold_20_ms() -> None:
    encoder = PyAvCodec().start("opus", streaming=True)
    pieces = [encoder.feed(noise(480)) for _ in range(50)]
    assert all(pieces[5:]), "every 20 ms fed give a page"


@pytest.mark.parametrize("format", CODEC_FORMATS)
def test_compression_is_worth_it(format: str) -> None:
    times = np.arange(4 * SAMPLE_RATE_HZ) / SAMPLE_RATE_HZ
    pcm = sum((0.1 * np.sin(2 * np.pi * 150 * n * times) for n in range(1, 6)), np.zeros(1)).astype(np.float32)
    encoder = PyAvCodec().start(format)
    size = len(encoder.feed(pcm) + encoder.finish())
    assert 4_000 < size < (0.6 if format == "flac" else 0.3) * 2 * len(pcm)


def test_rates_beyond_a_codec_become_its_highest() -> None:
    encoder = PyAvCodec().start("mp3", rate_hz=96_000)
    data = encoder.feed(noise(24_000)) + encoder.finish()
    # MPEG-1 layer III, 48 kHz.
    assert data[1] & 0x18 == 0x18
    assert data[2] & 0x0C == 0x04


def test_formats_are_those_that_the_build_can_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(av, "codecs_available", av.codecs_available - {"libmp3lame"})
    codec = PyAvCodec()
    assert "mp3" not in codec.formats
    with pytest.raises(UnsupportedFormat) as caught:
        codec.start("mp3")
    assert "mp3" not in caught.value.message
    assert codec.start("opus").media_type == "audio/ogg"


def test_failure_inside_the_encoder_is_a_safe_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> av.AudioFrame:
        raise av.error.ExternalError(-542398533, "Generic error in an external library", "/secret/path")

    encoder = PyAvCodec().start("mp3")
    monkeypatch.setattr(encode, "audio_frame", fails)
    with pytest.raises(Fault) as caught:
        encoder.feed(noise(1_000))
    assert caught.value.message == "The audio could not be encoded as mp3."


# ---------------------------------------------------------------- threads
@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
@pytest.mark.parametrize("format", CODEC_FORMATS)
def test_encoders_start_no_threads(format: str) -> None:
    codec = PyAvCodec()
    before = native_threads()
    encoders = [codec.start(format, speed=1.5) for _ in range(4)]
    for encoder in encoders:
        encoder.feed(noise(9_600))
    assert native_threads() == before
    del encoders, encoder
    gc.collect()
    assert native_threads() == before


@pytest.mark.skipif(sys.platform != "linux", reason="affinity is a matter of Linux")
def test_affinity_is_given_back() -> None:
    allowed = os.sched_getaffinity(0)
    with single_cpu():
        assert len(os.sched_getaffinity(0)) == 1
    assert os.sched_getaffinity(0) == allowed
    with pytest.raises(KeyError), single_cpu():
        raise KeyError
    assert os.sched_getaffinity(0) == allowed


@pytest.mark.skipif(sys.platform != "linux", reason="affinity is a matter of Linux")
def test_encoding_goes_on_where_affinity_may_not_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setaffinity", refused)
    encoder = PyAvCodec().start("mp3")
    assert encoder.feed(noise(9_600))


# ---------------------------------------------------------------- stages
@pytest.mark.parametrize("samples", [1, 479, 480, 481, 10_000])
@pytest.mark.parametrize("rate_hz", [8_000, 11_025, 44_100, 48_000])
def test_resampled_length_is_exact(samples: int, rate_hz: int) -> None:
    stage = Blocks(Resampler(rate_hz))
    out = len(stage.push(noise(samples))) + len(stage.drain())
    assert out == pytest.approx(samples * rate_hz / SAMPLE_RATE_HZ, abs=0.51)


@pytest.mark.parametrize("samples", [1, 3, 480, 2_000, 30_011])
@pytest.mark.parametrize("speed", [0.25, 0.4, 0.5, 0.9, 1.1, 2.0, 2.2, 4.0])
def test_stretched_length_is_exact(samples: int, speed: float) -> None:
    stage = Blocks(Stretcher(speed))
    out = len(stage.push(noise(samples))) + len(stage.drain())
    assert out == max(1, int(samples / speed))


@pytest.mark.parametrize("speed", [0.25, 0.5, 1.5, 4.0])
def test_stretcher_streams(speed: float) -> None:
    stage = Blocks(Stretcher(speed))
    pcm = noise(SAMPLE_RATE_HZ)
    early = sum(len(stage.push(pcm[at : at + 480])) for at in range(0, len(pcm), 480))
    assert early > 0.7 * SAMPLE_RATE_HZ / speed


def test_drained_without_input_is_empty() -> None:
    assert len(Blocks(Stretcher(2.0)).drain()) == 0
    assert len(Blocks(Resampler(8_000)).drain()) == 0
