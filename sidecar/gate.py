"""API keys -> who is calling. Sans-I/O and told the time.

Keys are kept only as digests keyed with a random number of this process, so that neither a memory dump of
the table nor the timing of a comparison says anything about a key.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass

from sidecar.faults import Forbidden, TooBusy, Unauthorized
from sidecar.redaction import Secret

LOCAL_TENANT = "local"
"""The tenant of keys that name none, and of everybody when there are no keys."""

DEFAULT_SCOPES = frozenset({"speak", "voices:write"})
"""What every key may do: speak, and keep voices of its own."""

SCOPES = DEFAULT_SCOPES | {"voices:export", "admin"}
"""All scopes there are. ``voices:export`` reads voice vectors; ``admin`` sees and does what is the operator's."""

MAX_KEYS = 1_000

_TENANT = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_KEY = re.compile(r"[!-+\--9;-~]{1,512}")  # visible ASCII without the colon that ends a tenant and the comma of lists
_MAX_HEADER_CHARS = 4_096


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is calling and what they may do."""

    tenant: str
    scopes: frozenset[str]

    def require(self, scope: str) -> None:
        """Raises ``Forbidden`` if ``scope`` was not granted."""
        if scope not in self.scopes:
            raise Forbidden(f"this API key does not have the scope {scope}")


@dataclass(frozen=True, slots=True)
class Grant:
    """One configured key and what it stands for."""

    caller: Caller
    key: str

    def __repr__(self) -> str:
        return f"Grant({self.caller!r}, key='***')"


def parse_entry(entry: str) -> Grant:
    """Read ``key`` or ``tenant[+scope...]:key``.

    The key is what follows the last colon. A tenant has 1 to 64 of ``a-z 0-9 _ -``; none (``key``, ``+scope:key``)
    is ``local``. Scopes are added to ``DEFAULT_SCOPES``. Raises ``ValueError``, whose text never contains the key.
    """
    who, colon, key = entry.rpartition(":")
    if not _KEY.fullmatch(key):
        raise ValueError("a key is made of 1 to 512 visible ASCII characters except comma and colon")
    tenant, *extra = who.split("+")
    if colon and not who:
        raise ValueError("there is no tenant before the colon; leave the colon out too")
    if tenant and not _TENANT.fullmatch(tenant):
        raise ValueError("a tenant is 1 to 64 of a-z, 0-9, _ and -, beginning with a letter or digit")
    unknown = sorted(set(extra) - SCOPES)
    if unknown:
        raise ValueError(f"scopes after + are {', '.join(sorted(SCOPES - DEFAULT_SCOPES))}")
    return Grant(Caller(tenant or LOCAL_TENANT, DEFAULT_SCOPES | set(extra)), key)


class Gate:
    """Knows the API keys, and which addresses have guessed too often."""

    def __init__(
        self,
        keys: Iterable[str | Secret] = (),
        *,
        max_failures: int = 10,
        window_ms: float = 60_000.0,
        max_clients: int = 10_000,
    ) -> None:
        """``keys`` are entries as ``parse_entry`` reads them; raises ``ValueError`` for a bad or repeated one.

        An address with ``max_failures`` wrong keys within ``window_ms`` is turned away until the window has
        moved on. The ``max_clients`` addresses that failed last are remembered.
        """
        self._salt = secrets.token_bytes(32)
        self._callers: list[tuple[bytes, Caller]] = []
        self._max_failures = max_failures
        self._window_ms = window_ms
        self._max_clients = max_clients
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()
        for entry in keys:
            grant = parse_entry(entry.reveal() if isinstance(entry, Secret) else entry)
            digest = self._digest(grant.key)
            if any(hmac.compare_digest(digest, known) for known, _ in self._callers):
                raise ValueError("the same key is given twice")
            self._callers.append((digest, grant.caller))
        if len(self._callers) > MAX_KEYS:
            raise ValueError(f"more than {MAX_KEYS} keys")

    @property
    def open(self) -> bool:
        """True if there are no keys: everybody is let in."""
        return not self._callers

    def authenticate(self, authorization_header: str | None, client: str, now_ms: float) -> Caller:
        """Who sent ``Authorization: Bearer <key>`` from the address ``client`` (without port).

        ``now_ms`` is monotonic. Raises ``Unauthorized`` (missing, malformed, unknown and wrong keys alike) and
        ``TooBusy`` for an address that failed too often, whatever it sends. A missing header is no guess and is
        not counted.
        """
        if self.open:
            return Caller(LOCAL_TENANT, SCOPES)
        address = _address(client)
        self._refuse_guessers(address, now_ms)
        if authorization_header is None:
            raise Unauthorized("an API key is needed: send it as Authorization: Bearer <key>")
        caller = self._find(_bearer(authorization_header))
        if caller is None:
            self._note_failure(address, now_ms)
            raise Unauthorized("the API key is not valid")
        return caller

    def _digest(self, key: str) -> bytes:
        return hashlib.blake2b(key.encode("utf-8", "surrogatepass"), key=self._salt, digest_size=32).digest()

    def _find(self, key: str) -> Caller | None:
        """Looks at every entry, so that the time does not depend on which one matches or whether any does."""
        digest = self._digest(key)
        found: Caller | None = None
        for known, caller in self._callers:
            if hmac.compare_digest(digest, known):
                found = caller
        return found

    def _refuse_guessers(self, address: str, now_ms: float) -> None:
        times = self._failures.get(address)
        if times is None:
            return
        while times and now_ms - times[0] >= self._window_ms:
            times.popleft()
        if not times:
            del self._failures[address]
        elif len(times) >= self._max_failures:
            wait_s = max(0.0, times[0] + self._window_ms - now_ms) / 1_000
            raise TooBusy("too many wrong API keys from this address", retry_after_s=wait_s)

    def _note_failure(self, address: str, now_ms: float) -> None:
        times = self._failures.get(address)
        if times is None:
            times = self._failures[address] = deque(maxlen=self._max_failures)
        times.append(now_ms)
        self._failures.move_to_end(address)
        if len(self._failures) > self._max_clients:
            self._failures.popitem(last=False)


def _bearer(header: str) -> str:
    """The key of a Bearer header; an empty one, which no entry has, if there is none."""
    scheme, _, key = header[:_MAX_HEADER_CHARS].strip(" \t").partition(" ")
    return key.strip(" \t") if scheme.lower() == "bearer" else ""


def _address(client: str) -> str:
    """What is counted as one client: an IPv4 address, the /64 of an IPv6 address, else the text itself."""
    try:
        address = ipaddress.ip_address(client.partition("%")[0])
    except ValueError:
        return client[:255]
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, 64), strict=False).network_address)
