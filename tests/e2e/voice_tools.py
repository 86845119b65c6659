"""What the tests of stored voices need: recordings, uploads, and what was said with which voice."""

from __future__ import annotations

import io
import wave
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

from tests.e2e.conftest import Running

VOICES = "/v1/audio/voices"
SPEECH = "/v1/audio/speech"


def recording(seconds: float = 4.0, hz: float = 180.0, seed: int = 1, rate_hz: int = 24_000) -> NDArray[np.float32]:
    """Something voiced: partials of a pitch that wanders, louder and softer, with short pauses."""
    chance = np.random.default_rng(seed)
    at = np.arange(int(seconds * rate_hz)) / rate_hz
    phase = 2 * np.pi * np.cumsum(hz * (1 + 0.05 * np.sin(2 * np.pi * 0.7 * at + seed))) / rate_hz
    voiced = sum(np.sin(k * phase) * float(chance.uniform(0.1, 1)) / k for k in range(1, 12))
    louder = 0.6 + 0.4 * np.sin(2 * np.pi * 3 * at)
    pauses = np.sin(2 * np.pi * 0.5 * at) > -0.9
    sound = voiced * louder * pauses
    level: NDArray[np.float32] = (0.2 * sound / np.abs(sound).max()).astype(np.float32)
    return level


def wav_file(pcm: NDArray[np.float32], rate_hz: int = 24_000, channels: int = 1) -> bytes:
    into = io.BytesIO()
    with wave.open(into, "wb") as out:
        out.setnchannels(channels)
        out.setsampwidth(2)
        out.setframerate(rate_hz)
        out.writeframes((np.repeat(pcm, channels) * 32_767).astype("<i2").tobytes())
    return into.getvalue()


def vector(width: int = 1_024, seed: int = 1) -> list[float]:
    drawn: list[float] = np.random.default_rng(seed).standard_normal(width).astype(np.float32).tolist()
    return drawn


async def upload(server: Running, name: str, pcm: NDArray[np.float32] | None = None, **form: Any) -> httpx.Response:
    """POST a recording; ``form`` has more fields, or ``file`` with another (name, bytes, type)."""
    file = form.pop("file", None) or ("v.wav", wav_file(recording() if pcm is None else pcm), "audio/wav")
    fields = {"name": name, "consent": "consent-1"} | form
    fields = {key: value for key, value in fields.items() if value is not None}
    return await server.http.post(VOICES, files={"audio_sample": file}, data=fields)


async def listed(server: Running) -> dict[str, Any]:
    answer = await server.http.get(VOICES)
    assert answer.status_code == 200
    body: dict[str, Any] = answer.json()
    return body


async def said(server: Running, status: int = 200, **fields: Any) -> bytes:
    body = {"input": "Hello there, this is me.", "response_format": "pcm"} | fields
    answer = await server.http.post(SPEECH, json=body)
    assert answer.status_code == status, answer.text[:300]
    return answer.content
