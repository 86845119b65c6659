"""pysbd as the referee for one doubtful full stop.

pysbd 0.3.4 cuts whole texts: it loses sentences with certain symbols, takes time that is quadratic in the text and
exponential in bracketed numbers, disagrees with itself on a longer text and is not thread-safe. So it is never given
a text, only a short window of letters around one full stop, and only its answer for that place is used.
"""

from __future__ import annotations

import re
import threading
import warnings
from functools import cache, lru_cache
from typing import Any, Final

WINDOW_CHARS: Final = 200
"""So much of the sentence is shown."""

_NEAREST: Final = {"pt": "es", "ko": "en", "uk": "ru", "sv": "da", "no": "da", "cs": "sk"}
_STRANGE = re.compile(r"[^\w\s.,;:!?'’-]|_|[\u0238\u0239\u01aa\u1400-\u167f]")
_DIGITS = re.compile(r"\d{4,}")
_ASKING = threading.Lock()


@cache
def _languages() -> dict[str, Any]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its source has escapes that newer Pythons complain about
            from pysbd.languages import LANGUAGE_CODES
    except ImportError:
        raise ValueError("the referee pysbd is not installed") from None
    codes: dict[str, Any] = LANGUAGE_CODES
    return codes


@cache
def _segmenter(code: str) -> Any:
    import pysbd

    return pysbd.Segmenter(language=code, clean=False)


def check_installed() -> None:
    """Raises ``ValueError`` if pysbd cannot be imported."""
    _languages()


def cuts(code: str, before: str, word: str) -> bool | None:
    """Whether pysbd ends a sentence between ``before``, which ends with a full stop, and ``word``.

    ``code``: the language of the text, ``auto`` for English. None: it has no opinion. Answers are kept (512 of them);
    safe to call from several threads.
    """
    base = code.partition("-")[0].lower()
    base = _NEAREST.get(base, base)
    window = _STRANGE.sub("", before[-WINDOW_CHARS:]).lstrip(" .,;:!?")
    return _ask(base if base in _languages() else "en", _DIGITS.sub("1000", window), _STRANGE.sub("", word).rstrip("."))


@lru_cache(maxsize=512)
def _ask(code: str, before: str, word: str) -> bool | None:
    if not before or not word:
        return None
    with _ASKING:
        found = _segmenter(code).segment(f"{before} {word} x")
    place = len(re.sub(r"\s", "", before))
    seen = 0
    ends = []
    for sentence in found:
        seen += len(re.sub(r"\s", "", sentence))
        ends.append(seen)
    if seen != len(re.sub(r"\s", "", f"{before}{word}x")):
        return None
    return place in ends
