"""The URLs under which a Redis is named, and what they mean.

``redis://[user:password@]host[:port][/database]``, ``rediss://...`` with TLS, ``unix:///path/redis.sock[?db=0]``,
``redis+sentinel://[user:password@]host[:port],host[:port].../service[/database]`` and
``redis+cluster://[user:password@]host[:port],host[:port]...``, the last two also as ``rediss+...`` with TLS.

Options after ``?``: ``db``; with TLS ``ca``, ``cert``, ``key`` (files) and ``check_hostname=no``; for Sentinel
``sentinel_user`` and ``sentinel_password``. What is special in a URL is percent-encoded in passwords.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from urllib.parse import parse_qsl, unquote, urlsplit

PORT = 6_379
SENTINEL_PORT = 26_379
MAX_HOSTS = 64

_SCHEMES: dict[str, tuple[Literal["single", "sentinel", "cluster"], bool]] = {
    "redis": ("single", False),
    "rediss": ("single", True),
    "redis+sentinel": ("sentinel", False),
    "rediss+sentinel": ("sentinel", True),
    "redis+cluster": ("cluster", False),
    "rediss+cluster": ("cluster", True),
    "unix": ("single", False),
}

SCHEMES = tuple(_SCHEMES)
"""Schemes of URLs that name a Redis."""

_TLS_OPTIONS = ("ca", "cert", "key", "check_hostname")
_SENTINEL_OPTIONS = ("sentinel_user", "sentinel_password")


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS with verification: of the certificate always, of the host name unless switched off."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    check_hostname: bool = True


@dataclass(frozen=True, slots=True, repr=False)
class RedisAddress:
    """Where a Redis is. ``hosts``: the server, the sentinels or some nodes of the cluster; none for a ``path``.

    Has no readable form: it holds passwords.
    """

    topology: Literal["single", "sentinel", "cluster"]
    hosts: tuple[tuple[str, int], ...] = ()
    path: str | None = None
    database: int = 0
    service: str = ""
    user: str | None = None
    password: str | None = None
    sentinel_user: str | None = None
    sentinel_password: str | None = None
    tls: Tls | None = None


def parse_redis_url(url: str) -> RedisAddress:
    """The address that ``url`` names. Raises ``ValueError`` that says what is wrong and quotes nothing secret."""
    scheme = url.partition(":")[0].lower()
    if scheme not in _SCHEMES:
        raise ValueError("expected one of " + ", ".join(f"{known}://" for known in SCHEMES))
    try:
        parts = urlsplit(url)
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise ValueError("the URL cannot be read") from None
    if parts.fragment or "#" in url:
        raise ValueError("'#' ends a URL: write it as %23 in passwords")
    topology, encrypted = _SCHEMES[scheme]
    options = dict(pairs)
    _check_options(options, len(pairs), scheme, topology, encrypted)
    user, password = _credentials(parts.netloc)
    if scheme == "unix":
        if parts.netloc.rpartition("@")[2] or not parts.path.startswith("/"):
            raise ValueError("expected unix:///path/of/the/socket")
        return RedisAddress("single", (), unquote(parts.path), _database(options.get("db", "")), "", user, password)
    service, database = _path(parts.path, topology)
    return RedisAddress(
        topology=topology,
        hosts=_hosts(parts.netloc, SENTINEL_PORT if topology == "sentinel" else PORT, topology),
        database=_database(options.get("db") or database),
        service=service,
        user=user,
        password=password,
        sentinel_user=options.get("sentinel_user"),
        sentinel_password=options.get("sentinel_password"),
        tls=_tls(options) if encrypted else None,
    )


def _check_options(options: dict[str, str], given: int, scheme: str, topology: str, encrypted: bool) -> None:
    if len(options) < given:
        raise ValueError("an option is given twice")
    known: tuple[str, ...] = () if topology == "cluster" else ("db",)
    known += _TLS_OPTIONS if encrypted else ()
    known += _SENTINEL_OPTIONS if topology == "sentinel" else ()
    for name in options:
        if name not in known:
            # Not quoted: it may be the end of a password with a stray question mark.
            raise ValueError(f"an option that {scheme}:// does not have; it has {', '.join(known) or 'none'}")


def _credentials(netloc: str) -> tuple[str | None, str | None]:
    who, at, _ = netloc.rpartition("@")
    if not at:
        return None, None
    if "@" in who:
        raise ValueError("'@' is written as %40 in passwords")
    user, colon, password = who.partition(":")
    if user and not colon:
        raise ValueError("expected user:password@ or :password@")
    return unquote(user) or None, unquote(password) or None


def _hosts(netloc: str, port: int, topology: str) -> tuple[tuple[str, int], ...]:
    listed = netloc.rpartition("@")[2].split(",")
    if len(listed) > (1 if topology == "single" else MAX_HOSTS):
        raise ValueError("too many hosts")
    return tuple(_host(item, port) for item in listed)


def _host(item: str, default_port: int) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{item}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError("expected host:port, with a port from 1 to 65535") from None
    if not host or port == 0 or item.endswith(":"):
        raise ValueError("expected host:port, with a port from 1 to 65535")
    return host, port or default_port


def _path(path: str, topology: str) -> tuple[str, str]:
    """Service and database."""
    items = path.strip("/").split("/") if path.strip("/") else []
    if topology == "single" and len(items) <= 1:
        return "", items[0] if items else ""
    if topology == "cluster" and not items:
        return "", ""
    if topology == "sentinel" and 1 <= len(items) <= 2:
        return unquote(items[0]), items[1] if len(items) == 2 else ""
    expected = {"single": "/database", "cluster": "nothing", "sentinel": "/service or /service/database"}
    raise ValueError(f"expected {expected[topology]} after the hosts")


def _database(text: str) -> int:
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= 5):
        raise ValueError("expected a number as database")
    return int(text)


def _tls(options: dict[str, str]) -> Tls:
    check = options.get("check_hostname", "yes")
    if check not in ("yes", "no"):
        raise ValueError("expected check_hostname=yes or check_hostname=no")
    if ("key" in options) > ("cert" in options):
        raise ValueError("a key needs its certificate: cert=")
    return Tls(options.get("ca"), options.get("cert"), options.get("key"), check == "yes")
