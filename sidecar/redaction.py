"""What must not be seen, and how it is hidden: by the name of a field, or by the type of a value."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from numbers import Number
from typing import NoReturn
from urllib.parse import urlsplit, urlunsplit

HIDDEN = "***"

SECRET_FIELDS = frozenset({"api_key", "apikey", "api_keys", "authorization", "cookie", "password", "secret", "token"})
"""Fields never shown."""

CONTENT_FIELDS = frozenset(
    {"text", "prompt", "transcript", "audio", "vector", "embedding", "content", "input", "instructions", "messages"}
)
"""Fields with what people say and how they sound."""

TEXT_FIELDS = CONTENT_FIELDS - {"audio", "vector", "embedding"}
"""Those of them that may be shown when somebody debugs and asks for it."""

URL_FIELDS = frozenset({"url", "uri", "path"})
"""Fields shown without credentials, query and fragment."""

_MAX_ITEMS = 16
_MAX_DEPTH = 4


class Secret:
    """A string that shows itself only through ``reveal``: logs, reprs and dumps get ``***``."""

    __slots__ = ("_hidden",)

    def __init__(self, value: str) -> None:
        self._hidden = value

    def reveal(self) -> str:
        """The string itself."""
        return self._hidden

    def __str__(self) -> str:
        return HIDDEN

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._hidden.encode(), other._hidden.encode())

    def __hash__(self) -> int:
        return hash((Secret, self._hidden))

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise TypeError("a Secret is not serialised")

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, _memo: object) -> Secret:
        return self


class SecretUrl(Secret):
    """A URL that may hold a password or key: shown without credentials, query and fragment."""

    __slots__ = ()

    def __str__(self) -> str:
        return redact_url(self._hidden)


def redact_url(url: str) -> str:
    """``url`` with user and password replaced by ``***`` and its query and fragment cut off; never raises.

    A URL with an ``@`` beyond its host is hidden altogether: it is most often a password with a stray ``/``,
    ``?`` or ``#`` in it.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return HIDDEN
    credentials, at, host = parts.netloc.rpartition("@")
    if url.count("@") > parts.netloc.count("@"):
        return HIDDEN
    netloc = f"{HIDDEN}@{host}" if at and credentials else host
    return urlunsplit((parts.scheme, netloc, parts.path, "", ""))


def redact_field(name: str, value: object, *, show_texts: bool = False, depth: int = 0) -> object:
    """``value`` as it may be shown under ``name``: scalars, strings, and lists and dicts of them, all bounded.

    Other types are shown by their name only. A field counts as sensitive if its name, or what follows an
    underscore in it, is: ``ref_text``, ``x-api-key``, ``store_url``. A switch (true, false) hides nothing.
    """
    if isinstance(value, bool):
        return value
    kind = name.lower().replace("-", "_")
    if _is_one_of(kind, SECRET_FIELDS):
        return HIDDEN
    if _is_one_of(kind, CONTENT_FIELDS) and not (show_texts and _is_one_of(kind, TEXT_FIELDS)):
        return HIDDEN
    match value:
        case None | Number():
            return value
        case str():
            return redact_url(value) if _is_one_of(kind, URL_FIELDS) else value
        case Secret():
            return str(value)
        case Mapping() | list() | tuple() if depth >= _MAX_DEPTH:
            return "..."
        case Mapping():
            items = list(value.items())[:_MAX_ITEMS]
            return {
                str(key): redact_field(str(key), item, show_texts=show_texts, depth=depth + 1) for key, item in items
            }
        case list() | tuple():
            return [redact_field(name, item, show_texts=show_texts, depth=depth + 1) for item in value[:_MAX_ITEMS]]
        case _:
            return f"<{type(value).__name__}>"


def _is_one_of(kind: str, names: frozenset[str]) -> bool:
    return any(kind == name or kind.endswith(f"_{name}") for name in names)
