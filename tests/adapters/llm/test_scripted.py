from __future__ import annotations

import asyncio
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.llm.scripted import ScriptedLanguageModel, ScriptedSettings
from adapters.llm.scripted_request import DEFAULT_REPLIES, pieces_of
from sidecar.faults import ConfigError, UpstreamRefused
from sidecar.ports import ChatDelta
from tests.adapters.llm.helpers import JumpingClock, ask, read, take

CHAT = "/chat/completions"


def made(clock: JumpingClock | None = None, **settings: Any) -> ScriptedLanguageModel:
    return ScriptedLanguageModel(ScriptedSettings(**settings), clock or JumpingClock())


@given(st.text())
def test_pieces_join_to_the_text(text: str) -> None:
    assert "".join(pieces_of(text)) == text


def test_pieces_look_like_those_of_a_tokenizer() -> None:
    assert pieces_of("Hello there, 1,250 extraordinarily odd_names!") == [
        *("Hello", " there", ",", " ", "1", ",", "250", " extraord", "inarily", " odd", "_", "names", "!"),
    ]


async def test_each_piece_comes_when_it_is_due() -> None:
    clock = JumpingClock()
    stream = await made(clock, tokens_per_s=10, first_token_ms=500).stream(ask("scripted"), {})
    due: list[float] = []
    async for event in stream:
        if isinstance(event, ChatDelta) and event.text:
            due.append(clock.ms)
    assert due == pytest.approx([500 + 100 * number for number in range(len(due))])


async def test_a_slow_reader_does_not_slow_the_writing_down() -> None:
    clock = JumpingClock()
    stream = await made(clock, tokens_per_s=10, first_token_ms=0).stream(ask("scripted-echo", "a b c d e f"), {})
    due: list[float] = []
    async for event in stream:
        if isinstance(event, ChatDelta) and event.text:
            due.append(clock.ms)
            clock.ms += 350 if len(due) == 1 else 0
    assert due == pytest.approx([0, 350, 350, 350, 400, 500])


async def test_no_pace_still_lets_others_run() -> None:
    llm = made(tokens_per_s=math.inf, first_token_ms=0)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    taken = await take(await llm.stream(ask("scripted"), {}))
    task.cancel()
    assert turns >= len(taken.events) - 5


async def test_replies_show_what_must_be_cleaned_for_speech() -> None:
    for name in ("scripted", "scripted-de"):
        text = (await take(await made().stream(ask(name), {}))).text
        assert text == DEFAULT_REPLIES[name]
        assert "**" in text
        assert "\n1. " in text
        assert any(char.isdigit() for char in text)
    assert "Wörter" in DEFAULT_REPLIES["scripted-de"]


async def test_own_replies() -> None:
    llm = made(replies={"mine": "One. Two."})
    assert (await take(await llm.stream(ask("mine"), {}))).text == "One. Two."
    assert [card["id"] for card in await llm.models()] == ["mine", "scripted-echo"]
    with pytest.raises(UpstreamRefused):
        await llm.stream(ask("scripted"), {})


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "a"),
        ([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}], "b"),
        ([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "x"}, {"text": "b"}]}], "a b"),
        ([{"role": "system", "content": "a"}], ""),
        ([{"role": "user"}], ""),
    ],
)
async def test_the_echo_says_the_last_user_message(messages: list[Any], text: str) -> None:
    taken = await take(await made().stream({"model": "scripted-echo", "messages": messages}, {}))
    assert (taken.text, taken.finish, taken.fault) == (text, {0: "stop"}, None)


BAD: list[tuple[dict[str, Any], str | None]] = [
    ({"model": None}, "model"),
    ({"model": 5}, "model"),
    ({"messages": []}, "messages"),
    ({"messages": [5]}, "messages"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages"),
    ({"messages": [{"role": "user", "content": [5]}]}, "messages"),
    ({"n": 0}, "n"),
    ({"n": 129}, "n"),
    ({"n": True}, "n"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"max_completion_tokens": "5"}, "max_completion_tokens"),
    ({"stop": 5}, "stop"),
    ({"stop": ["a"] * 5}, "stop"),
    ({"stop": [None]}, "stop"),
]


@pytest.mark.parametrize(("change", "param"), BAD)
async def test_bad_requests_are_refused(change: dict[str, Any], param: str) -> None:
    body = {**ask("scripted"), **change}
    with pytest.raises(UpstreamRefused) as caught:
        await made().stream(body, {})
    assert (caught.value.upstream_status, caught.value.upstream_error["param"]) == (400, param)
    answer = await made().forward(CHAT, json.dumps(body).encode(), {})
    assert answer.status == 400
    assert json.loads(await read(answer))["error"] == caught.value.upstream_error


@pytest.mark.parametrize("raw", [b"", b"[]", b"5", b"{", b"\xff", b"[" * 100_000])
async def test_bodies_that_are_no_object_are_refused(raw: bytes) -> None:
    answer = await made().forward(CHAT, raw, {})
    assert (answer.status, answer.headers["content-type"]) == (400, "application/json")
    assert json.loads(await read(answer))["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(("path", "body"), [("/embeddings", b"{}"), ("/files", None), ("/models/none", None)])
async def test_other_paths_are_not_found(path: str, body: bytes | None) -> None:
    answer = await made().forward(path, body, {})
    assert answer.status == 404
    assert "error" in json.loads(await read(answer))


async def test_the_stream_has_the_frames_that_clients_expect() -> None:
    request = ask("scripted-echo", "Hi you", n=2, stream=True, stream_options={"include_usage": True})
    raw = await read(await made().forward(CHAT, json.dumps(request).encode(), {}))
    frames = raw.decode().split("\n\n")
    assert frames[-2:] == ["data: [DONE]", ""]
    chunks = [json.loads(frame.removeprefix("data: ")) for frame in frames[:-2]]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
    told = [
        (choice["index"], choice["delta"], choice["finish_reason"]) for chunk in chunks for choice in chunk["choices"]
    ]
    start = {"role": "assistant", "content": "", "refusal": None}
    assert told == [
        (0, start, None),
        (1, start, None),
        (0, {"content": "Hi"}, None),
        (1, {"content": "Hi"}, None),
        (0, {"content": " you"}, None),
        (1, {"content": " you"}, None),
        (0, {}, "stop"),
        (1, {}, "stop"),
    ]
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * 8
    assert (chunks[-1]["choices"], chunks[-1]["usage"]["completion_tokens"]) == ([], 4)


async def test_usage_is_streamed_only_if_asked_for() -> None:
    raw = await read(await made().forward(CHAT, json.dumps(ask("scripted", stream=True)).encode(), {}))
    assert b'"usage"' not in raw


@pytest.mark.parametrize(
    "settings",
    [{"tokens_per_s": 0}, {"tokens_per_s": math.nan}, {"first_token_ms": -1}, {"first_token_ms": math.inf}],
)
def test_bad_settings_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        ScriptedSettings(**settings)  # type: ignore[arg-type]
