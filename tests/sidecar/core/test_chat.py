"""The chunk order that every accumulator takes, checked with the SDK's own accumulator, and the rebuilt message."""

from __future__ import annotations

import base64
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

from sidecar.core.chat import ChatChunks, MessageBuilder, audio_tokens, spoken_usage


def chunks(**kw: Any) -> ChatChunks:
    return ChatChunks(id="c", created=1, model="m", **kw)


def deltas(sent: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [chunk["choices"][0]["delta"] for chunk in sent]


def test_roles_come_first_in_index_order() -> None:
    sent = chunks().open(3)
    assert [c["choices"][0]["index"] for c in sent] == [0, 1, 2]
    assert deltas(sent) == [{"role": "assistant", "content": None, "refusal": None}] * 3


def test_the_audio_id_is_sent_once_with_the_first_words() -> None:
    writer = chunks()
    writer.open(1)
    sent = writer.transcript(0, "Hello", "audio_1") + writer.transcript(0, " there", "audio_1")
    assert deltas(sent) == [
        {"audio": {"id": "audio_1", "transcript": "Hello"}},
        {"audio": {"transcript": " there"}},
    ]


def test_expires_at_comes_alone_before_the_finish_reason() -> None:
    writer = chunks()
    writer.open(1)
    writer.transcript(0, "Hi", "audio_1")
    writer.audio(0, b"\x01\x02")
    sent = writer.close(0, "stop", 99)
    assert deltas(sent) == [
        {"audio": {"data": base64.b64encode(b"\x01\x02").decode()}},
        {"audio": {"expires_at": 99}},
        {},
    ]
    assert [c["choices"][0]["finish_reason"] for c in sent] == [None, None, "stop"]


def test_without_words_there_is_no_audio_object() -> None:
    writer = chunks()
    writer.open(1)
    writer.passed(0, {"tool_calls": [{"index": 0}]})
    assert deltas(writer.close(0, "tool_calls", 99)) == [{}]


def test_usage_is_a_member_of_every_chunk_only_if_asked_for() -> None:
    asked, not_asked = chunks(include_usage=True), chunks()
    assert asked.open(1)[0]["usage"] is None
    assert asked.usage({"total_tokens": 1})[0] == {
        "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
        "choices": [], "usage": {"total_tokens": 1},
    }  # fmt: skip
    assert "usage" not in not_asked.open(1)[0]
    assert not_asked.usage({"total_tokens": 1}) == []


def test_mirrored_content_is_an_option() -> None:
    writer = chunks(mirror_content=True)
    writer.open(1)
    assert deltas(writer.transcript(0, "Hi", "a"))[0]["content"] == "Hi"


def test_extensions_stay_out_of_the_delta() -> None:
    choice = chunks().beside(0, segment={"index": 0})[0]["choices"][0]
    assert choice["delta"] == {}
    assert choice["segment"] == {"index": 0}


@given(st.lists(st.binary(min_size=2, max_size=50).map(lambda b: b[: len(b) // 2 * 2]), max_size=20))
def test_pieces_of_data_join_to_the_whole(pieces: list[bytes]) -> None:
    writer = chunks()
    state: ChatCompletionStreamState[None] = ChatCompletionStreamState()
    sent = writer.open(1) + writer.transcript(0, "words", "audio_1")
    for piece in pieces:
        sent += writer.audio(0, piece)
    sent += writer.close(0, "stop", 1_900_000_000)
    data = [d["audio"]["data"] for d in deltas(sent) if "data" in d.get("audio", {})]
    assert all(len(base64.b64decode(piece)) % 6 == 0 for piece in data[:-1])
    assert base64.b64decode("".join(data)) == b"".join(pieces)
    for chunk in sent:
        state.handle_chunk(ChatCompletionChunk.model_validate(chunk))
    message = state.get_final_completion().choices[0].message
    assert message.role == "assistant"
    assert message.audio is not None
    assert message.audio.id == "audio_1"
    assert message.audio.expires_at == 1_900_000_000
    assert base64.b64decode(message.audio.data or "") == b"".join(pieces)


def test_a_message_is_put_together_again() -> None:
    builder = MessageBuilder()
    for delta in (
        {"reasoning_content": "Let me "},
        {"reasoning_content": "think."},
        {"tool_calls": [{"index": 1, "id": "b", "function": {"name": "g", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x"'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]},
        {"refusal": "No"},
        {"refusal": "."},
    ):
        builder.add(delta)
    message = builder.message(None)
    assert message["reasoning_content"] == "Let me think."
    assert message["refusal"] == "No."
    assert message["content"] is None
    assert "audio" not in message
    assert message["tool_calls"] == [
        {"type": "function", "id": "a", "function": {"name": "f", "arguments": '{"x": 1}'}},
        {"type": "function", "id": "b", "function": {"name": "g", "arguments": ""}},
    ]


def test_usage_adds_the_spoken_tokens() -> None:
    upstream = {
        "prompt_tokens": 8,
        "completion_tokens": 17,
        "prompt_tokens_details": {"cached_tokens": 3, "audio_tokens": None},
        "completion_tokens_details": {"reasoning_tokens": 5},
    }
    usage = spoken_usage(upstream, spoken_tokens=37, prompt_chars=0, text_chars=0)
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (8, 54, 62)
    assert usage["prompt_tokens_details"]["cached_tokens"] == 3
    assert usage["prompt_tokens_details"]["audio_tokens"] == 0
    assert usage["completion_tokens_details"]["reasoning_tokens"] == 5
    assert usage["completion_tokens_details"]["text_tokens"] == 17
    assert usage["completion_tokens_details"]["audio_tokens"] == 37


def test_usage_is_estimated_where_the_upstream_has_none() -> None:
    usage = spoken_usage(None, spoken_tokens=2, prompt_chars=40, text_chars=8)
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (10, 4)


def test_twenty_audio_tokens_a_second() -> None:
    assert [audio_tokens(n, 24_000) for n in (0, 1, 1200, 24_000, 44_400)] == [0, 1, 1, 20, 37]
