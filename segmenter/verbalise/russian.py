"""Russian: case by preposition and ending, gender by the noun behind, years and days as ordinals."""

# Overrides keep the promises that are written in language.py.
# ruff: noqa: D102

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar

from segmenter.verbalise.context import Around
from segmenter.verbalise.language import GLUE, Form, Language, by_plural, word_set
from segmenter.verbalise.literal import Number
from segmenter.verbalise.spelling import spell

_MONTHS = "января|февраля|марта|апреля|мая|июня|июля|августа|сентября|октября|ноября|декабря"
_GENITIVE = word_set(
    """
    от до из около без для после свыше более менее больше меньше у кроме среди вокруг порядка против вместо с
    со длиной ценой выше ниже старше младше течение не-менее
    """
)
_CASES = {
    "к": "dative", "ко": "dative", "благодаря": "dative", "согласно": "dative", "о": "locative", "об": "locative",
    "при": "locative", "над": "ablative", "под": "ablative", "перед": "ablative", "между": "ablative",
} | dict.fromkeys(_GENITIVE, "genitive")  # fmt: skip
_CASE_ENDINGS = (
    (("ами", "ями", "ьми"), "ablative"), (("ах", "ях"), "locative"), (("ам", "ям"), "dative"),
)  # fmt: skip
_FEMININE_SOFT = word_set(
    """
    часть ночь речь вещь область жизнь дверь мать дочь тетрадь кровать роль цель модель печать ступень площадь
    степень смесь связь запись скорость мышь миля кость память церковь
    """
)
_MASCULINE_IN_A = word_set("мужчина дедушка папа дядя юноша")
_YEAR_CASES = {
    "год": "masculine", "года": "masculine-genitive", "году": "masculine-locative", "годом": "masculine-ablative",
    "годы": "masculine", "годов": "masculine-genitive", "годах": "masculine-locative", "годам": "masculine-dative",
}  # fmt: skip
_CENTURY_CASES = {
    "век": "masculine", "века": "masculine-genitive", "веке": "masculine-locative", "веку": "masculine-dative",
    "веком": "masculine-ablative",
}  # fmt: skip
_ENDINGS = {
    "й": "masculine", "ый": "masculine", "ий": "masculine", "ой": "masculine", "го": "masculine-genitive",
    "ого": "masculine-genitive", "му": "masculine-dative", "ому": "masculine-dative", "м": "masculine-locative",
    "ом": "masculine-locative", "я": "feminine", "ая": "feminine", "ю": "feminine-accusative",
    "ую": "feminine-accusative", "х": "plural-genitive", "ых": "plural-genitive", "ми": "plural-ablative",
    "е": "neuter", "ое": "neuter", "ые": "plural", "ья": "feminine", "ье": "neuter",
}  # fmt: skip
_THOUSANDS = ("тысяча", "тысячи", "тысяч")
_MILLIONS = ("миллион", "миллиона", "миллионов")
_MILLIARDS = ("миллиард", "миллиарда", "миллиардов")
_SECOND = re.compile(r"\b([^\W\d_]{1,7}) [0-9]{1,6} (?:и|или) \Z")
_PARTS = {1: ("десятая", "десятых"), 2: ("сотая", "сотых"), 3: ("тысячная", "тысячных")}
_WITH_YO = (("четверт", "четвёрт"), ("трех", "трёх"), ("трем", "трём"), ("тремя", "тремя"))


class Russian(Language):
    """Russian. Cases other than the nominative are said for bare numbers; before units only the genitive is."""

    decimal_word, point_word = "запятая", "точка"
    minus, plus, plus_minus = "минус", "плюс", "плюс-минус"
    about, less, more, at_most, at_least = "примерно", "меньше", "больше", "не больше", "не меньше"
    number_word, section_word, number_signs = "номер", "параграф", r"[Нн]\.(?=[ \u00a0]?[0-9])"
    times, divided, equals, by = "умножить на", "разделить на", "равно", "на"
    to, ratio, out_of = "до", "к", "из"
    percent, per_mille = "процент", "промилле"
    squared, cubed = "в квадрате", "в кубе"
    raised = "в степени {}"
    multipliers: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **dict.fromkeys(("тыс", *_THOUSANDS), _THOUSANDS),
        **dict.fromkeys(("млн", *_MILLIONS), _MILLIONS),
        **dict.fromkeys(("млрд", *_MILLIARDS), _MILLIARDS),
        "трлн": ("триллион", "триллиона", "триллионов"),
    }
    free_multipliers = frozenset(("тыс", "млн", "млрд", "трлн"))
    per_words: ClassVar[Mapping[str, str]] = {
        "ч": "в час", "час": "в час", "мин": "в минуту", "с": "в секунду", "сек": "в секунду", "день": "в день",
        "сутки": "в сутки", "мес": "в месяц", "месяц": "в месяц", "год": "в год", "кг": "за килограмм",
        "м²": "за квадратный метр", "л": "за литр", "шт": "за штуку", "чел": "с человека",
    }  # fmt: skip

    @cached_property
    def first_forms(self) -> tuple[Form, ...]:
        day, year, to = r"([0-9]{1,2})", "([12][0-9]{3})", "[ \u00a0]?[–—-][ \u00a0]?"
        return (
            (re.compile(rf"{year}{to}{year}[ \u00a0]?(гг\.?|год(?:ы|ов|ах|ам))(?![а-яё])"), self._years),
            (re.compile(rf"{year}(?:-?(?:й|го|му?))?[ \u00a0]?(г\.|год(?:а|у|ом)?(?![а-яё]))"), self._year),
            (re.compile(rf"{day}{to}{day}(?=[ \u00a0](?i:{_MONTHS})\b)"), self._days),
            (re.compile(rf"{day}(?=[ \u00a0](?i:{_MONTHS})\b)"), self._day),
            (re.compile(rf"{day}(?=[ \u00a0](?:по|до)[ \u00a0][0-9]{{1,2}}[ \u00a0](?i:{_MONTHS})\b)"), self._day),
            (
                re.compile(rf"([0-9]{{1,4}})-({'|'.join(sorted(_ENDINGS, key=len, reverse=True))})(?![а-яё])"),
                self._ending,
            ),
            (re.compile(r"([0-9]{1,3})-(?=[а-яё]{4})"), self._compound),
            (re.compile(r"([1-9][0-9]?)(?=[ \u00a0](век(?:а|е|у|ом)?)\b)"), self._century),
            (
                re.compile(r"([1-9][0-9]?)(?=[ \u00a0](?:этаже|месте|классе|курсе|уровне)\b)"),
                lambda found, _: self._ordinal(int(found[1]), "masculine-locative"),
            ),
        )

    @cached_property
    def late_forms(self) -> tuple[Form, ...]:
        return ((re.compile(r"([12][0-9]{3})(?![0-9.,:/%–-][0-9])"), self._bare_year),)

    # ------------------------------------------------------------ whole numbers
    def counted(self, number: int, feminine: bool = False) -> str:
        return self._cardinal(number, "feminine" if feminine else "masculine", "")

    def cardinal(self, number: int, where: Around) -> str:
        return self._cardinal(number, _gender(number, where.next), _case(where))

    def measured(self, number: Number, feminine: bool, where: Around) -> str:
        if number.fraction:
            return self.decimal(number)
        case = "genitive" if _case(where) == "genitive" else ""
        return self._cardinal(number.whole, "feminine" if feminine else "masculine", case)

    def plural(self, number: Number, where: Around) -> str:
        if number.fraction or _case(where) != "genitive":
            return super().plural(number, where)
        return "other" if number.whole % 10 == 1 and number.whole % 100 != 11 else "many"

    def is_feminine_power(self, word: str) -> bool:
        return word.startswith("тысяч")

    def percents(self, number: Number, where: Around) -> str:
        word = by_plural(("процент", "процента", "процентов"), self.plural(number, where))
        return self.join(self.measured(number, False, where), word)

    def decimal(self, number: Number) -> str:
        digits = number.fraction
        if number.mark == "." or len(digits) > 3:
            word = self.point_word if number.mark == "." else self.decimal_word
            return self.join(self.plain(number.whole), word, self.fraction_digits(digits))
        whole, part = number.whole, int(digits)
        entire = "целая" if whole % 10 == 1 and whole % 100 != 11 else "целых"
        one, more = _PARTS[len(digits)]
        named = one if part % 10 == 1 and part % 100 != 11 else more
        return f"{self.counted(whole, True)} {entire} {self.counted(part, True)} {named}"

    fraction_as_number = 2

    # ------------------------------------------------------------ time
    def year(self, number: int, where: Around) -> str:
        return self._ordinal(number, "masculine")

    def clock(self, hour: int, minute: int, where: Around) -> str:
        if minute:
            return f"{self.plain(hour)} {'ноль ' if minute < 10 else ''}{self.plain(minute)}"
        number = Number(str(hour))
        hours = by_plural(("час", "часа", "часов"), self.plural(number, where))
        return f"{self.measured(number, False, where)} {hours}"

    def date(self, year: int | None, month: int, day: int, where: Around) -> str:
        named = f"{self._ordinal(day, _day_case(where))} {self.month(month)}"
        return named if year is None else f"{named} {self._ordinal(year, 'masculine-genitive')} года"

    def fraction(self, above: int, below: int) -> str | None:
        if (above, below) == (1, 2):
            return "одна вторая"
        special = {(1, 3): "одна треть", (2, 3): "две трети", (1, 4): "одна четверть", (3, 4): "три четверти"}
        if words := special.get((above, below)):
            return words
        return f"{self.counted(above, True)} {self._ordinal(below, 'feminine' if above == 1 else 'plural-genitive')}"

    def half_of(self, where: Around) -> str:
        return "половина" if where.next and where.next[0].islower() else ""

    def and_fraction(self, whole: int, above: int, below: int) -> str | None:
        if (above, below) == (1, 2):
            return "полтора" if whole == 1 else f"{self.plain(whole)} с половиной"
        return f"{self.plain(whole)} и {self.fraction(above, below)}"

    def over(self, above: int, below: int) -> str:
        return f"{self.plain(above)} из {self._cardinal(below, 'masculine', 'genitive')}"

    def lower_bound(self, number: Number, where: Around) -> str:
        if number.fraction or number.padded or number.whole % 10 != 1:
            return self.number(number, where)
        feminine = where.next.lower().endswith(("ы", "и"))
        return self._cardinal(number.whole, "feminine" if feminine else "masculine", _case(where))

    def range(self, first: str, last: str, where: Around) -> str:
        return f"{first}-{last}"

    # ------------------------------------------------------------ inflection
    def _cardinal(self, number: int, gender: str, case: str) -> str:
        rules = f"spellout-cardinal-{gender}"
        return _yo(spell(self.locale, number, *([f"{rules}-{case}"] if case else []), rules))

    def _ordinal(self, number: int, form: str) -> str:
        words = spell(self.locale, number, f"spellout-ordinal-{form}")
        return _yo(words.removeprefix("одна ") if words.startswith("одна тысяча ") else words)

    def _year(self, found: re.Match[str], where: Around) -> str:
        number, word, stop = int(found[1]), found[2], ""
        if word == "г.":
            word = _short_year(where)
            if not where.after.strip() or re.match(r"[ \u00a0]?[A-ZА-ЯЁ«]", where.after):
                stop = "."
        form = "masculine-dative" if word == "году" and where.last in ("к", "ко", "по") else _YEAR_CASES[word]
        return f"{self._ordinal(number, form)} {word}{stop}"

    def _years(self, found: re.Match[str], where: Around) -> str:
        word = found[3] if found[3] in _YEAR_CASES else "годах" if where.last == "в" else "годы"
        first, last = (self._ordinal(int(found[group]), _YEAR_CASES[word]) for group in (1, 2))
        return f"{first} – {last} {word}"

    def _bare_year(self, found: re.Match[str], where: Around) -> str | None:
        number = int(found[1])
        if not 1100 <= number < 2100:
            return None
        if re.fullmatch(_MONTHS, where.last):
            return f"{self._ordinal(number, 'masculine-genitive')} года"
        if where.before.endswith("(") and where.after.startswith(")"):
            return self._ordinal(number, "masculine")
        if where.last == "в" and not where.next:
            return f"{self._ordinal(number, 'masculine-locative')} году"
        return None

    def _day(self, found: re.Match[str], where: Around) -> str | None:
        day = int(found[1])
        return self._ordinal(day, _day_case(where)) if 1 <= day <= 31 else None

    def _days(self, found: re.Match[str], where: Around) -> str | None:
        first, last = int(found[1]), int(found[2])
        if not 1 <= first < last <= 31:
            return None
        form = _day_case(where)
        return f"{self._ordinal(first, form)} – {self._ordinal(last, form)}"

    def _century(self, found: re.Match[str], where: Around) -> str | None:
        number, word = int(found[1]), found[2]
        if number == 1 or (word == "века" and number < 5):
            return None
        return self._ordinal(number, _CENTURY_CASES[word])

    def _ending(self, found: re.Match[str], where: Around) -> str | None:
        number, ending = int(found[1]), found[2]
        if number == 0:
            return None
        form = "plural" if ending == "е" and number % 10 == 0 else _ENDINGS[ending]
        return self._ordinal(number, form)

    def _compound(self, found: re.Match[str], where: Around) -> str | None:
        number = int(found[1])
        fixed = {1: "одно", 90: "девяносто", 100: "сто"}
        if words := fixed.get(number):
            return words + GLUE
        return self._cardinal(number, "masculine", "genitive").replace(" ", "") + GLUE if number else None


def _yo(words: str) -> str:
    for plain, right in _WITH_YO:
        words = words.replace(plain, right)
    return words.replace("трёмя", "тремя")


def _case(where: Around) -> str:
    following = where.next.lower()
    for endings, case in _CASE_ENDINGS:
        if len(following) > 3 and following.endswith(endings):
            return case
    if where.last in ("и", "или") and (found := _SECOND.search(where.before)):
        return _CASES.get(found[1].lower(), "")
    return _CASES.get(where.last, "")


def _gender(number: int, noun: str) -> str:
    lower = noun.lower()
    if number % 100 in (11, 12) or number % 10 not in (1, 2) or not lower:
        return "masculine"
    if number % 10 == 2:
        return (
            "feminine" if lower.endswith(("ы", "и", "ие", "ые")) and not lower.endswith(("ами", "ями")) else "masculine"
        )
    if lower.endswith(("мя", "о", "е", "ё")):
        return "neuter" if len(lower) > 2 else "masculine"
    soft = lower in _FEMININE_SOFT or lower.endswith(("ость", "есть", "чь", "жь", "шь", "щь", "знь"))
    if soft or (len(lower) > 2 and lower.endswith(("а", "я", "ой", "у", "ю")) and lower not in _MASCULINE_IN_A):
        return "feminine"
    return "masculine"


def _day_case(where: Around) -> str:
    if where.last in ("к", "ко"):
        return "neuter-dative"
    return "neuter" if where.last in ("на", "по", "за", "сегодня", "завтра", "вчера", "это") else "neuter-genitive"


def _short_year(where: Around) -> str:
    if re.fullmatch(_MONTHS, where.last) or where.last in _GENITIVE:
        return "года"
    return "году" if where.last in ("в", "во", "к", "ко") else "год"
