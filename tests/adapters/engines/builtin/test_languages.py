from __future__ import annotations

import pytest

from adapters.engines.builtin.languages import Languages, normal_code, script_fits

SPOKEN = frozenset(["en", "de", "es", "fr", "it"])


@pytest.fixture(scope="module")
def languages() -> Languages:
    return Languages()


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Your table is booked for four people.", "en"),
        ("Hello!", "en"),
        ("Guten Tag", "de"),
        ("Nein, danke.", "de"),
        ("Das Meeting ist um 10.", "de"),
        ("Bonjour", "fr"),
        ("Hola, ¿qué tal?", "es"),
        ("Ciao a tutti, come state oggi?", "it"),
        ("Olá, como vai você hoje?", "pt"),
        ("Goedemorgen, hoe gaat het met u?", "nl"),
        ("Привет, как дела?", "ru"),
        ("Дякую за вашу допомогу, це дуже добре", "uk"),
        ("你好，世界", "zh"),
        ("こんにちは世界", "ja"),
        ("안녕하세요", "ko"),
        ("مرحبا بالعالم", "ar"),
        ("שלום", "he"),
    ],
)
def test_clear_texts_are_recognised(languages: Languages, text: str, language: str) -> None:
    guess = languages.guess(text, SPOKEN)
    assert guess is not None
    assert (guess.language, guess.sure) == (language, True)


@pytest.mark.parametrize("text", ["Pizza", "We met in Paris.", "Berlin", "Paris, Lyon, Marseille", "xyz qwr"])
def test_names_and_fragments_are_no_reason_to_switch(languages: Languages, text: str) -> None:
    guess = languages.guess(text, SPOKEN)
    assert guess is not None
    assert not guess.sure


@pytest.mark.parametrize("text", ["", "...", "123", "🙂"])
def test_no_letters_no_language(languages: Languages, text: str) -> None:
    assert languages.guess(text, SPOKEN) is None


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ("de", "de"),
        ("de-DE", "de"),
        ("EN_us", "en"),
        ("auto", None),
        ("", None),
        (None, None),
        ("German", None),
        ("x1", None),
    ],
)
def test_language_codes_are_normalised(given: str | None, code: str | None) -> None:
    assert normal_code(given) == code


@pytest.mark.parametrize(
    ("language", "text", "fits"),
    [
        ("zh", "Hello", False),
        ("zh", "Hello 你好", True),
        ("zh", "123", True),
        ("en", "你好", False),
        ("ja", "漢字", True),
        ("ru", "привет", True),
        ("ru", "privet", False),
        ("de", "Größe", True),
    ],
)
def test_a_hint_must_fit_the_script(language: str, text: str, fits: bool) -> None:
    assert script_fits(language, text) is fits
