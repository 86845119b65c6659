"""Which members of a message may be seen: known names and numbers always, texts when asked for, voices never.

What people say is private: a string under a name that is not listed here counts as text. Recordings of voices,
embeddings and keys are never shown or kept, whatever is asked for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Mapping, Sized
from typing import Any, cast

from sidecar.redaction import HIDDEN, SECRET_FIELDS

SHOWN = frozenset(
    {
        "type", "object", "model", "voice", "speaker", "task_type", "language", "response_format", "format",
        "stream_format", "split_granularity", "split_rules", "output_mode", "decoder_id", "header_format", "code",
        "param", "status", "id", "event_id", "item_id", "response_id", "call_id", "role", "finish_reason", "action",
        "previous_item_id", "modalities", "voice_id", "sentence_id",
    }
)  # fmt: skip
"""Members whose strings are no speech."""

SHOWN_OF_SERVER = SHOWN | {"message"}
"""The same for what a server sends: ``message`` is what it says of an error."""


class _Every:
    """The names of all members there are."""

    def __contains__(self, name: object) -> bool:
        return True


_EVERY = _Every()
_VOICE = ("audio", "embedding", "vector", "codes", "audio_b64", "data")
_FLAGS = ("stream_audio", "partial_audio")
_TEXTS = ("text", "input", "instructions", "content", "word")
_BASE64 = re.compile(r"[A-Za-z0-9+/_=-]{64,}")
_MAX_DEPTH = 4
_MAX_MEMBERS = 24
_MAX_CHARS = 120


def parsed(text: str) -> dict[str, Any] | None:
    """The JSON object in a text message, or None."""
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


def printable(text: str, limit: int = _MAX_CHARS) -> str:
    """``text`` without anything that could steer a terminal, shortened to ``limit`` characters."""
    cut = text[:limit]
    shown = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in cut)
    return shown + ("..." if len(text) > limit else "")


def _ends(kind: str, names: Iterable[str]) -> bool:
    return any(kind == one or kind.endswith(f"_{one}") for one in names)


def _is_secret(name: str) -> bool:
    return _ends(name.lower().replace("-", "_"), SECRET_FIELDS)


def _is_voice(name: str, value: object) -> bool:
    kind = name.lower()
    if kind in _FLAGS:
        return False
    if isinstance(value, str):
        if _ends(kind, _TEXTS):
            return False
        return _ends(kind, _VOICE) or bool(_BASE64.fullmatch(value))
    return isinstance(value, list) and (
        any(kind.endswith(one) for one in _VOICE) or any(isinstance(one, int | float) for one in value[:1])
    )


def line_of(message: Mapping[str, Any], *, show_text: bool, from_server: bool = False) -> str:
    """``name=value`` for each member but ``type``; of hidden ones only how long they are."""
    names = _EVERY if show_text else SHOWN_OF_SERVER if from_server else SHOWN
    members = [(name, value) for name, value in message.items() if name != "type"]
    shown = [f"{printable(str(name), 40)}={_shown(name, value, names, 1)}" for name, value in members[:_MAX_MEMBERS]]
    more = len(members) - _MAX_MEMBERS
    return " ".join(shown) + (f" and {more} more" if more > 0 else "")


def _shown(name: str, value: object, names: Container[str], depth: int) -> str:
    if _is_secret(name) and value is not None:
        return HIDDEN
    if _is_voice(name, value):
        return f"<hidden, {len(cast(Sized, value))}>"
    match value:
        case str():
            if name in names:
                return json.dumps(printable(value), ensure_ascii=False) if _needs_quotes(value) else printable(value)
            return f"<{len(value)} chars>"
        case Mapping():
            if depth >= _MAX_DEPTH:
                return "{...}"
            items = list(value.items())[:_MAX_MEMBERS]
            return "{" + " ".join(f"{printable(str(k), 40)}={_shown(k, v, names, depth + 1)}" for k, v in items) + "}"
        case list():
            inner = [_shown(name, one, names, depth + 1) for one in value[:8]] if depth < _MAX_DEPTH else []
            return f"[{', '.join(inner)}{', ...' if len(value) > len(inner) else ''}]"
        case None | bool():
            return json.dumps(value)
        case _:
            return str(value)[:32]


def _needs_quotes(value: str) -> bool:
    return not value or " " in value or "=" in value


def kept(message: Mapping[str, Any], *, mask_text: bool, from_server: bool = False) -> dict[str, Any]:
    """The message as a recording holds it: a hidden member becomes ``{"hidden": length}``.

    ``mask_text`` turns the letters and digits of every text into ``x`` and ``0``; its length and punctuation stay.
    """
    names = _EVERY if not mask_text else SHOWN_OF_SERVER if from_server else SHOWN
    return {name: _kept(name, value, names, 1) for name, value in message.items()}


def _kept(name: str, value: object, names: Container[str], depth: int) -> Any:
    if value is None:
        return None
    if _is_secret(name) or _is_voice(name, value):
        return {"hidden": len(value) if isinstance(value, str | list) else 1}
    match value:
        case str():
            return value if name in names else masked(value)
        case Mapping() | list() if depth >= 2 * _MAX_DEPTH:
            return {"hidden": len(value)}
        case Mapping():
            return {str(k): _kept(str(k), v, names, depth + 1) for k, v in value.items()}
        case list():
            return [_kept(name, one, names, depth + 1) for one in value]
        case _:
            return value


def masked(text: str) -> str:
    """``text`` with ``x`` for each letter and ``0`` for each digit."""
    return "".join("x" if c.isalpha() else "0" if c.isdigit() else c for c in text)


def hidden_members(message: Mapping[str, Any]) -> list[str]:
    """Names of the members that a recording left out."""
    return [name for name, value in message.items() if isinstance(value, Mapping) and list(value) == ["hidden"]]
