"""Bare addresses: where they begin and end."""

from __future__ import annotations

import re

from segmenter.steps import Act, Step

_URL_STARTS = ("http://", "https://", "ftp://", "www.")
_URL = re.compile(r"[^\s<>\"'`«»“”\[\]{}|\\^（）【】「」『』，。、；：！？…\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]+")
_URL_TAIL = re.compile(r"[.,;:!?*_~)]+$")
_URL_TAIL_LIMIT_CHARS = 8


def url_start(text: str, at: int, *, final: bool) -> Step | None:
    """At a letter that may begin "https://" or "www.": that, or the letter. None: more text is needed."""
    begun = text[at : at + 8].lower()
    for start in _URL_STARTS:
        if begun.startswith(start):
            return Step(Act.DROP, at + len(start))
    waits = not final and len(begun) < 8 and any(start.startswith(begun) for start in _URL_STARTS)
    return None if waits else Step(Act.SAY, at + 1, text[at])


def skip_url(text: str, at: int, depth: int, *, final: bool) -> tuple[int, int, bool]:
    """Skip an address up to white space or a bracket that was opened before it, without its last marks.

    ``depth`` counts the brackets open inside of it. Returns the position reached, the new depth (-1: the address has
    ended) and whether it has ended.
    """
    body = _URL.match(text, at)
    end = body.end() if body else at
    ended = end < len(text) or final
    if body is None:
        return at, -1, True
    tail = _URL_TAIL.search(body[0][-_URL_TAIL_LIMIT_CHARS:])
    stop = end - len(tail[0]) if tail else end
    for position in range(at, stop):
        if text[position] == "(":
            depth += 1
        elif text[position] == ")":
            if depth == 0:
                return position, -1, True
            depth -= 1
    if ended and depth > 0 and tail and tail[0].startswith(")"):
        stop += 1
    return stop, -1 if ended else depth, ended
