"""Numbers as they are written: grouping and decimal marks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

NARROW = "\u00a0\u202f\u2009"
"""Blanks that belong to a number or to a number and its unit."""

_GROUPED = re.compile(r"[,.'’ " + NARROW + "]")


@dataclass(frozen=True, slots=True)
class Number:
    """A number as written. ``fraction`` holds the digits behind the decimal mark; ``digits`` those before it."""

    digits: str
    fraction: str = ""
    mark: str = ""
    grouped: bool = False

    @property
    def whole(self) -> int:
        """The part before the decimal mark."""
        return int(self.digits)

    @property
    def value(self) -> Decimal:
        """The exact value (fractions of more than 12 digits are cut)."""
        return Decimal(f"{self.digits}.{self.fraction[:12]}" if self.fraction else self.digits)

    @property
    def padded(self) -> bool:
        """True for a code-like number such as 007."""
        return len(self.digits) > 1 and self.digits[0] == "0"

    @property
    def yearlike(self) -> bool:
        """True for 1100 to 2099, written with four digits and nothing else."""
        return len(self.digits) == 4 and not self.fraction and not self.grouped and 1100 <= self.whole < 2100


def number_pattern(decimal_mark: str, blank_groups: bool) -> str:
    """A regex (one group) for a number with ``.`` or ``,`` as decimal mark; linear, at most 15 digits before it.

    The other mark parts groups of three, and so do narrow blanks, apostrophes and, if ``blank_groups``, blanks. Where
    both marks stand, the last one is the decimal mark.
    """
    group_mark, decimal = (",", r"(?:\.[0-9]+)?") if decimal_mark == "." else (r"\.", "(?:[,.][0-9]+)?")
    other = r"[0-9]{1,3}(?:\.[0-9]{3}){1,4},[0-9]+" if decimal_mark == "." else r"[0-9]{1,3}(?:,[0-9]{3}){1,4}\.[0-9]+"
    if decimal_mark == ".":
        # Euros keep their comma in any language.
        other += rf"|(?<=€)[0-9]{{1,6}},[0-9]{{2}}|[0-9]{{1,6}},[0-9]{{2}}(?=[{NARROW} ]?€)"
    groups = [group_mark, f"[{NARROW}]", "['’]"] + ([" "] if blank_groups else [])
    blanks = [] if blank_groups else [r"[0-9]{1,3}(?: 000){1,4}"]
    grouped = "|".join(blanks + [rf"[0-9]{{1,3}}(?:{mark}[0-9]{{3}}){{1,4}}" for mark in groups])
    return rf"((?:{other}|(?:(?:{grouped})(?![0-9])|[0-9]{{1,15}}(?![0-9])){decimal})(?![0-9]))"


def read_number(written: str, decimal_mark: str) -> Number:
    """What ``number_pattern(decimal_mark, ...)`` matched, taken apart.

    A single mark before exactly three digits parts a group only if it is the language's group mark: ``1.500`` is 1500
    in German, 1.5 in English.
    """
    last = max(written.rfind(mark) for mark in ".,")
    if last < 0 or _parts_groups(written, written[last], decimal_mark):
        body, mark, fraction = written, "", ""
    else:
        body, mark, fraction = written[:last], written[last], written[last + 1 :]
    digits = _GROUPED.sub("", body)
    return Number(digits, fraction, mark, grouped=len(digits) != len(body))


def _parts_groups(written: str, mark: str, decimal_mark: str) -> bool:
    first, *rest = written.split(mark)
    if mark == decimal_mark and len(rest) == 1:
        return False
    other = "," if mark == "." else "."
    return other not in written and 0 < len(first) <= 3 and first != "0" and all(len(part) == 3 for part in rest)
