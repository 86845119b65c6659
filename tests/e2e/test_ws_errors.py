"""The speech socket when the client is wrong: what ends it, with which code, and what it survives."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
import pytest_asyncio
from websockets.exceptions import ConnectionClosed

from tests.e2e.conftest import Running, running
from tests.e2e.ws_client import STREAMED, SpeechSocket, opened

pytestmark = pytest.mark.asyncio(loop_scope="module")

MESSAGE_CHARS = 2_048
CONFIG_CHARS = 8_192


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def talker() -> AsyncIterator[Running]:
    async with running(stream__max_message_chars=MESSAGE_CHARS, stream__max_config_chars=CONFIG_CHARS) as server:
        yield server


async def refused(client: SpeechSocket) -> str:
    """The socket's last words."""
    message = await client.error()
    assert await client.close_code() == 1008
    return message


def config(**members: Any) -> str:
    return json.dumps({"type": "session.config", **members})


# ---------------------------------------------------------------- before the first config
@pytest.mark.parametrize(
    "frame",
    [
        *("{", "", "hello", "[1]", "null", '"session.config"', "1", "[" * 10_000),
        *('{"type": "input.text", "text": "hi"}', '{"type": "input.done"}', '{"type": "input.cancel"}'),
        *('{"type": "session.close"}', '{"type": "nonsense"}', "{}", '{"type": null}', '{"voice": "x"}'),
        *('{"type": ["session.config"]}', '{"type": {"session.config": 1}}', b"\x00"),
    ],
    ids=lambda frame: repr(frame[:24]),
)
async def test_the_first_message_must_be_a_config(talker: Running, frame: str | bytes) -> None:
    async with opened(talker) as client:
        await client.raw(frame)
        await refused(client)


@pytest.mark.parametrize(
    "members",
    [
        *({"response_format": "xyz"}, {"response_format": None}, {"speed": 9}, {"speed": "fast"}),
        *({"speed": float("nan")}, {"task_type": "x"}, {"split_granularity": "word"}, {"split_granularity": None}),
        *({"split_rules": "mine"}, {"max_new_tokens": 0}, {"seed": "x"}, {"seed": 2**63}, {"seed": 10**400}),
        *({"initial_codec_chunk_frames": -1}, {"stream_audio": "perhaps"}, {"voice": 5}, {"language": 5}),
        *({"speaker_embedding": "x"}, {"ref_audio": ["a", "b"]}),
        *({"output_mode": "midi"}, {"word_timestamps": 1}, {"model": 5}, {"model": "no/such-model"}),
        *({"stream_audio": True}, {"stream_audio": True, "response_format": "mp3"}),
        *({**STREAMED, "speed": 1.5}, {"output_mode": "codec_tokens"}),
        {**STREAMED, "output_mode": "codec_tokens", "word_timestamps": True},
    ],
    ids=lambda members: repr(members)[:40],
)
async def test_a_wrong_config(talker: Running, members: dict[str, Any]) -> None:
    """Ends a socket that has no config yet, and changes nothing in one that has."""
    async with opened(talker) as client:
        await client.raw(config(**members))
        named = await refused(client)
    async with opened(talker, {"response_format": "flac"}) as client:
        await client.raw(config(**members))
        assert await client.error() == named
        assert (await client.spoken("Still here.")).units[0].start["format"] == "flac"


async def test_a_message_about_a_config_names_its_field(talker: Running) -> None:
    async with opened(talker) as client:
        await client.configure(response_format="pcm", speed=9)
        assert "session.config.speed" in await refused(client)
    async with opened(talker) as client:
        await client.configure(model="no/such-model")
        assert "'no/such-model' does not exist" in await refused(client)


# ---------------------------------------------------------------- inside a session
BAD = {
    "unknown type": '{"type": "nonsense"}',
    "long type": json.dumps({"type": "x" * 1_000}),
    "no type": '{"text": "x"}',
    "type is a list": '{"type": ["input.done"]}',
    "bad json": "{oops",
    "empty frame": "",
    "array": "[1, 2]",
    "null": "null",
    "deep": '{"type":' + "[" * 1_900,
    "text is a number": '{"type": "input.text", "text": 5}',
    "text is null": '{"type": "input.text", "text": null}',
    "text is a list": '{"type": "input.text", "text": ["a"]}',
    "oversize text": json.dumps({"type": "input.text", "text": "x" * MESSAGE_CHARS}),
    "oversize unknown": json.dumps({"type": "nonsense", "pad": "x" * MESSAGE_CHARS}),
    "oversize done": json.dumps({"type": "input.done", "pad": "x" * MESSAGE_CHARS}),
    "oversize anything": "x" * (CONFIG_CHARS + 1),
    "oversize config": config(response_format="flac", pad="x" * CONFIG_CHARS),
    "config while open": config(response_format="flac"),
    "wrong config while open": config(speed=9),
    "binary": b"\x00\x01\x02",
    "empty binary": b"",
    "binary json": b'{"type": "input.done"}',
    "huge number": '{"type": "input.text", "text": ' + "9" * 1_900 + "}",
}


@pytest.mark.parametrize("frame", BAD.values(), ids=BAD.keys())
async def test_a_bad_message_costs_one_error(talker: Running, frame: str | bytes) -> None:
    """The session, its settings and the text that it holds survive."""
    async with opened(talker, {"response_format": "pcm"}) as client:
        await client.text("Kept ")
        await client.raw(frame)
        assert len(await client.error()) < 200
        await client.silent()
        heard = await client.spoken("text.")
        assert heard.texts == ["Kept text."]
        assert heard.units[0].start["format"] == "pcm"


async def test_messages_just_below_the_limits(talker: Running) -> None:
    async with opened(talker) as client:
        empty = len(config(pad=""))
        await client.raw(config(pad="x" * (CONFIG_CHARS - empty)))
        empty = len(json.dumps({"type": "input.text", "text": ""}))
        await client.text(" " * (MESSAGE_CHARS - empty))
        assert (await client.spoken()).done["total_sentences"] == 0


async def test_the_limits_there_are_by_default(start: Any) -> None:
    """A config may bring a recording; other messages are small."""
    async with start() as server, opened(server) as client:
        await client.raw(config(pad="x" * (3 * 1024 * 1024)))
        await client.text(" " * (128 * 1024 - 100))
        await client.silent()
        await client.text(" " * (128 * 1024))
        assert "131072" in await client.error()
        await client.send("input.done")
        assert (await client.expect("session.done"))["total_sentences"] == 0
        await client.raw(config(pad="x" * (4 * 1024 * 1024)))
        assert "4194304" in await client.error()
        assert (await client.spoken("Ok.")).failed == [False]


async def test_limits_count_characters(talker: Running) -> None:
    async with opened(talker, {}) as client:
        frame = '{"type": "input.text", "text": "' + "é" * (MESSAGE_CHARS - 34) + '"}'
        assert len(frame.encode()) > MESSAGE_CHARS
        await client.raw(frame)
        await client.silent()
        await client.send("input.cancel")
        await client.expect("input.cancelled")


async def test_a_text_in_surrogates_is_spoken(talker: Running) -> None:
    async with opened(talker, {}) as client:
        await client.raw('{"type": "input.text", "text": "a\\ud800b \\ud83d\\ude00"}')
        heard = await client.spoken()
    assert heard.failed == [False]
    assert heard.texts == ["a\ud800b 😀"]


async def test_fragmented_messages_are_put_together(talker: Running) -> None:
    async with opened(talker, {}) as client:
        await client.connection.send(iter(list('{"type": "input.text", "text": "In pieces."}')))
        assert (await client.spoken()).texts == ["In pieces."]


async def test_frames_beyond_all_limits_end_with_1009(talker: Running) -> None:
    async with opened(talker, {}) as client:
        with suppress(ConnectionClosed):  # it may be closed before all has been sent
            await client.raw("x" * (16 * 1024 * 1024 + 5_000))
        assert await client.close_code() == 1009
    async with opened(talker, {}) as client:
        assert (await client.spoken("Others go on.")).failed == [False]


async def test_text_that_is_no_utf_8_ends_with_1007(talker: Running) -> None:
    async with opened(talker, {}) as client:
        await client.connection.send(b'{"type": "\xff"}', text=True)
        assert await client.close_code() == 1007


# ---------------------------------------------------------------- what is held
async def test_an_embedding_that_is_too_wide(start: Any) -> None:
    async with start() as server, opened(server) as client:
        await client.configure(speaker_embedding=[1] * 8_193)
        assert "8192" in await refused(client)


async def test_text_and_units_that_may_wait_are_bounded(start: Any) -> None:
    limits = {"stream__max_buffered_chars": 1_024, "stream__max_queued_utterances": 2}
    async with start(**limits, engine__tone_fault="hang", engine__warm_up=False) as small, opened(small, {}) as client:
        await client.text("x" * 1_000)
        await client.text("y" * 100)
        assert "Too much text" in await client.error()
        await client.send("input.done")
        assert (await client.expect("audio.start"))["sentence_text"] == "x" * 1_000
        await client.text("y" * 100)
        assert "Too much text" in await client.error(), "what is being spoken counts too"
        await client.send("input.done")
        await client.send("input.done")
        assert "not taken" in await client.error()
        await client.send("input.cancel")
        assert (await client.expect("audio.done"))["cancelled"] is True
        for index in range(2):
            assert (await client.expect("session.done"))["utterance_index"] == index
        await client.text("x" * 1_000)
        await client.silent()


# ---------------------------------------------------------------- generation
@pytest.mark.parametrize("streamed", [{}, STREAMED])
@pytest.mark.parametrize(
    "members",
    [
        *({"voice": "nobody"}, {"language": "Klingon"}, {"task_type": "Base"}, {"instructions": "x" * 501}),
        *({"max_new_tokens": 4_097}, {"ref_text": "hi"}, {"speaker_embedding": [0.1] * 7}),
    ],
    ids=lambda members: next(iter(members)),
)
async def test_what_only_shows_in_speaking_fails_each_unit(
    talker: Running, streamed: dict[str, Any], members: dict[str, Any]
) -> None:
    async with opened(talker, {"split_granularity": "sentence", **streamed, **members}) as client:
        heard = await client.spoken("First one. Second one.")
        assert heard.texts == ["First one.", "Second one."]
        for index, unit in enumerate(heard.units):
            assert unit.done["error"] is True
            assert unit.frames == []
            assert [error["message"].partition(":")[0] for error in unit.errors] == [
                f"Generation failed for utterance 0, sentence {index}"
            ]
        assert heard.done["total_sentences"] == 2
        await client.configure(**streamed)
        again = await client.spoken("Me.")
        assert again.failed == [False]
        assert again.done["utterance_index"] == 1


@pytest.mark.parametrize(
    "members",
    [
        {"word_timestamps": True},
        {"word_timestamps": True, "response_format": "pcm"},
        {"word_timestamps": True, "voice": "nobody"},
        {"output_mode": "codec_tokens", **STREAMED},
    ],
)
async def test_what_this_server_lacks_is_an_error_without_a_bracket(talker: Running, members: dict[str, Any]) -> None:
    async with opened(talker, {"split_granularity": "sentence", **members}) as client:
        heard = await client.spoken("First one. Second one.")
        assert heard.units == []
        assert len(heard.errors) == 2
        assert heard.done == {"type": "session.done", "utterance_index": 0, "total_sentences": 2}
        await client.configure()
        assert (await client.spoken("Plain again.")).failed == [False]


# ---------------------------------------------------------------- time
async def test_no_config_for_too_long(start: Any) -> None:
    async with start(stream__config_timeout_s=0.1) as hasty, opened(hasty) as client:
        assert "Timeout" in await refused(client)


async def test_idle_for_too_long(start: Any) -> None:
    """Neither a slow generation nor its length counts as idle."""
    slow = {"engine__tone_first_chunk_delay_ms": 1_200, "engine__warm_up": False}
    async with start(stream__idle_timeout_s=0.2, **slow) as hasty, opened(hasty, {}) as client:
        assert (await client.spoken("Slow.")).failed == [False]
        assert "Idle timeout" in await refused(client)
