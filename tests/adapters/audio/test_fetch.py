"""Recordings fetched from addresses: none but public ones are connected to, whatever URL, name or redirect says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import httpcore2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.audio.fetch import MAX_REDIRECTS, PublicBackend, PublicFetcher, is_public
from sidecar.faults import BadRequest, TooLarge

PUBLIC = "93.184.216.34"


def answer(status: int = 200, body: bytes = b"sound", **headers: str) -> list[bytes]:
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return [head.encode() + b"\r\n", body]


class Network(httpcore2.AsyncNetworkBackend):
    """Remembers every address connected to, and answers each connection with the next script."""

    def __init__(self, *scripts: list[bytes]) -> None:
        self.connected: list[tuple[str, int]] = []
        self._scripts = list(scripts)

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        self.connected.append((host, port))
        return httpcore2.AsyncMockStream(self._scripts.pop(0) if self._scripts else answer())


class Names:
    """A resolver by table; a name with several lists gives the next one each time (rebinding)."""

    def __init__(self, **table: Any) -> None:
        self.table: dict[str, Any] = {name.replace("_", "."): found for name, found in table.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        name = host.strip("[]")
        found = self.table.get(name)
        if found is None:
            import ipaddress
            import socket

            try:  # literals, also the odd forms that C libraries take for addresses
                return [str(ipaddress.ip_address(name))]
            except ValueError:
                try:
                    return [socket.inet_ntoa(socket.inet_aton(name))]
                except OSError as error:
                    raise OSError("unknown name") from error
        addresses: Sequence[str] = found.pop(0) if isinstance(found, list) else found
        return addresses


def fetcher(network: Network, names: Names | None = None, **options: Any) -> PublicFetcher:
    names = names or Names(example_org=(PUBLIC,))
    return PublicFetcher(backend=PublicBackend(names, network), **options)


async def test_a_public_file_is_fetched_from_the_address_that_was_checked() -> None:
    network, names = Network(answer(body=b"RIFF")), Names(example_org=(PUBLIC,))
    assert await fetcher(network, names).fetch("https://example.org/a.wav?x=1#f", "ref_audio") == b"RIFF"
    assert network.connected == [(PUBLIC, 443)]
    assert names.asked == ["example.org"]


DENIED = [
    "127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0.0.0.0", "10.0.0.1", "172.16.0.1",
    "192.168.1.1", "169.254.169.254", "100.64.0.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255",
    "[::1]", "[::]", "[fe80::1]", "[fc00::1]", "[fd00:ec2::254]", "[ff02::1]", "[::ffff:127.0.0.1]",
    "[::ffff:10.0.0.1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[64:ff9b:1::1]", "[2002:7f00:1::]", "[2002:a00:1::1]",
    "[2001:0:53aa:64c:0:0:0:1]", "[2001:db8::1]", "localhost", "localhost.", "a.localhost", "metadata.google.internal",
    "printer.local", "db.corp", "router.lan", "router.home.arpa",
]  # fmt: skip


@pytest.mark.parametrize("host", DENIED)
async def test_other_addresses_are_never_connected_to(host: str) -> None:
    network = Network()
    with pytest.raises(BadRequest) as refused:
        await fetcher(network, Names(example_org=(PUBLIC,), localhost=("127.0.0.1",))).fetch(f"https://{host}/", "p")
    assert refused.value.param == "p"
    assert network.connected == []


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/",
        "https://example.org:22/",
        "https://example.org:6379/",
        "https://user@example.org/",
        "https://user:pw@example.org/",
        "https://example.org\\@127.0.0.1/",
        "https://127.0.0.1\\.example.org/",
        "https://exam ple.org/",
        "https://example.org/\r\nHost: x",
        "https://exämple.org/",
        "https://ⓔxample.org/",
        "https:///a",
        "https://",
        "https:example.org",
        "//example.org/a",
        "file:///etc/passwd",
        "gopher://example.org/",
        "https://example.org/" + "a" * 3_000,
        "https://example.org:99999/",
        "https://example.org:x/",
        "https://[::1/",
    ],
)
async def test_odd_urls_are_refused_unread(url: str) -> None:
    network = Network()
    with pytest.raises(BadRequest):
        await fetcher(network).fetch(url, "p")
    assert network.connected == []


@pytest.mark.parametrize("found", [(PUBLIC, "127.0.0.1"), ("10.0.0.1",), (), ("fe80::1%eth0",), ("not an address",)])
async def test_a_name_with_a_private_address_is_refused(found: Sequence[str]) -> None:
    network = Network()
    with pytest.raises(BadRequest):
        await fetcher(network, Names(evil_example=found)).fetch("https://evil.example/", "p")
    assert network.connected == []


async def test_rebinding_finds_no_second_look() -> None:
    """The name answers with a private address when it is asked again; it is asked once a connection."""
    network = Network(answer(body=b"one"))
    names = Names(evil_example=[(PUBLIC,), ("127.0.0.1",)])
    assert await fetcher(network, names).fetch("https://evil.example/", "p") == b"one"
    assert network.connected == [(PUBLIC, 443)]


@pytest.mark.parametrize(
    "location",
    [
        "https://127.0.0.1/",
        "http://example.org/",
        "//127.0.0.1/",
        "file:///etc/passwd",
        "https://user@example.org/",
        "",
    ],
)
async def test_redirects_are_checked_anew(location: str) -> None:
    network = Network(answer(302, Location=location))
    with pytest.raises(BadRequest):
        await fetcher(network).fetch("https://example.org/", "p")
    assert network.connected == [(PUBLIC, 443)]


async def test_redirects_are_followed_a_few_times() -> None:
    hops = [answer(302, b"", Location="/b"), answer(307, b"", Location="https://example.org/c"), answer(body=b"end")]
    assert await fetcher(Network(*[[*hop] for hop in hops])).fetch("https://example.org/a", "p") == b"end"
    network = Network(*[answer(302, b"", Location="/again", Connection="close") for _ in range(9)])
    with pytest.raises(BadRequest, match="too often"):
        await fetcher(network).fetch("https://example.org/", "p")
    assert len(network.connected) == MAX_REDIRECTS + 1


async def test_size_status_and_silence() -> None:
    with pytest.raises(TooLarge):
        await fetcher(Network(answer(body=bytes(2_000))), max_bytes=1_000).fetch("https://example.org/", "p")
    with pytest.raises(BadRequest, match="404"):
        await fetcher(Network(answer(404))).fetch("https://example.org/", "p")
    with pytest.raises(BadRequest, match="cannot be reached"):
        await fetcher(Network([b"SSH-2.0-OpenSSH\r\n"])).fetch("https://example.org/", "p")
    with pytest.raises(BadRequest, match="cannot be reached"):
        await fetcher(Network(), Names()).fetch("https://unknown.example/", "p")


@given(st.ip_addresses(v=4))
def test_wrapping_an_address_never_makes_it_public(address: Any) -> None:
    number = int(address)
    plain = is_public(str(address))
    assert is_public(f"::ffff:{address}") == plain
    assert is_public(f"64:ff9b::{number >> 16:x}:{number & 0xFFFF:x}") == plain
    if not plain:
        assert not is_public(f"2002:{number >> 16:x}:{number & 0xFFFF:x}::1")
