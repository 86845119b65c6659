"""Reading along: the same facts however the bytes are cut, and never an exception."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Close, Opcode

from sidecar.relay.seen import (
    Answer,
    Binary,
    BodyEnd,
    BodyPart,
    CloseFrame,
    Fact,
    Over,
    Ping,
    Request,
    Side,
    Text,
    Unseen,
)
from sidecar.relay.watch import FrameReader, Watch
from tests.sidecar.relay.helpers import HEAD, SWITCH, frame, watch_socket

SIDES = st.sampled_from(list(Side))


@given(SIDES, st.lists(st.one_of(st.text(max_size=80), st.binary(max_size=300)), max_size=6), st.data())
def test_messages_come_out_however_the_bytes_are_cut(side: Side, said: list[str | bytes], data: st.DataObject) -> None:
    stream = b"".join(frame(one, side) for one in said)
    reader, facts, at = FrameReader(side), list[Fact](), 0
    while at < len(stream):
        size = data.draw(st.integers(1, 40))
        facts += reader.feed(stream[at : at + size])
        at += size
    assert facts == [Text(one) if isinstance(one, str) else Binary(one) for one in said]


def test_fragments_are_one_message_with_a_ping_between() -> None:
    reader = FrameReader(Side.CLIENT)
    facts = reader.feed(frame("Hel", Side.CLIENT, fin=False))
    facts += reader.feed(frame(b"!", Side.CLIENT, opcode=Opcode.PING))
    facts += reader.feed(frame("lo", Side.CLIENT, opcode=Opcode.CONT))
    assert facts == [Ping(1), Text("Hello", 2)]


def test_pongs_and_closes() -> None:
    reader = FrameReader(Side.SERVER)
    data = frame(b"", Side.SERVER, opcode=Opcode.PONG)
    data += frame(Close(4008, "slow").serialize(), Side.SERVER, opcode=Opcode.CLOSE)
    assert reader.feed(data) == [Ping(0, pong=True), CloseFrame(4008, "slow")]
    assert reader.feed(frame("more", Side.SERVER)) == [], "nothing counts after a close"
    assert FrameReader(Side.SERVER).feed(frame(b"", Side.SERVER, opcode=Opcode.CLOSE)) == [CloseFrame(1005)]


@given(SIDES, st.binary(max_size=400))
def test_any_bytes_are_read_or_given_up_once(side: Side, data: bytes) -> None:
    reader = FrameReader(side)
    facts = [fact for at in range(0, len(data), 7) for fact in reader.feed(data[at : at + 7])]
    assert sum(isinstance(fact, Unseen) for fact in facts) <= 1


def test_a_message_that_is_too_long_is_told_once() -> None:
    reader = FrameReader(Side.SERVER, max_bytes=100)
    assert reader.feed(frame(bytes(100), Side.SERVER)) == [Binary(bytes(100))]
    assert reader.feed(frame(bytes(101), Side.SERVER)) == [Unseen("PayloadTooBig")]
    assert reader.feed(frame(b"small", Side.SERVER)) == []


def test_the_same_for_a_whole_connection() -> None:
    watch = Watch(7, Request("GET", "/x", socket=True), HEAD)
    assert [one.fact for one in watch.opened()] == [Request("GET", "/x", socket=True)]
    seen = watch.data(Side.SERVER, SWITCH + frame("early", Side.SERVER), 3.0)
    assert [(one.connection, one.at_ms, one.side, one.fact) for one in seen] == [
        (7, 3.0, Side.SERVER, Answer(101)),
        (7, 3.0, Side.SERVER, Text("early")),
    ]
    assert [one.fact for one in watch.data(Side.CLIENT, frame("hi", Side.CLIENT), 4.0)] == [Text("hi")]
    assert [one.fact for one in watch.over(5.0)] == [Over()]


def test_a_refused_handshake_is_a_plain_answer() -> None:
    watch = Watch(1, Request("GET", "/x", socket=True), HEAD)
    body = json.dumps({"error": {}}).encode()
    answer = b"HTTP/1.1 401 Unauthorized\r\nContent-Type: application/json; charset=utf-8\r\nContent-Length: %d\r\n\r\n"
    facts = [one.fact for one in watch.data(Side.SERVER, answer % len(body) + body, 1.0)]
    assert facts == [Answer(401, "application/json"), BodyPart(body), BodyEnd()]


def test_plain_bodies_without_their_chunks() -> None:
    watch = Watch(1, Request("POST", "/x"), b"POST /x HTTP/1.1\r\nContent-Length: 5\r\n\r\n")
    assert [one.fact for one in watch.opened()] == [Request("POST", "/x")]
    assert [one.fact for one in watch.data(Side.CLIENT, b"hello", 1.0)] == [BodyPart(b"hello"), BodyEnd()]
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: audio/pcm\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    facts = [one.fact for one in watch.data(Side.SERVER, answer, 2.0)]
    assert facts == [Answer(200, "audio/pcm"), BodyPart(b"abc"), BodyEnd()]


@given(SIDES, st.binary(min_size=1, max_size=300))
def test_a_broken_side_is_told_once_and_the_other_is_still_read(side: Side, data: bytes) -> None:
    watch = watch_socket()
    seen = [one for at in range(0, len(data), 9) for one in watch.data(side, data[at : at + 9], 1.0)]
    assert sum(isinstance(one.fact, Unseen) for one in seen) <= 1
    other = Side.SERVER if side is Side.CLIENT else Side.CLIENT
    assert [one.fact for one in watch.data(other, frame("hi", other), 2.0)] == [Text("hi")]


@given(st.binary(max_size=300))
def test_any_answer_is_read_or_given_up(data: bytes) -> None:
    watch = Watch(1, Request("GET", "/x"), b"GET /x HTTP/1.1\r\n\r\n")
    seen = [one for at in range(0, len(data), 9) for one in watch.data(Side.SERVER, data[at : at + 9], 1.0)]
    assert sum(isinstance(one.fact, Unseen) for one in seen) <= 1
