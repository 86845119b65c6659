"""What the built-in engine promises beyond the contract: which voice says what, how loud, with what at hand."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from adapters.engines.builtin import BuiltinEngine, BuiltinSettings, kokoro
from adapters.engines.builtin import catalogue as catalogue_module
from adapters.engines.builtin.hibari import HibariSynthesiser
from sidecar.faults import EngineFault, UnknownVoice, UnsupportedLanguage
from sidecar.ports import FRAME_SAMPLES, SAMPLE_RATE_HZ, Pcm, Speaking, Utterance
from tests.intelligibility import sentences

pytestmark = pytest.mark.asyncio(loop_scope="module")
ENGLISH = "Please tell me where the nearest station is."
GERMAN = "Bitte sagen Sie mir, wo der nächste Bahnhof ist."


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncIterator[BuiltinEngine]:
    made = BuiltinEngine()
    await made.start()
    yield made
    await made.close()


@pytest.fixture
def pico(engine: BuiltinEngine) -> None:
    if "pico-de" not in [voice.name for voice in engine.traits.voices]:
        pytest.skip("py-nanotts is not installed here")


async def pcm_of(speaking: Speaking) -> Pcm:
    return np.concatenate([chunk.pcm async for chunk in speaking.chunks()])


async def say(engine: BuiltinEngine, text: str, voice: str = "auto", language: str | None = None) -> Pcm:
    return await pcm_of(await engine.open(Utterance(text, voice, 1, language)))


# ---------------------------------------------------------------- which voice says it
@pytest.mark.usefixtures("pico")
@pytest.mark.parametrize(
    ("text", "hint", "voice", "language"),
    [
        (ENGLISH, None, "heart", "en"),
        (GERMAN, None, "pico-de", "de"),
        ("Dígame dónde está la estación más cercana.", None, "pico-es", "es"),
        ("Dites-moi où se trouve la gare la plus proche.", None, "pico-fr", "fr"),
        ("Mi dica dove si trova la stazione più vicina.", None, "pico-it", "it"),
        ("Taxi 21", "de", "pico-de", "de"),
        ("Taxi 21", None, "heart", "en"),
        ("Hello there", "zh", "heart", "en"),
        ("Hello 你好", None, "heart", "en"),
    ],
)
async def test_auto_is_the_voice_of_the_language(
    engine: BuiltinEngine, text: str, hint: str | None, voice: str, language: str
) -> None:
    speaking = await engine.open(Utterance(text, "auto", 1, hint))
    assert speaking.language == language
    assert np.array_equal(await pcm_of(speaking), await say(engine, text, voice, language))


@pytest.mark.usefixtures("pico")
async def test_a_named_voice_says_what_its_script_allows(engine: BuiltinEngine) -> None:
    speaking = await engine.open(Utterance(GERMAN, "heart", 1, "de"))
    assert speaking.language == "en"
    assert not np.array_equal(await pcm_of(speaking), await say(engine, GERMAN, "pico-de"))
    assert len(await say(engine, "Obrigado pela sua ajuda.", "heart", "pt")) > FRAME_SAMPLES
    with pytest.raises(UnsupportedLanguage, match="Chinese"):
        await engine.open(Utterance("你好 3", "heart", 1))


@pytest.mark.parametrize(
    ("text", "hint", "named", "advice"),
    [
        ("你好，世界", None, r"Chinese \(zh\)", "Qwen3-TTS"),
        ("Olá, como vai você hoje? Espero que bem.", None, r"Portuguese \(pt\)", "Qwen3-TTS"),
        ("Taxi", "nl", r"Dutch \(nl\)", "engine.urls"),
    ],
)
async def test_refusals_name_the_language_and_a_way_out(
    engine: BuiltinEngine, text: str, hint: str | None, named: str, advice: str
) -> None:
    with pytest.raises(UnsupportedLanguage, match=named) as refused:
        await engine.open(Utterance(text, "auto", 1, hint))
    assert advice in refused.value.message
    assert "English" in refused.value.message
    assert (await engine.health()).active_rows == 0


async def test_too_few_words_are_read_by_the_default_voice_unless_their_language_is_named(
    engine: BuiltinEngine,
) -> None:
    speaking = await engine.open(Utterance("Dzień dobry,", "auto", 1))
    speaking.cancel()
    assert speaking.language == "en"
    with pytest.raises(UnsupportedLanguage, match=r"Polish \(pl\).*engine\.urls"):
        await engine.open(Utterance("Dzień dobry,", "auto", 1, "pl"))


async def test_without_pico_the_refusal_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue_module, "find_spec", lambda name: None)
    monkeypatch.setattr(kokoro, "installed", lambda: False)
    bare = BuiltinEngine()
    await bare.start()
    try:
        assert [voice.name for voice in bare.traits.voices] == ["auto", "heart"]
        assert bare.traits.languages == ("en",)
        with pytest.raises(UnsupportedLanguage, match="py-nanotts") as refused:
            await bare.open(Utterance(GERMAN, "auto", 1))
        assert "kokoro" in refused.value.message
        with pytest.raises(UnknownVoice, match="auto, heart"):
            await bare.open(Utterance(GERMAN, "pico-de", 1))
        assert len(await say(bare, ENGLISH)) > FRAME_SAMPLES
    finally:
        await bare.close()


async def test_a_mixture_is_asked_for_by_name(engine: BuiltinEngine) -> None:
    if not kokoro.installed():
        pytest.skip("the extra kokoro is not installed")
    speaking = await engine.open(Utterance("Yes.", "af_heart:0.7+am_michael:0.3", 1))
    assert speaking.language == "en"
    assert len(await pcm_of(speaking)) > FRAME_SAMPLES
    with pytest.raises(UnknownVoice, match="af_heart"):
        await engine.open(Utterance("Yes.", "af_heart+heart", 1))


async def test_an_unknown_default_voice_is_refused_at_start() -> None:
    with pytest.raises(UnknownVoice):
        await BuiltinEngine(BuiltinSettings(voice="nobody")).start()


async def test_a_start_that_fails_says_so_and_can_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: HibariSynthesiser) -> None:
        raise OSError("/secret/path")

    made = BuiltinEngine()
    with monkeypatch.context() as broken:
        broken.setattr(HibariSynthesiser, "load", fail)
        with pytest.raises(EngineFault, match="reinstall") as failed:
            await made.start()
    assert "secret" not in failed.value.message
    assert not (await made.health()).ok
    await made.start()
    assert len(await say(made, ENGLISH)) > FRAME_SAMPLES
    await made.close()


@pytest.mark.parametrize("text", ["...", "!", "", "🙂", "€"])
async def test_nothing_to_say_is_a_short_silence(engine: BuiltinEngine, text: str) -> None:
    pcm = await say(engine, text)
    assert len(pcm) == 2 * FRAME_SAMPLES
    assert not pcm.any()


# ---------------------------------------------------------------- how it sounds
@pytest.mark.parametrize("name", ["heart", "pico-de", "pico-en-gb", "pico-es", "pico-fr", "pico-it"])
async def test_every_voice_is_equally_loud_and_starts_at_once(engine: BuiltinEngine, name: str) -> None:
    voices = {voice.name: voice for voice in engine.traits.voices}
    if name not in voices:
        pytest.skip("py-nanotts is not installed here")
    texts = {
        "en": sentences.ENGLISH,
        "de": sentences.GERMAN,
        "es": sentences.SPANISH,
        "fr": sentences.FRENCH,
        "it": sentences.ITALIAN,
    }[voices[name].languages[0]]
    spoken = [await say(engine, text, name) for text in texts]
    assert abs(lufs(np.concatenate(spoken)) + 20) <= 2
    for pcm in spoken:
        assert np.abs(pcm).max() < 1
        loud = np.flatnonzero(np.abs(pcm) > 0.02)
        assert loud[0] <= 0.1 * SAMPLE_RATE_HZ
        assert len(pcm) - loud[-1] <= 0.25 * SAMPLE_RATE_HZ


async def test_seeds_matter_and_any_integer_will_do(engine: BuiltinEngine) -> None:
    spoken = [await pcm_of(await engine.open(Utterance(ENGLISH, "heart", seed))) for seed in (0, -5, 2**70)]
    assert not np.array_equal(spoken[0], spoken[1])
    assert not np.array_equal(spoken[1], spoken[2])


async def test_sentences_are_parted_by_a_pause(engine: BuiltinEngine) -> None:
    both = await say(engine, "It is ready. See you soon.", "heart")
    first = await say(engine, "It is ready.", "heart")
    quiet = both[len(first) : len(first) + 1_000]
    assert len(both) > len(first)
    assert not quiet.any() or np.abs(quiet).max() < 0.01


# ---------------------------------------------------------------- what goes wrong inside
async def test_a_failing_voice_is_a_fault_and_frees_the_row(
    engine: BuiltinEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> Any:
        raise IndexError("secret text")

    monkeypatch.setattr(HibariSynthesiser, "phonemes", fail)
    with pytest.raises(EngineFault) as failed:
        await say(engine, ENGLISH, "heart")
    assert "secret" not in failed.value.message
    assert (await engine.health()).active_rows == 0


async def test_a_broken_sound_never_leaves(engine: BuiltinEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: Any) -> list[Pcm]:
        return [np.array([0.5, np.nan] * 12_000, np.float32), np.full(12_000, 0.5, np.float32)]

    monkeypatch.setattr(HibariSynthesiser, "speak", broken)
    with pytest.raises(EngineFault, match="broken sound"):
        await say(engine, ENGLISH, "heart")


async def test_the_loop_stays_free_while_it_speaks(engine: BuiltinEngine) -> None:
    speaking = asyncio.ensure_future(say(engine, " ".join(sentences.ENGLISH), "heart"))
    turns = 0
    while not speaking.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns > 100


@pytest.mark.parametrize(
    "settings",
    [
        {"threads": 0},
        {"max_rows": 0},
        {"chunk_ramp_frames": ()},
        {"chunk_ramp_frames": (2, 40)},
        {"sentence_pause_ms": -1},
    ],
)
async def test_senseless_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        BuiltinSettings(**settings)


@pytest.mark.skipif(sys.platform != "linux", reason="Pico has wheels for Linux only")
@pytest.mark.usefixtures("pico")
async def test_pico_starts_again_after_its_process_died(engine: BuiltinEngine) -> None:
    before = await say(engine, GERMAN)
    pico = next(one for one in engine._catalogue.synthesisers if hasattr(one, "_child"))
    pico._child.kill()
    pico._child.wait()
    assert np.array_equal(await say(engine, GERMAN), before)


def lufs(pcm: Pcm) -> float:
    """Integrated loudness after ITU-R BS.1770-4, mono; its filters applied in the frequency domain."""
    size = 2 * len(pcm)
    turn = np.exp(-2j * np.pi * np.fft.rfftfreq(size, 1 / SAMPLE_RATE_HZ) / 48_000)  # the filters are for 48 kHz
    shelf = (1.53512485958697 - 2.69169618940638 * turn + 1.19839281085285 * turn**2) / (
        1 - 1.69065929318241 * turn + 0.73248077421585 * turn**2
    )
    high_pass = (1 - 2 * turn + turn**2) / (1 - 1.99004745483398 * turn + 0.99007225036621 * turn**2)
    weighed = np.fft.irfft(np.fft.rfft(pcm.astype(np.float64), size) * shelf * high_pass, size)[: len(pcm)]
    block, step = SAMPLE_RATE_HZ * 4 // 10, SAMPLE_RATE_HZ // 10
    starts = range(0, len(weighed) - block + 1, step)
    power = np.array([np.mean(np.square(weighed[start : start + block])) for start in starts])
    loudness = -0.691 + 10 * np.log10(power + 1e-12)
    audible = power[loudness > -70]
    gate = -0.691 + 10 * np.log10(audible.mean()) - 10
    kept = audible[-0.691 + 10 * np.log10(audible) > gate]
    return float(-0.691 + 10 * np.log10(kept.mean()))
