"""What a value must satisfy beyond its type and range, alone and together with others."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from sidecar.config_tree import Config
from sidecar.gate import parse_entry
from sidecar.redaction import Secret, redact_url

MIN_KEY_CHARS = 20
"""A key of so many random letters and digits is about as strong as 128 random bits are asked to be."""

_NAME = re.compile(r"[!-~]{1,256}")
_ALIAS = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_PREFIX = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
_HOST = re.compile(r"[A-Za-z0-9._:%-]+")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:.*")


def is_loopback(host: str) -> bool:
    """True if only this machine can reach a server that listens on ``host``."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _host(host: str) -> Iterator[str]:
    if not _HOST.fullmatch(host):
        yield "expected a host name or an address without brackets or port"


def _origins(origins: tuple[str, ...]) -> Iterator[str]:
    for origin in origins:
        if origin == "*":
            continue
        parts = _split(origin)
        if parts is None or origin != f"{parts.scheme}://{parts.netloc}" or "@" in parts.netloc:
            yield f"expected scheme://host[:port] without a path, found {redact_url(origin)!r}"


def _api_keys(keys: tuple[Secret, ...]) -> Iterator[str]:
    seen: set[str] = set()
    for number, secret in enumerate(keys, 1):
        try:
            grant = parse_entry(secret.reveal())
        except ValueError as wrong:
            yield f"entry {number}: {wrong}"
            continue
        if grant.key in seen:
            yield f"entry {number}: this key is given twice"
        seen.add(grant.key)


def _upstream(url: str | None) -> Iterator[str]:
    if url is None:
        return
    parts = _split(url)
    if parts is None or parts.scheme not in ("http", "https"):
        yield "expected a URL such as http://127.0.0.1:8000/v1"
    elif "@" in parts.netloc:
        yield "a URL with a user or password is not accepted here; use llm.api_key"
    elif parts.query or parts.fragment:
        yield "expected a base URL without query and fragment"


def _servers(urls: tuple[str, ...]) -> Iterator[str]:
    for url in urls:
        parts = _split(url)
        if parts is None or parts.scheme not in ("http", "https", "ws", "wss"):
            yield "expected addresses such as http://127.0.0.1:8091"
        elif "@" in parts.netloc:
            yield "an address with a user or password is not accepted here; use engine.server_key"
        elif parts.query or parts.fragment:
            yield "expected addresses without query and fragment"
    if len({url.rstrip("/") for url in urls}) < len(urls):
        yield "a server is given twice"


def _models(models: tuple[str, ...]) -> Iterator[str]:
    if not models:
        yield "expected at least one model id"
    yield from _model_ids(models)


def _model_ids(models: tuple[str, ...]) -> Iterator[str]:
    if len(set(models)) < len(models):
        yield "a model id is given twice"
    for model in models:
        if not _NAME.fullmatch(model):
            yield f"expected model ids of visible ASCII characters, found {model!r}"


def _aliases(aliases: Mapping[str, str]) -> Iterator[str]:
    for alias in aliases:
        if not _ALIAS.fullmatch(alias):
            yield f"expected names of a-z, 0-9, _ and -, found {alias!r}"


def _voice_modes(modes: Mapping[str, str]) -> Iterator[str]:
    for voice, mode in modes.items():
        if mode not in ("segment", "live"):
            yield f"expected segment or live for {voice!r}, found {mode!r}"


def _store(url: Secret) -> Iterator[str]:
    if not _SCHEME.fullmatch(url.reveal()):
        yield "expected a URL such as local:, memory: or redis://127.0.0.1"


def _prefix(prefix: str) -> Iterator[str]:
    if not _PREFIX.fullmatch(prefix):
        yield "expected 1 to 64 of a-z, 0-9, _, . and -"


def _split(url: str) -> Any:
    """The parts of a URL with a host and a valid port, else None."""
    try:
        parts = urlsplit(url)
        valid = bool(parts.hostname) and (parts.port is None or parts.port > 0) and _NAME.fullmatch(url)
    except ValueError:
        return None
    return parts if valid else None


def has_short_key(keys: tuple[Secret, ...]) -> bool:
    """True if one of these keys could be guessed."""
    return any(len(parse_entry(key.reveal()).key) < MIN_KEY_CHARS for key in keys)


LEAF_RULES: Mapping[str, Callable[[Any], Iterator[str]]] = {
    "server.host": _host,
    "server.cors_origins": _origins,
    "auth.api_keys": _api_keys,
    "llm.url": _upstream,
    "engine.urls": _servers,
    "chat.voice_modes": _voice_modes,
    "voices.aliases": _aliases,
    "speech.models": _models,
    "speech.openai_models": _model_ids,
    "store.url": _store,
    "store.prefix": _prefix,
}
"""For some settings: yields what is wrong with a value of the right type."""


@dataclass(frozen=True, slots=True)
class TreeRule:
    """What settings owe each other. ``names``: those it looks at, the first one to be changed."""

    names: tuple[str, ...]
    broken: Callable[[Config], bool]
    message: str


TREE_RULES = (
    TreeRule(
        ("server.host", "server.insecure", "auth.api_keys"),
        lambda c: not (is_loopback(c.server.host) or c.server.insecure or c.auth.api_keys),
        "a host other than loopback needs auth.api_keys (or server.insecure, to let everybody in)",
    ),
    TreeRule(
        ("auth.api_keys", "server.host", "server.insecure"),
        lambda c: not (is_loopback(c.server.host) or c.server.insecure) and has_short_key(c.auth.api_keys),
        f"beyond loopback a key has at least {MIN_KEY_CHARS} characters; `openssl rand -hex 16` makes one",
    ),
    TreeRule(
        ("llm.url", "llm.kind"),
        lambda c: c.llm.kind == "openai" and c.llm.url is None,
        "needed when llm.kind is openai",
    ),
    TreeRule(
        ("engine.urls", "engine.kind"),
        lambda c: c.engine.kind == "omni" and not c.engine.urls,
        "needed when engine.kind is omni",
    ),
    TreeRule(
        ("engine.kind", "engine.urls"),
        lambda c: c.engine.kind not in ("auto", "omni") and bool(c.engine.urls),
        "this engine drives no speech servers: leave engine.urls out, or make it omni",
    ),
    TreeRule(
        ("llm.forward_client_key", "auth.api_keys"),
        lambda c: c.llm.forward_client_key and bool(c.auth.api_keys),
        "would send this server's own API keys to the upstream; use llm.api_key, or leave auth.api_keys empty",
    ),
    TreeRule(
        ("speech.models", "speech.openai_models"),
        lambda c: not set(c.speech.models).isdisjoint(c.speech.openai_models),
        "a model id is also in speech.openai_models, so it is unclear whose rules apply",
    ),
    TreeRule(
        ("chat.unspoken_chars", "chat.max_segment_chars"),
        lambda c: c.chat.unspoken_chars < c.chat.max_segment_chars,
        "less than chat.max_segment_chars: the upstream would be paused before a segment is complete",
    ),
    TreeRule(
        ("chat.max_reply_chars", "chat.max_segment_chars"),
        lambda c: c.chat.max_reply_chars < c.chat.max_segment_chars,
        "less than chat.max_segment_chars",
    ),
    TreeRule(
        ("chat.live_high_tokens", "chat.live_low_tokens"),
        lambda c: c.chat.live_high_tokens <= c.chat.live_low_tokens,
        "must be more than chat.live_low_tokens",
    ),
    TreeRule(
        ("chat.live_settle_ms", "chat.live_stall_ms"),
        lambda c: c.chat.live_settle_ms > c.chat.live_stall_ms,
        "more than chat.live_stall_ms",
    ),
)
