"""Known issues of speech over HTTP, with the tone engine."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from adapters.engines.qwen3_tts.requests import Limits
from adapters.engines.rows import chunk_frames
from adapters.engines.tone import ToneSettings
from tests.e2e.conftest import Running, running
from tests.e2e.speech_tools import SPEECH, UNKNOWN_SIZE, events, metric, omni_error, overheard, tone_s, wav
from tests.e2e.ws_client import STREAMED, opened

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = "Good morning, this is your sidecar speaking."
LONG = "This text is spoken for a quarter of a minute. " * 5
TINY_INPUTS = ["Ok.", "1次", "Huh?", "嗯？", "A."]
PCM = {"response_format": "pcm"}


async def ask(server: Running, text: str = TEXT, **members: Any) -> httpx.Response:
    answer: httpx.Response = await server.http.post(SPEECH, json={"input": text, **members})
    return answer


# ---------------------------------------------------------------- audio
async def test_k09_streamed_is_as_long_as_complete(tone: Running) -> None:
    whole = await ask(tone, seed=1, **PCM)
    streamed = await ask(tone, seed=1, stream_format="audio", **PCM)
    assert whole.content == streamed.content
    assert len(whole.content) % 3_840 == 0


@pytest.mark.parametrize("ramp", [ToneSettings().chunk_ramp_frames, Limits().chunk_ramp])
@pytest.mark.parametrize("real_time_factor", [0.1, 0.5])
async def test_k11_the_ramp_leaves_no_hole(ramp: tuple[int, ...], real_time_factor: float) -> None:
    """Played as soon as the first chunk is there, every later one comes before what was sent has sounded."""
    lengths = chunk_frames(ramp)
    made_ms = played_until_ms = 0.0
    for number in range(60):
        length_ms = next(lengths) * 80
        made_ms += length_ms * real_time_factor
        if number == 0:
            played_until_ms = made_ms
        assert made_ms - played_until_ms <= 50, f"chunk {number} comes too late"
        played_until_ms = max(made_ms, played_until_ms) + length_ms


@pytest.mark.parametrize("delivery", [{"stream_format": "audio"}, {"stream": True}])
async def test_k12_a_stream_is_heard_while_it_is_made(delivery: dict[str, Any]) -> None:
    async with (
        running(engine__tone_realtime_factor=0.05, engine__warm_up=False) as server,
        server.http.stream("POST", SPEECH, json={"input": LONG, **PCM, **delivery}) as answer,
    ):
        pieces = aiter(answer.aiter_raw())
        assert await anext(pieces)
        assert (await server.service.engine.health()).active_rows == 1, "it still speaks"
        assert 1 + sum([1 async for _ in pieces]) >= 5


async def test_k17_headers_of_streamed_and_complete_files(tone: Running) -> None:
    streamed = wav((await ask(tone, stream_format="audio")).content)
    assert (streamed.riff_size, streamed.data_size) == (UNKNOWN_SIZE, UNKNOWN_SIZE)
    whole = wav((await ask(tone)).content)
    assert (whole.riff_size, whole.data_size) == (36 + len(whole.data), len(whole.data))


# ---------------------------------------------------------------- generation
async def test_k18_an_engine_that_never_ends_is_stopped() -> None:
    async with running(engine__tone_fault="endless", engine__warm_up=False) as endless:
        omni_error(await ask(endless, "Hi.", seed=1), 500)
        with pytest.raises(httpx.RemoteProtocolError):
            await ask(endless, "Hi.", stream_format="audio", **PCM)
        await endless.rows_free()


@pytest.mark.parametrize("text", TINY_INPUTS)
async def test_k19_and_k20_tiny_inputs_have_a_sane_length(tone: Running, text: str) -> None:
    for seed in range(10):
        for delivery in ({}, {"stream_format": "audio"}):
            body = (await ask(tone, text, seed=seed, **PCM, **delivery)).content
            assert 0.15 <= len(body) / 48_000 <= 6


async def test_k20_silence_alone_would_be_audio_but_nothing_is_an_error() -> None:
    async with running(engine__tone_fault="first_chunk", engine__warm_up=False) as mute:
        for delivery in ({}, {"stream": True}, {"stream_format": "audio"}):
            omni_error(await ask(mute, **PCM, **delivery), 500)


async def test_k21_the_socket_says_what_the_endpoint_says(tone: Running) -> None:
    whole = (await ask(tone, seed=9, **PCM)).content
    async with opened(tone, {**STREAMED, "seed": 9}) as client:
        units = [(await client.spoken(TEXT)).units[0] for _ in range(2)]
    assert [unit.audio for unit in units] == [whole, whole]
    crowd = await asyncio.gather(ask(tone, seed=9, **PCM), *(ask(tone, LONG, seed=n) for n in range(7)))
    assert crowd[0].content == whole


@pytest.mark.parametrize("members", [{}, {"extra_params": {"seed": 1}}, {"extra_body": {"seed": 1}}])
async def test_k22_and_k23_without_a_seed_every_run_differs(tone: Running, members: dict[str, Any]) -> None:
    assert (await ask(tone, **members)).content != (await ask(tone, **members)).content


@pytest.mark.parametrize(("name", "code"), [("English", "en"), ("CHINESE", "zh"), ("Auto", None), (None, None)])
async def test_k24_the_language_reaches_the_engine(tone: Running, name: str | None, code: str | None) -> None:
    with overheard(tone) as asked:
        await ask(tone, "Call 2 5 9 at 10:30.", language=name)
        async with opened(tone, {**STREAMED, "language": name}) as client:
            await client.spoken("Call 2 5 9 at 10:30.")
    assert [utterance.language for utterance in asked] == [code, code]


async def test_k25_markdown_is_read_as_it_is_unless_cleaned(tone: Running) -> None:
    markdown = "**Bold** [link](http://a.b) 🙂 now."
    with overheard(tone) as asked:
        await ask(tone, markdown)
        await ask(tone, markdown, clean_text=True)
        async with opened(tone, {**STREAMED, "split_rules": "sidecar"}) as client:
            heard = await client.spoken(markdown)
    plain, *cleaned = [utterance.text for utterance in asked]
    assert plain == markdown
    for text in cleaned:
        assert "Bold" in text
        assert "link" in text
        assert not [part for part in ("*", "http", "🙂") if part in text]
    assert heard.texts == [markdown], "what is shown stays the client's own text"


async def test_k27_a_cap_is_a_cap(tone: Running) -> None:
    body = (await ask(tone, LONG, max_new_tokens=25, **PCM)).content
    assert 0 < len(body) <= 2 * 48_000
    omni_error(await ask(tone, max_new_tokens=4_097))


# ---------------------------------------------------------------- answers
@pytest.mark.parametrize("name", ["nobody", "../alto", "alto ; x"])
async def test_k51_an_unknown_speaker_is_not_ignored(tone: Running, name: str) -> None:
    for member in ("speaker", "voice"):
        error = omni_error(await ask(tone, **{member: name}))
        assert "alto" in error["message"], "the voices that there are"
    with overheard(tone) as asked:
        assert (await ask(tone, speaker="bass")).status_code == 200
    assert asked[0].voice == "bass"


async def test_k52_stream_is_events_and_audio_is_raw(tone: Running) -> None:
    sse = await ask(tone, stream=True, **PCM)
    assert sse.headers["content-type"].startswith("text/event-stream")
    assert events(sse.text)[-1][0] == "speech.audio.done"
    raw = await ask(tone, stream=True, stream_format="audio", **PCM)
    assert raw.headers["content-type"] == "audio/pcm"
    assert len(raw.content) == round(tone_s(TEXT) * 48_000)


async def read(server: Running, body: dict[str, Any]) -> tuple[bytes, bool]:
    """What came of a streamed body, and whether it ended as it should."""
    got = b""
    try:
        async with server.http.stream("POST", SPEECH, json=body) as answer:
            assert answer.status_code == 200
            async for piece in answer.aiter_raw():
                got += piece
    except httpx.RemoteProtocolError:
        return got, False
    return got, True


@pytest.mark.parametrize("delivery", [{"stream_format": "audio"}, {"stream": True}])
async def test_k53_a_failure_in_mid_stream_is_no_end(delivery: dict[str, Any]) -> None:
    async with running(engine__tone_fault="mid", engine__warm_up=False) as faulty:
        body, whole = await read(faulty, {"input": LONG, **PCM, **delivery})
        assert not whole, "the client must see that it broke off"
        assert body
        if "stream" in delivery:
            name, last = events(body.decode())[-1]
            assert name == "speech.audio.error"
            assert (last["error"]["partial_audio"], last["error"]["action"]) == (True, "discard")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
async def test_k54_numbers_that_are_none(tone: Running, number: str) -> None:
    vector = "[" + ", ".join(["0.1"] * 1_023 + [number]) + "]"
    body = f'{{"input": "Hi.", "speaker_embedding": {vector}}}'
    answer = await tone.http.post(SPEECH, content=body, headers={"content-type": "application/json"})
    assert omni_error(answer)["param"] == "speaker_embedding"
    assert json.loads(answer.content), "an error about it is JSON itself"


# ---------------------------------------------------------------- resources
async def test_k39_nothing_grows_with_dropped_requests() -> None:
    async with running() as server:

        async def dropped() -> None:
            async with server.http.stream("POST", SPEECH, json={"input": LONG, "stream_format": "audio"}) as answer:
                await anext(aiter(answer.aiter_raw()))

        for _ in range(20):
            await asyncio.gather(dropped(), ask(server))
        await server.rows_free()
        before = resident_bytes()
        for _ in range(100):
            await asyncio.gather(dropped(), ask(server))
        await server.rows_free()
        assert resident_bytes() - before < 100 << 20
        assert await metric(server, "sidecar_active_replies") == 0


def resident_bytes() -> int:
    """Of this process, with server and client in it."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4_096
    except FileNotFoundError:
        pytest.skip("needs /proc")


@pytest.mark.parametrize("delivery", [{}, {"stream_format": "audio"}, {"stream": True}])
async def test_k40_a_client_that_leaves_frees_its_row(delivery: dict[str, Any]) -> None:
    async with running(engine__tone_realtime_factor=1.0, engine__warm_up=False) as slow:
        asks = [asyncio.create_task(ask(slow, LONG, **PCM, **delivery)) for _ in range(8)]
        while (await slow.service.engine.health()).active_rows < 8:
            await asyncio.sleep(0.005)
        for one in asks:
            one.cancel()
        await asyncio.gather(*asks, return_exceptions=True)
        await slow.rows_free()
        assert (await slow.http.get("/health")).status_code == 200
        assert (await ask(slow, "Hi.")).status_code == 200


async def test_k41_more_than_there_is_room_for() -> None:
    limits: dict[str, Any] = {
        "engine__max_rows": 2,
        "server__max_replies": 4,
        "server__queue_replies": 2,
        "server__queue_wait_ms": 50,
    }
    async with running(engine__tone_realtime_factor=0.05, engine__warm_up=False, **limits) as small:
        answers = await asyncio.gather(*(ask(small, LONG) for _ in range(16)))
        codes = {answer.status_code for answer in answers}
        assert codes <= {200, 429, 503}
        assert 200 in codes
        for answer in answers:
            if answer.status_code != 200:
                omni_error(answer, answer.status_code)
                assert answer.headers["x-should-retry"] == "true"
        await small.rows_free()
        assert (await ask(small, "Hi.")).status_code == 200


async def test_k44_encoding_does_not_stop_the_others(tone: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """An encoder that is held up holds nobody else up."""
    encoding, go_on = threading.Event(), threading.Event()
    real = tone.service.codec.start

    class Held:
        def __init__(self, encoder: Any) -> None:
            self.media_type, self._encoder = encoder.media_type, encoder

        def feed(self, pcm: Any) -> bytes:
            encoding.set()
            assert go_on.wait(30)
            return bytes(self._encoder.feed(pcm))

        def finish(self) -> bytes:
            return bytes(self._encoder.finish())

    monkeypatch.setattr(tone.service.codec, "start", lambda *args, **options: Held(real(*args, **options)))
    held = asyncio.create_task(ask(tone, response_format="mp3"))
    assert await asyncio.to_thread(encoding.wait, 30)
    assert (await tone.http.get("/health")).status_code == 200
    go_on.set()
    assert (await held).status_code == 200


async def pieces_of(body: bytes) -> AsyncIterator[bytes]:
    """A body in small parts."""
    for at in range(0, len(body), 1_000):
        yield body[at : at + 1_000]


async def test_k50_nothing_of_the_inside_is_told(tone: Running) -> None:
    """Whatever is sent, an error is an object without paths and traces."""
    bodies = [b"\x00" * 5_000, b'{"input": 5}', b'{"input": "x", "ref_audio": "data:audio/wav;base64,AAAA"}']
    for body in bodies:
        headers = {"content-type": "application/json"}
        answer = await tone.http.post(SPEECH, content=pieces_of(body), headers=headers)
        omni_error(answer)
        assert not any(word in answer.text for word in ("/tmp", "/root", "/home", "Traceback", ".py"))
