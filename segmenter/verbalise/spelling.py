"""Number words, from Unicode CLDR's rule-based number formats (as carried by ``unicode-rbnf``)."""

from __future__ import annotations

import threading
from functools import lru_cache

from unicode_rbnf import RbnfEngine
from unicode_rbnf.engine import RbnfError

MAX_DIGITS = 15
"""Longer runs of digits are codes, said digit by digit."""

_loading = threading.Lock()


@lru_cache(maxsize=32)
def _engine(locale: str) -> RbnfEngine:
    return RbnfEngine.for_language(locale)


@lru_cache(maxsize=8192)
def spell(locale: str, number: int, *rulesets: str) -> str:
    """The words for a whole number in [0, 10^15), by the first of the CLDR ``rulesets`` that has a rule for it.

    The plain cardinal is the last resort. ``locale`` is CLDR's (``pt_PT``). No soft hyphens are in the words.
    """
    with _loading:
        engine = _engine(locale)
    for ruleset in (*rulesets, "spellout-numbering"):
        try:
            words = str(engine.format_number(number, ruleset_names=[ruleset]).text)
        except RbnfError:
            continue
        return " ".join(words.replace("\u00ad", "").split())
    return " ".join(spell(locale, int(digit)) for digit in str(number))
