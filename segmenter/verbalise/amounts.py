"""What stands beside a number and belongs to it: per cent, powers of thousand, currencies, units."""

from __future__ import annotations

import re
from functools import lru_cache

from segmenter.verbalise.context import Around, around
from segmenter.verbalise.currencies import CODES, SIGNS, code_of, currency, names_of
from segmenter.verbalise.language import GLUE, Language, by_plural
from segmenter.verbalise.literal import NARROW, Number
from segmenter.verbalise.units import is_feminine, unit_pattern, written_units

_NO_LETTER = r"(?![A-Za-z0-9\u00c0-\u024f\u0370-\u03ff\u0400-\u04ff_²³])"
_THOUSANDS = ("mil", "mille", "mila")
_GAP = f"[ {NARROW}]?"

SIGN = "|".join(re.escape(sign) for sign in sorted(SIGNS, key=len, reverse=True))
"""Regex: a currency sign."""

CODE = "|".join(CODES)
"""Regex: a currency code."""


def _any(words: list[str] | tuple[str, ...]) -> str:
    return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True)) or r"(?!)"


class Amounts:
    """Reads the suffix of a number in one language. Stateless once built."""

    def __init__(self, code: str, region: str, language: Language) -> None:
        self._code, self._region, self._language = code, region, language
        stay = language.letters_stay
        self._units = {
            written: unit for written, unit in written_units(code).items() if not (stay and unit.startswith(stay))
        }
        powers = _any(list(language.multipliers))
        free = _any(list(language.free_multipliers))
        self._percent = re.compile(rf"{_GAP}([%％‰])")
        self._power = re.compile(rf"{_GAP}({powers})(?:\.(?=[ {NARROW}]?\S))?(?![^\W\d_])")
        self._free_power = re.compile(rf"{_GAP}({free})(?:\.(?=[ {NARROW}]?\S))?(?![^\W\d_])")
        self._sign = re.compile(
            rf"{_GAP}(?:({SIGN})|({CODE}){_NO_LETTER}|(руб|коп)(?![а-яё])(?:\.(?=[ {NARROW}]?[а-яё,)]))?)"
        )
        self._names = names_of(code)
        self._named = re.compile(rf"{_GAP}({_any(list(self._names))}){_NO_LETTER}")
        self._unit = re.compile(rf"(?:{_GAP}|-)({_any(list(self._units))}){_NO_LETTER}")
        self._per = re.compile(rf"{_GAP}/{_GAP}({_any(list(language.per_words))}){_NO_LETTER}")

    # ------------------------------------------------------------ suffixes
    def suffixed(self, text: str, start: int, end: int, number: Number) -> tuple[int, str] | None:
        """The number at ``[start, end)`` with what belongs to it behind: (new end, words), or None."""
        if found := self._percent.match(text, end):
            return self._rate(text, found.end(), self._per_cent(number, found[1], around(text, start, found.end())))
        power = self._power.match(text, end)
        if power and (sign := self._sign.match(text, power.end())):
            where = around(text, start, sign.end())
            return self._rate(text, sign.end(), self._money(number, power[1], self._iso(sign), where))
        if sign := self._sign.match(text, end):
            where = around(text, start, sign.end())
            return self._rate(text, sign.end(), self._money(number, "", self._iso(sign), where))
        if len(number.fraction) == 2 and (named := self._named.match(text, end)):
            where = around(text, start, named.end())
            return self._rate(text, named.end(), self._money(number, "", self._names[named[1]], where))
        if power := self._free_power.match(text, end):
            where = around(text, start, power.end())
            return power.end(), self._language.many(number, power[1], where)
        if found := self._unit.match(text, end):
            return self._with_unit(text, start, number, found)
        return None

    def prefixed(self, text: str, start: int, end: int, sign: str, number: Number) -> tuple[int, str]:
        """An amount whose currency stands before it; ``end`` is behind the number."""
        power = self._power.match(text, end) if self._language.multipliers else None
        where = around(text, start, power.end() if power else end)
        iso = code_of(sign, self._code, self._region)
        return self._rate(
            text, power.end() if power else end, self._money(number, power[1] if power else "", iso, where)
        )

    def first_of_range(self, text: str, end: int, number: Number, where: Around) -> str:
        """The first number of a range, in the gender of what follows the last number, which ends at ``end``."""
        language = self._language
        if language.per_mille_first and (found := self._percent.match(text, end)):
            return self._per_cent(number, found[1], where)
        if number.fraction or number.padded:
            return language.number(number, where)
        if unit := self._unit.match(text, end):
            return language.measured(number, is_feminine(self._code, self._units[unit[1]]), where)
        return language.lower_bound(number, where)

    def _iso(self, found: re.Match[str]) -> str:
        if found[3]:
            return "RUB" if found[3] == "руб" else "kopeck"
        return code_of(found[1] or found[2], self._code, self._region)

    # ------------------------------------------------------------ words
    def _per_cent(self, number: Number, sign: str, where: Around) -> str:
        language = self._language
        if sign == "‰":
            said = language.measured(number, False, where)
            return language.join(
                *((language.per_mille, said) if language.per_mille_first else (said, language.per_mille))
            )
        return language.percents(number, where)

    def _rate(self, text: str, end: int, words: str) -> tuple[int, str]:
        if found := self._per.match(text, end):
            end, words = found.end(), self._language.join(words, self._language.per_words[found[1]])
        return end, words + GLUE if self._language.has_particles else words

    def _money(self, number: Number, power: str, iso: str, where: Around) -> str:
        language = self._language
        if iso == "kopeck":
            named = by_plural(("копейка", "копейки", "копеек"), language.plural(number, where))
            return language.join(language.measured(number, True, where), named)
        money = currency(iso, self._code, language.locale)
        if power:
            name = money.name("many")
            named = name if language.multipliers[power][0] in _THOUSANDS else language.of_millions(name)
            return language.join(language.many(number, power, where), named)
        if len(number.fraction) == 2 and number.fraction != "00" and money.cents:
            cents = Number(number.fraction.lstrip("0"))
            cent = money.cent(language.plural(cents, where))
            said = language.counted(cents.whole, money.cents_feminine)
            if not number.whole:
                return language.join(said, cent)
            whole = Number(number.digits)
            name = money.name(language.plural(whole, where))
            return language.money(language.measured(whole, money.feminine, where), name, said, cent)
        if number.fraction and not number.fraction.strip("0"):
            number = Number(number.digits)
        elif number.fraction and language.letters_stay:
            number = Number(number.digits, number.fraction.rstrip("0"), number.mark)
        plural = language.plural(number, where)
        name = money.name(plural)
        if plural == "many" and self._code != "ru":
            name = language.of_millions(name)
        return language.join(language.measured(number, money.feminine, where), name)

    def _with_unit(self, text: str, start: int, number: Number, found: re.Match[str]) -> tuple[int, str] | None:
        language, end, symbol = self._language, found.end(), found[1]
        unit = self._units[symbol]
        if symbol == "s" and len(number.digits) == 4 and number.digits[3] == "0":
            return None
        if symbol == "ч" and text[end : end + 3] in (". л", ".л."):
            return None
        adjective = text[found.start()] == "-"
        if adjective and (self._code != "en" or len(symbol) == 1):
            return None
        where = around(text, start, end)
        # The point of an abbreviated unit goes with it, where the sentence goes on.
        if (
            symbol.isalpha() and re.match(r"\.[ \u00a0][^\W\d_A-ZА-ЯЁÄÖÜ]", text[end : end + 3]) and self._code != "de"
        ) or (
            symbol in ("Std", "Min", "Sek", "мин", "сек", "ч")
            and text[end : end + 1] == "."
            and text[end + 1 : end + 3].strip()
        ):
            end += 1
        plural = "one" if adjective else language.plural(number, where)
        spoken = language.measured(number, is_feminine(self._code, unit), where)
        words = _filled(unit_pattern(language.locale, unit, plural), spoken, language.spaced, adjective)
        if not number.fraction or self._code != "ru":
            words = language.unit_words(number, words, where)
        return self._rate(text, end, words)


@lru_cache(maxsize=1024)
def _parts(pattern: str) -> tuple[str, str]:
    before, _, after = pattern.partition("{0}")
    return before.strip(), after.strip()


def _filled(pattern: str, spoken: str, spaced: bool, hyphened: bool) -> str:
    before, after = _parts(pattern)
    gap = "-" if hyphened else " " if spaced else ""
    return gap.join(part for part in (before, spoken, after) if part)
