from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.engines.builtin.readings import written_out


@pytest.mark.parametrize(
    ("language", "text", "reading"),
    [
        ("en", "It is 5 €.", "It is €5."),
        ("en", "12,50 €", "€12.50"),
        ("en", "1.234,50 €", "€1,234.50"),
        ("en", "7 £ or $5", "£7 or $5"),
        ("en", "$12.50, 3.14, 15%, 10:45, 2026", "$12.50, 3.14, 15%, 10:45, 2026"),
        ("en", "e.g. this, i.e. that", "for example this, that is that"),
        ("en", "1234567890123", "1 2 3 4 5 6 7 8 9 0 1 2 3"),
        ("de", "z. B. Nr. 5", "zum Beispiel Nummer 5"),
        ("de", "-5 Grad, 10–12 Uhr", "minus 5 Grad, 10 bis 12 Uhr"),
        ("de", "1/2 Liter, 16:9, 10:45", "ein halb Liter, 16 zu 9, 10:45"),
        ("fr", "5 €, z. B.", "5 €, z. B."),
    ],
)
def test_readings(language: str, text: str, reading: str) -> None:
    assert written_out(text, language) == reading


@given(st.text(alphabet="0123456789.,€$ /:-–", max_size=100), st.sampled_from(["en", "de"]))
def test_no_digit_is_lost_but_in_fractions(text: str, language: str) -> None:
    text = text.replace("/", "")

    def digits(whole: str) -> list[str]:
        return [character for character in whole if character.isdigit()]

    assert digits(written_out(text, language)) == digits(text)
