"""The answers of ``tests.upstream``: how a script becomes the frames of a stream, or one JSON object."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl


class Act(enum.Enum):
    """What a script can do besides writing."""

    HOLD = "wait for the gate"
    STALL = "say nothing until the client leaves"
    FIN = "close without ending the body"
    RST = "reset the connection"


Delta = tuple[dict[str, Any], str | None, int]
Step = Delta | bytes | Act
Steps = Callable[["Call"], Iterator[Step]]


@dataclass(frozen=True)
class Whole:
    """An answer that is not streamed."""

    status: int
    content: bytes
    kind: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def json(status: int, value: object, headers: dict[str, str] | None = None) -> Whole:
        return Whole(status, json.dumps(value, ensure_ascii=False).encode(), headers=headers or {})


def error_body(
    status: int,
    message: str,
    kind: str,
    code: str | None = None,
    param: str | None = None,
    headers: dict[str, str] | None = None,
) -> Whole:
    error = {"message": message, "type": kind, "param": param, "code": code}
    return Whole.json(status, {"error": error}, headers)


@dataclass(frozen=True)
class Script:
    """How an answer is written. ``steps`` are the deltas, bytes and acts of its body."""

    steps: Steps
    write: str = "event"
    newline: bytes = b"\n"
    role: str = "once"
    usage: str = "asked"
    done: bool = True
    blank_finish: bool = False
    delay_ms: float = 0
    content_type: str = "text/event-stream; charset=utf-8"
    headers: dict[str, str] = field(default_factory=dict)
    until_close: bool = False
    never_streams: bool = False
    hold_headers: bool = False
    whole: Callable[[Call], Whole] | None = None

    def pieces(self, frame: bytes) -> Iterator[bytes]:
        """How a frame is cut into writes."""
        if self.write == "bytes":
            yield from (frame[at : at + 1] for at in range(len(frame)))
        elif self.write == "split":
            cut = next((at + 1 for at, byte in enumerate(frame) if byte >= 0xC0), len(frame) // 2)
            yield from (frame[:cut], frame[cut:])
        else:
            yield frame


@dataclass
class Call:
    """One request to a script."""

    body: dict[str, Any]
    options: dict[str, str]
    script: Script

    @property
    def choices(self) -> int:
        return int(self.body.get("n") or 1)

    @property
    def last_user(self) -> str:
        for message in reversed(self.body["messages"]):
            if message.get("role") == "user":
                content = message.get("content")
                if isinstance(content, str):
                    return content
                return " ".join(part.get("text", "") for part in content or [])
        return ""

    def chunk(self, choices: list[dict[str, Any]], **more: Any) -> bytes:
        """One ``data:`` frame."""
        head = {"id": "chatcmpl-test", "object": "chat.completion.chunk", "created": 1_700_000_000}
        head |= {"model": self.body["model"], "system_fingerprint": "fp_test", "choices": choices}
        if self._wants_usage:
            head.setdefault("usage", None)
        return self.frame(head | more)

    def frame(self, value: object) -> bytes:
        return b"data: " + json.dumps(value, ensure_ascii=False).encode() + self.script.newline * 2

    def usage(self, completion_tokens: int) -> dict[str, int]:
        prompt = max(1, len(json.dumps(self.body["messages"])) // 4)
        total = prompt + completion_tokens
        return {"prompt_tokens": prompt, "completion_tokens": completion_tokens, "total_tokens": total}

    @property
    def _wants_usage(self) -> bool:
        asked = bool((self.body.get("stream_options") or {}).get("include_usage"))
        return self.script.usage in ("always", "last") or (self.script.usage == "asked" and asked)

    def frames(self) -> Iterator[bytes | Act]:
        """The body of the stream, frame by frame."""
        script, tokens = self.script, 0
        if script.role == "once":
            start = {"role": "assistant", "content": "", "refusal": None}
            yield self.chunk([{"index": at, "delta": start, "finish_reason": None} for at in range(self.choices)])
        for step in script.steps(self):
            if not isinstance(step, tuple):
                yield step
                continue
            delta, finish, index = step
            tokens += finish is None
            if script.role == "every":
                delta = {"role": "assistant", **delta}
            ended = finish or ("" if script.blank_finish else None)
            choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": ended}
            now = script.usage == "always" or (script.usage == "last" and finish)
            yield self.chunk([choice], **({"usage": self.usage(tokens)} if now else {}))
        if self._wants_usage and script.usage != "last":
            yield self.chunk([], usage=self.usage(tokens))
        if script.done:
            yield b"data: [DONE]" + script.newline * 2

    def completion(self) -> dict[str, Any]:
        """The same answer in one piece."""
        found: dict[int, dict[str, Any]] = {}
        tokens = 0
        for step in self.script.steps(self):
            if not isinstance(step, tuple):
                continue
            delta, finish, index = step
            tokens += finish is None
            choice = found.setdefault(index, {"index": index, "message": {"role": "assistant", "content": None}})
            choice["finish_reason"] = finish
            _gather(choice["message"], delta)
        return {
            "id": "chatcmpl-test",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": self.body["model"],
            "choices": [found[index] for index in sorted(found)],
            "usage": self.usage(tokens),
        }


def _gather(message: dict[str, Any], delta: dict[str, Any]) -> None:
    for name, value in delta.items():
        if isinstance(value, str):
            message[name] = (message.get(name) or "") + value
        elif name == "tool_calls":
            calls = message.setdefault("tool_calls", [])
            for piece in value:
                if piece.get("id"):
                    whole = {name: part for name, part in piece.items() if name != "index"}
                    calls.append({**whole, "function": dict(piece["function"])})
                else:
                    calls[-1]["function"]["arguments"] += piece["function"]["arguments"]
        elif value is not None:
            message[name] = value


def parse_model(model: str) -> tuple[str, dict[str, str]]:
    """The script and its options in a model name."""
    name, _, query = model.partition("?")
    return name.removeprefix("fake-"), dict(parse_qsl(query, keep_blank_values=True))
