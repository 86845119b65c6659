from __future__ import annotations

import re
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from segmenter.verbalise import LANGUAGES, verbalise

languages = st.sampled_from((*LANGUAGES, "en-GB", "fr-CH", "pt-PT", "es-MX"))
PIECES = """
    0 1 2 7 12 21 007 1999 2024 1,234 1.234 3.14 3,14 777777777777 12345678901234567 ½ ¾ ² ³ ^ .
    , : / - – − + ± ~ = < > % ‰ ( ) # № § $ € £ ¥ ₽ US$ EUR CHF km km/h °C m² kg s h min Mio.
    млн 万 년 월 개 个 年 月 日 st nd er º ª ° x × ' " A mp v GPT- May Mai мая Uhr am der the und и à de
    XIV Louis Kapitel siglo № n° call + T e E k M ０ ٣ é ß a
"""
pieces = st.sampled_from((*PIECES.split(), " ", "\n", "\x00", "\u00a0", "\u202f"))
written = st.lists(pieces, max_size=14).map("".join) | st.text(max_size=30)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(written, languages)
@example("Chapter Chapter IV V", "en")
@example("5Chapter IV", "en")
@example("Louis XIV 5 Louis V", "en")
@example("GPT-4-5", "de")
@example("1-2-3-4", "ru")
def test_no_digit_is_left_and_the_result_is_final(text: str, lang: str) -> None:
    said = verbalise(text, lang)
    assert not re.search(r"\d", said)
    assert verbalise(said, lang) == said
    assert len(said) <= 15 * len(text)
    assert "\x00" not in said or "\x00" in text


@given(st.text(st.characters(exclude_categories=["Nd", "No", "Cs"], exclude_characters="IVX"), max_size=60), languages)
def test_a_text_without_digits_is_left_alone(text: str, lang: str) -> None:
    assert verbalise(text, lang) == text


@given(st.integers(0, 10**15 - 1), languages)
def test_every_whole_number_has_words(number: int, lang: str) -> None:
    said = verbalise(f"{number}", lang)
    assert said
    assert not re.search(r"[0-9%_>=<#]", said)


@given(
    st.lists(st.sampled_from(["alpha", "Beta", "große", "слово", "里", "3", "50%", "$5", "1/2"]), max_size=8), languages
)
def test_the_words_around_stay(words: list[str], lang: str) -> None:
    said = verbalise(" ; ".join(words), lang)
    kept = [word for word in words if not re.search(r"\d", word)]
    at = 0
    for word in kept:
        at = said.index(word, at) + len(word)


@pytest.mark.parametrize("lang", ["auto", "", "tr", "ar", "xx-YY", "english", "de_", "--"])
def test_other_languages_are_left_alone(lang: str) -> None:
    text = "5 % von 10 km, XIV"
    assert (verbalise(text, lang) == text) is (lang != "de_")


HOSTILE: dict[str, Callable[[int], str]] = {
    "digits": lambda n: "7" * n,
    "dots": lambda n: "1." * (n // 2),
    "commas": lambda n: "1,234," * (n // 6),
    "signs": lambda n: "+-" * (n // 2) + "1",
    "signed": lambda n: "+1-" * (n // 3),
    "slashes": lambda n: "1/" * (n // 2),
    "colons": lambda n: "1:" * (n // 2),
    "hyphens": lambda n: "1-" * (n // 2),
    "blanks": lambda n: "1" + " " * n,
    "groups": lambda n: "1 234 " * (n // 6),
    "brackets": lambda n: "(0" * (n // 2),
    "money": lambda n: "$1" * (n // 2),
    "signs of money": lambda n: "$" * n,
    "fraction": lambda n: "0." + "3" * n,
    "fractions": lambda n: "1½" * (n // 2),
    "sizes": lambda n: "1x" * (n // 2),
    "roman": lambda n: "Chapter XIV " * (n // 12),
    "x": lambda n: "X" * n,
    "powers": lambda n: "1^" * (n // 2),
    "exponents": lambda n: "1e" * (n // 2),
    "eighths": lambda n: "⅞" * n,
    "long": lambda n: "777777777777 " * (n // 13),
}


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("lang", ["en", "ru"])
def test_work_grows_with_the_text_only(kind: str, lang: str) -> None:
    small, large = (calls_for(HOSTILE[kind](size), lang) for size in (600, 2_400))
    assert large <= 4.4 * small + 60


def calls_for(text: str, lang: str) -> int:
    """Calls of any function while ``text`` is read."""
    verbalise(text[:40], lang)
    calls = 0

    def count(frame: Any, event: str, arg: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        verbalise(text, lang)
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("kind", ["digits", "dots", "signs", "blanks"])
def test_a_megabyte_is_read(kind: str) -> None:
    text = HOSTILE[kind](1_000_000)
    said = verbalise(text, "en")
    assert not re.search(r"\d", said)
    assert len(said) <= 12 * len(text)


def test_the_examples_of_the_page_are_true() -> None:
    page = (Path(__file__).parents[3] / "docs" / "verbalise.md").read_text(encoding="utf-8")
    examples = re.findall(r'^verbalise\("(.*?)", "(\w+)"\) +# (.*)$', page, re.MULTILINE)
    assert len(examples) >= 3
    for text, lang, said in examples:
        assert verbalise(text, lang) == said


def test_threads_share_it() -> None:
    texts = [f"{number} km, {number}%, am {number % 28 + 1}. Mai" for number in range(200)]
    alone = [verbalise(text, "de") for text in texts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda text: verbalise(text, "de"), texts)) == alone
