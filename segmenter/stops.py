"""What one full stop before a blank means: the end of a sentence, an abbreviation, an ordinal."""

from __future__ import annotations

import re
from collections.abc import Callable

from segmenter.calendar import (
    AFTER_TIME,
    ENDING_PAIRS,
    ETC_PAIRS,
    LABELS,
    ORDINAL_LEADS,
    ORDINAL_NOUNS,
    PAIRS,
    UNITS,
)
from segmenter.languages import Language
from segmenter.marks import BULLETS, NO, NUMBER_SIGNS, WAIT, begun_word, last_part, next_word, tokens_before

_LETTERS_DOTTED = re.compile(r"(?:[^\W\d_]{1,4}\.)+[^\W\d_]{1,3}")
_ROMAN = re.compile(r"[IVXLC]+")
_NO_VOWEL = re.compile(
    r"(?i:[bcdfghjklmnpqrstvwxz])[bcdfghjklmnpqrstvwxz]{1,4}|(?i:[бвгджзклмнпрстфхцчшщ])[бвгджзклмнпрстфхцчшщ]{1,4}"
)
_INTERJECTIONS = frozenset(
    (
        "hm",
        "hmm",
        "mm",
        "mmm",
        "shh",
        "psst",
        "pfft",
        "brr",
        "grr",
        "tsk",
        "nth",
        "tv",
        "pc",
        "cd",
        "dvd",
        "brb",
        "tbh",
        "btw",
        "np",
        "gg",
        "lmk",
        "tbc",
    )
)
_HANGUL = re.compile("[\uac00-\ud7a3]")
_DATE_SO_FAR = re.compile(r"(?:^|[^\d.])(?:\d{4}\. ?\d{1,2}(?:\. ?\d{1,2})?|\d{1,2}\. ?\d{1,2})$")
_OPENING_ADVERBIAL = re.compile(
    r"(?:At|On|In|By|Around|About|Before|After|From|Since|Until|Circa|Every|Each|В|Во|С|К|До|После|Около|У|На)\s", re.I
)
_ADVERBIAL_LIMIT_CHARS = 48
_PLAIN_WORD_CHARS = 6
_LONG_ABBREVIATIONS = frozenset(
    (
        *("approx", "assoc", "einschl", "entspr", "abschn", "verschied", "durchschn", "wissensch", "gesetzl", "monatl"),
        *("jährl", "täglich", "idraul", "meteor", "aeronaut", "subsec", "subpar", "respectiv", "ausschl", "ursprgl"),
        *("schätzungsw", "voraussichtl", "bezügl", "zusätzl", "zeitschr", "zeitl", "persönl", "schriftl", "telef"),
    )
)
_ETC = frozenset(("т.д", "т.п", "т.б"))
_OPENING = frozenset(("ii", "iii", "iv", "vi", "vii", "viii", "ix", "xi", "xii", "p.s", "p.p.s", "ps", "n.b", "nb"))
_DAY_TIMES = frozenset(("a.m", "p.m", "am", "pm"))
_YEARS = frozenset(("г", "гг", "в", "вв", "р", "рр"))
_ERAS = frozenset(("b.c", "a.d", "c.e", "b.c.e"))
_DEGREES = frozenset(("ph.d", "m.d", "ll.b", "ll.m", "ll.d", "b.a", "m.a", "b.sc", "m.sc", "d.d.s", "m.b.a", "j.d"))


Referee = Callable[[str, str], bool | None]
"""Asked with the text up to a full stop and the word behind: whether the sentence ends there, or None."""


def is_abbreviation(text: str, at: int, lang: Language) -> bool:
    """Whether the token before ``text[at]`` is listed or made of letters with full stops."""
    token, before = tokens_before(text, at)
    part = last_part(token)
    return lang.is_abbreviation(part) or bool(_LETTERS_DOTTED.fullmatch(part)) or _pair(part, before)


def is_plain_word(text: str, at: int, speaks: Callable[[], Language]) -> bool:
    """Whether the token before ``text[at]`` is so long a word that the sentence ends although no capital follows."""
    if not text[max(0, at - _PLAIN_WORD_CHARS) : at].isalpha():
        return False
    token, _ = tokens_before(text, at)
    if len(token) < _PLAIN_WORD_CHARS or not token.isalpha() or not token.islower():
        return False
    return token not in _LONG_ABBREVIATIONS and not speaks().is_abbreviation(token)


def takes_note(text: str, at: int, lang: Language) -> bool:
    """Whether brackets behind the abbreviation belong to it, as in "et al. (2021)"."""
    return tokens_before(text, at)[0].lower() in lang.numbers or is_abbreviation(text, at, lang)


def is_before_number(text: str, at: int, end: int, lang: Language) -> bool:
    """Whether the full stop at ``text[at]`` and the number behind it belong together."""
    token, before = tokens_before(text, at)
    part = last_part(token)
    if token.isdigit():
        if _is_korean_date(text, at, end):
            return True
        dated = before.lower() in ORDINAL_LEADS or (before[:-1].isdigit() and before[-1] == ".")
        return len(token) <= 2 and (_opens(text, at, token) or (lang.ordinals and dated))
    if len(part) == 1:
        return part.isalpha() and part != "I"
    if part.lower() in UNITS and before[:1].isdigit():
        return part.lower() in lang.numbers
    if _LETTERS_DOTTED.fullmatch(part) and part.lower() not in _DAY_TIMES:
        return True
    return lang.is_before_number(part) or part.lower().endswith("str")


def _opens(text: str, at: int, token: str) -> bool:
    """Whether ``token`` is all that stands before the mark: the number or letter of an item of a list."""
    return text[:at].lstrip(BULLETS + " (") == token


def _is_korean_date(text: str, at: int, end: int) -> bool:
    """Inside of "2024. 5. 1." in a Korean text."""
    if not _HANGUL.search(text, max(0, at - 48)):
        return False
    begun = begun_word(text, end + 1)
    return bool(re.fullmatch(r"\d{1,2}\.?.*", begun)) and bool(re.search(r"(?:^|\D)\d{4}$|\d\. ?\d{1,2}$", text[:at]))


def ends_korean_date(text: str, at: int) -> bool:
    """Behind the last full stop of a date like "2024. 5. 1." the sentence goes on."""
    return bool(_DATE_SO_FAR.search(text[max(0, at - 16) : at]))


def full_stop(text: str, at: int, end: int, lang: Language, referee: Referee | None, *, final: bool) -> int:
    """One full stop, then a blank, then a capital, an opening quote or a letter of a script without case.

    Returns ``end``, ``NO`` or ``WAIT`` for the whole next word.
    """
    token, before = tokens_before(text, at)
    if token.isdigit():
        return _after_number(text, token, before, at, end, lang, final=final)
    if _opens(text, at, token) and (token.lower() in _OPENING or (len(token) == 1 and token.isalpha())):
        return NO
    if token.startswith(("-", "/", "./", "../", "~")):
        return end
    whole, token = token, last_part(token)
    lower = token.lower()
    if not _is_doubtful(token, lower, before, lang, possessive=whole[-2:-1] in ("'", "’")):
        return end
    if len(token) == 1 and before.lower() in LABELS:
        return end
    if lower in _DAY_TIMES and _begins_plainly(begun_word(text, end + 1)):
        return end
    word = next_word(text, end + 1, final=final)
    if word is None:
        return WAIT
    if not word:
        return NO
    ends = _ends_before(text, at, token, before, word, lang)
    if referee is not None and not ends and not lang.is_abbreviation(token) and lower not in _DAY_TIMES:
        ends = referee(text[: at + 1], word) is True
    return end if ends else NO


def _is_doubtful(token: str, lower: str, before: str, lang: Language, *, possessive: bool) -> bool:
    """Whether the next word must be seen: the token may be an abbreviation, an initial or an ordinal."""
    if len(token) == 1:
        return token.isalpha() and not possessive
    if lower in UNITS and before[:1].isdigit():
        return False
    return (
        lang.is_abbreviation(token)
        or lower in _DAY_TIMES
        or lower.endswith("str")
        or bool(_LETTERS_DOTTED.fullmatch(token))
        or (lang.ordinals and bool(_ROMAN.fullmatch(token)))
        or (lang.needs_vowels and bool(_NO_VOWEL.fullmatch(token)) and lower not in UNITS | _INTERJECTIONS)
        or (len(token) < 4 and _is_initial(before))
        or _pair(token, before)
    )


def _ends_before(text: str, at: int, token: str, before: str, word: str, lang: Language) -> bool:
    """Whether the sentence ends between the doubtful ``token`` and the ``word`` behind it."""
    lower, dotted = token.lower(), word.endswith(".")
    word = word.rstrip(".")
    plain = word.replace("’", "'")
    starts = plain in lang.starters or plain.partition("'")[0] in lang.starters
    if lower in _DAY_TIMES or (lower == "m" and before.lower() in ("a.", "p.")):
        return _ends_time(text, at, word, dotted=dotted)
    if lower in _YEARS and (before[:1].isdigit() or _ROMAN.fullmatch(before)):
        return starts or not _is_adverbial(text, at)
    if len(token) == 1:
        return _ends_letter(token, before, word, starts=starts, dotted=dotted)
    if lower in _ETC:
        return True
    if lang.is_honorific(lower) or _pair(token, before):
        return False
    if lower in lang.never and token == lower:
        return False
    if lower in _ERAS and before[:1].isdigit() and not _is_adverbial(text, at):
        return True
    if lower in _DEGREES and before.islower():
        return True
    if lower.endswith("str") or lower == "ph.d":
        return True
    return starts and not (len(word) == 1 and dotted)


def _ends_time(text: str, at: int, word: str, *, dotted: bool) -> bool:
    """After "5 p.m.": a weekday, month, time zone or initial goes on; a title does after an opening adverbial."""
    lower = word.lower()
    if lower in _HONORIFIC_AFTER_TIME:
        return not _is_adverbial(text, at)
    return not (lower in AFTER_TIME or (word.isupper() and (dotted or len(word) > 1)))


_HONORIFIC_AFTER_TIME = frozenset(("mr", "mrs", "ms", "dr", "prof"))


def _ends_letter(token: str, before: str, word: str, *, starts: bool, dotted: bool) -> bool:
    """After a single letter: an initial, a unit, an abbreviation of several words, or a name such as "option B"."""
    if _is_initial(before) and before[0].islower():
        pair = (before[0], token.lower())
        return not dotted and (pair in ETC_PAIRS or (starts and pair in ENDING_PAIRS))
    if token.islower() and not starts:
        return before[:1].isdigit() and not dotted
    return starts and not (len(word) == 1 and dotted)


def _is_adverbial(text: str, at: int) -> bool:
    """Whether all before the mark is but the opening of a sentence ("On Monday at 6 a.m.")."""
    return at < _ADVERBIAL_LIMIT_CHARS and bool(_OPENING_ADVERBIAL.match(text))


def _is_initial(token: str) -> bool:
    return len(token) == 2 and token[0].isalpha() and token[1] == "."


def _pair(token: str, before: str) -> bool:
    """Whether the two tokens are an abbreviation together, as in "ad es."."""
    return (before.rstrip(".").lower(), token.lower()) in PAIRS


def _after_number(text: str, token: str, before: str, at: int, end: int, lang: Language, *, final: bool) -> int:
    """A number and a full stop: an item of a list, an ordinal, or the end."""
    if len(token) <= 3 and (_opens(text, at, token) or (token in ("1", "１") and before.endswith(":"))):
        return NO
    if before.lower() in ("no.", "nr.", "n°", "nº", "№"):
        return end
    if _HANGUL.match(text, end + 1) and ends_korean_date(text, at):
        return NO
    if len(token) > 3 or not lang.ordinals:
        return end
    lead = before.lower() in ORDINAL_LEADS
    if not lead and not _may_be_ordinal(text, end):
        return end
    word = next_word(text, end + 1, final=final)
    if word is None:
        return WAIT
    plain = word.rstrip(".").replace("’", "'")
    if plain.lower() in ORDINAL_NOUNS:
        return NO
    return end if not lead or plain in lang.starters or plain.partition("'")[0] in lang.starters else NO


def _may_be_ordinal(text: str, end: int) -> bool:
    """Whether the word behind begins like one that goes with an ordinal; it need not be complete."""
    begun = begun_word(text, end + 1).lower()
    return any(noun.startswith(begun) or begun.startswith(noun) for noun in ORDINAL_NOUNS)


def _begins_plainly(begun: str) -> bool:
    """Whether a word beginning so is none that goes with a time of the day, nor a title or initial."""
    begun = begun.partition(".")[0]
    lower = begun.lower()
    if len(begun) < 2 or begun.isupper():
        return False
    names = AFTER_TIME | _HONORIFIC_AFTER_TIME
    return not any(name.startswith(lower) or lower.startswith(name) for name in names)


def follows_number_sign(char: str) -> bool:
    """Whether ``char`` begins a number or stands before one."""
    return char.isdigit() or char in NUMBER_SIGNS
