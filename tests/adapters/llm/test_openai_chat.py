from __future__ import annotations

from typing import Any

import pytest

from adapters.llm.openai_chat import OpenAiChat, OpenAiChatSettings
from sidecar.faults import (
    UpstreamBroken,
    UpstreamFault,
    UpstreamRefused,
)
from tests.adapters.llm.helpers import BEGUN, Taken, answer, ask
from tests.upstream import Upstream
from tests.upstream_scripts import LETTERS, MARKDOWN, PLAIN, THINK, THOUGHT


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("plain", PLAIN),
        ("markdown", MARKDOWN),
        ("letters", LETTERS),
        ("think", THINK),
        ("think_noopen", "They say hi.</think>Hello to you."),
        ("nothing", ""),
        ("whitespace", "\n \t\n"),
        ("parts", PLAIN),
        ("sound", "Hello."),
        ("blank_finish", PLAIN),
        ("crlf", LETTERS),
        ("cr", LETTERS),
        ("whole", PLAIN),
        ("bytes", LETTERS),
        ("bytes_crlf", LETTERS),
        ("split", LETTERS),
        ("bom", PLAIN),
        ("empty", PLAIN),
        ("keepalive", PLAIN),
        ("fields", PLAIN),
        ("mislabelled", PLAIN),
        ("until_close", PLAIN),
        ("no_done", PLAIN),
        ("no_role", PLAIN),
        ("role_every", PLAIN),
        ("usage_always", PLAIN),
        ("usage_last", PLAIN),
        ("never_streams", PLAIN),
        ("cut_after_finish", PLAIN),
        ("plain?delay_ms=1&first_ms=5&header_ms=5", PLAIN),
    ],
)
async def test_every_way_of_writing_gives_the_text(llm: OpenAiChat, up: Upstream, script: str, text: str) -> None:
    taken = await answer(llm, script)
    assert taken.fault is None
    assert taken.text == text
    assert taken.finish == {0: "stop"}
    assert len(taken.usage) == (script != "cut_after_finish")
    assert (taken.opened.id, taken.opened.created) == ("chatcmpl-test", 1_700_000_000)


@pytest.mark.parametrize(
    ("script", "member", "text"),
    [("reasoning", "reasoning_content", "Hello to you."), ("reasoning_field", "reasoning", "Hello to you.")],
)
async def test_thoughts_pass_beside_the_text(llm: OpenAiChat, script: str, member: str, text: str) -> None:
    taken = await answer(llm, script)
    assert (taken.text, taken.joined(member), taken.fault) == (text, THOUGHT, None)


async def test_thoughts_in_parts_and_details_are_not_spoken(llm: OpenAiChat) -> None:
    assert (await answer(llm, "parts")).joined("reasoning_content") == THOUGHT
    details = await answer(llm, "reasoning_details")
    assert details.other == [{"reasoning_details": [{"type": "reasoning.text", "text": THOUGHT}]}]
    assert details.text == "Hello to you."


def calls_of(taken: Taken) -> dict[int, tuple[str, str]]:
    calls: dict[int, tuple[str, str]] = {}
    for other in taken.other:
        for call in other["tool_calls"]:
            name, arguments = calls.get(call["index"], ("", ""))
            function = call["function"]
            calls[call["index"]] = (name + function.get("name", ""), arguments + function.get("arguments", ""))
    return calls


@pytest.mark.parametrize(
    ("script", "text", "calls"),
    [
        ("tool", "", {0: ("get_weather", '{"city": "Paris", "unit": "c"}')}),
        ("tool_text", "Let me look.", {0: ("get_weather", '{"city": "Paris"}')}),
        ("tools2", "", {0: ("get_weather", '{"city": "Paris"}'), 1: ("get_time", '{"zone": "CET"}')}),
        ("tools_noindex", "", {0: ("get_weather", '{"city": "Rome"}'), 1: ("get_time", '{"zone": "CET"}')}),
        ("never_streams_tool", "Let me look.", {0: ("f", "{}"), 1: ("g", "{}")}),
    ],
)
async def test_tool_calls_pass(llm: OpenAiChat, script: str, text: str, calls: dict[int, tuple[str, str]]) -> None:
    taken = await answer(llm, script)
    assert (taken.text, calls_of(taken), taken.finish) == (text, calls, {0: "tool_calls"})


async def test_refusals_and_finish_reasons_are_told(llm: OpenAiChat) -> None:
    refusal = await answer(llm, "refusal")
    assert (refusal.text, refusal.refusal) == ("", "I cannot help with that.")
    assert (await answer(llm, "length")).finish == {0: "length"}
    assert (await answer(llm, "filter")).finish == {0: "content_filter"}
    assert (await answer(llm, "done_only")).fault is None
    assert (await answer(llm, "no_usage")).usage == []


async def test_choices_that_interleave_are_kept_apart(llm: OpenAiChat) -> None:
    taken = await answer(llm, "choices", n=3)
    assert taken.texts == {number: f"Answer {number} is about {number + 2} apples." for number in range(3)}
    assert taken.finish == {0: "stop", 1: "stop", 2: "stop"}


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("cut", "broke off"),
        ("reset", "broke off"),
        ("until_close_cut", "before it was finished"),
        ("malformed", "not a JSON object"),
        ("malformed_text", "not a JSON object"),
        ("malformed_array", "not a JSON object"),
        ("malformed_shape", "wrong shape"),
        ("error_object", "The server had an error."),
        ("error_string", "CUDA out of memory"),
        ("error_event", "overloaded"),
        ("endless_line", "bytes"),
        ("endless_event", "bytes"),
    ],
)
async def test_what_came_before_a_fault_comes_out(llm: OpenAiChat, up: Upstream, script: str, message: str) -> None:
    taken = await answer(llm, script)
    assert taken.text == BEGUN
    assert isinstance(taken.fault, UpstreamBroken)
    assert message in taken.fault.message
    assert taken.finish == {}
    await up.until(lambda up: up.active == 0)


async def test_a_line_without_a_field_is_read_over(llm: OpenAiChat) -> None:
    taken = await answer(llm, "stray_line")
    assert (taken.text, taken.fault) == (BEGUN + PLAIN, None)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("no_finish", "before it was finished"),
        ("error_first", "no t now"),
        ("http200text", "not JSON"),
        ("http200empty", "before it was finished"),
        ("http200error", "model is loading"),
        ("http200other", "not a chat completion"),
    ],
)
async def test_answers_that_are_none_break(llm: OpenAiChat, script: str, message: str) -> None:
    taken = await answer(llm, script)
    assert isinstance(taken.fault, UpstreamBroken)
    assert message in taken.fault.message


@pytest.mark.parametrize("how", ["rst", "fin"])
async def test_a_cut_at_any_byte_ends_and_loses_nothing_whole(llm: OpenAiChat, how: str) -> None:
    said = "Hi, you there."
    seen = ""
    for place in range(1, 1_700, 61):
        taken = await answer(llm, f"cut_at?how={how}&bytes={place}")
        assert said.startswith(taken.text)
        assert taken.text.startswith(seen)
        assert (taken.fault is None) == (taken.finish == {0: "stop"})
        seen = taken.text
    assert seen == said
    assert taken.finish == {0: "stop"}


@pytest.mark.parametrize(
    ("script", "status", "error"),
    [
        ("http400", 400, ("Maximum context length is 4096 tokens.", "invalid_request_error", None)),
        ("http401", 401, ("Incorrect API key provided: sk-***.", "invalid_request_error", None)),
        ("http403", 403, ("Country not supported", "request_forbidden", None)),
        ("http404", 404, ("The model `gone` does not exist", "invalid_request_error", None)),
        ("http422", 400, ("model: field required", "invalid_request_error", "model")),
        ("http429", 429, ("Rate limit reached.", "requests", None)),
        ("http500", 500, ("The server had an error.", "server_error", None)),
        ("http503", 503, ("Overloaded.", "server_error", None)),
    ],
)
async def test_refusals_are_handed_over(llm: OpenAiChat, script: str, status: int, error: tuple[Any, ...]) -> None:
    with pytest.raises(UpstreamRefused) as caught:
        await llm.stream(ask(f"fake-{script}"), {})
    told = caught.value.upstream_error
    assert caught.value.upstream_status == status
    assert (told["message"], told["type"], told["param"]) == error
    assert set(told) == {"message", "type", "param", "code"}
    assert caught.value.headers["x-request-id"] == "req_test"


async def test_quota_headers_travel_and_others_do_not(llm: OpenAiChat) -> None:
    with pytest.raises(UpstreamRefused) as caught:
        await llm.stream(ask("fake-http429"), {})
    expected = {"retry-after": "7", "x-ratelimit-remaining-requests": "0", "x-request-id": "req_test"}
    assert caught.value.headers == expected
    stream = await llm.stream(ask("fake-plain"), {})
    assert stream.headers == {"x-request-id": "req_test", "openai-processing-ms": "5"}
    await stream.aclose()


@pytest.mark.parametrize(
    ("script", "retry_after_s"),
    [("http502html", 3.0), ("http503empty", None), ("http500huge", None), ("http200html", None), ("redirect", None)],
)
async def test_junk_is_a_bad_gateway(llm: OpenAiChat, script: str, retry_after_s: float | None) -> None:
    with pytest.raises(UpstreamFault) as caught:
        await llm.stream(ask(f"fake-{script}"), {})
    assert not isinstance(caught.value, UpstreamRefused)
    assert caught.value.status == 502
    assert caught.value.retry_after_s == retry_after_s
    assert "<" not in caught.value.message


async def test_compressed_streams_are_not_unpacked(llm: OpenAiChat) -> None:
    with pytest.raises(UpstreamFault):
        await llm.stream(ask("fake-gzip"), {})


async def test_our_key_is_not_told_to_clients() -> None:
    async with Upstream(api_key="sk-right") as up:
        llm = OpenAiChat(OpenAiChatSettings(up.base_url, api_key="sk-canary"))
        with pytest.raises(UpstreamRefused) as caught:
            await llm.stream(ask("fake-plain"), {})
        assert caught.value.upstream_status == 401
        assert "sk-canary" not in str(caught.value.upstream_error)
        assert "sk-canary" not in repr(OpenAiChatSettings(up.base_url, api_key="sk-canary"))
        await llm.close()


async def test_text_is_capped(up: Upstream) -> None:
    llm = OpenAiChat(OpenAiChatSettings(up.base_url, max_chars=1_000))
    taken = await answer(llm, "long?tokens=100000")
    assert len(taken.text) == 1_000
    assert isinstance(taken.fault, UpstreamBroken)
    await up.until(lambda up: up.aborted == 1)
    await llm.close()
