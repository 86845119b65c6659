"""How a number that begins at some place of a text is read: the kinds in their order, each of them bounded."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from segmenter.verbalise.amounts import CODE, SIGN, Amounts
from segmenter.verbalise.context import Around, around
from segmenter.verbalise.language import Form, Language
from segmenter.verbalise.literal import Number, number_pattern, read_number
from segmenter.verbalise.phones import phone_end, phone_words
from segmenter.verbalise.signs import read_sign

Reading = tuple[int, str]
"""Where it ends and its words (empty: what was read is left out)."""

VULGAR = {
    "½": (1, 2), "⅓": (1, 3), "⅔": (2, 3), "¼": (1, 4), "¾": (3, 4), "⅕": (1, 5), "⅖": (2, 5), "⅗": (3, 5),
    "⅘": (4, 5), "⅙": (1, 6), "⅚": (5, 6), "⅐": (1, 7), "⅛": (1, 8), "⅜": (3, 8), "⅝": (5, 8), "⅞": (7, 8),
    "⅑": (1, 9), "⅒": (1, 10),
}  # fmt: skip
"""Fraction characters."""

_DASH = r"[ \u00a0\u202f]?[–—〜～~-][ \u00a0\u202f]?"
# What digits must be followed by to be more than a lone number, with or without a unit (or be a long one).
_JOINED = re.compile(
    rf"[0-9]{{1,4}}(?:[0-9]|[ \u00a0\u202f\u2009]?[-–—〜～~.,:/(x×^'’⁄eE€£¥￥$₽₩₹₺₴{''.join(VULGAR)}]|[ \u00a0][0-9])"
)
_DIGITS = re.compile(r"([0-9]{1,15})(?:\.([0-9]+))?(?![0-9])")
_SCIENTIFIC = re.compile(r"([1-9])(?:\.([0-9]{1,9}))?[eE]([-−])?\+?([0-9]{1,3})(?![0-9A-Za-z])")
_RAISED = re.compile(r"\^([-−])?([0-9]{1,6})(?![0-9])")
_RATED = re.compile(r"([0-9]{1,3}[.,][0-9]{1,2})/([0-9]{1,3})(?![0-9/])")
_LONG = re.compile(r"[0-9]{16,}")
_ISO_DATE = re.compile(r"(?P<year>[12][0-9]{3})-(?P<month>0[1-9]|1[0-2])-(?P<day>[0-2][0-9]|3[01])(?![0-9-])")
_DATE = re.compile(r"([0-9]{1,2})([./-])([0-9]{1,2})\2([12][0-9]{3}|[0-9]{2})(?![0-9]|[./-][0-9])")
_YMD = re.compile(
    r"(?P<year>[12][0-9]{3})([./])(?P<month>0?[1-9]|1[0-2])\2(?P<day>[0-2]?[0-9]|3[01])(?![0-9]|[./-][0-9])"
)
_CLOCK = r"([01]?[0-9]|2[0-4]):([0-5][0-9])(?::([0-5][0-9](?:\.[0-9]{1,6})?))?(?![0-9]|:[0-9])"
_TIME = re.compile(_CLOCK)
_TIMES = re.compile(rf"{_CLOCK}{_DASH}{_CLOCK}")
_RATIO = re.compile(r"([0-9]{1,4}(?:\.[0-9]{1,4})?):([0-9]{1,4}(?:\.[0-9]{1,4})?)(?![0-9]|:[0-9])")
_DOTTED = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,15}(?![0-9])){2,}")
_HYPHENED = re.compile(r"[0-9]{1,15}(?:-[0-9]{1,15}(?![0-9])){2,}")
_SEASON = re.compile(r"([12][0-9]{3})/([0-9]{4}|[0-9]{2})(?![0-9/])")
_MIXED = re.compile(r"([0-9]{1,4}) ([1-9])/([2-9])(?![0-9/])")
_SLASH = re.compile(r"([0-9]{1,4})/([0-9]{1,4})(?![0-9/])")
_GLUED = re.compile(r"[^\W\d_\u1100-\u11ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]-?\Z")


class Rules:
    """All readings of one language. ``read`` is pure and looks at a bounded stretch, or at what it consumes."""

    def __init__(self, code: str, region: str, language: Language) -> None:
        self._language, self._code = language, code
        self._amounts = Amounts(code, region, language)
        number = number_pattern(language.decimal_mark, language.blank_groups)
        self._number = re.compile(number)
        self._range = re.compile(rf"{number}(?:{SIGN})?{_DASH}(?:{SIGN})?{number}(?![.,]?[0-9]|-[0-9])")
        self._money = re.compile(rf"({SIGN}|(?:{CODE})\b)[ \u00a0\u202f]?{number}")
        self._money_range = re.compile(rf"({SIGN})[ \u00a0]?{number}{_DASH}(?:{SIGN})?[ \u00a0]?{number}")
        self._numbered = re.compile(rf"(?:({language.number_signs}|№|#)|(§§?))[ \u00a0\u202f]?(?=[0-9])")
        self._size = re.compile(rf"{number}(?: ?[x×] ?{number}(?: ?[x×] ?{number})?|[x×](?![\w]))")
        vulgar = "".join(VULGAR)
        self._vulgar = re.compile(rf"([0-9]{{1,4}})?[ ⁄]?([{vulgar}])")
        self.anchor = re.compile(
            rf"(?:(?<![A-Za-z])(?:{CODE})|{SIGN})[ \u00a0\u202f]?[0-9]"
            rf"|(?<![^\W\d_])(?:{language.number_signs}|№|#|§§?)[ \u00a0\u202f]?[0-9]"
            rf"|[-−–+±~≈<>≤≥=×÷*·/][ \u00a0\u202f]?(?:(?:{SIGN})?[0-9])"
            rf"|\^[-−]?[0-9]|\([0-9]|[0-9]|[{vulgar}]|(?<![^\W\d_{vulgar}²³ªº])[a-ln-zA-Z][²³]|%s" % "(?<=[0-9])[²³]"
        )
        self._of_digits: tuple[Callable[[str, int], Reading | None], ...] = (
            self._long, self._scientific, self._phone, self._own(language.first_forms), self._dates, self._times,
            self._dotted, self._slashes, self._sizes, self._ranges, self._vulgar_fraction, self._glued, self._quantity,
            self._hyphened, self._own(language.late_forms), self._bare,
        )  # fmt: skip
        self._of_lone_digits: tuple[Callable[[str, int], Reading | None], ...] = (
            self._own(language.first_forms), self._glued, self._quantity, self._own(language.late_forms), self._bare,
        )  # fmt: skip
        self._of_signs: tuple[Callable[[str, int], Reading | None], ...] = (
            self._power_of_letter, self._raised, self._phone, self._sign_of_number, self._amount, self._sign,
            self._vulgar_fraction,
        )  # fmt: skip

    def read(self, text: str, start: int) -> Reading | None:
        """What begins at a match of ``anchor``; None if nothing there is to be said otherwise."""
        kinds = self._of_signs
        if text[start] in "0123456789":
            kinds = self._of_digits if _JOINED.match(text, start) else self._of_lone_digits
        for kind in kinds:
            if reading := kind(text, start):
                return reading
        return None

    # ------------------------------------------------------------ helpers
    def _own(self, forms: tuple[Form, ...]) -> Callable[[str, int], Reading | None]:
        def read(text: str, start: int) -> Reading | None:
            for pattern, words_of in forms:
                if found := pattern.match(text, start):
                    words = words_of(found, around(text, start, found.end()))
                    if words:
                        return found.end(), words
            return None

        return read

    def _value(self, written: str) -> Number:
        return read_number(written, self._language.decimal_mark)

    def _part(self, digits: str) -> str:
        if "." in digits:
            whole, _, fraction = digits.partition(".")
            return self._language.decimal(Number(whole, fraction, "."))
        return self._language.digits(digits) if _is_code(digits) else self._language.plain(int(digits))

    # ------------------------------------------------------------ codes
    def _long(self, text: str, start: int) -> Reading | None:
        found = _LONG.match(text, start)
        return (found.end(), self._language.digits(found[0])) if found else None

    def _phone(self, text: str, start: int) -> Reading | None:
        end = phone_end(text, start, self._language)
        return (end, phone_words(text[start:end], self._language)) if end > start else None

    def _dotted(self, text: str, start: int) -> Reading | None:
        found = _DOTTED.match(text, start)
        if not found or self._value_of_groups(text, start, found.end()):
            return None
        gap = self._language.point_word
        return found.end(), self._language.join(*_between(map(self._part, found[0].split(".")), gap))

    def _scientific(self, text: str, start: int) -> Reading | None:
        found = _SCIENTIFIC.match(text, start)
        if not found:
            return None
        language = self._language
        power = language.raised.format(language.join(language.minus if found[3] else "", language.plain(int(found[4]))))
        return found.end(), language.join(
            language.number(Number(found[1], found[2] or "", "."), Around("", "")),
            language.times,
            language.plain(10),
            power,
        )

    def _value_of_groups(self, text: str, start: int, end: int) -> bool:
        found = self._number.match(text, start)
        return found is not None and found.end() >= end

    def _hyphened(self, text: str, start: int) -> Reading | None:
        found = _HYPHENED.match(text, start)
        if not found:
            return None
        return found.end(), self._language.pause.join(map(self._part, found[0].split("-")))

    def _glued(self, text: str, start: int) -> Reading | None:
        if start == 0 or not _GLUED.search(text[max(0, start - 2) : start]):
            return None
        found = _DIGITS.match(text, start)
        if not found:
            return None
        digits = found[1]
        if found[2]:
            return found.end(), self._language.decimal(Number(digits, found[2], "."))
        if text[start - 1] == "-" and (
            len(digits) == 4 or self._amounts.suffixed(text, start, found.end(), Number(digits))
        ):
            return None
        return found.end(), self._language.digits(digits) if len(digits) > 4 else self._part(digits)

    # ------------------------------------------------------------ signs
    def _sign_of_number(self, text: str, start: int) -> Reading | None:
        found = self._numbered.match(text, start)
        if not found:
            return None
        return found.end(), self._language.number_word if found[1] else self._language.section_word

    def _raised(self, text: str, start: int) -> Reading | None:
        found = _RAISED.match(text, start)
        if not found:
            return None
        language = self._language
        power = language.join(language.minus if found[1] else "", self._part(found[2]))
        return found.end(), f" {language.raised.format(power)}" if language.spaced else language.raised.format(power)

    def _sign(self, text: str, start: int) -> Reading | None:
        return read_sign(text, start, self._language)

    def _power_of_letter(self, text: str, start: int) -> Reading | None:
        if text[start] in "²³":
            return start + 1, self._language.squared if text[start] == "²" else self._language.cubed
        if text[start + 1 : start + 2] not in ("²", "³") or not text[start].isalpha():
            return None
        return start + 2, f"{text[start]} {self._language.squared if text[start + 1] == '²' else self._language.cubed}"

    # ------------------------------------------------------------ amounts
    def _amount(self, text: str, start: int) -> Reading | None:
        language = self._language
        if found := self._money_range.match(text, start):
            end, last = self._amounts.prefixed(text, start, found.end(), found[1], self._value(found[3]))
            where = around(text, start, end)
            return end, language.range(language.measured(self._value(found[2]), False, where), last, where)
        if found := self._money.match(text, start):
            return self._amounts.prefixed(text, start, found.end(), found[1], self._value(found[2]))
        return None

    def _quantity(self, text: str, start: int) -> Reading | None:
        found = self._number.match(text, start)
        return self._amounts.suffixed(text, start, found.end(), self._value(found[1])) if found else None

    def _ranges(self, text: str, start: int) -> Reading | None:
        found = self._range.match(text, start)
        if not found or text[start - 1 : start] in ("-", "–"):
            return None
        language, first, last = self._language, self._value(found[1]), self._value(found[2])
        dash = found[0][len(found[1]) : len(found[0]) - len(found[2])]
        if first.padded or (" " in dash and "-" in dash and "=" in text[found.end() : found.end() + 6]):
            return None
        begins = found.start(2)
        suffixed = self._amounts.suffixed(text, begins, found.end(), last)
        end = suffixed[0] if suffixed else found.end()
        where = around(text, start, end)
        years = first.yearlike and (last.yearlike or len(last.digits) == 2) and not suffixed
        if years:
            low = language.year(first.whole, where)
            high = language.year(last.whole, where) if last.yearlike else self._part(last.digits)
            return end, language.range(low, high, where)
        low = self._amounts.first_of_range(text, found.end(), first, where)
        high = suffixed[1] if suffixed else language.number(last, where)
        if first.value >= last.value and "-" in dash:
            return end, language.join(low, language.ratio, high)
        return end, language.range(low, high, where)

    # ------------------------------------------------------------ dates and times
    def _dates(self, text: str, start: int) -> Reading | None:
        language = self._language
        for pattern in (_ISO_DATE, _YMD):
            if found := pattern.match(text, start):
                year, month, day = (int(found[name]) for name in ("year", "month", "day"))
                if 1 <= day <= 31:
                    end = found.end() + (text[found.end() : found.end() + 1] == "T")
                    return end, language.date(year, month, day, around(text, start, found.end()))
        found = _DATE.match(text, start)
        if not found:
            return None
        short = len(found[4]) == 2
        if short and not (len(found[1]) == len(found[3]) == 2) and found[2] != "/":
            return None
        named = language.numeric_date(int(found[1]), int(found[3]))
        if not named or 0 in named:
            return None
        year = int(found[4]) + (0 if not short else 2000 if int(found[4]) < 70 else 1900)
        return found.end(), language.date(year, *named, around(text, start, found.end()))

    def _times(self, text: str, start: int) -> Reading | None:
        language = self._language
        if found := _TIMES.match(text, start):
            where = around(text, start, found.end())
            first = self._clock(found[1], found[2], found[3], where)
            return found.end(), language.range(first, self._clock(found[4], found[5], found[6], where), where)
        if found := _TIME.match(text, start):
            return found.end(), self._clock(found[1], found[2], found[3], around(text, start, found.end()))
        if found := _RATIO.match(text, start):
            return found.end(), language.join(self._part(found[1]), language.ratio, self._part(found[2]))
        return None

    def _clock(self, hour: str, minute: str, second: str | None, where: Around) -> str:
        language = self._language
        said = language.clock(int(hour), int(minute), where)
        if not second or second == "00":
            return said
        if not int(minute):
            said = language.join(said, language.plain(0))
        return language.join(said, self._part(second.lstrip("0") or "0"), language.second_word)

    # ------------------------------------------------------------ fractions and sizes
    def _slashes(self, text: str, start: int) -> Reading | None:
        language = self._language
        if text[start - 1 : start] == "/":
            return None
        if found := _SEASON.match(text, start):
            where = around(text, start, found.end())
            last = language.year(int(found[2]), where) if len(found[2]) == 4 else self._part(found[2])
            return found.end(), language.join(language.year(int(found[1]), where), last)
        if (found := _MIXED.match(text, start)) and int(found[2]) < int(found[3]):
            words = language.and_fraction(int(found[1]), int(found[2]), int(found[3]))
            return (found.end(), words) if words else None
        if found := _RATED.match(text, start):
            rating = language.number(self._value(found[1]), Around("", ""))
            return found.end(), language.join(rating, language.out_of or language.ratio, language.plain(int(found[2])))
        found = _SLASH.match(text, start)
        if not found:
            return None
        above, below = int(found[1]), int(found[2])
        if (above, below) == (1, 2) and (half := language.half_of(around(text, start, found.end()))):
            return found.end(), half
        if above == below == 50:
            return found.end(), language.join(language.plain(50), language.plain(50))
        small = 0 < above < below and (below <= 9 or (above == 1 and below in (10, 100, 1000)))
        words = language.fraction(above, below) if small else language.over(above, below)
        return (found.end(), words) if words else None

    def _vulgar_fraction(self, text: str, start: int) -> Reading | None:
        found = self._vulgar.match(text, start)
        if not found:
            return None
        above, below = VULGAR[found[2]]
        if found[1]:
            words = self._language.and_fraction(int(found[1]), above, below)
        else:
            half = self._language.half_of(around(text, start, found.end())) if below == 2 else ""
            words = half or self._language.fraction(above, below)
        return (found.end(), words) if words else None

    def _sizes(self, text: str, start: int) -> Reading | None:
        found = self._size.match(text, start)
        if not found:
            return None
        language = self._language
        numbers = [self._value(part) for part in found.groups() if part]
        if len(numbers) == 1:
            return found.end(), language.join(language.number(numbers[0], Around("", "")), language.times)
        product = "×" in found[0] and re.match(r"\s?=", text[found.end() : found.end() + 2])
        last = found[len(numbers)]
        tail = self._amounts.suffixed(text, found.end() - len(last), found.end(), numbers[-1])
        said = [language.decimal(number) if number.fraction else language.plain(number.whole) for number in numbers]
        if tail:
            said[-1] = tail[1]
        words = language.join(*_between(said, language.times if product else language.by))
        return (tail[0] if tail else found.end()), words

    def _bare(self, text: str, start: int) -> Reading | None:
        found = self._number.match(text, start)
        if not found:
            return None
        number = self._value(found[1])
        end = found.end()
        if len(number.digits) > 10 and not number.grouped and not number.fraction and not number.digits.endswith("000"):
            return end, self._language.digits(number.digits)
        return end, self._language.number(number, around(text, start, end))


def _is_code(digits: str) -> bool:
    return len(digits) > 4 or (len(digits) > 1 and digits[0] == "0")


def _between(words: Iterable[str], gap: str) -> list[str]:
    said: list[str] = []
    for word in words:
        said += [gap, word] if said else [word]
    return said
