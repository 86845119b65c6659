from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.llm.openai_errors import MAX_MESSAGE_CHARS, error_in, loads, refusal, safe_message


def error(message: str, kind: str | None = None, param: str | None = None, code: Any = None) -> dict[str, Any]:
    return {"message": message, "type": kind, "param": param, "code": code}


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (400, {"error": error("m", "t", "p", "c")}, (400, error("m", "t", "p", "c"))),
        (500, {"error": {"message": "m", "code": 500, "extra": [1]}}, (500, error("m", "server_error", code=500))),
        (429, {"error": "slow down"}, (429, error("slow down", "rate_limit_error"))),
        (429, [{"error": {"message": "m"}}], (429, error("m", "rate_limit_error"))),
        (400, {"object": "error", "message": "m", "type": "t"}, (400, error("m", "t"))),
        (403, {"message": "m"}, (403, error("m", "permission_error"))),
        (404, {"detail": "Not Found"}, (404, error("Not Found", "not_found_error"))),
        (401, {"detail": {"error": {"message": "m", "type": "t"}}}, (401, error("m", "t"))),
        (
            422,
            {"detail": [{"loc": ["body", "messages", 0, "role"], "msg": "bad"}, {"loc": ["body", "n"], "msg": "low"}]},
            (400, error("messages.0.role: bad; n: low", "invalid_request_error", "messages.0.role")),
        ),
        (422, {"detail": [{"msg": "bad"}, 5]}, (400, error("bad", "invalid_request_error"))),
        (422, {"error": error("m", "t")}, (400, error("m", "t"))),
    ],
)
def test_error_answers_become_openai_errors(status: int, body: Any, expected: Any) -> None:
    assert refusal(status, json.dumps(body).encode()) == expected


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"5", b'{"status": 1}', b'{"error": null}', b"[" * 100_000])
def test_junk_is_none(body: bytes) -> None:
    assert refusal(500, body) is None


@pytest.mark.parametrize("body", [{"detail": None}, {"detail": []}, {"detail": 5}, {"error": {"message": "  "}}])
def test_errors_without_words_get_some(body: Any) -> None:
    found = refusal(400, json.dumps(body).encode())
    assert found is not None
    assert "without a message" in found[1]["message"]


@given(st.text(max_size=50), st.text(max_size=3_000))
def test_messages_are_one_short_line_without_the_key(before: str, after: str) -> None:
    message = safe_message(before + "sk-canary" + after, secret="sk-canary")
    assert "sk-canary" not in message
    assert len(message) <= MAX_MESSAGE_CHARS
    assert not any(ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0 for char in message)
    message.encode()


@given(st.binary(max_size=200))
def test_any_bytes_are_json_or_a_value_error(raw: bytes) -> None:
    try:
        value = loads(raw)
    except ValueError:
        return
    json.dumps(value, allow_nan=False).encode()
    error_in(value)


def test_numbers_too_long_to_read_are_a_value_error() -> None:
    with pytest.raises(ValueError):
        loads("1" * 10_000)
