"""``input.cancel`` in every state of the speech socket."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import patch

import pytest
import pytest_asyncio

from sidecar.ports import AudioEncoder
from tests.e2e.conftest import Running, running
from tests.e2e.speech_tools import metric
from tests.e2e.ws_client import LONG, STREAMED, SpeechSocket, Unit, opened

pytestmark = pytest.mark.asyncio(loop_scope="module")

SENTENCES = {**STREAMED, "split_granularity": "sentence"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def talker() -> AsyncIterator[Running]:
    """Speaks in real time, so that a cancel always comes in the middle."""
    async with running(engine__tone_realtime_factor=1.0, engine__warm_up=False) as server:
        yield server


async def cut_off(client: SpeechSocket, unit: Unit) -> dict[str, Any]:
    """The end of a bracket that was cancelled."""
    done = (await client.finished(unit)).done
    assert (done["cancelled"], done["error"], unit.errors) == (True, False, [])
    return done


async def usable(client: SpeechSocket, talker: Running, index: int) -> None:
    """The socket speaks again at once, and nothing of before comes back."""
    heard = await client.spoken("Ok.")
    assert heard.texts == ["Ok."]
    assert heard.done == {"type": "session.done", "utterance_index": index, "total_sentences": 1}
    await talker.rows_free()


# ---------------------------------------------------------------- nothing sounds
async def test_idle(talker: Running) -> None:
    async with opened(talker, STREAMED) as client:
        for _ in range(3):
            await client.send("input.cancel")
            assert await client.expect("input.cancelled") == {"type": "input.cancelled", "utterance_index": 0}
        await usable(client, talker, 0)
        await client.send("input.cancel")
        assert (await client.expect("input.cancelled"))["utterance_index"] == 1


async def test_held_text_is_dropped_and_its_utterance_closed(talker: Running) -> None:
    async with opened(talker, STREAMED) as client:
        await client.text("Never to be heard")
        await client.send("input.cancel")
        await client.expect("input.cancelled")
        await client.configure(**STREAMED)
        await client.silent()
        await usable(client, talker, 0)


async def test_before_the_config(talker: Running) -> None:
    async with opened(talker) as client:
        await client.send("input.cancel")
        await client.error()
        assert await client.close_code() == 1008


# ---------------------------------------------------------------- in the middle
async def test_a_flushed_utterance(talker: Running) -> None:
    async with opened(talker, STREAMED) as client:
        await client.say(LONG)
        unit = await client.begun()
        await client.send("input.cancel")
        assert 0 < (await cut_off(client, unit))["total_bytes"] < 100_000
        done = await client.expect("session.done")
        assert done == {"type": "session.done", "utterance_index": 0, "total_sentences": 1, "cancelled": True}
        await usable(client, talker, 1)


async def test_an_utterance_that_is_still_written(talker: Running) -> None:
    """It is closed, with all that is left of it; its index is used again."""
    async with opened(talker, SENTENCES) as client:
        await client.text(LONG.strip()[:-1] + ", you know. And then. The tail")
        unit = await client.begun()
        await client.send("input.cancel")
        await cut_off(client, unit)
        await client.configure(**SENTENCES)
        await client.silent()
        await usable(client, talker, 0)


async def test_the_units_that_wait_are_dropped(talker: Running) -> None:
    async with opened(talker, SENTENCES) as client:
        await client.say(LONG)
        unit = await client.begun()
        await client.send("input.cancel")
        assert (await cut_off(client, unit))["sentence_index"] == 0
        done = await client.expect("session.done")
        assert (done["total_sentences"], done["cancelled"]) == (8, True)
        await usable(client, talker, 1)


async def test_later_units(talker: Running) -> None:
    async with opened(talker, SENTENCES) as client:
        await client.say("A. One! Two! " + LONG)
        heard = [await client.unit() for _ in range(2)]
        unit = await client.begun()
        assert [unit.start["sentence_index"] for unit in heard] == [0, 1]
        await client.send("input.cancel")
        assert (await cut_off(client, unit))["sentence_index"] == 2
        assert (await client.expect("session.done"))["cancelled"] is True
        await usable(client, talker, 1)


async def test_every_queued_utterance_is_answered(talker: Running) -> None:
    async with opened(talker, SENTENCES) as client:
        for _ in range(3):
            await client.say(LONG)
        unit = await client.begun()
        await client.text("And a tail that was not flushed")
        await client.send("input.cancel")
        await cut_off(client, unit)
        for index in range(3):
            done = await client.expect("session.done")
            assert (done["utterance_index"], done["cancelled"]) == (index, True)
        await usable(client, talker, 3)


async def test_a_whole_file_that_is_being_made(talker: Running) -> None:
    async with opened(talker, {"response_format": "mp3"}) as client:
        await client.say(LONG)
        unit = Unit(await client.expect("audio.start"))
        await client.send("input.cancel")
        assert (await cut_off(client, unit))["total_bytes"] == 0
        assert (await client.expect("session.done"))["cancelled"] is True
        await usable(client, talker, 1)


async def test_again_and_again(talker: Running) -> None:
    async with opened(talker, STREAMED) as client:
        for index in range(3):
            await client.say(LONG)
            unit = await client.begun()
            for _ in range(3):
                await client.send("input.cancel")
            await cut_off(client, unit)
            assert (await client.expect("session.done"))["utterance_index"] == index
            await client.raw("{")
            # The later cancels found the bracket still open, which answers them, or nothing at all.
            while (message := await client.message()) == {"type": "input.cancelled", "utterance_index": index + 1}:
                pass
            assert isinstance(message, dict)
            assert message["type"] == "error"
        await usable(client, talker, 3)


async def test_then_close(talker: Running) -> None:
    async with opened(talker, SENTENCES) as client:
        await client.say(LONG)
        unit = await client.begun()
        await client.send("session.close")
        await client.send("input.cancel")
        await cut_off(client, unit)
        assert (await client.expect("session.done"))["cancelled"] is True
        assert await client.close_code() == 1000
    await talker.rows_free()


# ---------------------------------------------------------------- before it sounds
async def test_before_the_first_sound(start: Any) -> None:
    """The engine has no row for it yet."""
    async with (
        start(engine__tone_fault="hang", engine__max_rows=1, engine__warm_up=False) as stuck,
        opened(stuck, STREAMED) as holder,
        opened(stuck, STREAMED) as client,
    ):
        await holder.say(LONG)
        unit = await holder.begun()
        await client.say("Waits for a row.")
        await client.say("Waits behind it.")
        await client.send("input.cancel")
        assert await client.expect("input.cancelled") == {"type": "input.cancelled", "utterance_index": 0}
        for index in range(2):
            done = await client.expect("session.done")
            assert (done["utterance_index"], done["cancelled"]) == (index, True)
        await holder.send("input.cancel")
        await cut_off(holder, unit)
        await stuck.rows_free()


async def test_before_the_first_chunk(start: Any) -> None:
    """The bracket is open, and its audio is still being made."""
    slow_engine = {"engine__tone_first_chunk_delay_ms": 60_000, "engine__warm_up": False}
    async with start(**slow_engine) as slow, opened(slow, STREAMED) as client:
        await client.say("Takes a minute.")
        unit = Unit(await client.expect("audio.start"))
        await client.send("input.cancel")
        assert (await cut_off(client, unit))["total_bytes"] == 0
        assert (await client.expect("session.done"))["cancelled"] is True
        await slow.rows_free()


async def test_when_all_is_spoken_but_not_yet_encoded(talker: Running) -> None:
    """The client learns that it was heard, and gets no file that it has cancelled."""
    encoding, go_on = threading.Event(), threading.Event()
    codec = talker.service.codec

    class Slow:
        def __init__(self, encoder: AudioEncoder) -> None:
            self.media_type = encoder.media_type
            self.feed = encoder.feed
            self._finish = encoder.finish

        def finish(self) -> bytes:
            encoding.set()
            assert go_on.wait(30)
            return self._finish()

    start = codec.start
    with patch.object(codec, "start", lambda *args, **options: Slow(start(*args, **options))):
        async with opened(talker, {"response_format": "mp3"}) as client:
            await client.say("Ok.")
            unit = Unit(await client.expect("audio.start"))
            assert await asyncio.to_thread(encoding.wait, 30)
            before = await metric(talker, "sidecar_cancels_total")
            await client.send("input.cancel")
            while await metric(talker, "sidecar_cancels_total") == before:
                await asyncio.sleep(0.005)
            go_on.set()
            assert (await cut_off(client, unit))["total_bytes"] == 0
            assert (await client.expect("session.done"))["cancelled"] is True


async def test_a_hanging_engine_is_let_go(start: Any) -> None:
    async with start(engine__tone_fault="hang", engine__warm_up=False) as stuck, opened(stuck, STREAMED) as client:
        await client.say(LONG)
        unit = await client.begun()
        await client.send("input.cancel")
        await cut_off(client, unit)
        await client.expect("session.done")
        await stuck.rows_free()


# ---------------------------------------------------------------- the others
async def test_only_this_socket_is_stopped(talker: Running) -> None:
    async with opened(talker, STREAMED) as client, opened(talker, STREAMED) as other:
        before = await metric(talker, "sidecar_cancels_total")
        await other.say("Speaking on and on.")
        unit = await other.begun()
        await client.say(LONG)
        mine = await client.begun()
        await client.send("input.cancel")
        await cut_off(client, mine)
        await other.finished(unit)
        assert "cancelled" not in unit.done
        assert unit.done["error"] is False
        assert (await other.expect("session.done"))["total_sentences"] == 1
        assert await metric(talker, "sidecar_cancels_total") == before + 1
