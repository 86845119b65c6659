"""What starts at "<": tags, comments, automatic links, reasoning blocks, channel markers, or just "less than"."""

from __future__ import annotations

import re

from segmenter.reasoning import REASONING_TAGS
from segmenter.steps import Act, Region, Step

TAG_LIMIT_CHARS = 300


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NAME = r"[A-Za-z][A-Za-z0-9:_-]*+"
_VALUE = r"""(?:"[^"<>]*+"|'[^'<>]*+'|[^\s"'<>=`]++)"""
_TAG = re.compile(rf"<(/?)({_NAME})((?:\s++[A-Za-z_:@][\w:@-]*+(?:\s*+=\s*+{_VALUE})?)*+)\s*+(/?)>")
_TAG_BEGUN = re.compile(
    rf"""</?(?:{_NAME}(?:\s++[A-Za-z_:@][\w:@-]*+(?:\s*+=\s*+{_VALUE})?)*+"""
    rf"""(?:\s*+=?\s*+(?:"[^"<>]*+|'[^'<>]*+|/)?)?)?\Z"""
)
_AUTOLINK = re.compile(r"<(?:(https?|ftp|mailto):[^\s<>]{1,280}|([^\s<>@]{1,64}@[^\s<>@]{1,64}))>", re.IGNORECASE)
_AUTOLINK_BEGUN = re.compile(r"<[A-Za-z0-9][^\s<>]*\Z")
_CHANNEL_MARK = re.compile(r"<\|[a-z_]{1,24}\|>")
_CHANNEL_BEGUN = re.compile(r"<(?:\|(?:[a-z_]{0,24}\|?)?)?\Z")
_BREAKING = _words(
    "br p div li ul ol dl dt dd h1 h2 h3 h4 h5 h6 tr td th hr blockquote section article header footer "
    "figure figcaption caption main nav aside summary table thead tbody"
)
_INLINE = _words(
    "a abbr b bdi bdo big cite code del dfn em font i img ins kbd label mark q s samp small span strike "
    "strong sub sup time tt u var wbr center"
)
_HIDDEN = _words("details script style svg math table pre iframe object noscript template")
_BOOLEAN = _words("open hidden disabled checked selected async defer controls reversed")
_ATTRIBUTE = re.compile(rf"([A-Za-z_:@][\w:@-]*+)(\s*+=\s*+{_VALUE})?")
_COMMENT = Region(re.compile("-->"), 3, inline=True)
_TURN = Region(re.compile(r"(?=<\|(?:end|return|call|start|channel)\|>)"), 12)
_HEADER = re.compile(r"<\|channel\|>([^<]{0,80})<\|message\|>")
_ROLE = re.compile(r"<\|start\|>[^<]{0,40}(?=<\|(?:channel|message)\|>)")
REASONING_END = Region(re.compile(rf"</(?:{'|'.join(REASONING_TAGS)})>", re.IGNORECASE), 12)
"""The rest of a reasoning block whose opening tag was in the prompt."""


def _element(name: str, *, nests: bool) -> Region:
    opening = rf"|(?P<open><{name}[\s>])" if nests else ""
    return Region(re.compile(rf"</{name}\s{{0,4}}>{opening}", re.IGNORECASE), len(name) + 8)


_ELEMENTS = {name: _element(name, nests=name in ("details", "table")) for name in _HIDDEN} | {
    name: _element(name, nests=False) for name in REASONING_TAGS
}


def angle(text: str, at: int, before: str, *, final: bool) -> Step | None:
    """At "<": a tag, a comment, an automatic link, a channel marker, or just "less than"."""
    window = text[at : at + TAG_LIMIT_CHARS]
    limited = len(window) == TAG_LIMIT_CHARS or final
    plain = Step(Act.SAY, at + 1, "<")
    if len(window) > 1 and not (window[1].isalnum() or window[1] in "/!|"):
        return plain
    if window.startswith("<!--"):
        return Step(Act.REGION, at + 4, region=_COMMENT)
    if "<!--".startswith(window):
        return plain if final else None
    if window.startswith("<|"):
        return _channel(text, at, final=final)
    tag = _TAG.match(window)
    if tag:
        return _tag(tag, at, before) or plain
    link = _AUTOLINK.match(window)
    if link:
        return Step(Act.DROP, at + link.end()) if link[1] else Step(Act.SAY, at + link.end(), link[2])
    if not limited and (_TAG_BEGUN.match(window) or _AUTOLINK_BEGUN.match(window)):
        return None
    return plain


def _tag(tag: re.Match[str], at: int, before: str) -> Step | None:
    """A complete tag, or None if it is rather a comparison or a type parameter."""
    closing, name, attributes, end = bool(tag[1]), tag[2].lower(), tag[3], at + tag.end()
    if name in _ELEMENTS and not closing and not tag[4]:
        return Step(Act.REGION, end, region=_ELEMENTS[name])
    bare = [a[1] for a in _ATTRIBUTE.finditer(attributes) if not a[2] and a[1].lower() not in _BOOLEAN]
    if bare:
        return None
    if name in _BREAKING or name in _HIDDEN:
        return Step(Act.BREAK, end)
    if name in _INLINE or name in REASONING_TAGS or closing or attributes or tag[4]:
        return Step(Act.MARK, end, opens=not closing)
    if before in ("", "\n"):
        return Step(Act.MARK, end, opens=True)
    if before.isalnum():
        return None
    return Step(Act.SAY, end, tag[2])


def _channel(text: str, at: int, *, final: bool) -> Step | None:
    window = text[at : at + 140]
    limited = final or len(window) == 140
    for pattern, opening in ((_HEADER, "<|channel|>"), (_ROLE, "<|start|>")):
        if opening.startswith(window[: len(opening)]) and len(window) < len(opening) and not limited:
            return None
        if window.startswith(opening):
            found = pattern.match(window)
            if found is None and not limited and window.count("<") < 3:
                return None
            if found is not None and pattern is _HEADER and not found[1].strip().startswith("final"):
                return Step(Act.REGION, at + found.end(), region=_TURN)
            if found is not None:
                return Step(Act.BREAK, at + found.end())
    mark = _CHANNEL_MARK.match(window)
    if mark:
        return Step(Act.BREAK, at + mark.end())
    return None if _CHANNEL_BEGUN.match(window) and not limited else Step(Act.SAY, at + 1, "<")
