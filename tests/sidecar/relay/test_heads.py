"""Heads of requests: read, shown without secrets, passed on with the target's names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.faults import BadRequest, ConfigError
from sidecar.relay.heads import RequestHead, Target
from sidecar.relay.relay import split_address
from tests.sidecar.relay.helpers import HEAD


def head(*lines: str, first: str = "GET /x HTTP/1.1") -> RequestHead:
    return RequestHead.read("\r\n".join([first, *lines, "", ""]).encode())


TARGET = Target.of("ws://far.example:8800")


# ---------------------------------------------------------------- target and address
@pytest.mark.parametrize(
    ("url", "authority", "origin", "path"),
    [
        ("ws://h:8091", "h:8091", "http://h:8091", "/"),
        ("wss://h", "h", "https://h", "/"),
        ("http://h:80/base/", "h", "http://h", "/base/"),
        ("https://[::1]:9/x", "[::1]:9", "https://[::1]:9", "/x"),
    ],
)
def test_a_target(url: str, authority: str, origin: str, path: str) -> None:
    target = Target.of(url)
    assert (target.authority, target.origin, target.path) == (authority, origin, path)


@pytest.mark.parametrize(
    "url", ["", "h:80", "ftp://h", "ws://", "ws://u:secret@h", "ws://h?key=secret", "ws://h#secret", "ws://h:99999"]
)
def test_what_is_no_target_is_said_without_its_secrets(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Target.of(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [("0.0.0.0:1", "0.0.0.0", 1), ("8094", "127.0.0.1", 8094), (":0", "127.0.0.1", 0), ("[::1]:2", "::1", 2)],
)
def test_an_address(address: str, host: str, port: int) -> None:
    assert split_address(address) == (host, port)


@pytest.mark.parametrize("address", ["", "host", "host:", "h:x", "h:65536", "::1:5", "h:-1"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(ConfigError, match="HOST:PORT"):
        split_address(address)


# ---------------------------------------------------------------- reading
def test_a_socket_is_known_by_its_upgrade() -> None:
    assert RequestHead.read(HEAD).is_socket
    assert not head("Upgrade: h2c").is_socket
    assert not head("Upgrade: websocket", first="POST /x HTTP/1.1").is_socket


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n\r\n",
        b"hello\r\n\r\n",
        b"GET /x\r\n\r\n",
        b"CONNECT h:1 HTTP/1.1\r\n\r\n",
        b"GET http://h/ HTTP/1.1\r\n\r\n",
    ],
)
def test_what_is_no_request_is_refused(data: bytes) -> None:
    with pytest.raises(BadRequest):
        RequestHead.read(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_head_or_refused(data: bytes) -> None:
    try:
        read = RequestHead.read(data + b"\r\n\r\n")
    except BadRequest:
        return
    assert read.path.startswith("/")
    assert read.forwarded(TARGET).endswith(b"\r\n\r\n")


# ---------------------------------------------------------------- secrets
@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/a?api_key=canary", "/a?api_key=***"),
        ("/a?key=canary&model=m&x=canary", "/a?key=***&model=m&x=***"),
        ("/a?canary", "/a?canary=***"),
        ("/a", "/a"),
    ],
)
def test_the_query_is_shown_by_its_names(path: str, shown: str) -> None:
    assert head(first=f"GET {path} HTTP/1.1").shown_path == shown


@pytest.mark.parametrize(
    "line",
    [
        "Authorization: Bearer canary",
        "X-API-Key: canary",
        "Cookie: a=canary",
        "Sec-WebSocket-Protocol: realtime, openai-insecure-api-key.canary",
    ],
)
def test_a_key_is_noticed_and_never_part_of_what_is_shown(line: str) -> None:
    read = head(line)
    assert read.keyed
    assert not head("Accept: */*").keyed
    assert "canary" not in read.shown_path
    assert line.partition(": ")[2].encode() in read.forwarded(TARGET), "the server still gets it"


# ---------------------------------------------------------------- passing on
def test_what_the_target_gets() -> None:
    sent = head(
        "Host: relay:1",
        "Origin: http://relay:1",
        "Connection: keep-alive, Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Extensions: permessage-deflate",
        "Sec-WebSocket-Key: k",
        "X-Other: 1",
    ).forwarded(TARGET)
    lines = sent.decode().split("\r\n")
    assert lines == [
        "GET /x HTTP/1.1",
        "Host: far.example:8800",
        "Origin: http://far.example:8800",
        "Upgrade: websocket",
        "Sec-WebSocket-Key: k",
        "X-Other: 1",
        "Connection: Upgrade",
        "",
        "",
    ]


def test_a_plain_request_asks_for_one_answer_and_keeps_a_strange_origin() -> None:
    sent = head("Host: relay:1", "Origin: http://elsewhere", "Content-Length: 3", first="POST /y?a=b HTTP/1.0")
    text = sent.forwarded(TARGET).decode()
    assert text.startswith("POST /y?a=b HTTP/1.0\r\n")
    assert "Origin: http://elsewhere\r\n" in text
    assert "Content-Length: 3\r\n" in text
    assert text.endswith("Connection: close\r\n\r\n")


def test_the_root_is_where_the_target_says() -> None:
    read = head(first="GET / HTTP/1.1")
    assert read.forwarded(Target.of("ws://h/v1/audio/speech/stream")).startswith(b"GET /v1/audio/speech/stream HTTP")
    assert head(first="GET /other HTTP/1.1").forwarded(Target.of("ws://h/v1")).startswith(b"GET /other HTTP")
