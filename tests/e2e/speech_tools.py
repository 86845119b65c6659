"""What the tests of the speech endpoint need: reading audio, events and errors, and watching the engine."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import av
import httpx
import numpy as np
from numpy.typing import NDArray
from prometheus_client.parser import text_string_to_metric_families

from sidecar.ports import Speaking, Utterance
from tests.e2e.conftest import Running

SPEECH = "/v1/audio/speech"
FORMATS = ("wav", "pcm", "mp3", "opus", "flac", "aac")
MEDIA_TYPES = {
    "wav": "audio/wav",
    "pcm": "audio/pcm",
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "flac": "audio/flac",
    "aac": "audio/aac",
}
OPENAI_VOICES = [
    "alloy",
    "ash",
    "ballad",
    "cedar",
    "coral",
    "echo",
    "fable",
    "marin",
    "nova",
    "onyx",
    "sage",
    "shimmer",
    "verse",
]
UNKNOWN_SIZE = 0xFFFFFFFF


def tone_s(text: str) -> float:
    """How long the tone engine hums a text (seconds)."""
    return max(2, round(len(text) / 1.2)) * 0.08


# ---------------------------------------------------------------- audio
@dataclass
class Sound:
    """Decoded audio, mono."""

    samples: NDArray[np.float64]
    rate_hz: int

    @property
    def duration_s(self) -> float:
        return len(self.samples) / self.rate_hz

    @property
    def pitch_hz(self) -> float:
        """The strongest frequency of the middle half."""
        quarter = len(self.samples) // 4
        spectrum = np.abs(np.fft.rfft(self.samples[quarter : 3 * quarter]))
        return float(np.argmax(spectrum) * self.rate_hz / (2 * quarter))


@dataclass
class Wav:
    """A WAV taken apart by its bytes."""

    riff_size: int
    rate_hz: int
    data_size: int
    data: bytes


def wav(body: bytes) -> Wav:
    """A canonical 16-bit mono WAV with a header of 44 bytes."""
    assert (body[:4], body[8:16], body[36:40]) == (b"RIFF", b"WAVEfmt ", b"data")
    size, kind, channels, rate_hz, byte_rate, align, bits = struct.unpack("<IHHIIHH", body[16:36])
    assert (size, kind, channels, byte_rate, align, bits) == (16, 1, 1, 2 * rate_hz, 2, 16)
    (riff_size,), (data_size,) = struct.unpack("<I", body[4:8]), struct.unpack("<I", body[40:44])
    return Wav(riff_size, rate_hz, data_size, body[44:])


def sound(body: bytes, format: str, pcm_rate_hz: int = 24_000) -> Sound:
    """Decode a body as its receiver would; it must be mono."""
    if format == "pcm":
        return Sound(np.frombuffer(body, "<i2") / 32_768, pcm_rate_hz)
    pieces = []
    with av.open(io.BytesIO(body), mode="r") as container:
        rate_hz = container.streams.audio[0].rate
        for frame in container.decode(audio=0):
            assert frame.layout.nb_channels == 1
            values = frame.to_ndarray().reshape(-1).astype(np.float64)
            pieces.append(values / 32_768 if frame.format.name.startswith("s16") else values)
    return Sound(np.concatenate(pieces), rate_hz)


# ---------------------------------------------------------------- answers
def events(text: str) -> list[tuple[str | None, dict[str, Any]]]:
    """The event stream as (event line, data); comments are left out."""
    found = []
    for block in text.split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith(":")]
        if lines:
            data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
            names = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
            assert len(data) == 1
            assert len(data) + len(names) == len(lines), lines
            found.append((names[0] if names else None, json.loads(data[0])))
    return found


def omni_error(answer: httpx.Response, status: int = 400) -> dict[str, Any]:
    """vLLM-Omni's error object: the code is the status."""
    error = _error(answer, status)
    assert error["code"] == status
    return error


def openai_error(answer: httpx.Response, status: int = 400) -> dict[str, Any]:
    """OpenAI's error object: the code is a word."""
    error = _error(answer, status)
    assert isinstance(error["code"], str)
    return error


def _error(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text[:300]
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert set(body) == {"error"}
    error: dict[str, Any] = body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    assert error["type"]
    assert "Traceback" not in answer.text
    return error


# ---------------------------------------------------------------- behind the scenes
@contextmanager
def overheard(server: Running) -> Iterator[list[Utterance]]:
    """What the engine is asked to say meanwhile."""
    asked: list[Utterance] = []
    engine = server.service.engine
    real = engine.open

    async def opened(utterance: Utterance) -> Speaking:
        asked.append(utterance)
        return await real(utterance)

    with patch.object(engine, "open", opened):
        yield asked


async def metric(server: Running, name: str, **labels: str) -> float:
    """The value of one sample as ``/metrics`` shows it."""
    answer = await server.http.get("/metrics")
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            if sample.name == name and sample.labels == labels:
                return sample.value
    raise AssertionError(f"no sample {name}{labels}")
