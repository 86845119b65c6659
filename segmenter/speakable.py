"""Markdown and other mark-up in, words out: the first half of the segmenter."""

from __future__ import annotations

import re

from segmenter import markup, tags
from segmenter.assemble import Assembler
from segmenter.blocks import Fence, Line, line_start, may_wrap
from segmenter.policy import Break, SegmentOptions
from segmenter.segment import Segment, SegmentKind
from segmenter.steps import Act, Region, Step
from segmenter.symbols import JOINERS, PICTURE_RUN, PICTURE_SELECTOR, PICTURES, PLAIN_OR_PICTURE
from segmenter.urls import skip_url, url_start

_PIECE_CHARS = 256
_SPECIAL = r"\s*_~`<\[\]!$\\&【)\ue200\u200d" + PICTURES + JOINERS
_PLAIN = re.compile(
    f"(?:[^{_SPECIAL}{PLAIN_OR_PICTURE}\\dhwfHWF]|[\\d{PLAIN_OR_PICTURE}](?=[^{PICTURE_SELECTOR}])"
    "|(?<=[A-Za-z0-9])[hwfHWF]|[hfHF](?=[^tT])|[wW](?=[^wW]))+"
)
_BLANKS = re.compile(r"[^\S\n]+")
_TARGET = re.compile(r"[()\n\\]")
_TARGET_LIMIT_CHARS = 2_000
_TOOL_CITATION = Region(re.compile("\ue201|\n"), 1, inline=True)
_LINE_REGION = Region(re.compile(r"(?=\n)"), 1)
_NO_BLANK_BEFORE = frozenset(".,!?;:)]…。，！？、；：")
_SHORT_MARKS = re.compile(r"[!*_)\"”’]{1,6}\Z")
_UNFINISHED = frozenset(".!?:…。！？：;；।؟")
_MAYBE_PICTURE = re.compile(f"[{PLAIN_OR_PICTURE}]")


class Cleaner:
    """Reads raw text once, from left to right, and tells an ``Assembler`` what is to be said.

    What it cannot understand yet it holds back: a tag at most 300 characters, a link's text 600, a formula 200, the
    begin of a line 100. Beyond that the text is taken as plain.
    """

    def __init__(self, sink: Assembler, *, starts_in_think: bool = False) -> None:
        self._sink = sink
        self._text = ""
        self._base = 0
        self._at = 0
        self._at_line_start = True
        self._line_nested = False
        self._line_level = Break.NONE
        self._after_blank = True
        self._in_list = False
        self._always_break = False
        self._table = False
        self._dropped = False
        self._glue = False
        self._opened: dict[str, int] = {}
        self._links: list[int] = []
        self._code_ticks = 0
        self._region: Region | None = tags.REASONING_END if starts_in_think else None
        self._region_depth = 1
        self._silent_kind = SegmentKind.SILENT
        self._fence: Fence | None = None
        self._fence_mid_line = False
        self._url_depth = -1
        self._target_depth = 0
        self._target_end = 0

    def feed(self, text: str) -> None:
        """Read more raw text."""
        self._text += text
        self._run(final=False)
        keep = max(0, self._at - 1)
        if keep:
            self._text = self._text[keep:]
            self._base += keep
            self._at -= keep

    def finish(self) -> None:
        """Read what was held back; nothing may follow."""
        self._run(final=True)

    def settle(self) -> bool:
        """The model pauses: take closing marks that were held back. Returns whether nothing is held now."""
        if self._reads_words() and _SHORT_MARKS.match(self._text, self._at):
            self._run(final=True)
        return self._at == len(self._text) and self._reads_words()

    def _reads_words(self) -> bool:
        return self._region is None and self._fence is None and not self._target_depth and self._url_depth < 0

    # ------------------------------------------------------------ dispatch
    def _run(self, *, final: bool) -> None:
        while self._at < len(self._text):
            if self._fence is not None:
                done = self._read_fence(final=final)
            elif self._region is not None:
                done = self._read_region(self._region, final=final)
            elif self._target_depth:
                done = self._read_target()
            elif self._url_depth >= 0:
                done = self._read_url(final=final)
            elif self._at_line_start:
                done = self._read_line_start(final=final)
            else:
                done = self._read_inline(final=final)
            if not done:
                return

    def _read_inline(self, *, final: bool) -> bool:
        text, at = self._text, self._at
        if self._code_ticks:
            return self._read_code(final=final)
        plain = _PLAIN.match(text, at, at + _PIECE_CHARS)
        if plain:
            self._say(plain[0], plain.end())
            return True
        char = text[at]
        if char == "\n":
            self._at = at + 1
            self._at_line_start = True
            self._line_level = Break.LINE
            self._sink.skipped(self._base + self._at)
            return True
        if char.isspace():
            blanks = _BLANKS.match(text, at)
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
            return markup.square(text, at, before, final=final)
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

    def _before(self) -> str:
        """The raw character before the position; "" at the begin of a line or of the text."""
        if self._at == 0:
            return ""
        char = self._text[self._at - 1]
        return "" if char == "\n" else char

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

    # ------------------------------------------------------------ saying
    def _say(self, said: str, end: int) -> None:
        """``said`` stands for the raw text from the position to ``end``."""
        sink, start, stop = self._sink, self._base + self._at, self._base + end
        verbatim = len(said) == end - self._at
        self._at = end
        if self._dropped:
            if said == ")" and sink.drop_open_bracket(stop):
                return
            if said[0] in _NO_BLANK_BEFORE:
                sink.drop_blank()
            elif self._glue and said[0].isalnum() and said[0] < "\u1100" and sink.last_char.isalnum():
                sink.blank(start)
            self._dropped = self._glue = False
        sink.text(said, range(start + 1, stop + 1) if verbatim else [*([start] * (len(said) - 1)), stop])

    def _blank(self, end: int) -> None:
        self._at = end
        self._sink.blank(self._base + end)

    def _hard_break(self, at: int, level: Break) -> None:
        self._sink.line_break(at, level)
        self._dropped = self._glue = False
        self._opened.clear()

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
        if self._line_nested or not begun:
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
        window = self._text[self._at : self._at + _PIECE_CHARS]
        newline = window.find("\n")
        if "|" in (window if newline < 0 else window[:newline]):
            self._at_line_start = False
            self._region, self._silent_kind = _LINE_REGION, SegmentKind.SILENT
            return True
        if newline < 0 and len(window) < _PIECE_CHARS and not final:
            return False
        self._table = False
        return None

    # ------------------------------------------------------------ stretches that are not spoken
    def _read_region(self, region: Region, *, final: bool) -> bool:
        text, at = self._text, self._at
        closed = region.close.search(text, at)
        if closed is not None:
            self._region_depth += 1 if closed.groupdict().get("open") else -1
            self._at = closed.start() if closed[0].startswith("\n") else closed.end()
            if self._region_depth <= 0:
                self._region = None
        else:
            self._at = len(text) if final else max(at, len(text) - region.hold)
        end = self._base + self._at
        if region.inline:
            self._sink.skipped(end)
        elif self._at > at:
            self._sink.silent(end, self._silent_kind)
        if self._region is None:
            self._silent_kind = SegmentKind.SILENT
        return closed is not None or self._at > at

    def _read_fence(self, *, final: bool) -> bool:
        text, at = self._text, self._at
        newline = text.find("\n", at)
        if self._fence_mid_line:
            self._at = len(text) if newline < 0 else newline + 1
            self._fence_mid_line = newline < 0
        else:
            found = self._fence.line(text, at, final=final) if self._fence else (True, at)
            if found is None:
                return False
            closed, self._at = found
            if closed:
                self._fence = None
                self._always_break = True
            else:
                self._fence_mid_line = True
        self._sink.silent(self._base + self._at, SegmentKind.CODE)
        return True

    # ------------------------------------------------------------ code spans, links, addresses, signs
    def _read_code(self, *, final: bool) -> bool:
        text, at = self._text, self._at
        if text[at] == "\n":
            self._code_ticks = 0
            return True
        if text[at].isspace():
            blanks = _BLANKS.match(text, at)
            self._blank(blanks.end() if blanks else at + 1)
            return True
        end = at
        if text[at] == "`":
            while end < len(text) and text[end] == "`" and end - at < _PIECE_CHARS:
                end += 1
            if end == len(text) and not final and end - at < _PIECE_CHARS:
                return False
            if end - at == self._code_ticks:
                self._code_ticks = 0
                self._sink.extend(self._base + end)
                self._at = end
                self._sink.skipped(self._base + end)
                return True
        else:
            while end < len(text) and end - at < _PIECE_CHARS and text[end] != "`" and not text[end].isspace():
                end += 1
        self._say(text[at:end], end)
        return True

    def _exclamation(self, *, final: bool) -> Step | None:
        text, at = self._text, self._at
        if at + 1 == len(text):
            return Step(Act.SAY, at + 1, "!") if final else None
        if text[at + 1] != "[":
            return Step(Act.SAY, at + 1, "!")
        link = markup.square(text, at + 1, "", final=final)
        if link is None:
            return None
        return Step(Act.MARK, at + 1, opens=True) if link.act is Act.LINK else Step(Act.SAY, at + 1, "!")

    def _url_step(self, *, final: bool) -> Step | None:
        step = url_start(self._text, self._at, final=final)
        if step is not None and step.act is Act.DROP:
            self._url_depth = 0
        return step

    def _read_url(self, *, final: bool) -> bool:
        self._at, self._url_depth, done = skip_url(self._text, self._at, self._url_depth, final=final)
        self._sink.skipped(self._base + self._at)
        return done

    def _ends_link(self) -> bool:
        """At "]": whether a link's text ends here; then its target is to be skipped."""
        position = self._base + self._at
        while self._links and self._links[-1] < position:
            self._links.pop()
        if not self._links or self._links.pop() != position:
            return False
        self._at += 2
        self._target_depth, self._target_end = 1, position + _TARGET_LIMIT_CHARS
        return True

    def _read_target(self) -> bool:
        """Skip the target of a link up to its closing bracket."""
        text, at = self._text, self._at
        stop = min(len(text), self._target_end - self._base)
        found = _TARGET.search(text, at, stop)
        self._at = stop if found is None else found.end()
        if found is not None:
            if found[0] == "\n":
                self._target_depth, self._at = 0, found.start()
            elif found[0] != "\\":
                self._target_depth += 1 if found[0] == "(" else -1
        if self._base + self._at >= self._target_end:
            self._target_depth = 0
        self._sink.extend(self._base + self._at)
        self._sink.skipped(self._base + self._at)
        return True

    def _maybe_picture(self, *, final: bool) -> Step | None:
        """A digit or sign that a selector behind it may turn into a picture."""
        text, at = self._text, self._at
        if at + 1 == len(text) and not final:
            return None
        if text[at + 1 : at + 2] in tuple(PICTURE_SELECTOR):
            return Step(Act.DROP, at + 2)
        return Step(Act.SAY, at + 1, text[at])


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
