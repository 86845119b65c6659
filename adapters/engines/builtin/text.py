"""From any text to pieces that a small voice can say."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

# Square and angle brackets, backslashes and the like mean something to the synthesisers (phonemes, control
# tags that name files); none of them is ever spoken, so none is let through.
_SPOKEN_SYMBOLS = frozenset(" \n.,;:!?…'\"’‘“”„«»¿¡()-–—/%&@#+=°€$£¥¢§²³½¼¾×÷")
_ENDS = re.compile(r"(?<=[.!?…])[\"”’»)]*\s+|\n")
_CLAUSES = re.compile(r"(?<=[,;:–—])\s+")
_LETTER_OR_DIGIT = re.compile(r"[^\W_]")
_ABBREVIATIONS = {
    "en": " dr mr mrs ms prof st jr sr vs e.g i.e capt gen lt sgt rev hon ",
    "de": " dr prof hr fr bzw ca z.b d.h u.a evtl ggf inkl bspw st vgl ",
    "es": " sr sra srta dr dra ud uds av ",
    "fr": " mm mme mlle dr av st ",
    "it": " sig sigg dott prof ing avv ",
}
_BEFORE_A_NUMBER = " no nos fig vol nr abs pág pag núm p art "


@lru_cache(maxsize=4096)
def script(character: str) -> str:
    """``LATIN``, ``CYRILLIC``, ``CJK``, ... for a letter; empty for anything else."""
    if not character.isalpha():
        return ""
    name = unicodedata.name(character, "UNKNOWN")
    return "LATIN" if "LATIN" in name else name.split()[0].split("-")[0]


@lru_cache(maxsize=4096)
def _said_as(character: str) -> str:
    if character in _SPOKEN_SYMBOLS:
        return character
    if character.isdecimal():
        return str(unicodedata.decimal(character))
    if script(character) == "LATIN" or "\u0300" <= character <= "\u036f":
        return character
    # A hyphen or space of another kind still parts words; what has no sound and no width must not.
    category = unicodedata.category(character)
    if category == "Pd":
        return "-"
    return "" if category in ("Cf", "Me") else " "


def sayable(text: str) -> str:
    """The text without what a Latin-script voice cannot say: other scripts, emoji, control and markup characters.

    Decimal digits of all scripts become ASCII digits. Blanks are collapsed; line ends stay.
    """
    text = unicodedata.normalize("NFC", text.replace("\r", "\n"))
    kept = "".join(map(_said_as, text))
    return re.sub(r" ?\n[ \n]*", "\n", re.sub(r" +", " ", kept)).strip()


def has_sound(text: str) -> bool:
    """True if there is a letter or a digit."""
    return _LETTER_OR_DIGIT.search(text) is not None


def has_letter(text: str) -> bool:
    """True if there is a letter of any script."""
    return any(map(str.isalpha, text))


def pieces(text: str, language: str, limit: int) -> Iterator[str]:
    """Sentences of a ``sayable`` text, each cut at clauses, blanks or anywhere so that none exceeds ``limit``."""
    for sentence in _sentences(text, language):
        if has_sound(sentence):
            yield from _shorter(sentence, limit)


def split_phonemes(phonemes: str, limit: int) -> Iterator[str]:
    """Parts of a phoneme string, cut like text, none longer than ``limit``."""
    if phonemes.strip():
        yield from _shorter(phonemes, limit)


def _sentences(text: str, language: str) -> Iterator[str]:
    start = 0
    for end in _ENDS.finditer(text):
        if _ends_sentence(text, end.start(), end.end(), language):
            yield text[start : end.start()].strip() + end.group().strip()
            start = end.end()
    yield text[start:].strip()


def _ends_sentence(text: str, before: int, after: int, language: str) -> bool:
    if text[before:after].strip(" ") or text[before - 1] != ".":
        return True
    following = text[after : after + 1]
    if following.islower():
        return False
    word = text[max(0, before - 12) : before - 1].split(" ")[-1].lstrip("(\"'“„«").lower()
    if len(word) == 1 and word.isalpha():
        return False
    # German writes ordinals with a dot: "21. Mai".
    ordinal = language == "de" and word.isdecimal() and len(word) <= 2
    numbered = following.isdecimal() and f" {word} " in _BEFORE_A_NUMBER
    return not ordinal and not numbered and f" {word} " not in _ABBREVIATIONS.get(language, "")


def _shorter(text: str, limit: int) -> Iterator[str]:
    if len(text) <= limit:
        yield text
        return
    line = ""
    for clause in _CLAUSES.split(text):
        for part in [clause] if len(clause) <= limit else _words(clause, limit):
            if line and len(line) + 1 + len(part) > limit:
                yield line
                line = part
            else:
                line = f"{line} {part}" if line else part
    if line:
        yield line


def _words(text: str, limit: int) -> Iterator[str]:
    for word in text.split():
        for at in range(0, len(word), limit):
            yield word[at : at + limit]
