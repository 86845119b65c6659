"""Telephone numbers: when digits are dialled, and how they are said."""

from __future__ import annotations

import re

from segmenter.verbalise.language import Language

_GLUED = re.compile(r"[A-Za-z0-9\u00c0-\u04ff]")
_RUN = re.compile(r"[+(]?[0-9][0-9()./\- \u00a0]{4,24}")
_WORDS = re.compile(
    r"(?:\b(?:tel|tél|тел|phone|telephone|telefon\w*|téléphone|teléfono|telefone|call|dial|fax|hotline|whatsapp|handy"
    r"|mobile|cell|móvil|celular|cellulare|numéro|номер|телефон\w*|звоните|llame|llama|llamar|appelez|chiama|chiami|ligue)\b|电话|電話|手机|致电|拨打|전화\w*)"
    r"[.:：]?\s{0,2}(?:\b(?:is|us|at|on|me|number|nummer|unter|al|au|ao|по|ist|es|est)\b[:：]?\s{0,2}|번호[는:]?\s?|番号[は:]?\s?|[是为:]){0,2}\Z",
    re.IGNORECASE,
)
_AMERICAN = re.compile(r"(?:1[ .-])?(?:\([2-9][0-9]{2}\)[ ]?|[2-9][0-9]{2}[.-])[0-9]{3}[.-][0-9]{4}\Z")
_TRUNK = re.compile(r"8[ -]?\([0-9]{3,5}\)")
_CHINESE = re.compile(r"1[3-9][0-9][ -]?[0-9]{4}[ -]?[0-9]{4}\Z")
_DATE = re.compile(r"[0-9]{1,2}([./-])[0-9]{1,2}\1(?:[0-9]{4}|[0-9]{2})\Z")


def phone_end(text: str, start: int, language: Language) -> int:
    """Where a telephone number that starts at ``start`` ends; ``start`` if there is none."""
    found = _RUN.match(text, start)
    if not found:
        return start
    end = found.end()
    while not text[end - 1].isdecimal():
        end -= 1
    written = text[start:end]
    if text[end : end + 1].isdecimal() or _DATE.match(written) or written.count("(") != written.count(")"):
        return start
    return end if _is_phone(written, text[max(0, start - 40) : start], language) else start


def _is_phone(written: str, before: str, language: Language) -> bool:
    digits = sum(map(str.isdecimal, written))
    if not 5 <= digits <= 15 or _GLUED.match(before[-1:]):
        return False
    if _WORDS.search(before):
        return True
    if written[0] == "+":
        return digits >= 8 and "." not in written
    if _AMERICAN.match(written) or _TRUNK.match(written) or _CHINESE.match(written):
        return True
    if written[0] == "(":
        return digits >= 7 and re.match(r"\([0-9]{2,5}\)[ -]?[0-9]", written) is not None
    marks = set(re.sub(r"[0-9()\u00a0]", "", written))
    return written[0] == "0" and written[1] not in ".,:" and 9 <= digits <= 13 and marks <= set(language.phone_marks)


def phone_words(written: str, language: Language) -> str:
    """Digit by digit (or in pairs), with a pause between the groups as written."""
    groups = re.findall(r"[0-9]+", written)
    say = _pair if language.pair_phones else Language.dialled
    said = [say(language, group) for group in groups]
    words = language.pause.join(said)
    return language.join(language.plus, words) if written[0] == "+" else words


def _pair(language: Language, group: str) -> str:
    return language.dialled(group) if group[0] == "0" or len(group) != 2 else language.plain(int(group))
