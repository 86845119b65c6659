"""The speech socket when others fail: clients that vanish or read too slowly, an engine with faults."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from websockets.exceptions import ConnectionClosed

from tests.e2e.conftest import Running, running
from tests.e2e.speech_tools import SPEECH, metric, tone_s
from tests.e2e.ws_client import LONG, STREAMED, SpeechSocket, opened

pytestmark = pytest.mark.asyncio(loop_scope="module")

SENTENCES = {**STREAMED, "split_granularity": "sentence"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def talker() -> AsyncIterator[Running]:
    """Speaks in real time, so that a client always leaves in the middle."""
    async with running(engine__tone_realtime_factor=1.0, engine__warm_up=False) as server:
        yield server


async def all_gone(server: Running) -> None:
    await server.rows_free()
    while server.service.sockets:
        await asyncio.sleep(0.005)


# ---------------------------------------------------------------- clients that vanish
async def unconfigured(client: SpeechSocket) -> None: ...


async def configured(client: SpeechSocket) -> None:
    await client.configure(**SENTENCES)


async def with_text(client: SpeechSocket) -> None:
    await client.configure(**SENTENCES)
    await client.text("Held for ever")


async def just_flushed(client: SpeechSocket) -> None:
    await client.configure(**SENTENCES)
    await client.say(LONG)


async def started(client: SpeechSocket) -> None:
    await just_flushed(client)
    await client.expect("audio.start")


async def sounding(client: SpeechSocket) -> None:
    await just_flushed(client)
    await client.begun()


async def with_many_waiting(client: SpeechSocket) -> None:
    await client.configure(**SENTENCES)
    for _ in range(5):
        await client.say(LONG)
    await client.begun()


async def whole_file(client: SpeechSocket) -> None:
    await client.configure(response_format="flac")
    await client.say(LONG)
    await client.expect("audio.start")


async def cancelling(client: SpeechSocket) -> None:
    await sounding(client)
    await client.send("input.cancel")


async def closing(client: SpeechSocket) -> None:
    await sounding(client)
    await client.send("session.close")


async def failed(client: SpeechSocket) -> None:
    await client.configure(voice="nobody")
    await client.say("Who?")


MOMENTS = (
    *(unconfigured, configured, with_text, just_flushed, started, sounding),
    *(with_many_waiting, whole_file, cancelling, closing, failed),
)


@pytest.mark.parametrize("how", ["rst", "fin", "close"])
@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: moment.__name__)
async def test_a_client_that_vanishes_frees_all_it_held(talker: Running, moment: Any, how: str) -> None:
    tasks = len(asyncio.all_tasks())
    async with opened(talker) as client:
        await moment(client)
        await client.vanish(how)
    await all_gone(talker)
    while len(asyncio.all_tasks()) > tasks:
        await asyncio.sleep(0.005)
    assert await metric(talker, "sidecar_active_replies") == 0


async def test_others_hear_nothing_of_it(talker: Running) -> None:
    text = "A listener that stays."
    async with opened(talker, STREAMED) as stayer:
        await stayer.say(text)
        unit = await stayer.begun()
        for how in ("rst", "fin", "close"):
            async with opened(talker) as client:
                await with_many_waiting(client)
                await client.vanish(how)
        await stayer.finished(unit)
        assert len(unit.audio) == round(tone_s(text) * 48_000)
        await stayer.expect("session.done")
    await all_gone(talker)


async def test_a_handshake_that_is_given_up(talker: Running) -> None:
    host, port = talker.url.removeprefix("http://").split(":")
    for piece in (b"", b"GET /v1/audio/speech/stream HTTP/1.1\r\nHost: x\r\n"):
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(piece)
        writer.transport.abort()
    async with opened(talker, STREAMED) as client:
        assert (await client.spoken("Ok.")).failed == [False]
    await all_gone(talker)


# ---------------------------------------------------------------- an engine with faults
FAULTY = "One of these. Two of these. Three of these. Four of these."


@pytest.mark.parametrize("fault", ["open", "first_chunk", "mid", "nan", "hang"])
async def test_a_unit_that_fails_is_told_and_the_next_goes_on(start: Any, fault: str) -> None:
    flags = {"engine__tone_fault": fault, "engine__tone_fault_every": 2, "engine__warm_up": False}
    async with start(**flags, engine__chunk_timeout_s=0.2) as faulty, opened(faulty) as client:
        for index, streamed in enumerate([True, False, True]):
            await client.configure(response_format="pcm", stream_audio=streamed, split_granularity="sentence")
            heard = await client.spoken(FAULTY)
            assert heard.failed == [False, True, False, True]
            assert heard.done == {"type": "session.done", "utterance_index": index, "total_sentences": 4}
            for unit in heard.units:
                if not unit.done["error"]:
                    assert len(unit.audio) == round(tone_s(unit.text) * 48_000)
                    assert unit.errors == []
                    continue
                (error,) = unit.errors
                assert error["message"].startswith("Generation failed for utterance")
                partial = streamed and fault in ("mid", "hang")
                assert bool(unit.audio) is partial
                assert error.get("partial_audio", False) is partial
                assert error.get("action") == ("discard" if partial else None)
        await faulty.rows_free()
        assert await metric(faulty, "sidecar_replies_total", endpoint="stream", outcome="failed") == 6
        assert await metric(faulty, "sidecar_replies_total", endpoint="stream", outcome="completed") == 6


async def test_silence_is_sound_too(start: Any) -> None:
    flags = {"engine__tone_fault": "silence", "engine__tone_fault_every": 2, "engine__warm_up": False}
    async with start(**flags) as faulty, opened(faulty, SENTENCES) as client:
        heard = await client.spoken(FAULTY)
    assert heard.failed == [False] * 4
    assert [bool(np.frombuffer(unit.audio, "<i2").any()) for unit in heard.units] == [True, False, True, False]


async def test_an_engine_without_room(start: Any) -> None:
    flags = {"engine__max_rows": 1, "engine__row_wait_ms": 0, "engine__tone_fault": "hang", "engine__warm_up": False}
    async with start(**flags) as full, opened(full, STREAMED) as holder, opened(full, STREAMED) as client:
        await holder.say(LONG)
        await holder.begun()
        heard = await client.spoken("Is there room?")
        assert heard.failed == [True]
        assert "busy" in heard.units[0].errors[0]["message"]
        await holder.send("input.cancel")
        await full.rows_free()
        await client.say("Is there room now?")
        await client.begun()


# ---------------------------------------------------------------- clients that do not read
def narrow_socket(server: Running) -> socket.socket:
    """A connection that takes little before it is read from."""
    host, port = server.url.removeprefix("http://").split(":")
    narrow = socket.socket()
    narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    narrow.connect((host, int(port)))
    narrow.setblocking(False)
    return narrow


async def test_a_reader_that_does_not_read_is_paused_and_cut_off(start: Any) -> None:
    endless = "word " * 3_900
    async with start(server__slow_consumer_s=0.4, engine__warm_up=False) as server:
        async with opened(server, STREAMED, sock=narrow_socket(server), max_queue=1, ping_interval=None) as slow:
            await slow.say(endless)
            unit = await slow.begun()
            async with opened(server, STREAMED) as quick:
                while (await server.service.engine.health()).active_rows:
                    assert (await quick.spoken("Others go on.")).failed == [False]
                assert (await quick.spoken("Even now.")).failed == [False]
            with pytest.raises(ConnectionClosed) as closed:
                await slow.finished(unit)
            assert closed.value.rcvd is None, "nothing fits into it any more, not even a close frame"
        made_s = await metric(server, "sidecar_audio_seconds_total")
        assert made_s < tone_s(endless) / 4, "nothing is made that nobody takes"
        await all_gone(server)


async def test_a_body_that_nobody_takes_is_cut_off(start: Any) -> None:
    body = b'{"input": "%s", "response_format": "pcm", "stream_format": "audio"}' % (b"word " * 3_900)
    head = f"POST {SPEECH} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    async with start(server__slow_consumer_s=0.3, engine__warm_up=False) as server:
        narrow = narrow_socket(server)
        await asyncio.get_running_loop().sock_sendall(narrow, head.encode() + body)
        while not await metric(server, "sidecar_audio_seconds_total"):
            await asyncio.sleep(0.01)
        await server.rows_free()
        narrow.close()
        assert await metric(server, "sidecar_audio_seconds_total") < tone_s("word " * 3_900) / 4
        assert await metric(server, "sidecar_replies_total", endpoint="speech", outcome="cancelled") == 1
        assert (await server.http.post(SPEECH, json={"input": "Ok."})).status_code == 200
