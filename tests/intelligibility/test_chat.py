"""The whole path is understood: a model's stream in, speech out of the chat endpoint, recognised again."""

from __future__ import annotations

import base64
import io

import av
import numpy as np
import pytest
import soxr

from sidecar.ports import Pcm
from tests.e2e.conftest import Running, running
from tests.intelligibility.asr import Recogniser, word_error_rate
from tests.intelligibility.sentences import ENGLISH, GERMAN

pytestmark = pytest.mark.timeout(400)

TEXTS = {"en": " ".join(ENGLISH[:5]), "de": " ".join(GERMAN[:5])}
WORST = {"en": 0.05, "de": 0.15}


def decoded(data: bytes) -> Pcm:
    with av.open(io.BytesIO(data)) as container:
        rate = container.streams.audio[0].rate
        frames = [frame.to_ndarray().reshape(-1) for frame in container.decode(audio=0)]
    pcm: Pcm = soxr.resample(np.concatenate(frames).astype(np.float32), rate, 24_000)
    return pcm


async def answer_mp3(server: Running, text: str) -> Pcm:
    answer = await server.openai.chat.completions.create(
        model="scripted-echo",
        messages=[{"role": "user", "content": text}],
        modalities=["text", "audio"],
        audio={"voice": "alloy", "format": "mp3"},
    )
    audio = answer.choices[0].message.audio
    assert audio is not None
    assert audio.transcript == text
    return decoded(base64.b64decode(audio.data))


async def answer_pcm16(server: Running, text: str) -> Pcm:
    stream = await server.openai.chat.completions.create(
        model="scripted-echo",
        messages=[{"role": "user", "content": text}],
        modalities=["text", "audio"],
        audio={"voice": "alloy", "format": "pcm16"},
        stream=True,
    )
    data = b""
    async for chunk in stream:
        for choice in chunk.choices:
            if choice.delta.audio is not None and choice.delta.audio.data:
                data += base64.b64decode(choice.delta.audio.data)
    pcm: Pcm = (np.frombuffer(data, "<i2") / 32_768).astype(np.float32)
    return pcm


@pytest.mark.parametrize("language", ["en", "de"])
@pytest.mark.parametrize("answer", [answer_mp3, answer_pcm16])
async def test_a_spoken_answer_is_understood(answer, language: str, recogniser: Recogniser) -> None:  # type: ignore[no-untyped-def]
    async with running(engine__kind="builtin", llm__scripted_tokens_per_s=500) as server:
        if language not in server.service.engine.traits.languages:
            pytest.skip(f"no built-in voice for {language} on this platform")
        pcm = await answer(server, TEXTS[language])
    heard = recogniser.words(pcm, language)
    assert word_error_rate(TEXTS[language], heard, language) <= WORST[language], heard
