"""What an attacker or a bad day found: each once more, with the right answer."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from sidecar import server as serving
from tests.e2e.conftest import Running, Start


async def exchange(server: Running, request: bytes) -> bytes:
    """Everything the server says to these bytes until it closes."""
    host, _, port = server.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request)
    answer = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    return answer


async def test_one_long_text_is_spoken_whole_and_answered(server: Running) -> None:
    async with connect(server.ws_url, max_size=None) as ws:
        config = {"type": "session.config", "stream_audio": True, "response_format": "pcm"}
        await ws.send(json.dumps(config | {"split_granularity": "sentence"}))
        await ws.send(json.dumps({"type": "input.text", "text": "Hi you. " * 300}))
        await ws.send(json.dumps({"type": "input.done"}))
        async for message in ws:
            if isinstance(message, str) and json.loads(message)["type"] not in ("audio.start", "audio.done"):
                assert json.loads(message) == {"type": "session.done", "utterance_index": 0, "total_sentences": 300}
                break


@pytest.mark.parametrize("delivery", [{}, {"stream_format": "audio", "response_format": "pcm"}])
async def test_an_engine_that_never_ends_is_stopped(delivery: dict[str, str], start: Start) -> None:
    async with start(engine__tone_fault="endless", engine__warm_up=False) as server:
        request = server.http.post("/v1/audio/speech", json={"input": "Hi.", **delivery})
        if delivery:
            with pytest.raises(httpx.RemoteProtocolError):
                await request
        else:
            assert (await request).status_code == 500
        await server.rows_free()


async def test_a_whole_answer_that_nobody_reads_is_dropped(start: Start) -> None:
    async with start(server__slow_consumer_s=0.3) as server:
        host, _, port = server.url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1_024)
        body = json.dumps({"input": "word " * 3_900}).encode()
        head = b"POST /v1/audio/speech HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        writer.write(head + b"content-length: %d\r\n\r\n" % len(body) + body)
        assert await reader.readexactly(12) == b"HTTP/1.1 200"
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        while "sidecar_faults" not in (await server.http.get("/metrics")).text:
            await asyncio.sleep(0.05)
        await asyncio.sleep(1.0)
        reader._transport.resume_reading()  # type: ignore[attr-defined]
        got = 12
        try:
            while piece := await reader.read(65_536):
                got += len(piece)
        except ConnectionError:
            pass
        writer.close()
        assert got < 1_000_000, "far less than the file: the connection was cut"


@pytest.mark.parametrize("field", ["speed", "response_format", "voice", "language"])
@pytest.mark.parametrize("model", ["sidecar-tts", "tts-1"])
async def test_half_a_character_is_a_bad_request(field: str, model: str, server: Running) -> None:
    body = f'{{"input": "x", "model": "{model}", "{field}": "\\ud800"}}'
    answer = await server.http.post(
        "/v1/audio/speech", content=body.encode(), headers={"content-type": "application/json"}
    )
    assert answer.status_code == 400, answer.text


async def test_half_a_character_in_a_config_ends_the_socket_with_an_error(server: Running) -> None:
    async with connect(server.ws_url) as ws:
        await ws.send('{"type": "session.config", "response_format": "\\ud800"}')
        assert json.loads(await ws.recv())["type"] == "error"
        with pytest.raises(ConnectionClosed) as closed:
            await ws.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1008


async def test_only_a_get_becomes_a_socket(server: Running) -> None:
    request = (
        b"POST /v1/audio/speech/stream HTTP/1.1\r\nhost: x\r\nconnection: upgrade, close\r\nupgrade: websocket\r\n"
    )
    answer = await exchange(server, request + b"content-length: 0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 4"), answer[:80]


@pytest.mark.parametrize("head", [b"GET /" + b"a" * 10**6, b"GET / HTTP/1.1\r\n" + b"x: " + b"y" * 10**6])
async def test_an_endless_head_is_refused(head: bytes, server: Running) -> None:
    try:
        answer = await exchange(server, head)
    except ConnectionError:
        return
    assert answer == b"" or answer.startswith(b"HTTP/1.1 4")


async def test_many_headers_are_refused(server: Running) -> None:
    head = b"GET /live HTTP/1.1\r\nhost: x\r\n" + b"".join(b"h%d: %s\r\n" % (n, b"v" * 100) for n in range(2_000))
    try:
        answer = await exchange(server, head)
    except ConnectionError:
        return
    assert answer == b"" or answer.startswith(b"HTTP/1.1 431")


async def test_a_connection_that_says_nothing_is_closed(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "HEAD_TIMEOUT_S", 0.2)
    assert await exchange(server, b"") == b""
    assert await exchange(server, b"GET / HTT") == b""


# ---------------------------------------------------------------- passing through
@pytest.mark.parametrize("path", ["/v1/foo?limit=3&after=x%20y", "/v1/foo%2Fbar", "/v1/models/extra/path?a=b"])
async def test_the_upstream_sees_the_path_as_it_was_written(path: str, proxied: Running) -> None:
    assert proxied.upstream is not None
    answer = await exchange(proxied, b"GET %s HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n" % path.encode())
    if "models" not in path:
        assert proxied.upstream.requests[-1].path == path
    assert answer.startswith(b"HTTP/1.1 404")


@pytest.mark.parametrize("path", ["/v1/%252e%252e/secret", "/v1/x/..%2f..%2fsecret", "/v1/a/%2e%2e/b", "/v1/..%5cx"])
async def test_nothing_leaves_the_upstreams_folder(path: str, proxied: Running) -> None:
    assert proxied.upstream is not None
    before = len(proxied.upstream.requests)
    answer = await exchange(proxied, b"GET %s HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n" % path.encode())
    assert answer.startswith(b"HTTP/1.1 404")
    assert len(proxied.upstream.requests) == before


# ---------------------------------------------------------------- stopping
async def test_a_socket_that_speaks_is_heard_to_the_end_when_the_server_stops(tmp_path: Path) -> None:
    env = os.environ | {"SIDECAR_ENGINE__TONE_REALTIME_FACTOR": "0.1"}
    command = [sys.executable, "-m", "sidecar", "serve", "--engine", "tone", "--port", "0", "--store", "memory:"]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, env=env, stdout=pipe, stderr=pipe)
    assert process.stdout is not None
    line = await process.stdout.readline()
    url = "ws" + line.decode().split()[-1].removeprefix("http") + "/v1/audio/speech/stream"
    kinds: list[Any] = []
    async with connect(url, max_size=None) as speaking, connect(url) as idle:
        config = {"type": "session.config", "stream_audio": True, "response_format": "pcm"}
        await speaking.send(json.dumps(config))
        await idle.send(json.dumps(config))
        await speaking.send(json.dumps({"type": "input.text", "text": "A sentence that lasts. " * 8}))
        await speaking.send(json.dumps({"type": "input.done"}))
        while not isinstance(await speaking.recv(), bytes):
            pass
        process.send_signal(signal.SIGTERM)
        async for message in speaking:
            kinds.append("bytes" if isinstance(message, bytes) else json.loads(message)["type"])
        assert speaking.close_code == 1001
        with pytest.raises(ConnectionClosed):
            await idle.recv()
    assert kinds[-2:] == ["audio.done", "session.done"], "what was accepted was spoken"
    _, err = await process.communicate()
    assert process.returncode == 0
    assert not re.search("level=error|Traceback", err.decode()), err.decode()


@pytest.mark.parametrize("path", ["/v1/audio/speech", "/v1/audio/speech/batch", "/v1/chat/completions"])
async def test_a_body_of_very_many_parts_is_refused_unread(path: str, server: Running) -> None:
    """Reading it would take seconds in which nobody else is served; its bytes are few."""
    body = b'{"input":"x","y":[' + b",".join([b"[]"] * 500_000) + b"]}"
    answer = await server.http.post(path, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 413
    body = b'{"input":"' + b"One, two. " * 1_000 + b'", "speaker_embedding": [' + b",".join([b"1.5"] * 8_192) + b"]}"
    answer = await server.http.post(path, content=body, headers={"content-type": "application/json"})
    assert answer.status_code != 413
