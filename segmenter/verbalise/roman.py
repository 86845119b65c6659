"""Roman numerals where nothing else can be meant: behind the word for what is numbered, behind a ruler's name, in
centuries."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from segmenter.verbalise.language import word_set
from segmenter.verbalise.spelling import spell

_NUMERAL = r"(?:X{1,2}(?:IX|IV|V?I{0,3})|IX|IV|V?I{1,3}|V)"
_HINT = re.compile(rf"(?<![^\W_]){_NUMERAL}(?![^\W_e])")
_LETTERS = {"I": 1, "V": 5, "X": 10}

_COUNTED = {
    "en": "Chapter Part Volume Act Scene Book Phase Type Level Stage Section Title Article Class Appendix Grade Round"
    " Episode Season Final Fantasy Rocky Mark",
    "de": "Kapitel Teil Band Akt Szene Buch Phase Typ Stufe Abschnitt Artikel Klasse Anhang Weltkrieg",
    "fr": "Chapitre Partie Tome Acte Scène Livre Phase Type Niveau Section Titre Article Annexe",
    "es": "Capítulo Parte Tomo Acto Escena Libro Fase Tipo Nivel Sección Título Artículo Anexo",
    "it": "Capitolo Parte Volume Atto Scena Libro Fase Tipo Livello Sezione Titolo Articolo Allegato",
    "pt": "Capítulo Parte Tomo Ato Cena Livro Fase Tipo Nível Seção Título Artigo Anexo",
    "ru": "Глава Часть Том Акт Сцена Книга Фаза Тип Раздел Статья",
}
_RULERS = {
    "en": "Louis Henry George Edward William James Charles Richard Elizabeth Mary Catherine Philip Ferdinand Frederick"
    " Napoleon Nicholas Alexander Peter Leo Pius Paul Benedict Francis Gregory Innocent Urban Clement Ramesses Ramses",
    "de": "Ludwig Heinrich Georg Eduard Wilhelm Jakob Karl Richard Elisabeth Katharina Philipp Ferdinand Friedrich"
    " Napoleon Nikolaus Alexander Peter Leo Pius Paul Benedikt Franz Gregor Otto Leopold Maximilian Konrad Ramses",
    "fr": "Louis Henri Georges Édouard Guillaume Jacques Charles Richard Élisabeth Elizabeth Catherine Philippe"
    " Ferdinand Frédéric Napoléon Nicolas Alexandre Pierre Léon Pie Paul Benoît François Grégoire Ramsès",
    "es": "Luis Enrique Jorge Eduardo Guillermo Jacobo Carlos Ricardo Isabel Catalina Felipe Fernando Federico Alfonso"
    " Napoleón Nicolás Alejandro Pedro León Pío Pablo Benedicto Francisco Gregorio Ramsés",
    "it": "Luigi Enrico Giorgio Edoardo Guglielmo Giacomo Carlo Riccardo Elisabetta Caterina Filippo Ferdinando "
    "Federico Napoleone Nicola Alessandro Pietro Leone Pio Paolo Benedetto Francesco Gregorio Umberto Emanuele Ramses",
    "pt": "Luís Henrique Jorge Eduardo Guilherme Jaime Carlos Ricardo Isabel Elizabeth Catarina Filipe Fernando "
    "Frederico Napoleão Nicolau Alexandre Pedro Leão Pio Paulo Bento Francisco Gregório João Afonso Manuel Ramsés",
    "ru": "Людовик Генрих Георг Эдуард Вильгельм Яков Карл Ричард Филипп Фердинанд Фридрих Наполеон Николай Александр"
    " Пётр Петр Лев Пий Павел Бенедикт Франциск Григорий Иван Рамсес",
}
_QUEENS = word_set(
    """
    Elizabeth Mary Catherine Elisabeth Katharina Élisabeth Isabel Catalina Elisabetta Caterina Catarina
    """
)
_CENTURIES = {
    "fr": rf"({_NUMERAL})(?:e|è|ème)(?=[ \u00a0]siècles?\b)",
    "es": rf"(?<=[Ss]iglo )({_NUMERAL})",
    "pt": rf"(?<=[Ss]éculo )({_NUMERAL})",
    "it": rf"({_NUMERAL})(?=[ \u00a0]secolo\b)",
    "ru": rf"({_NUMERAL})(?=[ \u00a0]век(?:а|е|у|ом)?\b)",
}
_RUSSIAN_CENTURY = {"век": "", "века": "-genitive", "веке": "-locative", "веку": "-dative", "веком": "-ablative"}


def say_roman(text: str, code: str) -> str:
    """The text with Roman numerals (to 29) said as numbers; ``code`` is a language. Linear, and its own result."""
    if code not in _COUNTED or not _HINT.search(text):
        return text
    for pattern, words_of in _readings(code):
        text = pattern.sub(words_of, text)
    return text


@lru_cache(maxsize=16)
def _readings(code: str) -> tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...]:
    nouns = _COUNTED[code].split()
    counted = "|".join(dict.fromkeys((*nouns, *(noun.lower() for noun in nouns if code != "de"))))
    rulers = "|".join(_RULERS[code].split())
    end = r"(?![^\W_])"
    found: list[tuple[re.Pattern[str], Callable[[re.Match[str]], str]]] = []
    if code in _CENTURIES:
        found.append((re.compile(rf"(?<![^\W_]){_CENTURIES[code]}{end}"), lambda match: _century(code, match)))
    if code == "en":
        found.append(
            (re.compile(rf"(?<![^\W_])(World War )(I{{1,3}}){end}"), lambda match: match[1] + _cardinal(code, match[2]))
        )
    dot = r"(?:\.(?=[ \u00a0,;:]))?" if code == "de" else ""
    found += [
        (
            re.compile(rf"(?<![^\W_])({counted})([ \u00a0])({_NUMERAL}){end}"),
            lambda match: match[1] + match[2] + _cardinal(code, match[3]),
        ),
        (
            re.compile(rf"(?<![^\W_])({rulers})([ \u00a0])({_NUMERAL}){dot}{end}"),
            lambda match: match[1] + match[2] + _regnal(code, match[1], value_of(match[3])),
        ),
    ]
    return tuple(found)


def value_of(numeral: str) -> int:
    """The value of a numeral made of I, V and X."""
    values = [_LETTERS[letter] for letter in numeral]
    return sum(-value if value < after else value for value, after in zip(values, [*values[1:], 0], strict=True))


def _cardinal(code: str, numeral: str) -> str:
    return spell(code, value_of(numeral), "spellout-cardinal-masculine" if code == "ru" else "spellout-numbering")


def _regnal(code: str, name: str, number: int) -> str:
    gender = "feminine" if name in _QUEENS else "masculine"
    match code:
        case "en":
            return f"the {spell(code, number, 'spellout-ordinal').capitalize()}"
        case "de":
            article = "die" if gender == "feminine" else "der"
            return f"{article} {spell(code, number, 'spellout-ordinal').capitalize()}"
        case "fr" if number > 1:
            return spell(code, number, "spellout-numbering")
        case "es" | "pt" if number > 10:
            return spell(code, number, "spellout-numbering")
        case _:
            return spell(code, number, f"spellout-ordinal-{gender}")


def _century(code: str, match: re.Match[str]) -> str:
    number = value_of(match[1])
    if code == "es" or (code == "pt" and number > 10):
        return spell(code, number, "spellout-numbering")
    if code == "ru":
        noun = re.match(r"[ \u00a0](\w+)", match.string[match.end() : match.end() + 8])
        return spell(code, number, f"spellout-ordinal-masculine{_RUSSIAN_CENTURY[noun[1]] if noun else ''}")
    return spell(code, number, "spellout-ordinal-masculine")
