"""From what a file, an environment variable or a flag says to the value of one setting."""

from __future__ import annotations

import json
import re
import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields
from types import MappingProxyType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from sidecar.config_tree import Config, jsonable
from sidecar.redaction import Secret, SecretUrl

MAX_STRING_CHARS = 4_096
MAX_ITEMS = 1_000

_INTEGER = re.compile(r"[+-]?\d{1,20}")
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})


@dataclass(frozen=True, slots=True)
class Setting:
    """One key of the configuration, for help pages and documents.

    ``name`` is dotted, ``variable`` its environment variable, ``type`` in words with its limits, ``default`` as
    JSON types without secrets.
    """

    name: str
    variable: str
    type: str
    default: Any
    doc: str


@dataclass(frozen=True, slots=True)
class Leaf:
    """One setting as the loader sees it. ``hint`` is the resolved type of the field."""

    name: str
    hint: Any
    doc: str
    default: Any
    low: float | None
    high: float | None

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return "SIDECAR_" + self.name.upper().replace(".", "__")

    @property
    def is_map(self) -> bool:
        """True if it has entries that are set one by one and merged."""
        return get_origin(self.hint) is Mapping

    def setting(self) -> Setting:
        """What there is to know about it."""
        return Setting(self.name, self.variable, self._type_in_words(), jsonable(self.default), self.doc)

    def _type_in_words(self) -> str:
        inner, optional = _without_none(self.hint)
        return _words(inner, self.low, self.high) + (" or unset" if optional else "")


def _leaves() -> dict[str, Leaf]:
    found: dict[str, Leaf] = {}
    sections = get_type_hints(Config)
    for section in fields(Config):
        hints = get_type_hints(sections[section.name])
        for leaf in fields(sections[section.name]):
            name = f"{section.name}.{leaf.name}"
            meta = leaf.metadata
            found[name] = Leaf(name, hints[leaf.name], meta["doc"], _default(leaf), meta.get("low"), meta.get("high"))
    return found


def _default(leaf: Field[Any]) -> Any:
    if leaf.default is not MISSING:
        return leaf.default
    assert leaf.default_factory is not MISSING  # noqa: S101 - every setting has a default
    return leaf.default_factory()


LEAVES: Mapping[str, Leaf] = MappingProxyType(_leaves())
"""Every setting by its dotted name, in the order of the tree."""


def convert(leaf: Leaf, raw: object, *, from_text: bool) -> Any:
    """``raw`` as the type of ``leaf``.

    ``from_text``: ``raw`` is a string from an environment variable or flag, in which numbers, switches, lists
    (JSON or separated by commas) and maps (JSON or ``name=value`` separated by commas) are written out. Otherwise
    it must have its type already (an integer counts as a number). Raises ``ValueError`` that says what was
    expected and, unless it is secret, what was found.
    """
    hint, optional = _without_none(leaf.hint)
    if optional and raw is None:
        return None
    expected = _words(hint, leaf.low, leaf.high)
    try:
        value = _read(hint, raw) if from_text and isinstance(raw, str) else raw
        return _check(hint, value, leaf.low, leaf.high)
    except _Wrong as wrong:
        raise ValueError(wrong.reason or f"expected {expected}, found {_shown(hint, raw)}") from None


class _Wrong(Exception):
    """A value that does not fit; ``reason`` if there is more to say than what was expected."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


def _read(hint: Any, text: str) -> object:
    """Undo the writing of a value as text; a text that is no such value stays as it is."""
    text = text.strip()
    if hint is bool:
        return True if text.lower() in _TRUE else False if text.lower() in _FALSE else text
    if hint is int:
        return int(text) if _INTEGER.fullmatch(text) else text
    if hint is float:
        try:
            return float(text)
        except ValueError:
            return text
    if get_origin(hint) is tuple:
        return _json(text) if text.startswith("[") else [item for part in text.split(",") if (item := part.strip())]
    if get_origin(hint) is Mapping:
        return _json(text) if text.startswith("{") else _pairs(text)
    return text


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise _Wrong("it begins like JSON but cannot be read as JSON") from None


def _pairs(text: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = part.partition("=")
        if not equals:
            raise _Wrong("expected name=value pairs separated by commas, or a JSON object")
        pairs[name.strip()] = value.strip()
    return pairs


def _check(hint: Any, value: object, low: float | None, high: float | None) -> Any:
    origin = get_origin(hint)
    if origin is Literal:
        if value not in get_args(hint):
            raise _Wrong
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple) or len(value) > MAX_ITEMS:
            raise _Wrong
        return tuple(_check(get_args(hint)[0], item, None, None) for item in value)
    if origin is Mapping:
        if not isinstance(value, Mapping) or len(value) > MAX_ITEMS:
            raise _Wrong
        return {_check_string(key).lower(): _check_string(item) for key, item in value.items()}
    if hint is bool:
        if not isinstance(value, bool):
            raise _Wrong
        return value
    if hint in (int, float):
        return _check_number(hint, value, low, high)
    if isinstance(value, Secret):
        value = value.reveal()
    return _check_string(value) if hint is str else hint(_check_string(value))


def _check_number(hint: Any, value: object, low: float | None, high: float | None) -> int | float:
    allowed = (int,) if hint is int else (int, float)
    if isinstance(value, bool) or not isinstance(value, allowed) or value != value:
        raise _Wrong
    if (low is not None and value < low) or (high is not None and value > high):
        raise _Wrong
    return value if hint is int else float(value)


def _check_string(value: object) -> str:
    """Settings reach headers, logs and file names: no control characters, no lone surrogates."""
    if not isinstance(value, str):
        raise _Wrong
    if not value or len(value) > MAX_STRING_CHARS or not value.isprintable():
        raise _Wrong(f"expected 1 to {MAX_STRING_CHARS} printable characters")
    return value


def _without_none(hint: Any) -> tuple[Any, bool]:
    if get_origin(hint) in (Union, types.UnionType):
        inner = [part for part in get_args(hint) if part is not type(None)]
        return inner[0], True
    return hint, False


def _words(hint: Any, low: float | None, high: float | None) -> str:
    origin = get_origin(hint)
    if origin is Literal:
        return "one of " + ", ".join(get_args(hint))
    if origin is tuple:
        return "list of " + ("secrets" if get_args(hint)[0] is Secret else "strings")
    if origin is Mapping:
        return "map of strings"
    if hint in (int, float):
        kind = "integer" if hint is int else "number"
        return kind if low is None or high is None else f"{kind} from {low} to {high}"
    return {bool: "true or false", Secret: "secret", SecretUrl: "URL"}.get(hint, "string")


def _shown(hint: Any, raw: object) -> str:
    """``raw`` for a message: shortened, and only its type where it may be secret."""
    if isinstance(raw, Mapping):
        return "a table"
    if isinstance(raw, list | tuple):
        return "a list" if len(raw) <= MAX_ITEMS else f"more than {MAX_ITEMS} items"
    if hint in (Secret, SecretUrl) or Secret in get_args(hint):
        return "something else"
    if not isinstance(raw, str | int | float):
        return f"a {type(raw).__name__}"
    text = repr(raw) if not isinstance(raw, int) or raw.bit_length() < 200 else "a huge number"
    return text if len(text) <= 60 else text[:57] + "..."
