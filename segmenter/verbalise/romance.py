"""What French, Spanish, Italian and Portuguese share: one and its gender, the first of a month, fractions."""

# Overrides keep the promises that are written in language.py.
# ruff: noqa: D102

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar

from segmenter.verbalise.context import Around
from segmenter.verbalise.language import Form, Language
from segmenter.verbalise.literal import Number
from segmenter.verbalise.spelling import spell


class Romance(Language):
    """What the four share. Gender of unknown nouns goes by their ending; function words count as no noun."""

    fraction_as_number = 3
    feminine_endings: ClassVar[tuple[str, ...]]
    feminine_words: ClassVar[frozenset[str]] = frozenset()
    masculine_words: ClassVar[frozenset[str]] = frozenset()
    function_words: ClassVar[frozenset[str]]
    months: ClassVar[frozenset[str]]
    first: ClassVar[str]
    half: ClassVar[str]
    parts: ClassVar[Mapping[int, str]]
    conjunction: ClassVar[str]

    def counted(self, number: int, feminine: bool = False) -> str:
        return spell(self.locale, number, f"spellout-cardinal-{'feminine' if feminine else 'masculine'}")

    def cardinal(self, number: int, where: Around) -> str:
        noun = where.next
        if not noun or noun.lower() in self.function_words or noun[0].isupper():
            return self.plain(number)
        if number != 1 and not noun.endswith(("s", "x")):
            return self.plain(number)
        return self.counted(number, self.is_feminine(noun))

    def percents(self, number: Number, where: Around) -> str:
        said = self.decimal(number) if number.fraction else self.plain(number.whole)
        return f"{said} {self.percent}"

    def is_feminine(self, noun: str) -> bool:
        """A guess at a noun's gender."""
        lower = noun.lower()
        if lower in self.masculine_words:
            return False
        return lower in self.feminine_words or lower.endswith(self.feminine_endings)

    def fraction(self, above: int, below: int) -> str | None:
        if below == 2:
            return f"{self.counted(above)} {self.half if above == 1 else self.plural_half}"
        part = self.parts.get(below) or spell(self.locale, below, *self.part_rules)
        return f"{self.counted(above)} {part if above == 1 else self.plural_part(part)}"

    def half_of(self, where: Around) -> str:
        noun = where.next
        if not noun or noun.lower() in self.function_words or noun[0].isupper():
            return ""
        return f"{self.half[:-1]}a" if self.is_feminine(noun) else self.half

    def and_fraction(self, whole: int, above: int, below: int) -> str | None:
        part = self.half if (above, below) == (1, 2) else self.fraction(above, below)
        return f"{self.plain(whole)} {self.conjunction} {part}"

    part_rules: ClassVar[tuple[str, ...]] = ("spellout-ordinal-masculine",)

    @property
    def plural_half(self) -> str:
        """Halves."""
        return f"{self.half}s"

    def plural_part(self, part: str) -> str:
        """Thirds, quarters and so on."""
        return f"{part}s"

    @abstractmethod
    def day(self, day: int) -> str:
        """The day of a month."""

    def date(self, year: int | None, month: int, day: int, where: Around) -> str:
        of = self.date_of
        named = f"{self.day(day)} {of}{self.month(month)}"
        return named if year is None else f"{named} {of}{self.plain(year)}"

    date_of: ClassVar[str] = ""

    @cached_property
    def late_forms(self) -> tuple[Form, ...]:
        return ((re.compile(r"1(?![0-9]|[.,:/%–-][0-9])"), self._first_day),)

    def _first_day(self, found: re.Match[str], where: Around) -> str | None:
        month = where.next_but_one if where.next == "de" else where.next
        return self.first if month.lower() in self.months else None

    def ordinal_of(self, number: int, feminine: bool, rules: str = "spellout-ordinal") -> str:
        """The ordinal in one gender."""
        return spell(self.locale, number, f"{rules}-{'feminine' if feminine else 'masculine'}")

    def _marked_ordinal(self, found: re.Match[str], where: Around) -> str | None:
        if not int(found[1]):
            return None
        return self.ordinal_of(int(found[1]), found[2].lower() in ("ª", "a", "as"))
