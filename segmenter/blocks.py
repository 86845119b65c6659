"""What a line begins with: fences, headings, bullets, quotes, tables, rules, notes."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

_LINE_LIMIT_CHARS = 80
_INFO_LIMIT_CHARS = 100
_INDENT_LIMIT_CHARS = 64

_RULE = re.compile(r"([*_-])(?:[ \t]*+\1){2,}+[ \t\r]*+(?=\n|\Z)|={3,}+[ \t\r]*+(?=\n|\Z)")
_RULE_BEGUN = re.compile(r"(?:([*_-])(?:[ \t]*+\1)*+|=++)[ \t\r]*+\Z")
_FENCE = re.compile(r"(`{3,20}|~{3,20})([^\n]*)")
_HEADING = re.compile(r"#{1,6}(?=[ \t])")
_BULLET = re.compile(r"[-*+•·–—◦▪‣●⁃・][ \t]+(?=\S)|[•◦▪‣●⁃・](?=\S)")
_BULLET_BEGUN = re.compile(r"[-*+•·–—◦▪‣●⁃・][ \t]*\Z")
_TASK = re.compile(r"\[[ xX]\][ \t]+")
_NUMBER = re.compile(r"(?:\d{1,3}(?:\.\d{1,2}){0,3}[.)]|\d{1,3}\.\))(?=[ \t])|\d{1,2}、|\d\ufe0f?\u20e3")
_NUMBER_BEGUN = r"\d{1,3}(?:\.\d{0,2}){0,3}[.)]{0,2}\Z|\d\ufe0f?\Z"
_LETTER = re.compile(r"(?:[a-z]|i{2,3}|iv|vi{1,3}|ix)[.)](?=[ \t])|\((?:[a-z]|[ivx]{1,4}|\d{1,2})\)(?=[ \t])")
_LETTER_BEGUN = r"(?:[a-z]|i{2,3}|iv|vi{1,3}|ix)[.)]?\Z|\((?:(?:[a-z]|[ivx]{1,4}|\d{1,2})\)?)?\Z"
_NOTE = re.compile(r"\[\^[^\]\s]{1,30}\]:|\[[^\]\n^]{1,60}\]:[ \t]*<?(?:https?:|/|#|www\.)")
_NOTE_BEGUN = re.compile(r"\[(?:\^?[^\]\n]{0,60}(?:\](?::[ \t]*<?(?:h(?:t(?:t(?:p(?:s)?)?)?)?|w(?:w(?:w)?)?)?)?)?)?\Z")
_DELIMITER = re.compile(r":?-{1,}+:?[ \t]*+(?:\|[ \t]*+:?-{1,}+:?[ \t]*+)++\|?[ \t\r]*+(?=\n|\Z)")
_DELIMITER_BEGUN = re.compile(r"[:| \t\r-]*+\Z")
_INDENT = re.compile(rf"[ \t\r\u00a0]{{0,{_INDENT_LIMIT_CHARS}}}")
_WRAPS = re.compile(r"[*_\"'“‘„«(\[`~]{0,4}")


class Line(enum.Enum):
    """What the begin of a line is."""

    TEXT = enum.auto()
    WRAPPED = enum.auto()
    """Text that carries on the line above if that is unfinished."""
    BLANK = enum.auto()
    HEADING = enum.auto()
    BULLET = enum.auto()
    NUMBER = enum.auto()
    QUOTE = enum.auto()
    FENCE = enum.auto()
    INDENTED = enum.auto()
    TABLE = enum.auto()
    RULE = enum.auto()
    NOTE = enum.auto()


@dataclass(frozen=True, slots=True)
class LineStart:
    """``end``: where the line's own text begins (for blocks that are not spoken: where they begin)."""

    line: Line
    end: int
    fence: str = ""
    info: str = ""


def line_start(text: str, at: int, *, nested: bool, may_be_code: bool, final: bool) -> LineStart | None:
    """Classify the line that begins at ``text[at]``, or None for more text.

    ``nested``: a bullet or quote mark stands before. ``may_be_code``: four blanks make a code block here.
    """
    indent = _INDENT.match(text, at)
    begin = indent.end() if indent else at
    if begin - at == _INDENT_LIMIT_CHARS:
        return LineStart(Line.TEXT, begin)
    if begin == len(text):
        return LineStart(Line.TEXT, begin) if final else None
    char = text[begin]
    if char == "\n":
        return LineStart(Line.BLANK, begin + 1)
    if may_be_code and begin - at + 3 * text.count("\t", at, begin) >= 4:
        return LineStart(Line.INDENTED, begin)
    if char == ">":
        return LineStart(Line.QUOTE, begin + 1)
    if char == "|":
        return LineStart(Line.TABLE, begin)
    if char in "`~":
        return _fence(text, begin, final=final)
    if char == "#":
        return _simple(text, begin, _HEADING, Line.HEADING, r"#{1,6}\Z", final=final)
    if char in "*_-=:•·–—+◦▪‣●⁃・":
        return _rule_or_bullet(text, begin, final=final)
    if char.isdigit():
        return _simple(text, begin, _NUMBER, Line.NUMBER, _NUMBER_BEGUN, final=final)
    if char == "(" or "a" <= char <= "z":
        return _simple(text, begin, _LETTER, Line.NUMBER, _LETTER_BEGUN, final=final)
    if char == "[":
        note = _NOTE.match(text, begin)
        if note:
            return LineStart(Line.NOTE, begin)
        if not final and len(text) - begin < _LINE_LIMIT_CHARS and _NOTE_BEGUN.match(text, begin):
            return None
        if nested:
            task = _TASK.match(text, begin)
            if task:
                return LineStart(Line.TEXT, task.end())
    return _plain(text, begin, final=final)


_CJK_GOES_ON = frozenset("，、：のをにへとがはもでや的和与在是把被了")
_WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")


def wraps_wide(last: str, char: str) -> bool:
    """Whether a line that begins with ``char`` carries on one that ends in ``last``, in Chinese or Japanese."""
    return last in _CJK_GOES_ON and last != "：" and bool(_WIDE.match(char))


def may_wrap(char: str) -> bool:
    """Whether a line that begins with ``char`` can carry on the line above."""
    return char.islower() or char.isdecimal() or bool(_WRAPS.fullmatch(char))


def _plain(text: str, begin: int, *, final: bool) -> LineStart | None:
    wraps = _WRAPS.match(text, begin)
    end = wraps.end() if wraps else begin
    if end == len(text):
        return LineStart(Line.TEXT, begin) if final else None
    goes_on = text[end].islower() or text[end].isdecimal()
    return LineStart(Line.WRAPPED if goes_on else Line.TEXT, begin)


def _simple(
    text: str, begin: int, pattern: re.Pattern[str], line: Line, begun: str, *, final: bool
) -> LineStart | None:
    found = pattern.match(text, begin)
    if found:
        return LineStart(line, begin if line is Line.NUMBER else found.end())
    if not final and re.compile(begun).match(text, begin):
        return None
    return _plain(text, begin, final=final)


def _rule_or_bullet(text: str, begin: int, *, final: bool) -> LineStart | None:
    window = text[begin : begin + _LINE_LIMIT_CHARS]
    limited = final or len(window) == _LINE_LIMIT_CHARS
    for whole, begun, line in ((_RULE, _RULE_BEGUN, Line.RULE), (_DELIMITER, _DELIMITER_BEGUN, Line.TABLE)):
        if begun.match(window) and not limited:
            return None
        found = whole.match(window)
        if found and (found.end() < len(window) or limited):
            return LineStart(line, begin)
    bullet = _BULLET.match(window)
    if bullet:
        return LineStart(Line.BULLET, begin + bullet.end())
    if _BULLET_BEGUN.match(window) and not limited:
        return None
    return _plain(text, begin, final=final)


def _fence(text: str, begin: int, *, final: bool) -> LineStart | None:
    window = text[begin : begin + _INFO_LIMIT_CHARS]
    limited = final or len(window) == _INFO_LIMIT_CHARS
    run = len(window) - len(window.lstrip(window[0]))
    if run < 3:
        return None if run == len(window) and not final else _plain(text, begin, final=final)
    fence = _FENCE.match(window)
    if fence is None:
        return _plain(text, begin, final=final)
    if fence[1][0] == "`" and "`" in fence[2].lstrip("`"):
        return LineStart(Line.TEXT, begin)
    if "\n" not in window and not limited:
        return None
    return LineStart(Line.FENCE, begin, fence[1], fence[2].strip())


_FENCE_LINE_LIMIT_CHARS = 48
_MARKDOWN = frozenset(("markdown", "md", "mdx"))
_FENCE_LINE = re.compile(r"[ \t>]{0,24}(`{3,20}|~{3,20})[ \t]*([^\s`~]*)[^\n]*")


class Fence:
    """A fenced code block being read line by line. Fences inside of a Markdown block nest."""

    def __init__(self, mark: str, info: str) -> None:
        self._mark = mark
        self._nests = info.lower() in _MARKDOWN
        self._depth = 1

    def line(self, text: str, at: int, *, final: bool) -> tuple[bool, int] | None:
        """Look at the line that begins at ``text[at]``: (whether the block ends with it, where to go on).

        None: more text is needed. The position returned is at the new line, or as far as it is sure that the
        line is no fence.
        """
        newline = text.find("\n", at, at + _FENCE_LINE_LIMIT_CHARS)
        if newline < 0 and len(text) - at < _FENCE_LINE_LIMIT_CHARS and not final:
            return None
        end = newline if newline >= 0 else min(len(text), at + _FENCE_LINE_LIMIT_CHARS)
        found = _FENCE_LINE.fullmatch(text, at, end)
        if found and found[1][0] == self._mark[0] and len(found[1]) >= len(self._mark):
            if not found[2]:
                self._depth -= 1
            elif self._nests:
                self._depth += 1
        return self._depth == 0, end
