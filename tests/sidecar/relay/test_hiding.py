"""What is shown and kept of a message: nobody's words unless asked for, nobody's voice or key ever."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.relay.hiding import hidden_members, kept, line_of, masked, parsed, printable

VOICE: list[dict[str, Any]] = [
    {"ref_audio": "data:audio/wav;base64,canary"},
    {"speaker_embedding": [0.125, 0.25]},
    {"speaker_embedding": [[0.125, 0.25]]},
    {"audio_b64": "canary"},
    {"audio": "canary"},
    {"audio": {"data": "canary", "id": "a1"}},
    {"delta": "canary" * 20},
    {"voice_vector": [0.125]},
    {"codes": [[125, 7]]},
    {"authorization": "Bearer canary"},
    {"api_key": "canary"},
    {"session": {"client_secret": {"value": "x", "secret": "canary"}}},
]


@pytest.mark.parametrize("message", VOICE)
@pytest.mark.parametrize("show_text", [False, True])
def test_voices_and_keys_are_never_shown_or_kept(message: dict[str, Any], show_text: bool) -> None:
    for seen in (line_of(message, show_text=show_text), json.dumps(kept(message, mask_text=not show_text))):
        assert "canary" not in seen
        assert "125" not in seen


@pytest.mark.parametrize(
    "message",
    [
        {"text": "canary 7"},
        {"sentence_text": "canary 7"},
        {"ref_text": "canary 7"},
        {"instructions": "canary 7"},
        {"anything": "canary 7"},
        {"timestamps": [{"word": "canary 7", "start_ms": 1}]},
        {"choices": [{"delta": {"content": "canary 7"}}]},
        {"a": {"b": {"c": {"d": "canary 7"}}}},
        {"list": ["canary 7"]},
    ],
)
def test_words_are_shown_only_when_asked_for(message: dict[str, Any]) -> None:
    assert "canary" not in line_of(message, show_text=False)
    assert "canary" not in json.dumps(kept(message, mask_text=True))
    assert "canary 7" in json.dumps(kept(message, mask_text=False))
    if "a" not in message:
        assert "canary 7" in line_of(message, show_text=True)


def test_what_is_no_speech_is_shown() -> None:
    message = {
        "type": "session.config",
        "voice": "vivian",
        "seed": 7,
        "stream_audio": True,
        "model": None,
        "text": "hi",
        "speed": 1.5,
        "tags": [],
        "message": "Unknown voice",
    }
    assert line_of(message, show_text=False).endswith("message=<13 chars>"), "a client's may be anything"
    assert line_of(message, show_text=False, from_server=True) == (
        'voice=vivian seed=7 stream_audio=true model=null text=<2 chars> speed=1.5 tags=[] message="Unknown voice"'
    )


def test_many_members_are_bounded() -> None:
    line = line_of({f"m{n}": "x" * 10_000 for n in range(1_000)}, show_text=True)
    assert line.endswith("and 976 more")
    assert len(line) < 5_000


@given(st.text())
def test_nothing_steers_the_terminal(text: str) -> None:
    assert printable(text).isprintable()
    assert line_of({text: text, "type": "x", "voice": text}, show_text=True).isprintable()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=30,
)


@given(st.dictionaries(st.text(), JSON, max_size=5), st.booleans())
def test_any_message_can_be_shown_and_kept(message: dict[str, Any], flag: bool) -> None:
    assert isinstance(line_of(message, show_text=flag), str)
    json.dumps(kept(message, mask_text=flag))


@given(st.text())
def test_masked_text_keeps_its_length_and_punctuation(text: str) -> None:
    out = masked(text)
    assert len(out) == len(text)
    assert all(a == b for a, b in zip(text, out, strict=True) if not a.isalnum())
    assert set(out) & set("abcdefghABC123") == set()


def test_what_was_left_out_can_be_named() -> None:
    message = kept({"type": "session.config", "ref_audio": "data:x", "voice": "v", "seed": 1}, mask_text=False)
    assert hidden_members(message) == ["ref_audio"]
    assert message == {"type": "session.config", "ref_audio": {"hidden": 6}, "voice": "v", "seed": 1}
    assert hidden_members(kept({"stream_audio": "yes", "text": "A" * 100}, mask_text=False)) == []


@pytest.mark.parametrize("text", ["", "[]", "1", "{", '"x"', "[" * 100_000])
def test_what_is_no_object_is_no_message(text: str) -> None:
    assert parsed(text) is None
