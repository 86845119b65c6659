"""French: hours with h, ordinals with endings, Swiss and Belgian tens."""

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


class French(Romance):
    """French; Swiss and Belgian number words for fr-CH and fr-BE."""

    decimal_word, point_word = "virgule", "point"
    minus, plus, plus_minus = "moins", "plus", "plus ou moins"
    about, less, more, at_most, at_least = "environ", "moins de", "plus de", "au plus", "au moins"
    number_word, section_word = "numéro", "paragraphe"
    number_signs = r"[Nn](?:°|º|o\.|os\.)"
    times, divided, equals, by = "fois", "divisé par", "égale", "par"
    to, ratio, out_of = "à", "à", "sur"
    percent, per_mille = "pour cent", "pour mille"
    squared, cubed = "au carré", "au cube"
    raised = "puissance {}"
    multipliers: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "M": ("million", "millions"), "Md": ("milliard", "milliards"), "Mds": ("milliard", "milliards"),
        "million": ("million", "millions"), "millions": ("million", "millions"), "k": ("mille", "mille"),
        "milliard": ("milliard", "milliards"), "milliards": ("milliard", "milliards"),
    }  # fmt: skip
    free_multipliers = frozenset(("Md", "Mds"))
    pair_phones, phone_marks = True, "-/ ."
    per_words: ClassVar[Mapping[str, str]] = {
        "h": "par heure",
        "s": "par seconde",
        "m²": "par mètre carré",
        "kg": "par kilo",
    } | {
        word: f"par {word}"
        for word in word_set("heure jour semaine mois an année minute personne nuit utilisateur litre")
    }
    feminine_endings = (
        "tion", "tions", "sion", "sions", "xion", "té", "tés", "ette", "ettes", "ance", "ances", "ence", "ences", "ure",
        "ures", "ie", "ies", "ée", "ées", "esse", "esses", "ise", "ises", "ine", "ines", "elle", "elles", "euse",
    )  # fmt: skip
    feminine_words = word_set(
        """
        heure heures minute minutes seconde secondes semaine semaines fois page pages personne personnes femme
        femmes fille filles ligne lignes étape étapes question questions tasse tasses cuillère cuillères réponse
        réponses chose choses partie parties nuit nuits tonne tonnes livre livres équipe équipes ville villes
        image images phrase phrases voiture voitures part parts dose doses tranche tranches goutte gouttes marche
        marches place places chambre chambres carte cartes règle règles formule table tables bouteille bouteilles
        école écoles base bases méthode méthodes colonne colonnes
        """
    )
    masculine_words = word_set("comité côté été musée lycée incendie génie silence")
    function_words = word_set(
        """
        et ou à de des du en dans le la les sur avec pour par est sont était ont a que qui sans fois-ci contre
        plus moins
        """
    )
    months = word_set("janvier février mars avril mai juin juillet août septembre octobre novembre décembre")
    first, half, conjunction = "premier", "demi", "et"
    parts: ClassVar[Mapping[int, str]] = {3: "tiers", 4: "quart"}
    plain_zero_hour = "minuit"

    @cached_property
    def first_forms(self) -> tuple[Form, ...]:
        return (
            (re.compile(r"([01]?[0-9]|2[0-4])[ \u00a0\u202f]?[hH][ \u00a0\u202f]?([0-5][0-9])(?![0-9])"), self._hours),
            (re.compile(r"([0-9]{1,4})(ers?|res?|ères?|nde?s?|es?|[èe]mes?)(?![^\W\d_])"), self._ordinal),
        )

    def clock(self, hour: int, minute: int, where: Around) -> str:
        spoken = f"{self.counted(hour, True)} heure{'s' if hour > 1 else ''}"
        return f"{spoken} {self.plain(minute)}" if minute else spoken

    def money(self, whole: str, name: str, cents: str, cent: str) -> str:
        return f"{whole} {name} {cents}"

    def of_millions(self, name: str) -> str:
        return f"d'{name}" if name[0] in "aeiouyé" and not name.startswith("y") else f"de {name}"

    def half_of(self, where: Around) -> str:
        feminine = where.next and where.next.lower() not in self.function_words and self.is_feminine(where.next)
        return "une demi" if feminine else ""

    def day(self, day: int) -> str:
        return self.first if day == 1 else self.plain(day)

    def plural_part(self, part: str) -> str:
        return part if part.endswith("s") else f"{part}s"

    def ordinal_of(self, number: int, feminine: bool, rules: str = "spellout-ordinal") -> str:
        words = super().ordinal_of(number, feminine, rules)
        # CLDR joins "et" here, where French has none.
        return words.replace("quatre-vingt-et-", "quatre-vingt-").replace("cent-et-unième", "cent unième")

    def _hours(self, found: re.Match[str], where: Around) -> str:
        return self.clock(int(found[1]), int(found[2]), where)

    def _ordinal(self, found: re.Match[str], where: Around) -> str | None:
        number, ending = int(found[1]), found[2]
        if number == 0 or (ending.startswith(("er", "re", "ère")) and number != 1):
            return None
        if ending.startswith("nd"):
            return ("seconde" if "e" in ending else "second") if number == 2 else None
        words = self.ordinal_of(number, ending.startswith(("r", "è")) and number == 1)
        return f"{words}s" if ending.endswith("s") else words
