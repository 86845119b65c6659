"""Spoken chat answers as they are made: the order of chunks, the helper of the SDK, the bytes on the wire."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from openai import OpenAI

from tests.e2e.chat_helpers import (
    BYTES_PER_S,
    Answer,
    audio_in,
    body_of,
    check_usage,
    last_seen,
    lines_of,
    spoken_as,
    sse,
    streamed,
    unbase64,
    upstream_of,
    whole,
    wire,
)
from tests.e2e.conftest import KEY, Running, running
from tests.upstream_scripts import CODE, LETTERS, MARKDOWN, PLAIN, THOUGHT, pieces_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCRIPTS = {
    "plain": PLAIN,
    "markdown": MARKDOWN,
    "code": CODE,
    "letters": LETTERS,
    "crlf": LETTERS,
    "cr": LETTERS,
    "whole": PLAIN,
    "bytes": LETTERS,
    "bytes_crlf": LETTERS,
    "split": LETTERS,
    "bom": PLAIN,
    "empty": PLAIN,
    "keepalive": PLAIN,
    "fields": PLAIN,
    "mislabelled": PLAIN,
    "until_close": PLAIN,
    "no_done": PLAIN,
    "done_only": PLAIN,
    "no_role": PLAIN,
    "role_every": PLAIN,
    "no_usage": PLAIN,
    "usage_always": PLAIN,
    "usage_last": PLAIN,
    "blank_finish": PLAIN,
    "never_streams": PLAIN,
    "parts": PLAIN,
    "stray_line": "".join(pieces_of(PLAIN)[:12]) + PLAIN,
    "sound": "Hello.",
    "think": "Hello to you. How are you?",
    "think_split": "Spoken a < b.",
    "reasoning": "Hello to you.",
    "reasoning_field": "Hello to you.",
    "reasoning_details": "Hello to you.",
}
"""Every way of writing an answer that servers have, and what is to be heard of it."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[Running]:
    """One server for all: a spoken answer leaves nothing behind that another could notice."""
    async with running(upstream=True) as server:
        yield server


async def test_one_choice_comes_in_the_order_that_every_client_takes(shared: Running) -> None:
    for usage in (False, True):
        answer = await streamed(shared, "plain", usage=usage)
        choice = answer.choices[0]
        assert choice.order.startswith("iw")
        assert choice.order.endswith("ef")
        assert set(choice.order) == set("iwaef")
        assert choice.transcript == PLAIN
        assert answer.head is not None
        assert (answer.head["id"], answer.head["model"]) == ("chatcmpl-test", "fake-plain")


@pytest.mark.parametrize("n", [2, 3])
async def test_several_choices_each_keep_the_order(shared: Running, n: int) -> None:
    answer = await streamed(shared, "choices", n=n, usage=True)
    for index, choice in answer.choices.items():
        assert choice.transcript == f"Answer {index} is about {index + 2} apples."
    pcm = {choice.pcm for choice in answer.choices.values()}
    assert len(pcm) == n


@pytest.mark.parametrize("script", SCRIPTS)
async def test_every_framing_of_the_upstream_gives_the_same_stream(shared: Running, script: str) -> None:
    answer = await streamed(shared, script, usage=True)
    choice = answer.choices[0]
    assert choice.transcript == SCRIPTS[script]
    assert choice.content == ""
    assert THOUGHT not in choice.transcript
    same = await whole(shared, script)
    assert same.choices[0].message.audio is not None
    assert same.choices[0].message.audio.transcript == choice.transcript
    assert len(unbase64(same.choices[0].message.audio.data)) == len(choice.pcm)


async def test_a_reasoning_field_passes_and_is_not_spoken(shared: Running) -> None:
    for script in ("reasoning", "reasoning_field", "parts"):
        choice = (await streamed(shared, script)).choices[0]
        assert choice.reasoning == THOUGHT
        assert choice.order.index("p") < choice.order.index("i")


async def test_words_come_before_their_sound(shared: Running) -> None:
    """The marks of segments say which words a sound belongs to; the rules look them up in the transcript so far."""
    choice = (await streamed(shared, "plain", **spoken_as("pcm16", segments=True))).choices[0]
    started = [mark for mark in choice.marks if mark["type"] == "started"]
    ended = [mark for mark in choice.marks if mark["type"] == "ended"]
    assert [mark["index"] for mark in started] == list(range(len(started))) == [mark["index"] for mark in ended]
    assert "".join(choice.transcript[mark["start"] : mark["end"]] for mark in started).split() == PLAIN.split()
    assert all(mark["voice"] == "alto" and mark["language"] == "en" for mark in started)
    total_ms = started[-1]["start_ms"] + ended[-1]["duration_ms"]
    assert total_ms == pytest.approx(len(choice.pcm) / BYTES_PER_S * 1000, abs=1)
    assert choice.order.index("s") < choice.order.index("a")


async def test_sound_comes_before_the_model_has_finished(shared: Running) -> None:
    up = upstream_of(shared)
    up.gate.clear()
    answer = Answer()
    create: Any = shared.openai.chat.completions.create
    async for chunk in await create(**body_of("gate", stream=True)):
        if not up.gate.is_set() and audio_in(chunk.to_dict(), "data"):
            assert last_seen(shared).ended is None
            assert up.active == 1
            up.gate.set()
        answer.feed(chunk.to_dict())
    assert answer.finish().choices[0].transcript.endswith(" And the rest.")


async def test_words_come_before_the_model_has_finished_them(shared: Running) -> None:
    up = upstream_of(shared)
    up.gate.clear()
    async with sse(shared, body_of("gate", stream=True)) as response:
        words = ""
        async for chunk in lines_of(response):
            words += audio_in(chunk, "transcript") or ""
            if words.startswith("Hello there! Dr. Lee") and not up.gate.is_set():
                up.gate.set()
    assert words.endswith("And the rest.")


async def test_the_helper_of_the_sdk_puts_the_message_together(shared: Running) -> None:
    stream: Any = shared.openai.chat.completions.stream
    asked = body_of("choices", n=2, stream_options={"include_usage": True})
    async with stream(**asked) as chunks:
        async for _ in chunks:
            pass
        final = await chunks.get_final_completion()
    samples = 0
    for index, choice in enumerate(final.choices):
        assert choice.message.role == "assistant"
        assert choice.message.content is None
        assert choice.finish_reason == "stop"
        audio = choice.message.audio
        assert audio.transcript == f"Answer {index} is about {index + 2} apples."
        assert audio.id.startswith("audio_")
        assert len(audio.id) == len("audio_") + 32
        assert time.time() < audio.expires_at <= time.time() + 3_601
        samples += len(unbase64(audio.data)) // 2
    check_usage(final.usage, samples)


async def test_the_helper_of_the_synchronous_sdk_does_too(shared: Running) -> None:
    def ask() -> Any:
        with OpenAI(base_url=f"{shared.url}/v1", api_key=KEY, max_retries=0, timeout=60) as client:
            stream: Any = client.chat.completions.stream
            with stream(**body_of("plain")) as chunks:
                for _ in chunks:
                    pass
                return chunks.get_final_completion()

    message = (await asyncio.to_thread(ask)).choices[0].message
    assert message.audio.transcript == PLAIN
    same = (await streamed(shared, "plain")).choices[0]
    assert len(unbase64(message.audio.data)) == len(same.pcm)


async def test_the_helper_takes_a_tool_call(shared: Running) -> None:
    stream: Any = shared.openai.chat.completions.stream
    async with stream(**body_of("tool_text")) as chunks:
        async for _ in chunks:
            pass
        message = (await chunks.get_final_completion()).choices[0].message
    assert message.audio.transcript == "Let me look."
    assert json.loads(message.tool_calls[0].function.arguments) == {"city": "Paris"}


async def test_a_bare_tool_call_makes_no_sound(shared: Running) -> None:
    choice = (await streamed(shared, "tool", finish="tool_calls", audible=False)).choices[0]
    assert choice.audio_id is None
    assert choice.transcript == ""
    assert choice.tools == {0: {"id": "call_0", "name": "get_weather", "arguments": '{"city": "Paris", "unit": "c"}'}}


@pytest.mark.parametrize("script", ["tool_text", "never_streams_tool"])
async def test_words_before_a_tool_call_are_spoken(shared: Running, script: str) -> None:
    choice = (await streamed(shared, script, finish="tool_calls")).choices[0]
    assert choice.transcript == "Let me look."
    assert choice.tools[0]["name"] in ("get_weather", "f")


async def test_reasons_to_stop_are_kept(shared: Running) -> None:
    await streamed(shared, "length", finish="length", usage=True)
    await streamed(shared, "filter", finish="content_filter")


async def test_a_refusal_is_spoken_and_kept(shared: Running) -> None:
    choice = (await streamed(shared, "refusal")).choices[0]
    assert choice.refusal == choice.transcript == "I cannot help with that."


async def test_nothing_to_say_and_nothing_to_speak(shared: Running) -> None:
    silent = await streamed(shared, "nothing", audible=False)
    assert silent.choices[0].audio_id is None
    for text in ("👍🎉", "```\nx = 1\n```\n"):
        answer = Answer()
        create: Any = shared.openai.chat.completions.create
        async for chunk in await create(**body_of("echo", text, stream=True)):
            answer.feed(chunk.to_dict())
        choice = answer.choices[0]
        assert (choice.transcript, choice.pieces, choice.finish_reason) == (text, [], "stop")
        assert choice.expires_at is not None


async def test_the_bytes_on_the_wire(shared: Running) -> None:
    for usage in (False, True):
        asked = body_of("plain", stream=True, stream_options={"include_usage": usage})
        seen = await wire(shared, asked)
        assert not seen.broken
        assert seen.data[-1] == "[DONE]"
        assert seen.data.count("[DONE]") == 1
        answer = Answer(usage=usage)
        for chunk in seen.chunks:
            answer.feed(chunk)
        assert answer.finish().choices[0].transcript == PLAIN


async def test_the_headers_of_a_stream(shared: Running) -> None:
    async with sse(shared, body_of("plain", stream=True), **{"x-request-id": "mine-2"}) as response:
        headers = response.headers
        assert headers["content-type"].startswith("text/event-stream")
        assert headers["cache-control"] == "no-cache"
        assert headers["x-accel-buffering"] == "no"
        assert headers["x-request-id"] == "mine-2"
        assert headers["openai-processing-ms"] == "5"
        assert headers["transfer-encoding"] == "chunked"
        await response.aread()


async def test_the_text_can_be_sent_as_content_too(start: Any) -> None:
    async with start(upstream=True, chat__mirror_content=True) as server:
        choice = (await streamed(server, "plain", mirrored=True)).choices[0]
        assert choice.content == choice.transcript == PLAIN
