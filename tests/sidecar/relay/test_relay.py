"""The relay on real sockets: nothing that passes is changed, lost, held up or unbounded."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest
import trustme
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed, InvalidStatus

from sidecar.clock import SystemClock
from sidecar.faults import ConfigError
from sidecar.relay.heads import Target
from sidecar.relay.relay import Relay, RelayLimits
from sidecar.relay.seen import Answer, Binary, CloseFrame, Ended, Ping, Request, Side, Text, Unseen
from sidecar.relay.watch import FrameReader
from tests.e2e.conftest import KEY, Running, running
from tests.e2e.ws_client import STREAMED, SpeechSocket
from tests.sidecar.relay.helpers import Facts, relayed

PATH = "/v1/audio/speech/stream"


@pytest.fixture
async def server() -> AsyncIterator[Running]:
    async with running() as server:
        yield server


@asynccontextmanager
async def answering(handler: Callable[[ServerConnection], Awaitable[None]]) -> AsyncIterator[str]:
    """A WebSocket server of the test's own."""
    async with serve(handler, "127.0.0.1", 0, compression="deflate") as made:
        port = made.sockets[0].getsockname()[1]
        yield f"ws://127.0.0.1:{port}"


@asynccontextmanager
async def listening(
    handler: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[str]:
    """A TCP server of the test's own."""
    made = await asyncio.start_server(handler, "127.0.0.1", 0)
    port = made.sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        made.close()


# ---------------------------------------------------------------- speech sockets
async def test_speech_is_the_same_through_the_relay(server: Running) -> None:
    config = {**STREAMED, "seed": 7, "split_granularity": "sentence"}

    async def spoken(url: str) -> tuple[list[str], bytes]:
        async with connect(url, proxy=None) as connection:
            client = SpeechSocket(connection)
            await client.configure(**config)
            said = await client.spoken("Good morning. ", "The canary leaves at 3.15 p.m. today. ", "Bye.")
            await client.send("session.close")
            assert await client.close_code() == 1000
            return said.texts, b"".join(unit.audio for unit in said.units)

    direct = await spoken(server.ws_url)
    async with relayed(server.url) as (address, facts):
        assert await spoken(f"ws://{address}{PATH}?key=canary") == direct
        await facts.over()
    assert facts.types(Side.CLIENT) == ["session.config", *["input.text"] * 3, "input.done", "session.close"]
    assert facts.types(Side.SERVER) == [*["audio.start", "audio.done"] * 3, "session.done"]
    assert b"".join(fact.data for fact in facts.of(Binary)) == direct[1]
    assert [fact.code for fact in facts.of(CloseFrame)] == [1000, 1000]
    lines = "\n".join(facts.lines())
    assert "canary" not in lines
    assert f"{len(direct[1]) / 48_000:.2f} s of sound" in lines
    assert "canary" in "\n".join(facts.lines(show_text=True))


async def test_a_server_with_keys_is_reached_with_the_clients_key() -> None:
    async with running(auth__api_keys=["canary-key-0123456789"]) as server, relayed(server.url) as (address, facts):
        with pytest.raises(InvalidStatus) as refused:
            await connect(f"ws://{address}{PATH}", proxy=None)
        assert refused.value.response.status_code == 401
        assert json.loads(refused.value.response.body or b"")["error"]["code"] == "invalid_api_key"
        headers = {"Authorization": "Bearer canary-key-0123456789"}
        async with connect(f"ws://{address}{PATH}", proxy=None, additional_headers=headers) as connection:
            await SpeechSocket(connection).configure()
        await facts.over(2)
    assert [fact.keyed for fact in facts.of(Request)] == [False, True]
    assert [fact.status for fact in facts.of(Answer)] == [401, 101]
    everything = [*facts.lines(show_text=True), *facts.recorded()]
    assert "canary" not in "".join(everything)


async def test_a_page_of_the_relays_address_may_speak_and_another_may_not(server: Running) -> None:
    async with relayed(server.url) as (address, _):
        async with connect(f"ws://{address}{PATH}", proxy=None, origin=f"http://{address}") as connection:  # type: ignore[arg-type]
            await SpeechSocket(connection).configure()
        with pytest.raises(InvalidStatus):
            await connect(f"ws://{address}{PATH}", proxy=None, origin="http://evil.example")  # type: ignore[arg-type]


async def test_several_clients_at_once(server: Running) -> None:
    async def one(number: int) -> int:
        async with connect(f"ws://{address}{PATH}", proxy=None) as connection:
            client = SpeechSocket(connection)
            await client.configure(**STREAMED, seed=number)
            return len((await client.spoken(f"This is client number {number}. " * (number + 1))).units[0].audio)

    async with relayed(server.url) as (address, facts):
        lengths = await asyncio.gather(*map(one, range(5)))
        await facts.over(5)
    assert len(set(lengths)) == 5
    for number in range(1, 6):
        done = [one.fact for one in facts.seen if one.connection == number and isinstance(one.fact, Text)]
        assert json.loads(done[-1].text)["type"] == "session.done"


# ---------------------------------------------------------------- what a pair of endpoints would swallow
async def test_pings_pass_in_both_directions() -> None:
    async def handler(connection: ServerConnection) -> None:
        await (await connection.ping(b"from the server"))
        await connection.send("pinged")
        await connection.wait_closed()

    async with answering(handler) as url, relayed(url) as (address, facts):
        async with connect(f"ws://{address}/", proxy=None, ping_interval=None) as connection:
            await (await connection.ping(b"from the client"))
            assert await connection.recv() == "pinged"
        await facts.over()
    for side in Side:
        assert {fact.pong for fact in facts.of(Ping, side)} == {False, True}
        assert {fact.size for fact in facts.of(Ping, side)} == {15}


@pytest.mark.parametrize(("code", "reason"), [(1000, ""), (1008, "Timeout"), (1013, "busy"), (4008, "slow_consumer")])
async def test_close_codes_pass_from_the_server(code: int, reason: str) -> None:
    async def handler(connection: ServerConnection) -> None:
        await connection.close(code, reason)

    async with answering(handler) as url, relayed(url) as (address, facts):
        async with connect(f"ws://{address}/", proxy=None) as connection:
            with pytest.raises(ConnectionClosed) as closed:
                await connection.recv()
        await facts.over()
    assert closed.value.rcvd is not None
    assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (code, reason)
    assert facts.of(CloseFrame, Side.SERVER) == [CloseFrame(code, reason)]


async def test_close_codes_pass_from_the_client() -> None:
    seen: list[int | None] = []

    async def handler(connection: ServerConnection) -> None:
        await connection.wait_closed()
        seen.append(connection.close_code)

    async with answering(handler) as url, relayed(url) as (address, facts):
        async with connect(f"ws://{address}/", proxy=None) as connection:
            await connection.close(3001, "enough")
        await facts.over()
    assert seen == [3001]
    assert facts.of(CloseFrame, Side.CLIENT) == [CloseFrame(3001, "enough")]


@pytest.mark.parametrize("how", ["rst", "fin"])
async def test_a_client_that_vanishes_is_gone_for_the_server_too(how: str) -> None:
    gone = asyncio.Event()

    async def handler(connection: ServerConnection) -> None:
        await connection.wait_closed()
        gone.set()

    async with answering(handler) as url, relayed(url) as (address, facts):
        connection = await connect(f"ws://{address}/", proxy=None)
        await SpeechSocket(connection).vanish(how)
        await gone.wait()
        await facts.over()
    assert facts.of(Ended, Side.CLIENT) == [Ended("reset" if how == "rst" else "closed")]


async def test_a_server_that_vanishes_is_gone_for_the_client_too() -> None:
    async def handler(connection: ServerConnection) -> None:
        await connection.recv()
        real = connection.transport.get_extra_info("socket")
        real.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.transport.abort()

    async with (
        answering(handler) as url,
        relayed(url) as (address, _),
        connect(f"ws://{address}/", proxy=None) as client,
    ):
        await client.send("go")
        with pytest.raises(ConnectionClosed) as closed:
            await client.recv()
    assert closed.value.rcvd is None, "no close frame was made up"


async def test_fragments_and_frames_that_break_the_protocol_pass() -> None:
    got: list[bytes] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
        got.append(await reader.readexactly(6))
        writer.write(b"\xff\xff\xff\xffjunk")
        await writer.drain()
        writer.close()

    async with listening(handler) as url, relayed(url) as (address, facts):
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"broken")
        assert await reader.read() == b"\xff\xff\xff\xffjunk"
        writer.close()
        await facts.over()
    assert got == [b"broken"]


async def test_any_bytes_pass_unchanged_in_both_directions() -> None:
    up, down = (random.Random(seed).randbytes(700_000) for seed in (1, 2))
    got: list[bytes] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n" + down)
        got.append(await reader.read(-1))
        writer.close()

    async with listening(handler) as url, relayed(url) as (address, facts):
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n" + up)
        writer.write_eof()
        await reader.readuntil(b"\r\n\r\n")
        assert await reader.read(-1) == down
        writer.close()
        await facts.over()
    assert got == [up]
    assert len(facts.of(Unseen)) == 2, "told once for each direction"


async def test_a_message_too_long_to_be_read_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def handler(connection: ServerConnection) -> None:
        async for message in connection:
            await connection.send(message)

    monkeypatch.setattr(FrameReader.__init__, "__defaults__", (1_000,))
    async with answering(handler) as url, relayed(url) as (address, facts):
        async with connect(f"ws://{address}/", proxy=None) as connection:
            for message in (b"small", bytes(100_000), "after"):
                await connection.send(message)
                assert await connection.recv() == message
        await facts.over()
    assert facts.of(Binary) == [Binary(b"small")] * 2
    assert facts.of(Unseen) == [Unseen("PayloadTooBig")] * 2


async def test_a_server_behind_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority, file = trustme.CA(), tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(file))
    gone = asyncio.Event()

    async def handler(connection: ServerConnection) -> None:
        await connection.send(str(connection.request.headers["Host"] if connection.request else ""))
        await connection.wait_closed()
        gone.set()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    monkeypatch.setattr(ssl, "create_default_context", partial(ssl.create_default_context, cafile=str(file)))
    async with serve(handler, "localhost", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        async with relayed(f"wss://localhost:{port}") as (address, facts):
            connection = await connect(f"ws://{address}/", proxy=None)
            assert await connection.recv() == f"localhost:{port}"
            await SpeechSocket(connection).vanish("fin")
            await gone.wait()
            await facts.over()


# ---------------------------------------------------------------- bounds
async def test_a_side_that_does_not_read_pauses_the_other() -> None:
    chunk, chunks = bytes(64 * 1024), 1_000
    paused = asyncio.Event()
    sent = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (len(chunk) * chunks))
        for _ in range(chunks):
            writer.write(chunk)
            sent += 1
            drained = asyncio.ensure_future(writer.drain())
            await asyncio.wait({drained}, timeout=0.5)
            if not drained.done():
                paused.set()
            await drained
        writer.close()

    async with listening(handler) as url, relayed(url) as (address, facts):
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await paused.wait()
        assert sent < chunks / 4, "what lies between is a few buffers"
        await reader.readuntil(b"\r\n\r\n")
        total = 0
        while data := await reader.read(1 << 20):
            total += len(data)
        assert total == len(chunk) * chunks
        writer.close()
        await facts.over()


async def test_more_connections_than_allowed_are_told_so(server: Running) -> None:
    async with relayed(server.url, RelayLimits(max_connections=1)) as (address, facts):
        async with connect(f"ws://{address}{PATH}", proxy=None) as connection:
            with pytest.raises(InvalidStatus) as refused:
                await connect(f"ws://{address}{PATH}", proxy=None)
            assert refused.value.response.status_code == 503
            await SpeechSocket(connection).configure()
        await facts.over()
        async with connect(f"ws://{address}{PATH}", proxy=None):
            pass


@pytest.mark.parametrize(
    ("sent", "status"), [(b"x" * 70_000, b"431"), (b"junk\r\n\r\n", b"400"), (b"CONNECT h:1 HTTP/1.1\r\n\r\n", b"400")]
)
async def test_what_is_no_request_is_answered(sent: bytes, status: bytes) -> None:
    async with relayed("ws://127.0.0.1:1") as (address, facts):
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(sent)
        assert (await reader.readline()).split()[1] == status
        writer.close()
    assert facts.seen == []


async def test_a_head_that_does_not_come_ends_the_connection() -> None:
    async with relayed("ws://127.0.0.1:1", RelayLimits(head_timeout_s=0.05)) as (address, _):
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET / HT")
        assert await reader.read() == b""
        writer.close()


async def test_a_server_that_is_not_there_is_a_502() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        async with relayed(f"ws://127.0.0.1:{taken.getsockname()[1]}") as (address, facts):
            answer = await _get(f"http://{address}/x")
            assert answer.status_code == 502
            await facts.over()
    assert "cannot be reached" in facts.of(Ended)[0].how


async def test_an_address_in_use_is_a_clear_error() -> None:
    async with relayed("ws://127.0.0.1:1") as (address, _):
        host, _, port = address.rpartition(":")
        with pytest.raises(ConfigError, match="cannot listen"):
            await Relay(Target.of("ws://h"), Facts(), SystemClock()).start(host, int(port))


async def test_closing_the_relay_cuts_its_connections(server: Running) -> None:
    async with relayed(server.url) as (address, _):
        connection = await connect(f"ws://{address}{PATH}", proxy=None)
        await SpeechSocket(connection).configure()
    with pytest.raises(ConnectionClosed):
        await connection.recv()


async def test_a_sink_that_fails_costs_nobody_the_connection(server: Running, caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: object) -> None:
        raise RuntimeError("no room")

    relay = Relay(Target.of(server.url), broken, SystemClock())
    address = await relay.start("127.0.0.1", 0)
    try:
        answer = await _get(f"http://{address}/live")
        assert answer.json() == {"status": "alive"}
    finally:
        await relay.close()
    assert "without being read" in caplog.text


# ---------------------------------------------------------------- plain requests
async def _get(url: str) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False) as client:
        return await client.get(url)


async def test_plain_requests_pass(server: Running) -> None:
    body = {"input": "The canary sings.", "voice": "alloy", "response_format": "pcm", "seed": 3}
    async with relayed(server.url) as (address, facts):
        base = f"http://{address}"
        headers = {"authorization": f"Bearer {KEY}"}
        async with httpx.AsyncClient(base_url=base, trust_env=False, headers=headers) as client:
            assert (await client.get("/health")).status_code == 200
            assert (await client.get("/nothing-here")).status_code == 404
            async with client.stream("POST", "/v1/audio/speech", json={**body, "stream_format": "audio"}) as answer:
                assert answer.headers["content-type"].startswith("audio/pcm")
                pieces = [piece async for piece in answer.aiter_raw()]
            events = await client.post("/v1/audio/speech", json={**body, "stream": True, "stream_format": "sse"})
        direct = await server.http.post("/v1/audio/speech", json=body)
        await facts.over(4)
    assert b"".join(pieces) == direct.content
    lines = facts.lines()
    assert "canary" not in "\n".join(lines)
    assert any("input=<17 chars> voice=alloy" in line for line in lines)
    assert sum("speech.audio.delta" in line for line in lines) == events.text.count("event: speech.audio.delta")
    assert len(facts.recorded()) == 1, "a header and nothing else"


async def test_a_body_that_is_sent_slowly_passes(server: Running) -> None:
    async def slowly() -> AsyncIterator[bytes]:
        for piece in (b'{"input": "Hi th', b'ere.", "response_format": ', b'"pcm"}'):
            yield piece
            await asyncio.sleep(0)

    async with relayed(server.url) as (address, _), httpx.AsyncClient(trust_env=False) as client:
        headers = {"content-type": "application/json"}
        answer = await client.post(f"http://{address}/v1/audio/speech", content=slowly(), headers=headers)
    assert answer.status_code == 200
    assert len(answer.content) > 2_000


async def test_a_client_that_closes_its_side_still_gets_its_answer() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.read()  # until the client's side is closed
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n%d" % asked.count(b"more"))
        await writer.drain()
        writer.close()

    async with listening(handler) as url, relayed(url) as (address, facts):
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"POST / HTTP/1.0\r\nHost: x\r\nContent-Length: 4\r\n\r\nmore")
        writer.write_eof()
        assert (await reader.read()).endswith(b"\r\n\r\n1")
        writer.close()
        await facts.over()
