"""German for Kokoro, which was never trained on it: words to sounds that its Romance voices know."""

from __future__ import annotations

import lzma
import re
import threading
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_TOKEN = re.compile(r"[^\W\d_]+(?:[-'’][^\W\d_]+)*|[.,;:!?…]")
# In this order: what g2p2 writes, and the symbol of the model's alphabet for it. Writing ʁ and ɐ as the tap of
# the Romance languages matters most: word error rate 20 % without, 8 % with it (whisper-base, ten sentences).
_SOUNDS = tuple(
    (re.compile(written), symbol)
    for written, symbol in (
        ("t͡s", "ʦ"), ("t͡ʃ", "ʧ"), ("d͡ʒ", "ʤ"), ("p͡f", "pf"),
        ("aɪ̯", "I"), ("aʊ̯", "W"), ("ɔ[ɪʏ]̯", "Y"),
        ("n̩", "ən"), ("l̩", "əl"), ("m̩", "əm"),
        (r"(?<=[aeiouyøœɛɪɔʊʏː])ɐ̯?", "ɾ"),
        (r"\bʁ", "r"), ("ʁ", "ɾ"), ("ʏ", "y"), ("[ʔ̯͡]", ""),
    )
)  # fmt: skip

_ORDINAL_BEFORE = re.compile(
    r"\b(?P<case>am|vom|zum|dem|den|des|beim|im)?(?P<gap>\s*)\b(?P<day>\d{1,2})\.(?=\s+[A-ZÄÖÜ])", re.I
)
_UNITS = {"€": "Euro", "%": "Prozent", "$": "Dollar", "£": "Pfund", "°": "Grad", "&": "und", "+": "plus"}
_MORE_UNITS = {"=": "gleich", "×": "mal", "÷": "geteilt durch", "²": "Quadrat", "@": "at", "½": "ein halb"}
_SYMBOL_WORDS = _UNITS | _MORE_UNITS
_SMALL_ORDINALS = {1: "erst", 3: "dritt", 7: "siebt", 8: "acht"}


class GermanPhonemes:
    """Text to phonemes through g2p2, whose German model is read from its wheel (1 to 2 s, at first use)."""

    def __init__(self) -> None:
        self._model: Any = None
        self._lock = threading.Lock()

    def installed(self) -> bool:
        """True if g2p2 and its Germanic models are there."""
        return find_spec("g2p2") is not None and find_spec("g2p2_group_germanic") is not None

    def phonemes(self, text: str) -> str:
        """Sounds in the model's alphabet, words and punctuation as in the text."""
        import g2p2

        with self._lock:
            if self._model is None:
                # Not by g2p2's own loader, which unpacks into the home directory and may download.
                packed = Path(str(files("g2p2_group_germanic"))) / "de.g2p.xz"
                self._model = g2p2.Model.from_bytes(lzma.decompress(packed.read_bytes()))
        words = g2p2.expand_numbers(german_words(text), "de")
        line = ""
        for token in _TOKEN.findall(words):
            if token[0].isalpha():
                line += " " + self._word(token)
            else:
                line += token
        return line.strip()

    def _word(self, word: str) -> str:
        # A capital at its beginning makes g2p2 spell out some words ("Am"); true acronyms keep theirs.
        written = word if word.isupper() and len(word) > 1 else word.lower()
        sounds = " ".join(self._model.phonemize(part) for part in written.split("-") if part)
        for sound, symbol in _SOUNDS:
            sounds = sound.sub(symbol, sounds)
        return sounds


def german_words(text: str) -> str:
    """Amounts, times, decimals, ordinals and symbols as words; plain whole numbers stay digits."""
    text = re.sub(r"(?<=\d)\.(?=\d{3}(?!\d))", "", text)
    text = re.sub(r"\b(\d{1,2}):(\d{2})(?:\s*Uhr)?\b", _time, text)
    text = re.sub(
        r"[€$£]\s?(\d+(?:[.,]\d+)?)", lambda m: m[1] + {"€": " Euro", "$": " Dollar"}.get(m[0][0], " Pfund"), text
    )
    text = re.sub(r"(\d+)[.,](\d{2})\s?(?:€|Euro)", r"\1 Euro \2", text)
    text = re.sub(r"(\d+)[.,](\d+)", lambda m: f"{m[1]} Komma {' '.join(m[2])}", text)
    text = re.sub(r"°\s?C\b", " Grad Celsius", text)
    text = _ORDINAL_BEFORE.sub(_ordinal, text)
    text = re.sub(r"\b1([1-9])(\d\d)\b", _year, text)
    return re.sub(r"[€%$£°&+=×÷²@½]", lambda m: f" {_SYMBOL_WORDS[m[0]]} ", text)


def _time(match: re.Match[str]) -> str:
    minutes = "" if match[2] == "00" else f" {int(match[2])}"
    return f"{int(match[1])} Uhr{minutes}"


def _ordinal(match: re.Match[str]) -> str:
    import g2p2

    day = int(match["day"])
    stem = _SMALL_ORDINALS.get(day)
    if stem is None:
        stem = g2p2.expand_numbers(str(day), "de") + ("t" if day < 20 else "st")
    ending = "en" if match["case"] else "e"
    return f"{match['case'] or ''}{match['gap']}{stem}{ending}"


def _year(match: re.Match[str]) -> str:
    # "neunzehnhundertachtundneunzig": hundreds are counted up to 1999, and g2p2 counts thousands.
    rest = int(match[2])
    return f"1{match[1]} hundert {rest}" if rest else f"1{match[1]} hundert"
