"""Signs before and between numbers: minus or a dash, plus, about, equals."""

from __future__ import annotations

import re

from segmenter.verbalise.language import Language

_SIGNS = re.compile(r"([-−–+±~≈<>≤≥=×÷*·/])[ \u00a0\u202f]?")
_OPERATED = re.compile(r"[0-9)²³%°½¼¾][ \u00a0\u202f]?\Z")
_DEGREES = re.compile(r"[0-9.,]{1,8}[ \u00a0]?(?:°|℃|℉|度|도)")
_EAST_ASIAN = re.compile(r"[\u1100-\u11ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_UNTIL = re.compile(
    r"(?:[0-9][ \u00a0]?(?:[ap]\.?m\.?|h|Uhr|[%°€$£]|°[CF]|[kcm]?m|[km]?g|km/h|[GM]B))[ \u00a0]?\Z", re.IGNORECASE
)


def read_sign(text: str, start: int, language: Language) -> tuple[int, str] | None:
    """The words for a sign before a number, or the sign itself: (end, words); None if no sign begins at ``start``."""
    found = _SIGNS.match(text, start)
    if not found:
        return None
    sign, end, before = found[1], found.end(), text[max(0, start - 3) : start]
    signed = sign in "-−+±" and text[start - 1 : start].isspace() and end == start + 1
    if sign in "-–" and _UNTIL.search(text[max(0, start - 8) : start]):
        left = "" if text[start - 1].isspace() else " "
        return end, f"{left}{language.to} " if language.spaced else language.to
    kind = _operator if _OPERATED.search(before) and not signed else _prefix
    words = kind(language, text, sign, start, end)
    if words:
        return end, words
    if sign in "-–~" and _EAST_ASIAN.match(text[start - 1 : start]):
        return end, language.to
    return start + 1, " " if sign == "-" and text[start - 1 : start].isalpha() else sign


def _operator(language: Language, text: str, sign: str, start: int, end: int) -> str:
    spaced = text[start - 1] in " \u00a0\u202f" and end > start + 1
    if sign in "-−–" and (sign == "−" or (spaced and "=" in text[max(0, start - 24) : end + 24])):
        return language.minus
    if sign == "/" and not spaced:
        return ""
    names = {
        "+": language.plus, "±": language.plus_minus, "×": language.times, "*": language.times,
        "·": language.times, "÷": language.divided, "/": language.divided, "=": language.equals,
        "<": language.less, ">": language.more, "≤": language.at_most, "≥": language.at_least,
    }  # fmt: skip
    return names.get(sign, "")


def _prefix(language: Language, text: str, sign: str, start: int, end: int) -> str:
    before = text[start - 1 : start]
    if sign in "-−–+" and (before.isalnum() or before in (")", "-") or (end > start + 1 and before)):
        return ""
    if sign in "-−–":
        return language.cold if language.cold and _DEGREES.match(text, end) else language.minus
    names = {
        "+": language.plus, "±": language.plus_minus, "~": language.about, "≈": language.about,
        "<": language.less, ">": language.more, "≤": language.at_most, "≥": language.at_least,
        "=": language.equals,
    }  # fmt: skip
    return names.get(sign, "")
