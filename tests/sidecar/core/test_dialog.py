"""Resolving ``audio.id`` in later turns."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.core.dialog import SpokenTurn, audio_references, last_turn, resolved_messages
from sidecar.faults import BadRequest, UnknownAudio

TURN = SpokenTurn("Hi there.", dialog_seed=7, reply_index=2, expires_at=99)


def resolve(message: dict[str, Any], turns: dict[str, SpokenTurn]) -> dict[str, Any]:
    messages = [{"role": "user", "content": "a"}, message]
    resolved: dict[str, Any] = resolved_messages(messages, audio_references(messages), turns)[1]
    return resolved


def test_a_reference_becomes_what_was_said() -> None:
    assert resolve({"role": "assistant", "audio": {"id": "x"}}, {"x": TURN}) == {
        "role": "assistant",
        "content": "Hi there.",
    }


def test_the_sdk_object_sent_back_whole_loses_its_data_and_nulls() -> None:
    message = {
        "role": "assistant", "content": None, "refusal": None, "tool_calls": None,
        "audio": {"id": "x", "data": "A" * 100, "expires_at": 1, "transcript": "All of it."},
    }  # fmt: skip
    assert resolve(message, {"x": TURN}) == {"role": "assistant", "content": "Hi there."}
    assert resolve(message, {}) == {"role": "assistant", "content": "All of it."}, (
        "its transcript helps where we forgot"
    )


def test_own_content_wins() -> None:
    message = {"role": "assistant", "content": "Mine.", "audio": {"id": "x"}}
    assert resolve(message, {"x": TURN})["content"] == "Mine."


def test_a_tool_call_turn_needs_no_words() -> None:
    calls = [{"id": "c"}]
    silent = SpokenTurn("", 1, 0, 9)
    message = {"role": "assistant", "audio": {"id": "x"}, "tool_calls": calls}
    assert resolve(message, {"x": silent}) == {"role": "assistant", "tool_calls": calls}


def test_unknown_ids_are_named() -> None:
    with pytest.raises(UnknownAudio) as caught:
        resolve({"role": "assistant", "audio": {"id": "gone"}}, {})
    assert caught.value.param == "messages[1].audio.id"
    assert "'gone'" in caught.value.message


@pytest.mark.parametrize("audio", ["x", {}, {"id": 5}, {"id": ""}, {"id": "x" * 129}, []])
def test_an_unusable_reference_is_refused(audio: Any) -> None:
    with pytest.raises(BadRequest) as caught:
        audio_references([{"role": "assistant", "audio": audio}])
    assert caught.value.param == "messages[0].audio"


@pytest.mark.parametrize("messages", [None, "x", 5, [5, None, {"role": "user", "audio": {"id": "x"}}], [{"audio": {}}]])
def test_other_shapes_have_no_references(messages: Any) -> None:
    assert audio_references(messages) == []


def test_the_dialog_goes_on_from_the_latest_known_turn() -> None:
    messages = [{"role": "assistant", "audio": {"id": name}} for name in ("a", "b", "c")]
    references = audio_references(messages)
    later = SpokenTurn("", dialog_seed=7, reply_index=5, expires_at=1)
    assert last_turn(references, {"a": TURN, "b": later}) == later
    assert last_turn(references, {"a": TURN}) == TURN
    assert last_turn(references, {}) is None


@given(st.text(), st.integers(0, 2**63 - 1), st.integers(0, 10**6), st.integers(0, 2**40))
def test_records_survive_a_round_trip(transcript: str, seed: int, index: int, expires: int) -> None:
    turn = SpokenTurn(transcript, seed, index, expires)
    assert SpokenTurn.from_bytes(turn.to_bytes()) == turn


@given(st.binary(max_size=200))
def test_foreign_bytes_count_as_absent(value: bytes) -> None:
    assert SpokenTurn.from_bytes(value) is None


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_truncated_records_count_as_absent(cut: int) -> None:
    assert SpokenTurn.from_bytes(TURN.to_bytes()[:-cut]) is None
