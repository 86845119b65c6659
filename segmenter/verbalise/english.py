"""English, American by default; every region but US, CA and PH gets British dates and "and"."""

# Overrides keep the promises that are written in language.py.
# ruff: noqa: D102

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar

from segmenter.verbalise.context import Around
from segmenter.verbalise.language import Form, Language, word_set
from segmenter.verbalise.literal import Number
from segmenter.verbalise.spelling import spell

_MONTHS = word_set(
    """
    january february march april may june july august september october november december jan feb mar apr jun
    jul aug sep sept oct nov dec
    """
)
_BEFORE_YEARS = _MONTHS | word_set("year circa ca copyright summer winter spring fall autumn early late mid")
_BEFORE_COUNTS = word_set("over about around nearly almost exactly roughly approximately least most than")
_AFTER_YEARS = word_set(
    """
    a according after again against ago also an and are as at be because before being between but by came did
    due during edition election for from had has have he her his if in into is it its just marked met model
    most my of on onward onwards or our out outbreak over published re released report saw season she since so
    study summer than that the their then there they this through till to until was we were when where which
    while who will winter with would world year you
    """
)
_DECADE_OWNERS = word_set("his her their my your our the early mid late in")
_HALVES = {2: ("half", "halves"), 4: ("quarter", "quarters")}


class English(Language):
    """English."""

    decimal_mark = "."
    blank_groups = False
    decimal_word = point_word = "point"
    minus, plus, plus_minus = "minus", "plus", "plus or minus"
    about, less, more, at_most, at_least = "about", "less than", "more than", "at most", "at least"
    number_word, section_word = "number", "section"
    number_signs = r"[Nn]os?\."
    times, divided, equals, by = "times", "divided by", "equals", "by"
    to, ratio, out_of = "to", "to", "out of"
    percent, per_mille = "percent", "per mille"
    squared, cubed = "squared", "cubed"
    raised = "to the power of {}"
    multipliers: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "k": ("thousand", "thousand"), "K": ("thousand", "thousand"), "M": ("million", "million"),
        "m": ("million", "million"), "mn": ("million", "million"), "B": ("billion", "billion"),
        "b": ("billion", "billion"), "bn": ("billion", "billion"), "T": ("trillion", "trillion"),
        "million": ("million", "million"), "billion": ("billion", "billion"), "trillion": ("trillion", "trillion"),
        "thousand": ("thousand", "thousand"),
    }  # fmt: skip
    per_words: ClassVar[Mapping[str, str]] = {
        word: f"per {word}"
        for word in word_set("hour day week month year minute second user person night seat token request unit share")
    } | {
        "h": "per hour",
        "hr": "per hour",
        "mo": "per month",
        "yr": "per year",
        "kg": "per kilogram",
        "lb": "per pound",
    }

    def __init__(self, locale: str, region: str) -> None:
        super().__init__(locale)
        self._american = region in ("", "US", "CA", "PH")
        self.rules = "spellout-numbering" if self._american else "spellout-cardinal-verbose"

    @cached_property
    def first_forms(self) -> tuple[Form, ...]:
        return (
            (re.compile(r"24/7(?![0-9/])"), lambda *_: "twenty-four seven"),
            (re.compile(r"(911|999|112)(?![0-9])"), self._emergency),
            (re.compile(r"9/11(?![0-9/])"), lambda *_: "nine eleven"),
            (re.compile(r"((?:1[1-9]|20)[0-9]0)['’]?s(?![A-Za-z])"), self._decade),
            (re.compile(r"([2-9]0)['’]?s(?![A-Za-z])"), self._twenties),
            (re.compile(r"([0-9]{1,3}(?:,[0-9]{3}){1,2}|[0-9]{1,6})(?:st|nd|rd|th)(?![A-Za-z])", re.I), self._ordinal),
            (re.compile(r"([1-9]|1[0-2])(?=\s?[ap]\.?m\b)", re.I), lambda found, _: self.plain(int(found[1]))),
            (re.compile(r"([3-7])['’′]\s?(1[01]|[0-9])(?:[\"”″]|['’]{2})"), self._feet),
            (re.compile(r"([0-9]{1,3})k(?![A-Za-z0-9])"), lambda found, _: f"{self.plain(int(found[1]))} thousand"),
        )

    @cached_property
    def late_forms(self) -> tuple[Form, ...]:
        return ((re.compile(r"([0-9]{1,2})(?![0-9]|[.,:/%–-][0-9])"), self._day),)

    def plain(self, number: int) -> str:
        return spell(self.locale, number, self.rules).replace(",", "")

    def is_year(self, number: Number, where: Around) -> bool:
        if where.last in _BEFORE_COUNTS:
            return False
        if where.last in _BEFORE_YEARS or where.before.endswith(", "):
            return True
        return not where.next or where.next.lower() in _AFTER_YEARS or where.next[0].isupper()

    def year(self, number: int, where: Around) -> str:
        return spell(self.locale, number, "spellout-numbering-year")

    def ordinal(self, number: int, where: Around) -> str:
        rules = "spellout-ordinal" if self._american else "spellout-ordinal-verbose"
        return spell(self.locale, number, rules).replace(",", "")

    def clock(self, hour: int, minute: int, where: Around) -> str:
        spoken = self.plain(hour)
        halved = re.match(r"\s?[ap]\.?m\b", where.after, re.I)
        if minute:
            return f"{spoken} {'oh ' if minute < 10 else ''}{self.plain(minute)}"
        if halved:
            return spoken
        return "midnight" if hour in (0, 24) else f"{spoken} o'clock" if hour <= 12 else f"{spoken} hundred"

    def date(self, year: int | None, month: int, day: int, where: Around) -> str:
        of = f"the {self.ordinal(day, where)} of {self.month(month)}"
        if self._american:
            of = f"{self.month(month)} {self.ordinal(day, where)}"
            return of if year is None else f"{of}, {self.year(year, where)}"
        return of if year is None else f"{of} {self.year(year, where)}"

    def numeric_date(self, first: int, second: int) -> tuple[int, int] | None:
        if self._american and 1 <= first <= 12 and 1 <= second <= 31:
            return first, second
        return super().numeric_date(first, second)

    def money(self, whole: str, name: str, cents: str, cent: str) -> str:
        return f"{whole} {name} and {cents} {cent}"

    def fraction(self, above: int, below: int) -> str | None:
        one, more = _HALVES.get(below, ("", ""))
        if not one:
            one = spell(self.locale, below, "spellout-ordinal")
            more = f"{one}s"
        return f"{self.plain(above)} {one if above == 1 else more}"

    def and_fraction(self, whole: int, above: int, below: int) -> str | None:
        part = self.fraction(above, below) or ""
        if above == 1:
            part = f"an {part[4:]}" if part[4:].startswith("eigh") else f"a {part[4:]}"
        return f"{self.plain(whole)} and {part}"

    def _emergency(self, found: re.Match[str], where: Around) -> str | None:
        return self.digits(found[1]) if where.last in ("call", "dial", "calling", "called", "dialling") else None

    def _decade(self, found: re.Match[str], where: Around) -> str:
        words = self.year(int(found[1]), where)
        return _plural(words)

    def _twenties(self, found: re.Match[str], where: Around) -> str | None:
        if "s" not in found[0][2:3] or where.last in _DECADE_OWNERS:
            return _plural(self.plain(int(found[1])))
        if not where.before.endswith(("'", "’", "mid-")):
            return None
        return _plural(self.plain(int(found[1])))

    def _ordinal(self, found: re.Match[str], where: Around) -> str:
        return self.ordinal(int(found[1].replace(",", "")), where)

    def _feet(self, found: re.Match[str], where: Around) -> str:
        inches = self.plain(int(found[2]))
        return f"{self.plain(int(found[1]))} foot {inches}" if int(found[2]) else f"{self.plain(int(found[1]))} foot"

    def _day(self, found: re.Match[str], where: Around) -> str | None:
        day = int(found[1])
        if not 1 <= day <= 31 or found[1] != str(day):
            return None
        month_before = where.last in _MONTHS and re.search(r"\b[A-Z][a-z]+\.?\s+$", where.before)
        month_after = where.next.lower() in _MONTHS and where.next[0].isupper()
        if month_before and not (where.last == "may" and where.next):
            return self.ordinal(day, where)
        if month_after:
            return f"{'' if where.last == 'the' else 'the '}{self.ordinal(day, where)} of"
        return None


def _plural(words: str) -> str:
    return f"{words[:-1]}ies" if words.endswith("y") else f"{words}s"
