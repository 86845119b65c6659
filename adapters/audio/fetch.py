"""Recordings fetched from the public network, and from nowhere else.

A server that fetches what strangers name can be sent to its own network. So: one parser for what is checked and what is
connected to; the name is resolved once and the connection goes to the very address that was checked; every redirect
starts anew. Off unless configured.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Any

import httpcore2

from sidecar.faults import BadRequest, TooLarge

MAX_REDIRECTS = 3
MAX_URL_CHARS = 2_048
PORTS = (443, 80)
PRIVATE_NAMES = ("localhost", ".localhost", ".local", ".internal", ".intranet", ".lan", ".home", ".corp", ".home.arpa")

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_NAT64_LOCAL = ipaddress.ip_network("64:ff9b:1::/48")

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""All addresses of a host name."""


def is_public(address: str) -> bool:
    """True for an address of the public internet, also where IPv6 only wraps an IPv4 address."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address):
        if ip in _NAT64_LOCAL or ip.teredo is not None:
            return False
        inner = ip.ipv4_mapped or ip.sixtofour
        if ip in _NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
        if int(ip) >> 32 == 0:  # ::/96, long out of use
            return False
    return ip.is_global and not ip.is_multicast and not ip.is_reserved and not ip.is_unspecified


async def resolve(host: str, port: int) -> Sequence[str]:
    """All addresses of ``host`` by the system's resolver. Raises ``OSError``."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


class Denied(Exception):
    """The address is not to be reached."""


class PublicBackend(httpcore2.AsyncNetworkBackend):
    """Connects to public addresses only: resolves once, checks all, connects to one of those checked."""

    def __init__(self, resolver: Resolve = resolve, inner: httpcore2.AsyncNetworkBackend | None = None) -> None:
        self._resolve = resolver
        self._inner = inner or httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """See ``httpcore2.AsyncNetworkBackend``. Raises ``Denied``."""
        name = host.rstrip(".").lower()
        if port not in PORTS or not name or f".{name}".endswith(PRIVATE_NAMES):
            raise Denied
        try:
            addresses = await self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise httpcore2.ConnectError("the name is not known") from error
        if not addresses or not all(is_public(address) for address in addresses):
            raise Denied
        return await self._inner.connect_tcp(addresses[0], port, timeout, local_address, socket_options)

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore2.AsyncNetworkStream:
        """Never."""
        raise Denied

    async def sleep(self, seconds: float) -> None:
        """See ``httpcore2.AsyncNetworkBackend``."""
        await self._inner.sleep(seconds)


class PublicFetcher:
    """GET of a file over https: ``max_bytes`` and ``timeout_s`` in all, at most three redirects, no credentials."""

    def __init__(
        self,
        *,
        max_bytes: int = 20 << 20,
        timeout_s: float = 10.0,
        backend: httpcore2.AsyncNetworkBackend | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s
        self._backend = backend or PublicBackend()
        self._tls = tls or ssl.create_default_context()

    async def fetch(self, url: str, param: str) -> bytes:
        """The file. Raises ``BadRequest`` (address refused, not found, not answering), ``TooLarge``."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._follow(url, param)
        except TimeoutError as error:
            raise BadRequest("The recording's address does not answer in time.", param=param) from error
        except Denied as error:
            raise BadRequest("The recording's address is not a public one.", param=param) from error
        except (OSError, httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException) as error:
            raise BadRequest("The recording's address cannot be reached.", param=param) from error

    async def _follow(self, url: str, param: str) -> bytes:
        async with httpcore2.AsyncConnectionPool(network_backend=self._backend, ssl_context=self._tls) as pool:
            for _ in range(MAX_REDIRECTS + 1):
                target = _checked(url, param)
                headers = [("Host", _authority(target)), ("Accept", "audio/*"), ("User-Agent", "sidecar")]
                async with pool.stream("GET", target, headers=headers) as response:
                    if response.status in (301, 302, 303, 307, 308):
                        url = _joined(target, _header(response.headers, b"location"), param)
                        continue
                    if response.status != 200:
                        raise BadRequest(f"The recording's address answers {response.status}.", param=param)
                    return await self._body(response.aiter_stream(), param)
        raise BadRequest("The recording's address redirects too often.", param=param)

    async def _body(self, parts: AsyncIterator[bytes], param: str) -> bytes:
        body = bytearray()
        async for part in parts:
            body += part
            if len(body) > self._max_bytes:
                raise TooLarge(f"The recording is larger than {self._max_bytes >> 20} MiB.", param=param)
        return bytes(body)


def _checked(url: str, param: str) -> httpcore2.URL:
    refused = BadRequest("The recording's address must be an https: URL without credentials.", param=param)
    # What parsers are known to read differently is not read at all.
    if len(url) > MAX_URL_CHARS or not url.isascii() or any(one <= " " or one in "\\\x7f" for one in url):
        raise refused
    try:
        parsed = httpcore2.URL(url)
    except (ValueError, httpcore2.ProtocolError, httpcore2.UnsupportedProtocol) as error:
        raise refused from error
    authority = url.partition("://")[2].partition("/")[0].partition("?")[0].partition("#")[0]
    if parsed.scheme.lower() != b"https" or "@" in authority or not parsed.host or b"@" in parsed.host:
        raise refused
    return parsed


def _authority(url: httpcore2.URL) -> str:
    host = url.host.decode("ascii")
    return host if url.port in (None, 443) else f"{host}:{url.port}"


def _joined(base: httpcore2.URL, location: str, param: str) -> str:
    if location.startswith("/") and not location.startswith("//"):
        return f"https://{_authority(base)}{location}"
    if location.lower().startswith("https://"):
        return location
    raise BadRequest("The recording's address redirects to something else than an https: URL.", param=param)


def _header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in headers if key.lower() == name), "")
