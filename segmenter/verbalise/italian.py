"""Italian: the degree sign of ordinals, clocks with a point, un, uno, una and un'."""

# Overrides keep the promises that are written in language.py.
# ruff: noqa: D102

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar

from segmenter.verbalise.context import Around
from segmenter.verbalise.language import Form, word_set
from segmenter.verbalise.literal import Number
from segmenter.verbalise.romance import Romance


class Italian(Romance):
    """Italian; the degree sign before a lower-case word is an ordinal."""

    decimal_word, point_word = "virgola", "punto"
    minus, plus, plus_minus = "meno", "più", "più o meno"
    about, less, more, at_most, at_least = "circa", "meno di", "più di", "al massimo", "almeno"
    number_word, section_word = "numero", "paragrafo"
    number_signs = r"[Nn]\.[º°]?|[Nn][º°]"
    times, divided, equals, by = "per", "diviso", "uguale a", "per"
    to, ratio, out_of = "a", "a", "su"
    percent, per_mille = "per cento", "per mille"
    squared, cubed = "al quadrato", "al cubo"
    raised = "alla {}"
    multipliers: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "mln": ("milione", "milioni"), "mld": ("miliardo", "miliardi"), "milione": ("milione", "milioni"),
        "milioni": ("milione", "milioni"), "miliardo": ("miliardo", "miliardi"), "miliardi": ("miliardo", "miliardi"),
        "mila": ("mila", "mila"),
    }  # fmt: skip
    free_multipliers = frozenset(("mln", "mld"))
    per_words: ClassVar[Mapping[str, str]] = {
        "h": "all'ora", "ora": "all'ora", "anno": "all'anno", "mese": "al mese", "giorno": "al giorno",
        "settimana": "alla settimana", "minuto": "al minuto", "notte": "a notte", "persona": "a persona",
        "kg": "al chilo", "l": "al litro", "litro": "al litro",
    }  # fmt: skip
    feminine_endings = ("a", "zione", "sione", "tà", "tù", "trice", "udine")
    feminine_words = word_set("notte parte volte classe")
    masculine_words = word_set("problema programma sistema tema clima pianeta poema dramma diagramma")
    function_words = word_set(
        """
        e o a di da del della dei delle in il la i le lo gli con per è sono era che al su tra fra più meno ed
        contro
        """
    )
    months = word_set(
        """
        gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre
        """
    )
    first, half, conjunction = "primo", "mezzo", "e"
    parts: ClassVar[Mapping[int, str]] = {}

    @cached_property
    def first_forms(self) -> tuple[Form, ...]:
        return (
            (re.compile(r"([0-9]{1,3})([ºª])"), self._marked_ordinal),
            (re.compile(r"([1-9]|[12][0-9]|3[01])°(?=[ \u00a0][a-zàèéìòù]{3})"), self._degree_ordinal),
            (re.compile(r"([01]?[0-9]|2[0-4])\.([0-5][0-9])(?![0-9]|[.,][0-9]|[ ]?[%€])"), self._dotted_clock),
        )

    def cardinal(self, number: int, where: Around) -> str:
        noun = where.next.lower()
        if number != 1 or not noun or noun in self.function_words or where.next[0].isupper():
            return self.plain(number)
        if self.is_feminine(noun):
            return "una"
        return "uno" if re.match(r"s[^aeiouàèéìòù]|z|gn|ps|pn|x|y", noun) else "un"

    def counted(self, number: int, feminine: bool = False) -> str:
        if number == 1:
            return "una" if feminine else "un"
        return self.plain(number)

    def clock(self, hour: int, minute: int, where: Around) -> str:
        spoken = "una" if hour == 1 else self.plain(hour)
        return f"{spoken} e {self.plain(minute)}" if minute else spoken

    def money(self, whole: str, name: str, cents: str, cent: str) -> str:
        return f"{whole} {name} e {cents} {cent}"

    def of_millions(self, name: str) -> str:
        return f"di {name}"

    def day(self, day: int) -> str:
        return self.first if day == 1 else self.plain(day)

    def range(self, first: str, last: str, where: Around) -> str:
        if where.last in ("da", "dal", "dai", "dalla", "dalle", "tra", "fra", "anni", "pagine", "circa"):
            return f"{first} a {last}"
        return f"da {first} a {last}"

    def unit_words(self, number: Number, words: str, where: Around) -> str:
        return re.sub(r"^una (?=[aeiou])", "un'", words)

    @property
    def plural_half(self) -> str:
        return "mezzi"

    def plural_part(self, part: str) -> str:
        return f"{part[:-1]}i"

    def _degree_ordinal(self, found: re.Match[str], where: Around) -> str:
        return self.ordinal_of(int(found[1]), self.is_feminine(where.next))

    def _dotted_clock(self, found: re.Match[str], where: Around) -> str | None:
        if where.last not in ("alle", "ore", "dalle", "le", "all", "dall"):
            return None
        return self.clock(int(found[1]), int(found[2]), where)
