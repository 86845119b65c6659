from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from adapters.engines.builtin import kokoro
from adapters.engines.builtin.hibari import HibariSynthesiser
from adapters.engines.builtin.kokoro import KokoroSynthesiser
from adapters.engines.builtin.synthesis import Stop
from sidecar.faults import EngineFault


@pytest.fixture(scope="module")
def synthesiser() -> Iterator[KokoroSynthesiser]:
    made = KokoroSynthesiser(HibariSynthesiser())
    yield made
    made.close()


@pytest.fixture
def model() -> None:
    if not kokoro.installed():
        pytest.skip("the extra kokoro is not installed")


@pytest.fixture
def german() -> None:
    pytest.importorskip("g2p2", reason="the extra kokoro is not installed")
    pytest.importorskip("g2p2_group_germanic", reason="the extra kokoro is not installed")


# ---------------------------------------------------------------- voices (need no model)
def test_styles_are_vectors_of_256_finite_numbers(synthesiser: KokoroSynthesiser) -> None:
    for entry in synthesiser.voices():
        style = synthesiser._style(entry.inner)
        assert style.shape == (256,)
        assert style.dtype == np.float32
        assert np.isfinite(style).all()
        assert 1 < np.linalg.norm(style) < 20


def test_a_mixture_lies_between_its_voices(synthesiser: KokoroSynthesiser) -> None:
    one, other = synthesiser._style("af_heart"), synthesiser._style("am_michael")
    assert np.allclose(synthesiser._style("af_heart+am_michael"), (one + other) / 2, atol=1e-6)
    assert np.allclose(synthesiser._style("af_heart:7+am_michael:3"), 0.7 * one + 0.3 * other, atol=1e-6)
    assert np.array_equal(synthesiser._style("af_heart:0.5"), one)


@pytest.mark.parametrize("name", ["af_heart+am_michael", "af_heart:0.7+am_michael:0.3", "bf_emma:2"])
def test_mixtures_are_voices(synthesiser: KokoroSynthesiser, name: str) -> None:
    entry = synthesiser.mixture(name)
    assert entry is not None
    assert entry.voice.name == name
    assert entry.speaks[0] == "en"


@pytest.mark.parametrize(
    "name",
    [
        "",
        "+",
        "af_heart+",
        "af_heart+nobody",
        "heart+af_heart",
        "af_heart:0",
        "af_heart:-1+am_michael:2",
        "af_heart:nan",
        "af_heart:inf",
        "af_heart:1e9",
        "af_heart:x",
        "+".join(["af_heart"] * 5),
    ],
)
def test_what_is_no_mixture(synthesiser: KokoroSynthesiser, name: str) -> None:
    assert synthesiser.mixture(name) is None


# ---------------------------------------------------------------- German words and sounds
@pytest.mark.usefixtures("german")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Am 21. Mai kostet es 12,50 €.", "Am einundzwanzigsten Mai kostet es 12 Euro 50."),
        ("Der 3. Platz", "Der dritte Platz"),
        ("um 10:45 Uhr und um 7:00 Uhr", "um 10 Uhr 45 und um 7 Uhr"),
        ("3,14 und 2.0", "3 Komma 1 4 und 2 Komma 0"),
        ("1.250.000 Leute", "1250000 Leute"),
        ("im Jahr 1998", "im Jahr 19 hundert 98"),
        ("$5 & 20 °C", "5 Dollar  und  20  Grad Celsius"),
        ("15%", "15 Prozent "),
    ],
)
def test_german_words(text: str, words: str) -> None:
    from adapters.engines.builtin.kokoro_german import german_words

    assert german_words(text) == words


@pytest.mark.usefixtures("german", "model")
def test_german_sounds_are_in_the_alphabet() -> None:
    from adapters.engines.builtin.kokoro_german import GermanPhonemes

    phonemes = GermanPhonemes().phonemes("Am Freitag fährt der Bär 21 Züge, ja? Größe: 5 €!")
    assert set(phonemes) <= set(kokoro._vocabulary())
    assert phonemes.count(",") == 1
    assert phonemes.endswith("!")


# ---------------------------------------------------------------- sound
@pytest.mark.usefixtures("model")
def test_it_speaks_the_same_again_and_differs_by_voice(synthesiser: KokoroSynthesiser) -> None:
    said = {
        name: np.concatenate(synthesiser.speak("Yes.", name, "en", 1, Stop()))
        for name in ("af_heart", "bf_emma", "af_heart+am_michael")
    }
    again = np.concatenate(synthesiser.speak("Yes.", "af_heart", "en", 2, Stop()))
    assert np.array_equal(said["af_heart"], again)
    assert all(len(pcm) > 4_000 and np.isfinite(pcm).all() for pcm in said.values())
    assert len({pcm.tobytes() for pcm in said.values()}) == 3


@pytest.mark.usefixtures("model")
def test_a_stop_ends_the_work(synthesiser: KokoroSynthesiser) -> None:
    stop = Stop()
    stop.request()
    assert synthesiser.speak("A sentence that nobody wants to hear any more.", "af_heart", "en", 1, stop) == []


def test_a_damaged_model_is_refused_with_both_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    if not kokoro.installed():
        pytest.skip("the extra kokoro is not installed")
    monkeypatch.setattr(kokoro, "_MODEL_SHA256", "0" * 64)
    with pytest.raises(EngineFault, match=r"6e742170.*expected 0000"):
        KokoroSynthesiser(HibariSynthesiser()).load()
