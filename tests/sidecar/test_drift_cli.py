from __future__ import annotations

import json
import wave
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from sidecar.cli import commands
from sidecar.drift_cli import read_limits, read_wav, recorded_segments
from sidecar.drift_texts import dialog
from sidecar.faults import BadRequest, ConfigError
from tests.voices.speech import toy_speech

TEXT = "One sentence of a voice."


def record(folder: Path, name: str, *, rate_hz: int = 24_000, text: str | None = TEXT, **voice: float) -> None:
    pcm = toy_speech(2.2, **voice)  # type: ignore[arg-type]
    with wave.open(str(folder / f"{name}.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate_hz)
        file.writeframes((pcm * 32_767).astype("<i2").tobytes())
    if text is not None:
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")


def sidecar(*words: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(commands, [str(word) for word in words], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.exit_code, result.output


def test_recordings_are_reported_on(tmp_path: Path) -> None:
    for index in range(10):
        record(tmp_path, f"{index:02}", seed=index, level=0.13 if index == 9 else 0.05)
    code, said = sidecar("drift", "report", tmp_path, "-o", tmp_path / "out.json")
    assert code == 0
    assert "10 segments: 9 ok, 1 watch" in said
    report = json.loads((tmp_path / "out.json").read_text())
    assert [reason["id"] for reason in report["rows"][9]["reasons"]] == ["V6"]
    sidecar("drift", "report", tmp_path, "-o", tmp_path / "out.html")
    assert "<svg" in (tmp_path / "out.html").read_text()


def test_limits_are_fitted_to_recordings_and_used(tmp_path: Path) -> None:
    for index in range(42):
        record(tmp_path, f"{index:02}", seed=index % 12, level=0.05 + index % 4 / 1_000)
    _, said = sidecar("drift", "calibrate", tmp_path, "-o", tmp_path / "limits.json")
    assert "42 segments" in said
    assert read_limits(tmp_path / "limits.json").timbre.whitening is not None
    _, said = sidecar("drift", "report", tmp_path, "--limits", tmp_path / "limits.json", "-o", tmp_path / "out.html")
    assert "42 segments: 42 ok" in said


def test_too_little_to_calibrate_with_is_said(tmp_path: Path) -> None:
    record(tmp_path, "a")
    with pytest.raises(BadRequest, match="at least 40 clean segments"):
        sidecar("drift", "calibrate", tmp_path, "-o", tmp_path / "limits.json")


def test_an_empty_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match=r"no \.wav files"):
        list(recorded_segments(tmp_path))


def test_a_recording_without_its_text_is_said(tmp_path: Path) -> None:
    record(tmp_path, "a", text=None)
    with pytest.raises(BadRequest, match=r"a\.txt is not a readable"):
        list(recorded_segments(tmp_path))


@pytest.mark.parametrize("data", [b"", b"RIFF", b"RIFF\x24\x00\x00\x00WAVEfmt ", b"\x00" * 100])
def test_what_is_no_wav_file_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.wav").write_bytes(data)
    with pytest.raises(BadRequest, match="not a readable PCM WAV"):
        read_wav(tmp_path / "a.wav")


def test_other_rates_are_resampled(tmp_path: Path) -> None:
    record(tmp_path, "a", rate_hz=12_000)
    assert len(read_wav(tmp_path / "a.wav")) == pytest.approx(2 * 2.2 * 24_000, abs=100)
    assert read_wav(tmp_path / "a.wav").dtype == np.float32


def test_spoilt_limits_are_named(tmp_path: Path) -> None:
    (tmp_path / "limits.json").write_text("{}")
    with pytest.raises(ConfigError, match="drift limits"):
        read_limits(tmp_path / "limits.json")


def test_the_sentences_are_the_same_for_the_same_seed() -> None:
    assert dialog(3, 20) == dialog(3, 20) != dialog(4, 20)
    assert len(set(dialog(3, 100))) > 80
