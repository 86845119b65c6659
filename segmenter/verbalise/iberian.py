"""Spanish and Portuguese."""

# Overrides keep the promises that are written in language.py.
# ruff: noqa: D102

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar

from segmenter.verbalise.context import Around
from segmenter.verbalise.language import Form, word_set
from segmenter.verbalise.romance import Romance


class Spanish(Romance):
    """Spanish; decimal point and dollar of the country for the regions that have them."""

    decimal_word, point_word = "coma", "punto"
    minus, plus, plus_minus = "menos", "más", "más menos"
    about, less, more, at_most, at_least = "aproximadamente", "menos de", "más de", "como máximo", "al menos"
    number_word, section_word = "número", "sección"
    number_signs = r"[Nn](?:\.?[ºo°]\.?|úm\.)"
    times, divided, equals, by = "por", "entre", "igual a", "por"
    to, ratio, out_of = "a", "a", "de"
    percent, per_mille = "por ciento", "por mil"
    squared, cubed = "al cuadrado", "al cubo"
    raised = "elevado a {}"
    multipliers: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "M": ("millón", "millones"), "millón": ("millón", "millones"), "millones": ("millón", "millones"),
        "mil": ("mil", "mil"), "k": ("mil", "mil"),
    }  # fmt: skip
    per_words: ClassVar[Mapping[str, str]] = {
        "h": "por hora",
        "s": "por segundo",
        "kg": "por kilo",
        "m²": "por metro cuadrado",
        **{word: f"al {word}" for word in word_set("mes día año")},
        **{word: f"por {word}" for word in word_set("hora semana minuto persona noche usuario litro")},
    }
    feminine_endings = ("a", "as", "ción", "ciones", "sión", "siones", "dad", "dades", "tud", "tudes")
    feminine_words = word_set("vez veces noche noches parte partes clase clases mujer mujeres serie series")
    masculine_words = word_set(
        """
        día días problema problemas programa programas sistema sistemas tema temas mapa mapas idioma idiomas
        planeta planetas poema poemas clima drama esquema esquemas diagrama diagramas
        """
    )
    function_words = word_set(
        """
        y o a de del en el la los las con por para es son fue era que al entre más menos sobre contra como se ya
        hasta desde
        """
    )
    months = word_set(
        """
        enero febrero marzo abril mayo junio julio agosto septiembre setiembre octubre noviembre diciembre
        """
    )
    first, half, conjunction, date_of = "primero", "medio", "y", "de "
    parts: ClassVar[Mapping[int, str]] = {3: "tercio"}

    def __init__(self, locale: str, region: str) -> None:
        super().__init__(locale)
        if region in ("MX", "US", "PR", "DO", "GT", "HN", "NI", "SV", "PA", "PE"):
            self.decimal_mark, self.decimal_word = ".", "punto"

    @cached_property
    def first_forms(self) -> tuple[Form, ...]:
        return (
            (re.compile(r"([0-9]{1,3})\.?([ºª])"), self._marked_ordinal),
            (re.compile(r"([13])\.?[eE][rR](?![^\W\d_])"), self._short_ordinal),
            (re.compile(r"([01]?[0-9]|2[0-4]):([0-5][0-9])[ \u00a0\u202f]?h(?:s|oras?)?\b"), self._hours),
        )

    def clock(self, hour: int, minute: int, where: Around) -> str:
        spoken = self.counted(hour, True)
        if not minute:
            return spoken
        short = {15: "cuarto", 30: "media"} if hour <= 12 else {}
        return f"{spoken} y {short.get(minute, self.plain(minute))}"

    def money(self, whole: str, name: str, cents: str, cent: str) -> str:
        return f"{whole} {name} con {cents} {cent}"

    def of_millions(self, name: str) -> str:
        return f"de {name}"

    def day(self, day: int) -> str:
        return self.first if day == 1 else self.plain(day)

    def _hours(self, found: re.Match[str], where: Around) -> str:
        return self.clock(int(found[1]), int(found[2]), where)

    def _short_ordinal(self, found: re.Match[str], where: Around) -> str:
        return "primer" if found[1] == "1" else "tercer"


class Portuguese(Romance):
    """Portuguese of Brazil; of Portugal for pt-PT."""

    decimal_word, point_word = "vírgula", "ponto"
    minus, plus, plus_minus = "menos", "mais", "mais ou menos"
    about, less, more, at_most, at_least = "aproximadamente", "menos de", "mais de", "no máximo", "pelo menos"
    number_word, section_word = "número", "seção"
    number_signs = r"[Nn]\.?[ºo°]\.?"
    times, divided, equals, by = "vezes", "dividido por", "igual a", "por"
    to, ratio, out_of = "a", "a", "de"
    percent, per_mille = "por cento", "por mil"
    squared, cubed = "ao quadrado", "ao cubo"
    raised = "elevado a {}"
    multipliers: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "mi": ("milhão", "milhões"), "bi": ("bilhão", "bilhões"), "milhão": ("milhão", "milhões"),
        "milhões": ("milhão", "milhões"), "bilhão": ("bilhão", "bilhões"), "bilhões": ("bilhão", "bilhões"),
        "mil": ("mil", "mil"),
    }  # fmt: skip
    free_multipliers = frozenset(("mi", "bi"))
    per_words: ClassVar[Mapping[str, str]] = {
        "h": "por hora",
        "s": "por segundo",
        "kg": "por quilo",
        "m²": "por metro quadrado",
    } | {word: f"por {word}" for word in word_set("mês dia ano hora semana minuto pessoa noite usuário litro")}
    feminine_endings = ("a", "as", "ção", "ções", "são", "sões", "dade", "dades", "gem", "gens", "tude")
    feminine_words = word_set("vez vezes noite noites parte partes classe classes mulher mulheres série séries")
    masculine_words = word_set(
        """
        dia dias problema problemas programa programas sistema sistemas tema temas mapa mapas idioma idiomas
        planeta planetas poema poemas clima esquema esquemas diagrama diagramas grama gramas
        """
    )
    function_words = word_set(
        """
        e ou a de do da dos das em no na o os as com por para é são foi era que ao entre mais menos sobre contra
        até
        """
    )
    months = word_set("janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro")
    first, half, conjunction, date_of = "primeiro", "meio", "e", "de "
    parts: ClassVar[Mapping[int, str]] = {3: "terço"}

    @cached_property
    def first_forms(self) -> tuple[Form, ...]:
        return (
            (re.compile(r"([0-9]{1,3})\.?([ºª])"), self._marked_ordinal),
            (re.compile(r"([01]?[0-9]|2[0-4])[ \u00a0]?h[ \u00a0]?([0-5][0-9])(?:min)?(?![^\W_])"), self._hours),
            (re.compile(r"([01]?[0-9]|2[0-4]):([0-5][0-9])[ \u00a0]?h(?:oras?)?\b"), self._hours),
        )

    def clock(self, hour: int, minute: int, where: Around) -> str:
        spoken = self.counted(hour, True)
        if not minute:
            return f"{spoken} hora{'s' if hour > 1 else ''}"
        return f"{spoken} e {self.plain(minute)}"

    def money(self, whole: str, name: str, cents: str, cent: str) -> str:
        return f"{whole} {name} e {cents} {cent}"

    def of_millions(self, name: str) -> str:
        return f"de {name}"

    def day(self, day: int) -> str:
        return self.first if day == 1 else self.plain(day)

    def _hours(self, found: re.Match[str], where: Around) -> str:
        return self.clock(int(found[1]), int(found[2]), where)
