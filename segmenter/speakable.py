"""Markdown and other mark-up in, words out: the first half of the segmenter."""

from __future__ import annotations

import re

from segmenter import markup, tags
from segmenter.assemble import Assembler
from segmenter.blocks import Fence, Line, line_start, may_wrap, wraps_wide
from segmenter.policy import Break, SegmentOptions
from segmenter.reader import BLANKS, PIECE_CHARS, Reader
from segmenter.segment import Segment, SegmentKind
from segmenter.steps import Act, Region, Step
from segmenter.symbols import JOINERS, PICTURE_RUN, PICTURE_SELECTOR, PICTURES, PLAIN_OR_PICTURE
from segmenter.urls import url_start

_SPECIAL = r"\s*_~`<\[\]!$\\&【)\ue200\u200d" + PICTURES + JOINERS
_ORDINARY = f"[^{_SPECIAL}{PLAIN_OR_PICTURE}\\dhwfHWF]"
_LETTERS = (
    f"(?:{_ORDINARY}|[\\d{PLAIN_OR_PICTURE}](?=[^{PICTURE_SELECTOR}])"
    "|(?<=[A-Za-z0-9])[hwfHWF]|[hfHF](?=[^tT])|[wW](?=[^wW]))+"
)
_PLAIN = re.compile(f"{_LETTERS}(?: (?={_ORDINARY}){_LETTERS})*")
_TOOL_CITATION = Region(re.compile("\ue201|\n"), 1, inline=True)
_LINE_REGION = Region(re.compile(r"(?=\n)"), 1)
_UNFINISHED = frozenset(".!?:…。！？：;；।؟")
_MAYBE_PICTURE = re.compile(f"[{PLAIN_OR_PICTURE}]")


class Cleaner(Reader):
    """Reads raw text once, from left to right, and tells an ``Assembler`` what is to be said.

    What it cannot understand yet it holds back: a tag at most 300 characters, a link's text 600, a formula 200, the
    begin of a line 100. Beyond that the text is taken as plain.
    """

    def _read_inline(self, *, final: bool) -> bool:
        text, at = self._text, self._at
        if self._code_ticks:
            return self._read_code(final=final)
        plain = _PLAIN.match(text, at, at + PIECE_CHARS)
        if plain:
            self._say(plain[0], plain.end())
            return True
        char = text[at]
        if char == "\n":
            self._at = at + 1
            self._at_line_start = True
            self._line_level = Break.LINE
            self._bars_above, self._bars = self._bars, False
            self._sink.skipped(self._base + self._at)
            return True
        if char.isspace():
            blanks = BLANKS.match(text, at)
            self._blank(blanks.end() if blanks else at + 1)
            return True
        if char == "]" and self._ends_link():
            return True
        step = self._understand(char, final=final)
        if step is None:
            return False
        self._follow(step)
        return True

    def _understand(self, char: str, *, final: bool) -> Step | None:
        text, at = self._text, self._at
        before = self._before()
        if char == "<":
            return tags.angle(text, at, before, final=final)
        if char == "[":
            return markup.square(text, at, before, self._sink.last_letters(), final=final)
        if char in "*_~":
            return markup.emphasis(text, at, before, self._opened, final=final)
        if char == "`":
            return markup.backticks(text, at, before, final=final)
        if char == "$":
            return markup.dollar(text, at, before, final=final)
        if char == "\\":
            return markup.backslash(text, at, final=final)
        if char == "&":
            return markup.ampersand(text, at, final=final)
        if char == "【":
            return markup.lenticular(text, at, final=final)
        if char == "!":
            return self._exclamation(final=final)
        if char in "hwfHWF":
            return self._url_step(final=final)
        if char == "\ue200":
            return Step(Act.REGION, at + 1, region=_TOOL_CITATION)
        if char.isdigit() or _MAYBE_PICTURE.match(char):
            return self._maybe_picture(final=final)
        pictures = PICTURE_RUN.match(text, at)
        if pictures and (char != "\u200d" or PICTURE_RUN.match(before)):
            return Step(Act.DROP, pictures.end())
        return Step(Act.SAY, at + 1, char)

    def _follow(self, step: Step) -> None:
        sink, end = self._sink, self._base + step.end
        if step.act is Act.SAY:
            if step.say.isspace():
                self._blank(step.end)
            else:
                self._say(step.say, step.end)
            return
        if step.act is Act.CODE:
            self._code_ticks = step.end - self._at
            sink.code_span()
        elif step.act is Act.LINK:
            self._links = [*self._links[-4:], end]
            step = Step(Act.LINK, self._at + 1)
            end = self._base + step.end
        elif step.act is Act.BREAK:
            self._hard_break(end, Break.LINE)
            self._at = step.end
            sink.skipped(end)
            return
        elif step.act is Act.REGION and step.region is not None:
            self._region, self._region_depth = step.region, 1
            if not step.region.inline:
                self._hard_break(self._base + self._at, Break.LINE)
                sink.silent(end, SegmentKind.SILENT)
        elif step.act is Act.DROP:
            self._glue = True
        self._at = step.end
        if step.act in (Act.DROP, Act.REGION):
            self._dropped = True
        if step.act is not Act.REGION:
            if not step.opens and step.act is not Act.LINK:
                sink.extend(end)
            sink.skipped(end)

    def _exclamation(self, *, final: bool) -> Step | None:
        text, at = self._text, self._at
        if at + 1 == len(text):
            return Step(Act.SAY, at + 1, "!") if final else None
        if text[at + 1] != "[":
            return Step(Act.SAY, at + 1, "!")
        link = markup.square(text, at + 1, "", "", final=final)
        if link is None:
            return None
        return Step(Act.MARK, at + 1, opens=True) if link.act is Act.LINK else Step(Act.SAY, at + 1, "!")

    def _url_step(self, *, final: bool) -> Step | None:
        step = url_start(self._text, self._at, final=final)
        if step is not None and step.act is Act.DROP:
            self._url_depth = 0
        return step

    def _maybe_picture(self, *, final: bool) -> Step | None:
        """A digit or sign that a selector behind it may turn into a picture."""
        text, at = self._text, self._at
        if at + 1 == len(text) and not final:
            return None
        if text[at + 1 : at + 2] in tuple(PICTURE_SELECTOR):
            return Step(Act.DROP, at + 2)
        return Step(Act.SAY, at + 1, text[at])

    # ------------------------------------------------------------ lines
    def _read_line_start(self, *, final: bool) -> bool:
        code = self._after_blank and not self._in_list and not self._line_nested
        found = line_start(self._text, self._at, nested=self._line_nested, may_be_code=code, final=final)
        if found is None:
            self._break_early()
            return False
        if self._table and not self._line_nested:
            held = self._read_table_row(final=final)
            if held is not None:
                return held
        line, end = found.line, found.end
        if line is Line.BLANK:
            self._hard_break(self._base + end, Break.PARAGRAPH)
            self._at = end
            self._after_blank, self._line_nested, self._table = True, False, False
            self._sink.skipped(self._base + end)
            return True
        if line is Line.TEXT and end == len(self._text) and final and end > self._at:
            self._at = end
            return True
        self._begin_line(line)
        self._line_base = self._base + self._at
        self._bars_above = False
        self._after_blank = line is Line.INDENTED
        if line is Line.FENCE:
            self._fence = Fence(found.fence, found.info)
            self._fence_mid_line = True
            self._at_line_start = self._line_nested = False
        elif line in (Line.TABLE, Line.RULE, Line.NOTE, Line.INDENTED):
            self._table = line is Line.TABLE
            self._at_line_start = self._line_nested = False
            self._region = _LINE_REGION
            self._silent_kind = SegmentKind.CODE if line is Line.INDENTED else SegmentKind.SILENT
        else:
            nests = line in (Line.BULLET, Line.QUOTE, Line.HEADING)
            self._line_nested = nests and line is not Line.HEADING
            self._at_line_start = self._line_nested
        self._at = end
        self._sink.skipped(self._base + end)
        return True

    def _break_early(self) -> None:
        """The line is not understood yet, but if it surely does not carry on the one above, that one can leave."""
        begun = self._text[self._at :].lstrip(" \t\r\u00a0")[:1]
        if self._line_nested or not begun or (self._bars_above and begun in "-:|"):
            return
        if wraps_wide(self._sink.last_char, begun):
            return
        if self._always_break or self._sink.last_char in _UNFINISHED or not may_wrap(begun):
            self._hard_break(self._base + self._at, self._line_level)

    def _begin_line(self, line: Line) -> None:
        """Break before the line unless it carries on the one above, and note what it is."""
        sink = self._sink
        position = self._base + self._at
        if not self._line_nested:
            wraps = line is Line.WRAPPED and not self._always_break and not self._after_blank
            if wraps and sink.last_char and sink.last_char not in _UNFINISHED and not self._code_ticks:
                sink.blank(position)
                return
            if line is Line.TEXT and not self._always_break and not self._after_blank and not self._code_ticks:
                begun = self._text[self._at :].lstrip(" \t\r\u00a0")[:1]
                if sink.last_char and wraps_wide(sink.last_char, begun):
                    sink.extend(position)
                    return
            if line is Line.TABLE and self._bars_above and self._text[self._at :].lstrip()[:1] != "|":
                sink.silence_line(self._line_base, position)
            self._hard_break(position, self._line_level)
            self._code_ticks = 0
            self._links.clear()
            sink.block(SegmentKind.SENTENCE)
            if line in (Line.TEXT, Line.WRAPPED, Line.HEADING) and self._after_blank and self._at_column_zero():
                self._in_list = False
        self._always_break = line is Line.HEADING
        if line in (Line.BULLET, Line.NUMBER):
            self._in_list = True
            sink.block(SegmentKind.LIST_ITEM)
        elif line is Line.QUOTE:
            sink.block(SegmentKind.QUOTE)
        elif line is Line.HEADING:
            sink.block(SegmentKind.HEADING)

    def _at_column_zero(self) -> bool:
        return self._at < len(self._text) and not self._text[self._at].isspace()

    def _read_table_row(self, *, final: bool) -> bool | None:
        """In a table: a line with a bar is a row. None: the table is over."""
        window = self._text[self._at : self._at + PIECE_CHARS]
        newline = window.find("\n")
        if "|" in (window if newline < 0 else window[:newline]):
            self._at_line_start = False
            self._region, self._silent_kind = _LINE_REGION, SegmentKind.SILENT
            return True
        if newline < 0 and len(window) < PIECE_CHARS and not final:
            return False
        self._table = False
        return None


def speakable(text: str) -> str:
    """What a voice should say of a whole text: the spoken parts, joined by single blanks."""
    assembler = Assembler(SegmentOptions(first_by_clause=False, max_chars=100_000))
    assembler.arrived(text)
    cleaner = Cleaner(assembler)
    cleaner.feed(text)
    cleaner.finish()
    assembler.finish(len(text))
    segments: list[Segment] = assembler.take()
    return " ".join(segment.spoken for segment in segments if segment.spoken)
