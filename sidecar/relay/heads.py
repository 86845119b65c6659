"""The head of a request: what it asks for, and how it is passed on."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlsplit

import httptools

from sidecar.faults import BadRequest, ConfigError
from sidecar.redaction import HIDDEN, redact_url

_SCHEMES = {"ws": ("http", 80), "http": ("http", 80), "wss": ("https", 443), "https": ("https", 443)}
_SHOWN_QUERY = frozenset({"model", "voice", "language", "format", "response_format", "stream"})
_KEYS = frozenset({"authorization", "x-api-key", "api-key", "cookie", "proxy-authorization"})
_KEY_PROTOCOL = "openai-insecure-api-key."
_MAX_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Target:
    """The server behind the relay. ``path`` is where a client that asks for ``/`` is sent."""

    host: str
    port: int
    tls: bool
    path: str = "/"

    @property
    def origin(self) -> str:
        """``http://host:port`` as a browser would write it."""
        return f"http{'s' if self.tls else ''}://{self.authority}"

    @property
    def authority(self) -> str:
        """Host and port, the port left out where it is the usual one."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"

    @staticmethod
    def of(url: str) -> Target:
        """Read ``ws://``, ``wss://``, ``http://`` or ``https://``.

        Raises ``ConfigError`` for anything else, and for a URL with credentials, a query or a fragment: those are the
        client's to send.
        """
        try:
            parts = urlsplit(url)
            scheme, host, port = parts.scheme.lower(), parts.hostname, parts.port
        except ValueError:
            raise ConfigError([f"{redact_url(url)} is no URL"]) from None
        if scheme not in _SCHEMES or not host:
            raise ConfigError([f"{redact_url(url)}: give ws://host:port, wss://, http:// or https://"])
        if parts.username is not None or parts.query or parts.fragment:
            raise ConfigError([f"{redact_url(url)}: leave out credentials, query and fragment; clients send theirs"])
        name, usual = _SCHEMES[scheme]
        return Target(host, port or usual, name == "https", parts.path or "/")


@dataclass(slots=True)
class RequestHead:
    """The head of one request, read from its bytes."""

    method: str = ""
    path: str = ""
    version: str = "1.1"
    headers: list[tuple[str, str]] = field(default_factory=list)

    @staticmethod
    def read(data: bytes) -> RequestHead:
        """``data`` ends with the empty line. Raises ``BadRequest`` if it is no head of an HTTP/1 request."""
        head = RequestHead()
        parser = httptools.HttpRequestParser(_HeadCallbacks(head))
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # how httptools says that a WebSocket is asked for
        except httptools.HttpParserError:
            raise BadRequest("This is no HTTP/1 request.") from None
        head.method = parser.get_method().decode("latin-1")
        head.version = parser.get_http_version()
        if head.version not in ("1.0", "1.1"):
            raise BadRequest("This is no HTTP/1 request.")
        if head.method == "CONNECT" or not head.path.startswith("/"):
            raise BadRequest("Only requests with a path are passed on.")
        return head

    def all(self, name: str) -> list[str]:
        """Every value of a header, lower-case name."""
        return [value for key, value in self.headers if key.lower() == name]

    @property
    def is_socket(self) -> bool:
        """True if this asks for a WebSocket."""
        upgrades = ",".join(self.all("upgrade")).lower()
        return self.method == "GET" and "websocket" in [part.strip() for part in upgrades.split(",")]

    @property
    def keyed(self) -> bool:
        """True if it carries a credential in a header, the query or a subprotocol."""
        protocols = ",".join(self.all("sec-websocket-protocol"))
        return (
            any(key.lower() in _KEYS for key, _ in self.headers)
            or _KEY_PROTOCOL in protocols
            or HIDDEN in self.shown_path
        )

    @property
    def shown_path(self) -> str:
        """Path and query, every value of the query hidden that is not known to be harmless."""
        path, _, query = self.path.partition("?")
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=None)
        shown = [f"{key}={value if key in _SHOWN_QUERY else HIDDEN}" for key, value in pairs]
        return (path + ("?" + "&".join(shown) if shown else ""))[:_MAX_SHOWN]

    def forwarded(self, target: Target) -> bytes:
        """The head as the target gets it.

        Its own host; a page served from the relay's address counts as the target's own; one request per connection;
        no compression of frames, whose content could not be shown.
        """
        own_host = next(iter(self.all("host")), "")
        gone = {"host", "connection", "proxy-connection", "keep-alive"}
        if self.is_socket:
            gone.add("sec-websocket-extensions")
        path = target.path if self.path == "/" else self.path
        lines = [f"{self.method} {path} HTTP/{self.version}", f"Host: {target.authority}"]
        for name, value in self.headers:
            if name.lower() in gone:
                continue
            same_site = name.lower() == "origin" and urlsplit(value).netloc.lower() == own_host.lower()
            lines.append(f"{name}: {target.origin if same_site else value}")
        lines.append(f"Connection: {'Upgrade' if self.is_socket else 'close'}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


class _HeadCallbacks:
    """What httptools calls while it reads a head."""

    def __init__(self, head: RequestHead) -> None:
        self._head = head

    def on_url(self, url: bytes) -> None:
        self._head.path += url.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head.headers.append((name.decode("latin-1"), value.decode("latin-1")))
