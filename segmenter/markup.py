"""Inline mark-up: what starts at a special character, and how far it goes.

Each rule looks at ``text[at:]`` and returns a ``Step`` or None (wait for more text). It never looks further than its
limit, and a rule that has run into the limit calls the character plain.
"""

from __future__ import annotations

import html
import re

from segmenter.steps import Act, Region, Step

LINK_LIMIT_CHARS = 600
FORMULA_LIMIT_CHARS = 200
_CITE_LIMIT_CHARS = 60
_RUN_LIMIT_CHARS = 64


# ---------------------------------------------------------------- square brackets
_FOOTNOTE = re.compile(r"\[\^[^\]\s]{1,30}\]")
_NUMERIC = re.compile(r"\[\d{1,3}(?:\s?[,;–-]\s?\d{1,3}){0,12}\]")
_TOOL = re.compile(r"\[(?:oaicite|cite|citation|source|ref)[:_ ]\s?\d{1,4}\]", re.IGNORECASE)
_BRACKETS = re.compile(r"[\[\]\n]|\\[\[\]\\]")
_DEPTH_LIMIT = 4
_LENTICULAR = re.compile(r"【\d{1,3}(?:[†:][^】\n]*)?】")
_LENTICULAR_BEGUN = re.compile(r"【(?:\d{1,3}(?:[†:][^】\n]*)?)?\Z")


def square(text: str, at: int, before: str, word: str, *, final: bool) -> Step | None:
    """At "[": a link's text, a footnote mark, a citation, or brackets to be kept. ``word``: the letters before it."""
    plain = Step(Act.SAY, at + 1, "[")
    limit = min(len(text), at + LINK_LIMIT_CHARS)
    closing = _closing_bracket(text, at, limit)
    if closing < 0:
        undecided = closing == -1 and limit == len(text) and limit - at < LINK_LIMIT_CHARS and not final
        return None if undecided else plain
    inner = text[at : closing + 1]
    if not before.isalnum():
        for pattern in (_FOOTNOTE, _NUMERIC, _TOOL):
            if pattern.fullmatch(inner):
                return Step(Act.DROP, closing + 1)
    elif _FOOTNOTE.fullmatch(inner):
        return Step(Act.DROP, closing + 1)
    elif closing + 1 == len(text) and not final and _NUMERIC.fullmatch(inner):
        return None
    elif _NUMERIC.fullmatch(inner) and _is_note(text, at, closing, word):
        return Step(Act.DROP, closing + 1)
    if closing + 1 == len(text):
        return plain if final else None
    if text[closing + 1] == "(":
        is_link = not before.isalnum() or bool(re.match(r"\((?:https?:|www\.|/|#)", text[closing + 1 : closing + 8]))
        if before.isalnum() and not is_link and len(text) < closing + 8 and not final:
            return None
        return Step(Act.LINK, closing) if is_link else plain
    return plain


def _is_note(text: str, at: int, closing: int, word: str) -> bool:
    """Whether [3] directly behind a ``word`` is a note, not an index: it ends the sentence or clause."""
    if word and _is_wide(word[-1]):
        return True
    if closing + 1 < len(text) and text[closing + 1] not in ".,;:!?)[\n":
        return False
    return len(word) > 2 and text[at + 1] != "0"


def _closing_bracket(text: str, at: int, limit: int) -> int:
    """Position of the matching "]", -1 if it may still come, -2 if there is none."""
    depth = 0
    for found in _BRACKETS.finditer(text, at, limit):
        if found[0] == "[":
            depth += 1
            if depth > _DEPTH_LIMIT:
                return -2
        elif found[0] == "]":
            depth -= 1
            if depth == 0:
                return found.start()
        elif found[0] == "\n":
            return -2
    return -1


def lenticular(text: str, at: int, *, final: bool) -> Step | None:
    """At "【": a citation such as 【4†source】, else a bracket to be kept."""
    window = text[at : at + _CITE_LIMIT_CHARS]
    cited = _LENTICULAR.match(window)
    if cited:
        return Step(Act.DROP, at + cited.end())
    begun = _LENTICULAR_BEGUN.match(window) and len(window) < _CITE_LIMIT_CHARS
    return None if begun and not final else Step(Act.SAY, at + 1, "【")


# ---------------------------------------------------------------- formulas, escapes, entities
_MONEY = re.compile(r"\$\d[\d.,]{0,24}")
_VARIABLE = re.compile(r"\$(?:[A-Z_]{3}|\{|\()")
_FORMULA = re.compile(r"\$(?!\s)((?:[^$\n\\]|\\.)*?[^\s$\\]|)\$")
_LOOKS_LIKE_MATH = re.compile(r"[\\^_={}+<>|/*-]|^.{1,3}$|^[^\s]+$|\d")
_MATH_SURE = re.compile(r"\\[a-zA-Z]|[=^_]")
_DISPLAY = Region(re.compile(r"\$\$|\n[ \t\r]{0,8}\n"), 12)
_DISPLAY_INLINE = Region(_DISPLAY.close, 12, inline=True)
_BRACKETED = {
    "[": Region(re.compile(r"\\\]|\n[ \t\r]{0,8}\n"), 12),
    "(": Region(re.compile(r"\\\)|\n"), 2, inline=True),
}
_BEGIN = re.compile(r"\\begin\{([a-zA-Z]{1,20}\*?)\}")
_BEGIN_BEGUN = re.compile(r"\\b(?:e(?:g(?:i(?:n(?:\{[a-zA-Z]{0,20}\*?)?)?)?)?)?\Z")
_ENTITY = re.compile(r"&(?:[A-Za-z][A-Za-z0-9]{1,8}|#\d{1,6}|#[xX][0-9A-Fa-f]{1,5});")
_ENTITY_BEGUN = re.compile(r"&(?:[A-Za-z][A-Za-z0-9]{0,8}|#(?:\d{0,6}|[xX][0-9A-Fa-f]{0,5}))?\Z")
_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")


def dollar(text: str, at: int, before: str, *, final: bool) -> Step | None:
    """At "$": money, a formula or a variable's name."""
    plain = Step(Act.SAY, at + 1, "$")
    window = text[at : at + FORMULA_LIMIT_CHARS]
    limited = final or len(window) == FORMULA_LIMIT_CHARS
    run = len(window) - len(window.lstrip("$"))
    if run == len(window) and not limited:
        return None
    if run > 2 or (run == 2 and window[2:3] in ("", ".", ",")):
        return Step(Act.SAY, at + run, "$" * run)
    if run == 2:
        return Step(Act.REGION, at + 2, region=_DISPLAY if before in ("", "\n") else _DISPLAY_INLINE)
    money = _MONEY.match(window)
    if money:
        if money.end() == len(window):
            return plain if limited else None
        if window[money.end()] not in "\\^_+-=*/{$" and not window[money.end()].isalpha():
            return plain
    if window[1:2].isspace() or _VARIABLE.match(window):
        return plain
    formula = _FORMULA.match(window)
    if formula:
        if formula.end() == len(window) and not limited:
            return None
        follows = window[formula.end() : formula.end() + 1]
        sound = formula[1] and (not follows.isalnum() or _is_wide(follows)) and _LOOKS_LIKE_MATH.search(formula[1])
        return Step(Act.DROP, at + formula.end()) if sound else plain
    return plain if limited or "\n" in window else None


def backslash(text: str, at: int, *, final: bool) -> Step | None:
    """At a backslash: a formula's bracket, an environment, an escaped mark, or itself."""
    plain = Step(Act.SAY, at + 1, "\\")
    if at + 1 == len(text):
        return plain if final else None
    following = text[at + 1]
    if following in "[(":
        return _bracketed_formula(text, at, following, final=final)
    if following == "b":
        begun = _BEGIN.match(text, at, at + 40)
        if begun:
            close = re.compile(rf"\\end\{{{re.escape(begun[1])}\}}|\n[ \t\r]{{0,8}}\n")
            return Step(Act.REGION, begun.end(), region=Region(close, 40))
        return None if _BEGIN_BEGUN.match(text, at) and not final else plain
    return Step(Act.SAY, at + 2, following) if following in _PUNCTUATION else plain


def _bracketed_formula(text: str, at: int, opening: str, *, final: bool) -> Step | None:
    region = _BRACKETED[opening]
    window = text[at + 2 : at + 2 + FORMULA_LIMIT_CHARS]
    closing = region.close.search(window)
    if closing is None and len(window) < FORMULA_LIMIT_CHARS and not final:
        return None
    content = window[: closing.start()] if closing else window
    closed = closing is not None and closing[0][0] == "\\"
    if _MATH_SURE.search(content) or (closed and len(content.strip()) < 3 and content.strip()):
        return Step(Act.REGION, at + 2, region=region)
    return Step(Act.SAY, at + 2, opening)


def ampersand(text: str, at: int, *, final: bool) -> Step | None:
    """At "&": an HTML entity or itself."""
    entity = _ENTITY.match(text, at)
    if entity:
        return Step(Act.SAY, entity.end(), html.unescape(entity[0]))
    return None if not final and _ENTITY_BEGUN.match(text, at) else Step(Act.SAY, at + 1, "&")


# ---------------------------------------------------------------- emphasis and code spans
def _is_wide(char: str) -> bool:
    return char >= "\u1100" and char.isalnum()


def emphasis(text: str, at: int, before: str, opened: dict[str, int], *, final: bool) -> Step | None:
    """At "*", "_" or "~": emphasis, or the character itself. ``opened`` counts the marks that are open."""
    char = text[at]
    end = at
    while end < len(text) and text[end] == char and end - at < _RUN_LIMIT_CHARS:
        end += 1
    if end == len(text) and end - at < _RUN_LIMIT_CHARS and not final:
        return None
    run = end - at
    after = text[end] if end < len(text) else ""
    say = Step(Act.SAY, end, text[at:end])
    starts_word = bool(after) and not after.isspace()
    ends_word = bool(before) and not before.isspace()
    if (char == "~" and run < 2) or not (starts_word or ends_word):
        return say
    inside = before.isalnum() and after.isalnum()
    wide = _is_wide(before) or (after != "" and _is_wide(after))
    product = inside and run == 1 and before.isdigit() and not wide
    if opened.get(char) and ends_word and not (inside and char == "_") and not product:
        opened[char] = max(0, opened[char] - run)
        return Step(Act.MARK, end)
    if inside and not wide and (char == "_" or run == 1 or before.isdigit()):
        return say
    if starts_word and not (ends_word and before.isalnum() and not wide):
        opened[char] = run
        return Step(Act.MARK, end, opens=True)
    return say if run < 4 else Step(Act.MARK, end)


def backticks(text: str, at: int, before: str, *, final: bool) -> Step | None:
    """At a back-tick: a code span, or an apostrophe inside of a word."""
    end = at
    while end < len(text) and text[end] == "`" and end - at < _RUN_LIMIT_CHARS:
        end += 1
    if end == len(text) and end - at < _RUN_LIMIT_CHARS and not final:
        return None
    if end - at == 1 and end < len(text) and before.isalnum() and text[end].isalnum() and before < "\u1100":
        return Step(Act.SAY, end, "`")
    return Step(Act.CODE, end)
