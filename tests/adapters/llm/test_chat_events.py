from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.llm.chat_events import ChatReader
from adapters.llm.sse import SseEvent
from sidecar.faults import UpstreamBroken
from tests.adapters.llm.helpers import Taken

STOP: dict[str, Any] = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


def delta(**members: Any) -> dict[str, Any]:
    return {"id": "c1", "model": "m1", "created": 5, "choices": [{"index": 0, "delta": members}]}


def read(*payloads: Any, end: bool = True, reader: ChatReader | None = None) -> Taken:
    reader, taken = reader or ChatReader(), Taken()
    try:
        for payload in payloads:
            text = payload if isinstance(payload, str) else json.dumps(payload)
            for event in reader.take(SseEvent(text)):
                taken.add(event)
        if end:
            for event in reader.end():
                taken.add(event)
    except UpstreamBroken as fault:
        taken.fault = fault
    return taken


@pytest.mark.parametrize(
    ("content", "text", "thought"),
    [
        ("Hi", "Hi", ""),
        ("", "", ""),
        (None, "", ""),
        ([], "", ""),
        ([{"type": "text", "text": "a"}, "b", {"type": "output_text", "text": "c"}], "abc", ""),
        ([{"type": "thinking", "thinking": [{"type": "text", "text": "t"}]}, {"type": "text", "text": "a"}], "a", "t"),
        ([{"type": "thinking", "thinking": "t"}], "", "t"),
        ([{"type": "reasoning", "text": "t"}], "", "t"),
        ([{"type": "reference", "reference_ids": [1]}, {"type": "text", "text": None}], "", ""),
    ],
)
def test_content_in_every_form(content: Any, text: str, thought: str) -> None:
    taken = read(delta(content=content), STOP)
    assert taken.fault is None
    assert taken.text == text
    assert taken.joined("reasoning_content") == thought


def test_members_that_are_not_spoken_pass_through_untouched() -> None:
    more = {"reasoning": "r", "reasoning_details": [{"type": "x"}], "function_call": {"name": "f"}, "new": {"a": [1]}}
    taken = read(delta(role="assistant", content="a", refusal=None, annotations=None, **more), STOP)
    assert taken.other == [more]
    assert taken.text == "a"


@pytest.mark.parametrize(
    "chunk",
    [
        {**delta(content="UklGRg=="), "modality": "audio"},
        {"choices": [{"index": 0, "modality": "audio", "delta": {"content": "UklGRg=="}}]},
        delta(content="UklGRg==", modality="audio"),
        delta(content="UklGRg==", audio={"data": "AAAA"}),
        delta(audio={"data": "AAAA", "transcript": "Hello"}),
    ],
)
def test_sound_is_not_text(chunk: Any) -> None:
    taken = read(chunk, STOP)
    assert (taken.text, taken.other, taken.fault) == ("", [], None)


def test_missing_tool_call_indexes_are_filled_in() -> None:
    chunks = [
        {"id": "a", "function": {"name": "f", "arguments": ""}},
        {"function": {"arguments": "1"}},
        {"id": "b", "function": {"name": "g", "arguments": ""}},
        {"id": "", "function": {"arguments": "2"}},
        {"id": "a", "function": {"arguments": "3"}},
        {"function": {"name": "h", "arguments": "{}"}},
    ]
    taken = read(*(delta(tool_calls=[chunk]) for chunk in chunks), STOP)
    assert [other["tool_calls"][0]["index"] for other in taken.other] == [0, 0, 1, 1, 0, 2]
    assert [{k: v for k, v in other["tool_calls"][0].items() if k != "index"} for other in taken.other] == chunks


def test_given_tool_call_indexes_stay() -> None:
    calls = [{"index": 4, "id": "a", "function": {"name": "f"}}, {"index": 2, "id": "b", "function": {"name": "g"}}]
    taken = read(delta(tool_calls=calls), delta(tool_calls=[]), STOP)
    assert taken.other == [{"tool_calls": calls}]


def test_blank_first_chunk_does_not_open_the_answer() -> None:
    blank = {"id": "", "model": "", "created": 0, "choices": [], "prompt_filter_results": []}
    taken = read(blank, delta(content="a"), STOP)
    assert (taken.opened.id, taken.opened.model, taken.opened.created) == ("c1", "m1", 5)


def test_an_answer_without_names_gets_some() -> None:
    taken = read({"choices": [{"delta": {"content": "a"}}]}, "[DONE]", reader=ChatReader(model="asked"))
    assert taken.opened.model == "asked"
    assert taken.opened.id.startswith("chatcmpl-")
    assert taken.opened.created > 1_600_000_000
    assert read("[DONE]", reader=ChatReader(model="asked")).opened.model == "asked"


def test_the_last_usage_comes_once_at_the_end() -> None:
    first, last = {"total_tokens": 1}, {"total_tokens": 2}
    taken = read({**delta(content="a"), "usage": first}, {**STOP, "usage": last}, {"choices": [], "usage": None})
    assert taken.usage == [last]
    assert taken.events[-1] is not taken.events[0]


@pytest.mark.parametrize(
    ("payloads", "ends_well"),
    [
        ([delta(content="a"), STOP], True),
        ([delta(content="a"), "[DONE]"], True),
        ([delta(content="a"), STOP, "[DONE]"], True),
        (["[DONE]"], True),
        ([STOP], True),
        ([delta(content="a")], False),
        ([], False),
        ([{"choices": []}], False),
        ([STOP, {"choices": [{"index": 1, "delta": {"content": "b"}}]}], False),
    ],
)
def test_what_counts_as_a_whole_answer(payloads: list[Any], ends_well: bool) -> None:
    assert (read(*payloads).fault is None) == ends_well


def test_finished_needs_every_choice_that_was_asked_for() -> None:
    reader = ChatReader(choices=2)
    read(STOP, end=False, reader=reader)
    assert not reader.finished
    read({"choices": [{"index": 1, "delta": {}, "finish_reason": "length"}]}, end=False, reader=reader)
    assert reader.finished


def test_nothing_is_read_after_done() -> None:
    taken = read(delta(content="a"), "[DONE]", "junk", delta(content="b"))
    assert (taken.text, taken.fault) == ("a", None)


@pytest.mark.parametrize(
    "payload",
    [
        "junk",
        "[1]",
        "5",
        '"text"',
        "null",
        "{",
        "[" * 100_000,
        '{"a":' * 100_000,
        {"choices": 5},
        {"choices": [5]},
        {"choices": [{"index": -1}]},
        {"choices": [{"index": 1_000}]},
        {"choices": [{"index": "0"}]},
        {"choices": [{"delta": 5}]},
        {"choices": [{"delta": {}, "finish_reason": 5}]},
        delta(content=5),
        delta(content=[5]),
        delta(content={"type": "text"}),
        delta(refusal=5),
        delta(tool_calls=5),
        delta(tool_calls=[5]),
    ],
)
def test_what_cannot_be_understood_is_refused(payload: Any) -> None:
    taken = read(delta(content="before"), payload)
    assert isinstance(taken.fault, UpstreamBroken)
    assert taken.text == "before"
    assert len(taken.fault.message) < 200


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({"error": {"message": "out of memory", "code": 500}}, "out of memory"),
        ({"error": "out of memory"}, "out of memory"),
        ([{"error": {"message": "out of memory"}}], "out of memory"),
        ({"object": "error", "message": "out of memory"}, "out of memory"),
        ({"type": "error", "message": "out of memory"}, "out of memory"),
        ({"error": {"message": "out\n\tof\x00 memory"}}, "out of memory"),
        ({"error": {}}, "without a message"),
    ],
)
def test_error_events_are_told(payload: Any, message: str) -> None:
    taken = read(delta(content="before"), payload)
    assert taken.text == "before"
    assert isinstance(taken.fault, UpstreamBroken)
    assert message in taken.fault.message


def test_error_events_by_name() -> None:
    reader = ChatReader()
    with pytest.raises(UpstreamBroken, match="too busy"):
        list(reader.take(SseEvent('{"message": "too busy"}', "error")))
    with pytest.raises(UpstreamBroken, match="too busy"):
        list(reader.take(SseEvent("too busy", "error")))
    with pytest.raises(UpstreamBroken, match="without a message"):
        list(reader.take(SseEvent("{}", "error")))


def test_error_messages_are_short_and_keep_the_key_secret() -> None:
    reader = ChatReader(secret="sk-canary")
    with pytest.raises(UpstreamBroken) as caught:
        list(reader.take(SseEvent(json.dumps({"error": "bad key sk-canary " + "x" * 9_000}))))
    assert "canary" not in caught.value.message
    assert len(caught.value.message) < 1_100


def test_characters_are_capped_after_the_allowed_ones() -> None:
    taken = read(delta(content="abc"), delta(content="defgh"), STOP, reader=ChatReader(max_chars=5))
    assert taken.text == "abcde"
    assert isinstance(taken.fault, UpstreamBroken)
    exact = read(delta(content="abc"), delta(refusal="de"), STOP, reader=ChatReader(max_chars=5))
    assert (exact.text, exact.refusal, exact.fault) == ("abc", "de", None)


def test_numbers_and_surrogates_that_json_cannot_carry_are_replaced() -> None:
    odd = '"x": [NaN, 1e999, "\\ud83d\\ude00"]'
    raw = f'{{"choices": [{{"delta": {{"content": "a\\ud83d", {odd}}}, "logprobs": {{"l": -Infinity}}}}]}}'
    taken = read(raw, STOP)
    assert taken.text == "a\ufffd"
    assert taken.other == [{"x": [None, None, "😀"]}]
    json.dumps(taken.other, allow_nan=False).encode()
    assert taken.opened.created > 0


def test_json_answers_are_told_as_events() -> None:
    message = {
        "role": "assistant",
        "content": "Hi.",
        "reasoning_content": "r",
        "tool_calls": [{"id": "a"}, {"id": "b"}],
    }
    answer = {"id": "c1", "model": "m1", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    reader, taken = ChatReader(), Taken()
    for event in (*reader.take_answer(json.dumps({**answer, "usage": {"total_tokens": 3}}).encode()), *reader.end()):
        taken.add(event)
    assert (taken.text, taken.finish, taken.usage) == ("Hi.", {0: "tool_calls"}, [{"total_tokens": 3}])
    assert taken.joined("reasoning_content") == "r"
    assert [call["index"] for call in taken.other[0]["tool_calls"]] == [0, 1]


@pytest.mark.parametrize(
    "body", [b"{}", b'{"choices": []}', b'{"choices": [5]}', b'{"choices": [{"message": 5}]}', b"{"]
)
def test_other_json_is_no_answer(body: bytes) -> None:
    with pytest.raises(UpstreamBroken):
        list(ChatReader().take_answer(body))


MEMBERS = [
    "choices",
    "delta",
    "content",
    "index",
    "finish_reason",
    "tool_calls",
    "usage",
    "error",
    "type",
    "text",
    "message",
    "id",
    "function",
    "name",
    "refusal",
    "audio",
    "created",
    "detail",
    "thinking",
    "loc",
    "msg",
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.sampled_from(["", "text", "audio", "a"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(MEMBERS),
            inner,
            max_size=5,
        )
    ),
    max_leaves=25,
)


@given(st.lists(JSON | st.builds(lambda c: {"choices": [c]}, JSON) | st.builds(lambda d: delta(content=d), JSON)))
def test_any_json_gives_events_or_a_fault(payloads: list[Any]) -> None:
    taken = read(*payloads)
    assert taken.fault is None or isinstance(taken.fault, UpstreamBroken)
    json.dumps([taken.other, taken.usage], allow_nan=False)


@given(JSON)
def test_any_json_answer_gives_events_or_a_fault(payload: Any) -> None:
    for body in (payload, {"choices": [{"message": payload}]}):
        reader = ChatReader()
        try:
            events = [*reader.take_answer(json.dumps(body).encode()), *reader.end()]
        except UpstreamBroken:
            continue
        assert events
