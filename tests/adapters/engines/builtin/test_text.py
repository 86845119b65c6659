from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.engines.builtin.text import has_sound, pieces, sayable, script, split_phonemes


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Hello 🙂 you", "Hello you"),
        ("Hi 你好 there", "Hi there"),
        ("a\u200bb\u00adc", "abc"),
        ("<play file='/etc/passwd'/>", "play file='/etc/passwd'/"),
        ("[x](/ˈu/)", "x (/ u/)"),
        ("٣ + ٤", "3 + 4"),
        ("well\u2011known", "well-known"),
        ("e\u0301", "é"),
        ("\ud800a\x00b", "a b"),
        ("a \r\n  \n b", "a\nb"),
        ("20 °C, 5 € & 3 %", "20 °C, 5 € & 3 %"),
    ],
)
def test_only_what_a_latin_voice_can_say_is_kept(text: str, kept: str) -> None:
    assert sayable(text) == kept


@given(st.text(max_size=300))
def test_sayable_is_stable_and_harmless(text: str) -> None:
    kept = sayable(text)
    assert sayable(kept) == kept
    assert not set(kept) & set("<>[]{}\\`|\x00\r\t")
    assert all(script(character) in ("", "LATIN") for character in kept)
    kept.encode()


@pytest.mark.parametrize(
    ("language", "text", "sentences"),
    [
        ("en", "One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("en", "Dr. Smith met J. K. Rowling. They talked.", ["Dr. Smith met J. K. Rowling.", "They talked."]),
        ("en", 'He said "no." Then he left.', ['He said "no."', "Then he left."]),
        ("en", "I said no. See No. 5 there.", ["I said no.", "See No. 5 there."]),
        ("en", "It is 3.14 exactly.", ["It is 3.14 exactly."]),
        ("de", "Am 21. Mai geht es los. Gut.", ["Am 21. Mai geht es los.", "Gut."]),
        ("de", "Nr. 5 lebt. Ja.", ["Nr. 5 lebt.", "Ja."]),
        ("en", "one\ntwo", ["one", "two"]),
        ("en", "... !", []),
    ],
)
def test_sentences(language: str, text: str, sentences: list[str]) -> None:
    assert list(pieces(text, language, 300)) == sentences


@given(st.text(alphabet='ab1 .,;!?\n"', max_size=400), st.integers(1, 50))
def test_pieces_are_short_and_lose_no_word(text: str, limit: int) -> None:
    kept = sayable(text)
    cut = list(pieces(kept, "en", limit))
    assert all(0 < len(piece) <= limit for piece in cut)

    def letters(whole: str) -> str:
        return "".join(filter(str.isalnum, whole))

    assert letters("".join(cut)) == letters(kept)
    assert bool(cut) == has_sound(kept)


@given(st.text(alphabet="abɪ ,.", max_size=300))
def test_phonemes_are_cut_like_text(phonemes: str) -> None:
    assert all(len(part) <= 40 for part in split_phonemes(phonemes, 40))
