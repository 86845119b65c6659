"""Spoken chat answers in one piece."""

from __future__ import annotations

import asyncio
import json
import struct
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from openai import OpenAI

from tests.e2e.chat_helpers import (
    BYTES_PER_S,
    CHAT,
    body_of,
    check_usage,
    decoded_s,
    last_seen,
    spoken_as,
    unbase64,
    whole,
)
from tests.e2e.conftest import KEY, Running, running
from tests.upstream_scripts import LETTERS, MARKDOWN, PLAIN, THOUGHT

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]
HI_S = 0.16
"""The tone engine hums "Hi." in two frames."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[Running]:
    """One server for all: a spoken answer leaves nothing behind that another could notice."""
    async with running(upstream=True) as server:
        yield server


def heard(answer: Any, choice: int = 0) -> Any:
    """The ``audio`` of a choice, after the checks that hold for every one."""
    said = answer.choices[choice]
    assert said.index == choice
    assert said.message.role == "assistant"
    assert said.message.content is None
    audio = said.message.audio
    assert audio.id.startswith("audio_")
    assert len(audio.id) == len("audio_") + 32
    assert time.time() < audio.expires_at <= time.time() + 3_601
    return audio


@pytest.mark.parametrize(
    ("format", "slack_s"), [("wav", 0), ("pcm16", 0), ("flac", 0), ("mp3", 0.1), ("opus", 0.05), ("aac", 0.1)]
)
async def test_every_format_is_a_file_of_the_right_length(shared: Running, format: str, slack_s: float) -> None:
    answer = await whole(shared, "short", **spoken_as(format))
    audio = heard(answer)
    assert decoded_s(unbase64(audio.data), format) == pytest.approx(HI_S, abs=slack_s)
    assert audio.transcript == "Hi."
    assert answer.object == "chat.completion"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].message.refusal is None
    check_usage(answer.usage, round(HI_S * 24_000))
    assert answer._request_id


async def test_a_wav_says_how_long_it_is(shared: Running) -> None:
    data = unbase64(heard(await whole(shared, "plain", **spoken_as("wav"))).data)
    riff, size, kind = struct.unpack("<4sI4s", data[:12])
    assert (riff, size, kind) == (b"RIFF", len(data) - 8, b"WAVE")
    at = data.index(b"data")
    assert struct.unpack("<I", data[at + 4 : at + 8])[0] == len(data) - at - 8
    assert struct.unpack("<HHIIHH", data[20:36]) == (1, 1, 24_000, 48_000, 2, 16)
    plain = unbase64(heard(await whole(shared, "plain", audio={"voice": "alloy", "format": "pcm16"})).data)
    assert len(plain) == len(data) - at - 8


async def test_the_transcript_is_the_text_to_the_letter(shared: Running) -> None:
    for script, text in [("plain", PLAIN), ("letters", LETTERS), ("markdown", MARKDOWN)]:
        assert heard(await whole(shared, script)).transcript == text


async def test_what_the_sound_says_of_itself_is_what_the_upstream_says(shared: Running) -> None:
    answer = await whole(shared, "plain")
    assert (answer.id, answer.created, answer.model) == ("chatcmpl-test", 1_700_000_000, "fake-plain")
    assert answer.system_fingerprint == "fp_test"
    raw = (await shared.http.post(CHAT, json=body_of("plain"))).json()
    message = raw["choices"][0]["message"]
    assert set(message) == {"role", "content", "refusal", "annotations", "audio"}
    assert message["annotations"] == []
    assert set(message["audio"]) == {"id", "data", "expires_at", "transcript"}
    assert raw["choices"][0]["logprobs"] is None


async def test_the_order_of_modalities_is_free_and_text_need_not_be_among_them(shared: Running) -> None:
    for modalities in (["audio", "text"], ["audio"]):
        heard(await whole(shared, "short", modalities=modalities))
        assert "modalities" not in last_seen(shared).body


async def test_two_choices_have_their_own_words_and_sound(shared: Running) -> None:
    answer = await whole(shared, "choices", n=2)
    first, second = heard(answer, 0), heard(answer, 1)
    assert first.id != second.id
    assert first.transcript == "Answer 0 is about 2 apples."
    assert second.transcript == "Answer 1 is about 3 apples."
    pcm = [unbase64(audio.data) for audio in (first, second)]
    assert pcm[0] != pcm[1]
    check_usage(answer.usage, sum(map(len, pcm)) // 2)


async def test_the_request_id_of_the_client_is_kept(shared: Running) -> None:
    answer = await whole(shared, "short", extra_headers={"x-request-id": "mine-1"})
    assert answer._request_id == "mine-1"
    assert last_seen(shared).headers["x-request-id"] == "mine-1"
    odd = await shared.http.post(CHAT, json=body_of("short"), headers={"x-request-id": "a b;c"})
    assert odd.headers["x-request-id"].startswith("req_")


async def test_a_bare_tool_call_has_no_audio(shared: Running) -> None:
    answer = await whole(shared, "tool", tools=TOOLS, tool_choice="auto")
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.audio is None
    assert choice.message.content is None
    assert choice.message.tool_calls is not None
    call: Any = choice.message.tool_calls[0]
    assert (call.id, call.type, call.function.name) == ("call_0", "function", "get_weather")
    assert json.loads(call.function.arguments) == {"city": "Paris", "unit": "c"}
    assert last_seen(shared).body["tools"] == TOOLS
    assert (await shared.service.engine.health()).active_rows == 0


@pytest.mark.parametrize("script", ["tools2", "tools_noindex"])
async def test_two_tool_calls_stay_two(shared: Running, script: str) -> None:
    message = (await whole(shared, script, tools=TOOLS)).choices[0].message
    calls: Any = message.tool_calls
    assert [call.function.name for call in calls] == ["get_weather", "get_time"]
    assert json.loads(calls[1].function.arguments) == {"zone": "CET"}


async def test_words_before_a_tool_call_are_spoken(shared: Running) -> None:
    answer = await whole(shared, "tool_text", tools=TOOLS)
    assert heard(answer).transcript == "Let me look."
    assert answer.choices[0].finish_reason == "tool_calls"
    calls: Any = answer.choices[0].message.tool_calls
    assert calls[0].function.name == "get_weather"


async def test_a_turn_with_a_tools_result_goes_upstream_unchanged(shared: Running) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
    ]
    heard(await whole(shared, "plain", messages=messages))
    assert last_seen(shared).body["messages"] == messages


async def test_a_refusal_is_spoken_and_kept(shared: Running) -> None:
    answer = await whole(shared, "refusal")
    assert answer.choices[0].message.refusal == "I cannot help with that."
    assert heard(answer).transcript == "I cannot help with that."
    assert unbase64(heard(answer).data)


@pytest.mark.parametrize(("script", "reason"), [("length", "length"), ("filter", "content_filter")])
async def test_an_answer_that_was_cut_short_is_spoken_and_says_why(shared: Running, script: str, reason: str) -> None:
    answer = await whole(shared, script)
    assert answer.choices[0].finish_reason == reason
    assert heard(answer).transcript.startswith(("This stops", "I was going"))


@pytest.mark.parametrize(
    ("script", "member"),
    [("reasoning", "reasoning_content"), ("reasoning_field", "reasoning"), ("parts", "reasoning_content")],
)
async def test_reasoning_passes_and_is_never_spoken(shared: Running, script: str, member: str) -> None:
    thoughtful = await whole(shared, script)
    said = PLAIN if script == "parts" else "Hello to you."
    assert heard(thoughtful).transcript == said
    assert getattr(thoughtful.choices[0].message, member) == THOUGHT
    plain = await whole(shared, "plain?text=" + said)
    assert len(heard(thoughtful).data) == len(heard(plain).data)


@pytest.mark.parametrize(
    ("script", "said"),
    [("think", "Hello to you. How are you?"), ("think_split", "Spoken a < b."), ("reasoning_details", "Hello to you.")],
)
async def test_thinking_inside_the_text_is_neither_shown_nor_spoken(shared: Running, script: str, said: str) -> None:
    thoughtful = heard(await whole(shared, script))
    assert thoughtful.transcript == said
    plain = heard(await whole(shared, "echo", said))
    assert len(thoughtful.data) == len(plain.data)


async def test_a_model_that_begins_in_thought(start: Any) -> None:
    async with start(upstream=True, llm__starts_in_think=True) as server:
        assert heard(await whole(server, "think_noopen")).transcript == "Hello to you."


async def test_nothing_to_say_is_no_error(shared: Running) -> None:
    answer = await whole(shared, "nothing")
    assert answer.choices[0].message.audio is None
    assert answer.choices[0].message.content is None
    assert answer.choices[0].finish_reason == "stop"
    usage: Any = answer.usage
    assert usage.completion_tokens_details.audio_tokens == 0


@pytest.mark.parametrize("format", ["wav", "pcm16", "mp3", "flac", "opus", "aac"])
async def test_what_cannot_be_spoken_is_shown_with_a_silent_file(shared: Running, format: str) -> None:
    for text in ("👍🎉", "```\nx = 1\n```\n"):
        audio = heard(await whole(shared, "echo", text, **spoken_as(format)))
        assert audio.transcript == text
        assert decoded_s(unbase64(audio.data), format) == pytest.approx(0.08, abs=0.1)


async def test_the_synchronous_sdk_hears_the_same(shared: Running) -> None:
    def ask() -> Any:
        with OpenAI(base_url=f"{shared.url}/v1", api_key=KEY, max_retries=0, timeout=60) as client:
            create: Any = client.chat.completions.create
            return create(**body_of("plain"))

    audio = heard(await asyncio.to_thread(ask))
    assert audio.transcript == PLAIN
    assert len(unbase64(audio.data)) > BYTES_PER_S


async def test_parameters_travel_on_and_audio_does_not(shared: Running) -> None:
    await whole(
        shared, "plain", seed=7, temperature=0.3, stop=["ZZZ"], max_completion_tokens=500, metadata={"k": "v"},
        store=False, reasoning_effort="low", extra_body={"top_k": 5, "chat_template_kwargs": {"thinking": False}},
    )  # fmt: skip
    seen = last_seen(shared).body
    assert {"audio", "modalities"}.isdisjoint(seen)
    asked = {"seed": 7, "temperature": 0.3, "stop": ["ZZZ"], "max_completion_tokens": 500, "metadata": {"k": "v"}}
    asked |= {"store": False, "reasoning_effort": "low", "top_k": 5, "chat_template_kwargs": {"thinking": False}}
    assert {name: seen[name] for name in asked} == asked
    assert seen["stream"] is True
