"""Bytes and samples."""

import io
import wave

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.audio.pcm import UNKNOWN_SIZE, cleaned, float_to_s16le, s16le_to_float, wav_header


def test_all_16_bit_values_survive_the_round_trip() -> None:
    data = np.arange(-32_768, 32_768).astype("<i2").tobytes()
    assert float_to_s16le(s16le_to_float(data)) == data


@given(st.lists(st.floats(width=32), max_size=50))
def test_any_float_becomes_the_nearest_sample_in_range(values: list[float]) -> None:
    pcm = np.array(values, dtype=np.float32)
    samples = np.frombuffer(float_to_s16le(pcm), dtype="<i2").astype(np.float64)
    wanted = np.where(np.isfinite(pcm), pcm.astype(np.float64), 0.0) * 32_768
    assert np.abs(samples - np.clip(wanted, -32_768, 32_767)).max(initial=0) <= 0.5


def test_bytes_are_little_endian() -> None:
    assert float_to_s16le(np.array([0.5, -0.5], dtype=np.float32)) == b"\x00\x40\x00\xc0"
    assert s16le_to_float(b"\x00\x40\x00\xc0").tolist() == [0.5, -0.5]
    assert s16le_to_float(b"").dtype == np.float32


def test_half_a_sample_is_refused() -> None:
    with pytest.raises(ValueError):
        s16le_to_float(b"\x00\x40\x00")


def test_cleaning_leaves_the_input_alone() -> None:
    pcm = np.array([np.nan, 2.0, -np.inf, 0.25], dtype=np.float32)
    assert cleaned(pcm).tolist() == [0.0, 1.0, 0.0, 0.25]
    assert np.isnan(pcm[0])
    assert pcm[1] == 2.0


def test_more_than_one_channel_is_refused() -> None:
    with pytest.raises(ValueError):
        float_to_s16le(np.zeros((2, 10), dtype=np.float32))


def test_strided_and_foreign_endian_arrays_are_read_right() -> None:
    pcm = np.array([0.5, 9.0, -0.5, 9.0], dtype=">f4")[::2]
    assert float_to_s16le(pcm) == b"\x00\x40\x00\xc0"


@pytest.mark.parametrize("rate_hz", [8_000, 24_000, 96_000])
def test_header_is_read_by_others(rate_hz: int) -> None:
    data = float_to_s16le(np.linspace(-1, 1, 500, dtype=np.float32))
    header = wav_header(rate_hz, len(data))
    assert len(header) == 44
    with wave.open(io.BytesIO(header + data)) as file:
        assert file.getparams()[:4] == (1, 2, rate_hz, 500)
        assert file.readframes(500) == data


@pytest.mark.parametrize("data_bytes", [None, UNKNOWN_SIZE - 43, 2**40])
def test_header_without_a_length(data_bytes: int | None) -> None:
    header = wav_header(24_000, data_bytes)
    assert header[4:8] == header[40:44] == b"\xff\xff\xff\xff"


def test_longest_length_that_fits() -> None:
    header = wav_header(24_000, UNKNOWN_SIZE - 44)
    assert int.from_bytes(header[40:44], "little") == UNKNOWN_SIZE - 44
    assert int.from_bytes(header[4:8], "little") == UNKNOWN_SIZE - 8
