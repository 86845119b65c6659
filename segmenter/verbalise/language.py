"""What a language has to say about numbers. The base is what most languages share; each language overrides the rest."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import ClassVar

from babel.core import Locale

from segmenter.verbalise.context import Around
from segmenter.verbalise.literal import Number
from segmenter.verbalise.spelling import spell

GLUE = "\x00"
"""At the end of words: what follows is part of the same word."""

Form = tuple[re.Pattern[str], Callable[[re.Match[str], Around], str | None]]
"""A way of writing that one language has, and its words (None: not that after all)."""


class Language(ABC):
    """Number words and the grammar around them. Immutable once built, so that threads can share it.

    All methods are pure. Numbers are at least 0 and below 10^15; ``Around`` is the context in the original text;
    ``feminine`` says the gender of a noun that is known to follow.
    """

    decimal_mark: str = ","
    blank_groups: ClassVar[bool] = True
    spaced: ClassVar[bool] = True
    rules: str = "spellout-numbering"
    fraction_as_number: ClassVar[int] = 0
    feminine_nouns: ClassVar[frozenset[str]] = frozenset()

    no_blank_after: ClassVar[str] = ""
    no_blank_before: ClassVar[str] = ""
    """Letters that a number is written together with."""
    has_particles: ClassVar[bool] = False
    """True if what follows a unit, a currency or "per cent" is written together with it."""
    zero_digit: ClassVar[str] = ""
    phone_zero: ClassVar[str] = ""
    pause: ClassVar[str] = ", "
    """Between the groups of a telephone number."""
    cold: ClassVar[str] = ""
    """Minus before degrees, if it has a word of its own."""
    second_word: ClassVar[str] = ""
    letters_stay: ClassVar[tuple[str, ...]] = ()
    """Kinds of CLDR units whose symbols are left as letters."""
    per_mille_first: ClassVar[bool] = False
    """True if "per cent" and "per mille" stand before the number, and each number of a range has its own."""
    free_multipliers: ClassVar[frozenset[str]] = frozenset()
    """Those of ``multipliers`` that are read without a currency, too."""
    pair_phones: ClassVar[bool] = False
    """True if telephone numbers are said in pairs."""
    phone_marks: ClassVar[str] = "-/ "
    """What may part the groups of a telephone number."""
    decimal_word: str
    point_word: ClassVar[str]
    minus: ClassVar[str]
    plus: ClassVar[str]
    plus_minus: ClassVar[str]
    about: ClassVar[str]
    less: ClassVar[str]
    more: ClassVar[str]
    at_most: ClassVar[str]
    at_least: ClassVar[str]
    number_word: ClassVar[str]
    section_word: ClassVar[str]
    times: ClassVar[str]
    divided: ClassVar[str]
    equals: ClassVar[str]
    by: ClassVar[str]
    to: ClassVar[str]
    ratio: ClassVar[str]
    percent: ClassVar[str]
    per_mille: ClassVar[str]
    out_of: ClassVar[str]
    squared: ClassVar[str]
    cubed: ClassVar[str]
    raised: ClassVar[str]
    """"To the power of", around ``{}``."""
    number_signs: ClassVar[str] = r"No\."
    """Regex: abbreviations of "number" before a number."""
    multipliers: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Powers behind a number: written form -> words by plural (see ``by_plural``)."""
    per_words: ClassVar[Mapping[str, str]] = {}
    """What may stand behind a slash after an amount or a quantity -> its words with "per"."""

    def __init__(self, locale: str) -> None:
        self.locale = locale
        self.cldr = Locale.parse(locale)

    @cached_property
    def first_forms(self) -> tuple[Form, ...]:
        """Own ways of writing that go before the common ones."""
        return ()

    @cached_property
    def late_forms(self) -> tuple[Form, ...]:
        """Own ways of writing that are tried after the common ones."""
        return ()

    # ------------------------------------------------------------ whole numbers
    def plain(self, number: int) -> str:
        """The number when counting or naming."""
        return spell(self.locale, number, self.rules)

    def counted(self, number: int, feminine: bool = False) -> str:
        """The number before a noun of known gender."""
        return self.plain(number)

    def cardinal(self, number: int, where: Around) -> str:
        """The number in its context."""
        return self.plain(number)

    def digits(self, digits: str) -> str:
        """Digit by digit."""
        gap = " " if self.spaced else ""
        return gap.join(
            self.zero_digit if digit == "0" and self.zero_digit else self.plain(int(digit)) for digit in digits
        )

    def dialled(self, digits: str) -> str:
        """A group of a telephone number."""
        gap = " " if self.spaced else ""
        zero = self.phone_zero or self.digits("0")
        return gap.join(zero if digit == "0" else self.plain(int(digit)) for digit in digits)

    def is_year(self, number: Number, where: Around) -> bool:
        """True if four plain digits name a year."""
        return False

    def year(self, number: int, where: Around) -> str:
        """A year."""
        return self.plain(number)

    # ------------------------------------------------------------ numbers as written
    def number(self, number: Number, where: Around) -> str:
        """Any number in its context."""
        if number.fraction:
            return self.decimal(number)
        if number.padded:
            return self.digits(number.digits)
        if number.yearlike and self.is_year(number, where):
            return self.year(number.whole, where)
        return self.cardinal(number.whole, where)

    def measured(self, number: Number, feminine: bool, where: Around) -> str:
        """Any number before a noun of known gender."""
        return self.decimal(number) if number.fraction else self.counted(number.whole, feminine)

    def decimal(self, number: Number) -> str:
        """A number with a fraction."""
        word = self.point_word if number.mark == "." and self.decimal_mark != "." else self.decimal_word
        return self.join(self.plain(number.whole), word, self.fraction_digits(number.fraction))

    def fraction_digits(self, digits: str) -> str:
        """What follows the decimal word: digit by digit, or as a number behind its zeros."""
        if len(digits) > self.fraction_as_number or not digits.strip("0"):
            return self.digits(digits)
        rest = digits.lstrip("0")
        return self.join(self.digits(digits[: len(digits) - len(rest)]), self.plain(int(rest)))

    def join(self, *words: str) -> str:
        """Words with what parts them in this language."""
        return (" " if self.spaced else "").join(word for word in words if word)

    def plural(self, number: Number, where: Around) -> str:
        """CLDR's plural category of the noun behind a number."""
        return str(self.cldr.plural_form(number.value))

    # ------------------------------------------------------------ the rest
    def ordinal(self, number: int, where: Around) -> str:
        """The ordinal in its context."""
        return spell(self.locale, number, "spellout-ordinal")

    @abstractmethod
    def clock(self, hour: int, minute: int, where: Around) -> str:
        """A time of the day."""

    @abstractmethod
    def date(self, year: int | None, month: int, day: int, where: Around) -> str:
        """A date."""

    def numeric_date(self, first: int, second: int) -> tuple[int, int] | None:
        """Month and day of a date written with two numbers before the year, or None."""
        if second <= 12 and 1 <= first <= 31:
            return second, first
        return (first, second) if first <= 12 and second <= 31 else None

    def month(self, month: int) -> str:
        """The month's name as it stands in dates."""
        return str(self.cldr.months["format"]["wide"][month])

    def money(self, whole: str, name: str, cents: str, cent: str) -> str:
        """An amount with hundredths."""
        return self.join(whole, name, cents, cent)

    def of_millions(self, name: str) -> str:
        """A currency's name behind a million and more."""
        return name

    @abstractmethod
    def fraction(self, above: int, below: int) -> str | None:
        """A fraction with a small denominator, or None."""

    @abstractmethod
    def and_fraction(self, whole: int, above: int, below: int) -> str | None:
        """A whole number and a fraction."""

    def half_of(self, where: Around) -> str:
        """A half of the noun that follows; empty if it is said like any fraction."""
        return ""

    def over(self, above: int, below: int) -> str:
        """Two numbers with a slash that is no plain fraction: a rating or a share."""
        return self.join(self.plain(above), self.out_of, self.plain(below))

    def range(self, first: str, last: str, where: Around) -> str:
        """From one to another."""
        return self.join(first, self.to, last)

    def lower_bound(self, number: Number, where: Around) -> str:
        """The first number of a range before a noun that agrees with the last."""
        return self.number(number, where)

    def percents(self, number: Number, where: Around) -> str:
        """An amount in per cent."""
        return self.join(self.measured(number, False, where), self.percent)

    def many(self, number: Number, multiplier: str, where: Around) -> str:
        """Thousands, millions and so on: a key of ``multipliers``."""
        word = by_plural(self.multipliers[multiplier], self.plural(number, where))
        return self.join(self.measured(number, self.is_feminine_power(word), where), word)

    def is_feminine_power(self, word: str) -> bool:
        """The gender of a word of ``multipliers``."""
        return False

    def unit_words(self, number: Number, words: str, where: Around) -> str:
        """Hook for the case of a unit's name; ``words`` has the name as CLDR gives it."""
        return words


def by_plural(names: tuple[str, ...], plural: str) -> str:
    """A noun's form: the first for ``one``, the middle of three for ``few`` and fractions, else the last."""
    if plural == "one":
        return names[0]
    return names[1] if len(names) == 3 and plural in ("few", "other") else names[-1]


def word_set(words: str) -> frozenset[str]:
    """Words parted by blanks, as a set."""
    return frozenset(words.split())
