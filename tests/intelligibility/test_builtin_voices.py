"""The built-in voices are understood: word error rates by whisper-base over ten sentences of our own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import numpy as np
import pytest
import pytest_asyncio

from adapters.engines.builtin import BuiltinEngine
from sidecar.ports import Pcm, Utterance
from tests.intelligibility import sentences
from tests.intelligibility.asr import Recogniser, word_error_rate

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncIterator[BuiltinEngine]:
    made = BuiltinEngine()
    await made.start()
    yield made
    await made.close()


async def spoken(engine: BuiltinEngine, text: str, voice: str, language: str) -> Pcm:
    speaking = await engine.open(Utterance(text, voice, seed=1, language=language))
    assert speaking.language == language
    return np.concatenate([chunk.pcm async for chunk in speaking.chunks()])


async def mean_error(
    engine: BuiltinEngine, recogniser: Recogniser, voice: str, language: str, texts: Sequence[str]
) -> float:
    """Errors over all words of all texts, so that a short sentence weighs no more than its words."""
    heard = [recogniser.words(await spoken(engine, text, voice, language), language) for text in texts]
    rate = word_error_rate(" ".join(texts), " ".join(heard), language)
    print(f"{voice} ({language}): word error rate {rate:.3f} over {len(texts)} sentences")
    return rate


async def test_english_is_understood(engine: BuiltinEngine, recogniser: Recogniser) -> None:
    assert await mean_error(engine, recogniser, "auto", "en", sentences.ENGLISH) <= 0.05


async def test_german_is_understood(engine: BuiltinEngine, recogniser: Recogniser) -> None:
    if "de" not in engine.traits.languages:
        pytest.skip("no German voice on this platform")
    assert await mean_error(engine, recogniser, "auto", "de", sentences.GERMAN) <= 0.15


@pytest.mark.parametrize(
    ("text", "heard"),
    [
        ("It costs 5 € now.", "5 euros"),
        ("It costs 12,50 € now.", "12 euros and 50 cents"),
        ("Some fruit, e.g. apples.", "for example"),
    ],
)
async def test_english_readings(engine: BuiltinEngine, recogniser: Recogniser, text: str, heard: str) -> None:
    words = recogniser.words(await spoken(engine, text, "heart", "en"), "en").lower()
    said = words.replace("€12.50", "12 euros and 50 cents").replace("€5", "5 euros").replace("five", "5")
    assert heard in said
