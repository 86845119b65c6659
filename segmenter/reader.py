"""Reading raw text once: where it stands, what it passes on, and the stretches that are skipped."""

from __future__ import annotations

import abc
import re

from segmenter import tags
from segmenter.blocks import Fence
from segmenter.policy import Break
from segmenter.segment import SegmentKind
from segmenter.sink import Sink
from segmenter.steps import Region
from segmenter.urls import skip_url

PIECE_CHARS = 256
"""Text is passed on in pieces of at most this many characters."""

BLANKS = re.compile(r"[^\S\n]+")
_TARGET = re.compile(r"[()\n\\]")
_TARGET_LIMIT_CHARS = 2_000
_NO_BLANK_BEFORE = frozenset(".,!?;:)]…。，！？、；：")
_SHORT_MARKS = re.compile(r"[!*_)\"”’]{1,6}\Z")


class Reader(abc.ABC):
    """State and movement of the cleaner; subclasses say what lines and characters mean.

    A ``_read_*`` method moves on and returns True, or returns False if it needs more text.
    """

    def __init__(self, sink: Sink, *, starts_in_think: bool = False) -> None:
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
        self._bars = self._bars_above = False
        self._line_base = 0
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

    @abc.abstractmethod
    def _read_line_start(self, *, final: bool) -> bool:
        """At the begin of a line."""

    @abc.abstractmethod
    def _read_inline(self, *, final: bool) -> bool:
        """Inside of a line."""

    # ------------------------------------------------------------ saying
    def _before(self) -> str:
        """The raw character before the position; "" at the begin of a line or of the text."""
        if self._at == 0:
            return ""
        char = self._text[self._at - 1]
        return "" if char == "\n" else char

    def _say(self, said: str, end: int) -> None:
        """``said`` stands for the raw text from the position to ``end``."""
        sink, start, stop = self._sink, self._base + self._at, self._base + end
        self._bars = self._bars or "|" in said
        verbatim = len(said) == end - self._at
        self._at = end
        if self._dropped:
            if said == ")" and sink.drop_open_bracket(stop):
                return
            if said[0] in _NO_BLANK_BEFORE:
                sink.drop_blank()
                if said[0] == sink.last_char == ",":
                    said, start = said[1:], start + 1
                    sink.extend(start if said else stop)
                    if not said:
                        self._dropped = self._glue = False
                        return
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

    # ------------------------------------------------------------ stretches that are skipped
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

    def _read_code(self, *, final: bool) -> bool:
        text, at = self._text, self._at
        if text[at] == "\n":
            self._code_ticks = 0
            return True
        if text[at].isspace():
            blanks = BLANKS.match(text, at)
            self._blank(blanks.end() if blanks else at + 1)
            return True
        end = at
        if text[at] == "`":
            while end < len(text) and text[end] == "`" and end - at < PIECE_CHARS:
                end += 1
            if end == len(text) and not final and end - at < PIECE_CHARS:
                return False
            if end - at == self._code_ticks:
                self._code_ticks = 0
                self._sink.extend(self._base + end)
                self._at = end
                self._sink.skipped(self._base + end)
                return True
        else:
            while end < len(text) and end - at < PIECE_CHARS and text[end] != "`" and not text[end].isspace():
                end += 1
        self._say(text[at:end], end)
        return True
