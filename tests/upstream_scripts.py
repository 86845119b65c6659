"""What ``tests.upstream`` can say: one script per oddity of OpenAI-compatible servers."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from tests.upstream_answer import Act, Call, Script, Step, Steps, Whole, error_body

PLAIN = "Hello there! Dr. Lee paid $12.50 for it, on May 5th. Is that all? Yes, it is."
MARKDOWN = (
    "# A heading\n\nThis is **bold** and `code`, see [the map](https://example.com/a?b=c).\n\n"
    "- one\n- two\n\n| City | Temp |\n|---|---:|\n| Oslo | -3°C |\n\nThat was it.\n"
)
CODE = "Here it is:\n\n```python\ndef add(a, b):\n    return a + b  # sum. done!\n```\n\nCall it with `add(1, 2)`."
LETTERS = "Grüße aus Köln! 你好，世界。 Привет, мир. नमस्ते। 👩‍👩‍👧 and 🇩🇪: café, naïve."
THINK = "<think>They greet me. I shall greet back.</think>\n\nHello to you. How are you?"
THOUGHT = "They want a greeting. Nobody may hear this."


def pieces_of(text: str) -> list[str]:
    """Cut like a tokenizer: a space belongs to the word after it, words come in pieces."""
    return re.findall(r"\s?\w{1,6}|\s?[^\w\s]|\s", text)


def say(text: str | Callable[[Call], str], finish: str | None = "stop", key: str = "content") -> Steps:
    def steps(call: Call) -> Iterator[Step]:
        words = call.options.get("text") or (text(call) if callable(text) else text)
        ends = finish
        stops = call.body.get("stop") or []
        for stop in [stops] if isinstance(stops, str) else stops:
            words = words.split(stop)[0]
        pieces = pieces_of(words)
        limit = call.body.get("max_completion_tokens") or call.body.get("max_tokens")
        if limit and limit < len(pieces):
            pieces, ends = pieces[:limit], "length"
        for piece in pieces:
            for choice in range(call.choices):
                yield {key: piece}, None, choice
        if ends is not None:
            yield from (({}, ends, choice) for choice in range(call.choices))

    return steps


def then(*parts: Steps | Step | Callable[[Call], bytes]) -> Steps:
    """Parts one after another."""

    def steps(call: Call) -> Iterator[Step]:
        for part in parts:
            if callable(part):
                found = part(call)
                if isinstance(found, bytes):
                    yield found
                else:
                    yield from found
            else:
                yield part

    return steps


def some(text: str = PLAIN, finish: str | None = None) -> Steps:
    """The first words (``after`` pieces, 12 unless told)."""

    def steps(call: Call) -> Iterator[Step]:
        for piece in pieces_of(call.options.get("text") or text)[: int(call.options.get("after", 12))]:
            yield {"content": piece}, finish, 0

    return steps


def each(change: Callable[[Call, int, str], list[Step]], text: str = PLAIN) -> Steps:
    """``change`` writes every piece of the text in its own way."""

    def steps(call: Call) -> Iterator[Step]:
        for number, piece in enumerate(pieces_of(call.options.get("text") or text)):
            yield from change(call, number, piece)
        yield {}, "stop", 0

    return steps


def _empty(call: Call, number: int, piece: str) -> list[Step]:
    odd: list[Step] = [({"content": ""}, None, 0), ({"content": None}, None, 0), ({}, None, 0), call.chunk([])]
    return [odd[number % 4], ({"content": piece}, None, 0)]


def _fields(call: Call, number: int, piece: str) -> list[Step]:
    choice = {"index": 0, "delta": {"content": piece}, "finish_reason": None}
    frame = call.chunk([choice]).replace(b"data: ", b"data:", 1)
    return [b"event: message\nid: %d\nretry: 1000\nwhat: ever\n%b" % (number, frame)]


def _alive(call: Call, number: int, piece: str) -> list[Step]:
    return [b": keep-alive\n\n", b"\n\n", ({"content": piece}, None, 0)]


def tool(*calls: tuple[str, str], index: bool = True) -> Steps:
    def steps(call: Call) -> Iterator[Step]:
        for number, (name, arguments) in enumerate(calls):
            place = {"index": number} if index else {}
            start = {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": ""}}
            yield {"tool_calls": [{**place, **start}]}, None, 0
            for at in range(0, len(arguments), 6):
                piece = {**place, "function": {"arguments": arguments[at : at + 6]}}
                yield {"tool_calls": [piece]}, None, 0
        yield {}, "tool_calls", 0

    return steps


def _flood(call: Call) -> Iterator[Step]:
    for number in range(int(call.options.get("tokens", 20_000))):
        yield {"content": f" word{number}." if number % 12 == 11 else f" word{number}"}, None, 0
    yield {}, "stop", 0


def _choices(call: Call) -> Iterator[Step]:
    texts = [pieces_of(f"Answer {number} is about {number + 2} apples.") for number in range(call.choices)]
    for at in range(max(map(len, texts))):
        yield from (({"content": text[at]}, None, number) for number, text in enumerate(texts) if at < len(text))
    yield from (({}, "stop", number) for number in range(call.choices))


def _parts(call: Call) -> Iterator[Step]:
    yield {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": THOUGHT}]}]}, None, 0
    for piece in pieces_of(PLAIN):
        yield {"content": [{"type": "text", "text": piece}, {"type": "reference", "reference_ids": [1]}]}, None, 0
    yield {}, "stop", 0


def _sound(call: Call) -> Iterator[Step]:
    yield {"content": "Hello."}, None, 0
    choice = {"index": 0, "delta": {"content": "UklGRiQAAABXQVZF"}, "finish_reason": None}
    yield call.chunk([choice], modality="audio")
    yield {"audio": {"data": "AAAA", "transcript": "Hello."}}, None, 0
    yield {}, "stop", 0


def _dump(call: Call) -> str:
    seen = [[message.get("role"), message.get("content")] for message in call.body["messages"]]
    return "Messages: " + json.dumps(seen, ensure_ascii=False)


def _cut_at(call: Call) -> Iterator[Step]:
    """A plain answer, reset or closed (``how=fin``) after ``bytes`` bytes of its body."""
    left = int(call.options["bytes"])
    for frame in Call(call.body, {}, Script(say("Hi, you there."), role="no")).frames():
        assert isinstance(frame, bytes)
        if frame[:left]:
            yield frame[:left]
        left = max(left - len(frame), 0)
        if not left:
            yield Act.FIN if call.options.get("how") == "fin" else Act.RST


def _http(status: int, message: str, kind: str, code: str | None = None, **more: Any) -> Script:
    return Script(say(""), whole=lambda call: error_body(status, message, kind, code, **more))


def _raw(status: int, content: bytes, kind: str = "text/html", **headers: str) -> Script:
    return Script(say(""), whole=lambda call: Whole(status, content, kind, headers))


def _line(length: int) -> Callable[[Call], Iterator[Step]]:
    def steps(call: Call) -> Iterator[Step]:
        for _ in range(0, length, 65_536):
            yield b"x" * 65_536

    return steps


_REASONED = then(lambda call: ((({"reasoning_content": p, "content": None}), None, 0) for p in pieces_of(THOUGHT)))
_SERVER_ERROR = {"message": "The server had an error.", "type": "server_error", "param": None, "code": None}
_VALIDATION = {"detail": [{"loc": ["body", "model"], "msg": "field required", "type": "value_error.missing"}]}
_THINK_PIECES = ["<", "th", "ink", ">", "Hidden", " thought", ".", "</", "thi", "nk>", "\n\n", "Spoken", " a < b."]


def _pieces(pieces: list[str], key: str = "content") -> Steps:
    return then(*(({key: piece}, None, 0) for piece in pieces), ({}, "stop", 0))


SCRIPTS: dict[str, Script] = {
    "plain": Script(say(PLAIN)),
    "short": Script(say("Hi.")),
    "markdown": Script(say(MARKDOWN)),
    "code": Script(say(CODE)),
    "letters": Script(say(LETTERS)),
    "echo": Script(say(lambda call: call.last_user or "Nothing to echo.")),
    "dump": Script(say(_dump)),
    "json": Script(say('{"city": "Paris", "temp_c": 21.5}')),
    "long": Script(_flood),
    "nothing": Script(say("")),
    "whitespace": Script(_pieces(["\n", " ", "\t\n"])),
    "choices": Script(_choices),
    "think": Script(say(THINK)),
    "think_split": Script(_pieces(_THINK_PIECES)),
    "think_noopen": Script(say("They say hi.</think>Hello to you.")),
    "reasoning": Script(then(_REASONED, say("Hello to you."))),
    "reasoning_field": Script(then(say(THOUGHT, None, "reasoning"), say("Hello to you."))),
    "reasoning_details": Script(
        then(({"reasoning_details": [{"type": "reasoning.text", "text": THOUGHT}]}, None, 0), say("Hello to you."))
    ),
    "parts": Script(_parts),
    "sound": Script(_sound),
    "refusal": Script(say("I cannot help with that.", key="refusal")),
    "tool": Script(tool(("get_weather", '{"city": "Paris", "unit": "c"}'))),
    "tool_text": Script(then(say("Let me look.", None), tool(("get_weather", '{"city": "Paris"}')))),
    "tools2": Script(tool(("get_weather", '{"city": "Paris"}'), ("get_time", '{"zone": "CET"}'))),
    "tools_noindex": Script(tool(("get_weather", '{"city": "Rome"}'), ("get_time", '{"zone": "CET"}'), index=False)),
    "length": Script(say("This stops in the middle of a", "length")),
    "filter": Script(say("I was going to say", "content_filter")),
    "blank_finish": Script(say(PLAIN), blank_finish=True),
    # pace
    "slow": Script(say(PLAIN), delay_ms=40),
    "gate": Script(then(some(), Act.HOLD, say(" And the rest."))),
    "gate_first": Script(then(Act.HOLD, say(PLAIN))),
    "gate_status": Script(say(PLAIN), hold_headers=True),
    "stall": Script(then(some(), Act.STALL)),
    "stall_first": Script(then(Act.STALL)),
    "stall_after_finish": Script(then(say(PLAIN), Act.STALL)),
    "only_comments": Script(lambda call: iter(lambda: b": PROCESSING\n\n", None), delay_ms=5),
    # framing
    "crlf": Script(say(LETTERS), newline=b"\r\n"),
    "cr": Script(say(LETTERS), newline=b"\r"),
    "whole": Script(say(PLAIN), write="whole"),
    "bytes": Script(say(LETTERS), write="bytes"),
    "bytes_crlf": Script(say(LETTERS), write="bytes", newline=b"\r\n"),
    "split": Script(say(LETTERS), write="split"),
    "bom": Script(then(b"\xef\xbb\xbf", say(PLAIN)), role="no"),
    "empty": Script(each(_empty)),
    "keepalive": Script(each(_alive)),
    "fields": Script(each(_fields)),
    "mislabelled": Script(say(PLAIN), content_type="application/json"),
    "until_close": Script(say(PLAIN), until_close=True),
    "until_close_cut": Script(some(), until_close=True, done=False, usage="no"),
    "no_done": Script(say(PLAIN), done=False),
    "no_finish": Script(say(PLAIN, None), done=False),
    "done_only": Script(say(PLAIN, None)),
    "no_role": Script(say(PLAIN), role="no"),
    "role_every": Script(say(PLAIN), role="every"),
    "no_usage": Script(say(PLAIN), usage="no"),
    "usage_always": Script(say(PLAIN), usage="always"),
    "usage_last": Script(say(PLAIN), usage="last"),
    "never_streams": Script(say(PLAIN), never_streams=True),
    "never_streams_tool": Script(then(say("Let me look.", None), tool(("f", "{}"), ("g", "{}"))), never_streams=True),
    "gzip": Script(then(gzip.compress(b"data: [DONE]\n\n")), role="no", headers={"Content-Encoding": "gzip"}),
    # faults in the stream
    "cut": Script(then(some(), Act.FIN)),
    "reset": Script(then(some(), Act.RST)),
    "cut_at": Script(_cut_at, role="no", usage="no", done=False),
    "cut_after_finish": Script(then(say(PLAIN), Act.FIN)),
    "malformed": Script(then(some(), b'data: {"id":"x","choices":[{"index":0,"delta"\n\n', say(PLAIN))),
    "malformed_text": Script(then(some(), b"data: not json at all\n\n", say(PLAIN))),
    "malformed_array": Script(then(some(), b"data: [1, 2]\n\n", say(PLAIN))),
    "malformed_shape": Script(then(some(), b'data: {"choices": [{"delta": 5}]}\n\n', say(PLAIN))),
    "stray_line": Script(then(some(), b'{"error": "hiccup"}\n\n', say(PLAIN))),
    "error_object": Script(then(some(), lambda call: call.frame({"error": _SERVER_ERROR}))),
    "error_string": Script(then(some(), b'data: {"error": "CUDA out of memory"}\n\n', Act.FIN)),
    "error_event": Script(then(some(), b'event: error\ndata: {"message": "overloaded", "code": 529}\n\n', Act.FIN)),
    "error_first": Script(then(b'data: {"error": {"message": "no\\u0007t\\nnow"}}\n\n'), role="no"),
    "endless_line": Script(then(some(), _line(1 << 24))),
    "endless_event": Script(then(some(), lambda call: iter([b"data: " + b"y" * 999 + b"\n"] * 20_000))),
    # answers that are no streams
    "http400": _http(400, "Maximum context length is 4096 tokens.", "invalid_request_error", "context_length_exceeded"),
    "http401": _http(401, "Incorrect API key provided: sk-***.", "invalid_request_error", "invalid_api_key"),
    "http403": _http(403, "Country not supported", "request_forbidden", "unsupported_country"),
    "http404": _http(404, "The model `gone` does not exist", "invalid_request_error", "model_not_found"),
    "http422": Script(say(""), whole=lambda call: Whole.json(422, _VALIDATION)),
    "http429": _http(
        429,
        "Rate limit reached.",
        "requests",
        "rate_limit_exceeded",
        headers={"Retry-After": "7", "x-ratelimit-remaining-requests": "0", "Set-Cookie": "a=b"},
    ),
    "http500": _http(500, "The server had an error.", "server_error"),
    "http502html": _raw(502, b"<html><h1>502 Bad Gateway</h1></html>", **{"Retry-After": "3"}),
    "http503": _http(503, "Overloaded.", "server_error", headers={"Retry-After": "2"}),
    "http503empty": _raw(503, b""),
    "http500huge": _raw(500, b"<p>" * 1_000_000),
    "http200html": _raw(200, b"<html>login page</html>"),
    "http200text": _raw(200, b"<html>login page</html>", "text/plain"),
    "http200empty": _raw(200, b"", "application/json"),
    "http200error": _raw(200, b'{"error": {"message": "model is loading"}}', "application/json"),
    "http200other": _raw(200, b'{"status": "ok"}', "application/json"),
    "redirect": _raw(301, b"", Location="https://example.com/v1/chat/completions"),
}
