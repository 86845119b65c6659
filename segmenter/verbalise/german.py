"""German: ordinals by the word before them, "ein" and "eine" by the noun behind."""

# Overrides keep the promises that are written in language.py.
# ruff: noqa: D102

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar

from segmenter.verbalise.context import Around
from segmenter.verbalise.language import GLUE, Form, Language, word_set
from segmenter.verbalise.literal import Number
from segmenter.verbalise.spelling import spell

_MONTHS = word_set(
    """
    januar jänner februar märz april mai juni juli august september oktober november dezember jan feb mär apr
    jun jul aug sep sept okt nov dez
    """
)
_DATIVE = word_set("mit nach seit von vor aus bei zu ab außer gegenüber in innerhalb binnen unter")
_ACCUSATIVE = word_set("für um durch ohne gegen pro")
_WEAK_N = word_set(
    """
    am im vom zum zur beim dem den des ins seinem ihrem meinem deinem unserem einem jedem diesem seinen ihren
    meinen deinen unseren einen jeden diesen seiner ihrer meiner deiner unserer einer jeder dieser welchem
    welchen bis ab seit ans aufs übers fürs
    """
)
_WEAK_E = word_set("das die eine seine ihre meine deine unsere jede diese dieses jedes welche")
_STRONG_R = word_set("ein sein ihr mein dein unser kein")
_PREPOSITIONS = _DATIVE | word_set("an auf während wegen trotz neben hinter über zwischen samt")
_FEMININE_ENDINGS = ("ung", "heit", "keit", "schaft", "ion", "tät", "ik", "ur", "enz", "anz", "e", "ei")
_MASCULINE_IN_E = word_set(
    """name kunde junge kollege affe löwe hase neffe bote zeuge experte käse gedanke buchstabe ende gebäude auge getränk
    interesse"""
)
_FEMININE = word_set(
    """
    stunde minute sekunde woche person frau zahl antwort frage liga bundesliga auflage etage klasse nacht
    stadt hand tochter mutter schwester million milliarde mal-
    """
)
_HALVED_MASCULINE = word_set(
    """liter meter kilometer tag monat teelöffel esslöffel löffel becher bund apfel topf zentimeter würfel"""
)
_HALVED_NEUTER = word_set("jahr kilo kilogramm pfund dutzend glas stück jahrhundert brot päckchen prozent stündchen")
_RANKED = word_set(
    """
    jahrhundert jahrhunderts jahrtausend klasse stock platz auflage kapitel weltkrieg weltkriegs liga bundesliga tag
    woche monat quartal runde mal lebensjahr geburtstag etage stunde teil spieltag halbzeit schritt semester absatz
    jahrestag sinfonie symphonie fc sc fsv person versuch minute hälfte akt satz bezirk obergeschoss advent stelle
    ausgabe generation
    """
)
_WEAK_CONTEXT = re.compile(r"\b(?:[Aa]m|[Ii]m|[Vv]om|[Zz]um|[Dd]em|[Dd]en) [0-9]{1,2}\.[^.]{0,20}\Z")
_AFTER_YEARS = re.compile(r"im jahre?|anno|seit|ab|bis|um|von|vor|nach|zwischen|und|mai|juni|juli|sommer|herbst|winter")


class German(Language):
    """German. Nouns that are not known are taken for feminine by their ending (``-ung``, ``-keit``, ``-e``)."""

    decimal_word, point_word = "Komma", "Punkt"
    minus, plus, plus_minus = "minus", "plus", "plus minus"
    about, less, more = "ungefähr", "weniger als", "mehr als"
    at_most, at_least = "höchstens", "mindestens"
    number_word, section_word, number_signs = "Nummer", "Paragraf", r"Nr\."
    times, divided, equals, by = "mal", "geteilt durch", "gleich", "mal"
    to, ratio, out_of = "bis", "zu", "von"
    percent, per_mille = "Prozent", "Promille"
    squared, cubed = "hoch zwei", "hoch drei"
    raised = "hoch {}"
    multipliers: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "Mio": ("Million", "Millionen"), "Mill": ("Million", "Millionen"), "Mrd": ("Milliarde", "Milliarden"),
        "Bio": ("Billion", "Billionen"), "Tsd": ("Tausend", "Tausend"), "Million": ("Million", "Millionen"),
        "Millionen": ("Million", "Millionen"), "Milliarde": ("Milliarde", "Milliarden"),
        "Milliarden": ("Milliarde", "Milliarden"), "Tausend": ("Tausend", "Tausend"),
    }  # fmt: skip
    free_multipliers = frozenset(("Mio", "Mill", "Mrd", "Bio", "Tsd"))
    per_words: ClassVar[Mapping[str, str]] = {
        "h": "pro Stunde",
        "Std": "pro Stunde",
        "min": "pro Minute",
        "s": "pro Sekunde",
        "kg": "pro Kilogramm",
        "m²": "pro Quadratmeter",
        "kWh": "pro Kilowattstunde",
        "l": "pro Liter",
        **{word: f"pro {word}" for word in word_set("Stunde Tag Woche Monat Jahr Minute Person Nutzer Nacht Stück")},
    }

    @cached_property
    def first_forms(self) -> tuple[Form, ...]:
        return (
            (re.compile(r"([0-9]{1,2})\. (0?[1-9]|1[0-2])\. ([12][0-9]{3})(?![0-9])"), self._long_date),
            (re.compile(r"([0-9]{1,2})\.(0?[1-9]|1[0-2])\.(?![0-9])"), self._short_date),
            (re.compile(r"([01]?[0-9]|2[0-4])[.:]([0-5][0-9])[ \u00a0\u202f]?Uhr\b"), self._o_clock),
            (
                re.compile(r"([0-9]{1,2})\.[ ]?[–-][ ]?([0-9]{1,2})\.(?=[ ][A-ZJ])"),
                lambda found, where: f"{self._day(int(found[1]), where)} bis {self._day(int(found[2]), where)}",
            ),
            (
                re.compile(
                    r"([0-9]{1,4})[-‑]?(?=jährig|mal(?![a-zäöü])|fach|stündig|tägig|minütig|köpfig|prozentig|teilig"
                    r"|monatig|wöchig)"
                ),
                lambda found, _: f"{self.counted(int(found[1]))}{GLUE}",
            ),
            (re.compile(r"((?:1[1-9]|20)?[0-9]0)er(?![a-zäöüß])"), self._decade),
        )

    @cached_property
    def late_forms(self) -> tuple[Form, ...]:
        return ((re.compile(r"([0-9]{1,4})\.(?![0-9])"), self._ordinal),)

    def plain(self, number: int) -> str:
        return spell(self.locale, number, self.rules)

    def counted(self, number: int, feminine: bool = False) -> str:
        if number == 1:
            return "eine" if feminine else "ein"
        return self.plain(number)

    def cardinal(self, number: int, where: Around) -> str:
        if number != 1 or not where.next or where.next.lower() in ("und", "oder", "von", "ist", "mal", "plus"):
            return self.plain(number)
        if where.next == "bis":
            return "ein"
        feminine = _feminine(where.next)
        if where.last in _DATIVE:
            return "einer" if feminine else "einem"
        if where.next == "Uhr":
            return "ein"
        return "eine" if feminine else "einen" if where.last in _ACCUSATIVE else "ein"

    def is_year(self, number: Number, where: Around) -> bool:
        if _AFTER_YEARS.fullmatch(where.last) or where.last == "jahr" or where.last in _MONTHS:
            return not where.next or where.last_but_one != "als"
        return not where.next or where.next[0].islower()

    def year(self, number: int, where: Around) -> str:
        return spell(self.locale, number, "spellout-numbering-year")

    def ordinal(self, number: int, where: Around) -> str:
        return spell(self.locale, number, f"spellout-ordinal{self._ending(where)}")

    def clock(self, hour: int, minute: int, where: Around) -> str:
        spoken = "ein Uhr" if hour == 1 else f"{self.plain(hour)} Uhr"
        return f"{spoken} {self.plain(minute)}" if minute else spoken

    def date(self, year: int | None, month: int, day: int, where: Around) -> str:
        named = f"{self._day(day, where)} {self.month(month)}"
        return named if year is None else f"{named} {self.year(year, where)}"

    def money(self, whole: str, name: str, cents: str, cent: str) -> str:
        return f"{whole} {name} {cents}"

    def fraction(self, above: int, below: int) -> str | None:
        if below == 2:
            return "ein halb" if above == 1 else f"{self.plain(above)} Halbe"
        ending = "tel" if below < 20 else "stel"
        plain = self.plain(below).removeprefix("ein") if below in (100, 1000) else self.plain(below)
        name = {3: "Drittel", 7: "Siebtel", 8: "Achtel"}.get(below, f"{plain}{ending}")
        return f"{self.counted(above)} {name[0].upper()}{name[1:]}"

    def half_of(self, where: Around) -> str:
        noun = where.next.lower()
        ending = (
            "" if _feminine(noun) else "r" if noun in _HALVED_MASCULINE else "s" if noun in _HALVED_NEUTER else None
        )
        if not noun or ending is None:
            return ""
        if where.last in _DATIVE:
            return "einem halben" if ending else "einer halben"
        if where.last in _ACCUSATIVE and ending == "r":
            return "einen halben"
        return f"{'ein' if ending else 'eine'} halbe{ending}"

    def and_fraction(self, whole: int, above: int, below: int) -> str | None:
        if (above, below) == (1, 2):
            return f"{self.counted(whole)}einhalb"
        return f"{self.plain(whole)} {self.fraction(above, below)}"

    def is_feminine_power(self, word: str) -> bool:
        return word != "Tausend"

    def unit_words(self, number: Number, words: str, where: Around) -> str:
        if where.last not in _DATIVE or where.last_but_one in ("mehr", "weniger"):
            return words
        if number.value == 1:
            return re.sub(r"^ein(e?)\b", lambda found: "einer" if found[1] else "einem", words)
        return re.sub(r"(?<=[a-z])(meter|liter)\b", r"\1n", words, flags=re.I)

    def _day(self, day: int, where: Around) -> str:
        return spell(self.locale, day, f"spellout-ordinal{self._ending(where, masculine=True)}")

    def _ending(self, where: Around, masculine: bool = False) -> str:
        if where.last in ("und", "oder", "sowie") and _WEAK_CONTEXT.search(where.before):
            return "-n"
        if where.last == "der":
            return "-n" if where.last_but_one in _PREPOSITIONS else ""
        if where.last in _WEAK_N:
            return "-n"
        if where.last in _WEAK_E or (not masculine and where.last not in _STRONG_R and _feminine(where.next)):
            return ""
        return "-r"

    def _short_date(self, found: re.Match[str], where: Around) -> str | None:
        day, month = int(found[1]), int(found[2])
        return f"{self._day(day, where)} {self.month(month)}" if 1 <= day <= 31 else None

    def _long_date(self, found: re.Match[str], where: Around) -> str | None:
        day, month, year = (int(found[group]) for group in (1, 2, 3))
        return self.date(year, month, day, where) if 1 <= day <= 31 else None

    def _o_clock(self, found: re.Match[str], where: Around) -> str:
        return self.clock(int(found[1]), int(found[2]), where)

    def _decade(self, found: re.Match[str], where: Around) -> str:
        return f"{self.year(int(found[1]), where)}er"

    def _ordinal(self, found: re.Match[str], where: Around) -> str | None:
        number, next_word = int(found[1]), where.next.lower()
        if number == 0 or found[1][0] == "0":
            return None
        if next_word in _MONTHS:
            return self._day(number, where)
        determined = where.last in _WEAK_E | _WEAK_N | _STRONG_R or where.last == "der"
        span = re.match(r"\s?(?:und|bis|oder|[–/-])\s?(?:zum |der )?[0-9]{1,4}\.", where.after)
        if (determined and (where.next or span)) or span or (next_word in _RANKED and number < 1000):
            return self.ordinal(number, where)
        if where.next and where.next[0].islower() and not where.opens:
            return self.ordinal(number, where)
        return None


def _feminine(noun: str) -> bool:
    lower = noun.lower()
    return lower in _FEMININE or (lower.endswith(_FEMININE_ENDINGS) and lower not in _MASCULINE_IN_E)
