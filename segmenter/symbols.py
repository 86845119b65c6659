"""Characters that are pictures, and those that are nothing at all."""

from __future__ import annotations

import re

PICTURES = (
    "\u231a\u231b\u23e9-\u23f3\u23f8-\u23fa\u24c2\u25b6\u25c0\u25fb-\u25fe\u2600-\u2668\u2670-\u27bf\u2b05-\u2b07"
    "\u2b1b\u2b1c\u2b50\u2b55\u3030\u303d\u3297\u3299\U0001f000-\U0001f0ff\U0001f10d-\U0001f10f\U0001f12f"
    "\U0001f16c-\U0001f171\U0001f17e\U0001f17f\U0001f18e\U0001f191-\U0001f19a\U0001f1e6-\U0001f1ff\U0001f201-\U0001f2ff"
    "\U0001f300-\U0001faff"
)
"""Regex class body: emoji and dingbats (not the music signs). Never spoken."""

PLAIN_OR_PICTURE = "©®™‼⁉ℹ↔-↙↩↪⌨⏏▪▫"
"""Regex class body: signs that are spoken unless a variation selector makes a picture of them."""

JOINERS = "\ufe0e\ufe0f\u20e3\U000e0020-\U000e007f\u200b\u2060\ufeff\u00ad"
"""Regex class body: selectors, key caps, tags and zero-width characters. Dropped everywhere."""

PICTURE_RUN = re.compile(f"[{PICTURES}{JOINERS}\u200d]{{1,64}}")
"""A picture with all that may be joined to it."""

PICTURE_SELECTOR = "\ufe0f\u20e3"
"""What makes a picture of the digit or sign before it."""
