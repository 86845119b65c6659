"""Chunks of a chat completion, as the many servers send them, read into the port's events."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from adapters.llm.openai_errors import error_in, loads
from adapters.llm.sse import SseEvent
from sidecar.faults import UpstreamBroken
from sidecar.ports import ChatDelta, ChatEvent, ChatOpened, ChatUsage

_MAX_CHOICES = 128
_MAX_TOOL_CALLS = 1_024
_NOT_PASSED_ON = frozenset({"role", "content", "refusal", "audio", "modality", "tool_calls"})
_NO_LIST = "The language model sent a chunk whose {} is not a list of objects."


class ChatReader:
    """Reads the events of one answer. Everything it cannot understand is refused with ``UpstreamBroken``.

    ``model`` stands in where the upstream names none. ``choices`` is how many were asked for. More than
    ``max_chars`` characters of text and refusal are refused as well, after the allowed ones.
    """

    def __init__(self, *, model: str = "", choices: int = 1, max_chars: int = 64_000, secret: str | None = None):
        self._model = model
        self._choices = choices
        self._chars_left = max_chars
        self._max_chars = max_chars
        self._secret = secret
        self._opened = False
        self._unfinished: dict[int, bool] = {}
        self._calls: dict[int, dict[str, int]] = {}
        self._usage: Mapping[str, Any] | None = None
        self.done = False
        """``[DONE]`` has been read: whatever follows does not matter."""

    @property
    def finished(self) -> bool:
        """Every choice that was asked for has its finish reason."""
        return len(self._unfinished) >= self._choices and not any(self._unfinished.values())

    def take(self, event: SseEvent) -> Iterator[ChatEvent]:
        """Read one event of the stream; raises ``UpstreamBroken`` for an error event or junk."""
        data = event.data.strip()
        if self.done or not data:
            return
        if data == "[DONE]":
            self.done = True
            return
        yield from self._chunk(self._parse(data, event.name))

    def take_answer(self, body: bytes) -> Iterator[ChatEvent]:
        """Read an answer that came as one JSON object; raises ``UpstreamBroken`` like ``take``."""
        answer = self._parse(body, "message")
        choices = answer.get("choices")
        if not isinstance(choices, list) or not choices:
            raise UpstreamBroken("The language model answered with JSON that is not a chat completion.")
        yield from self._chunk({**answer, "choices": [_as_delta(choice) for choice in choices]})
        self.done = True

    def usage(self) -> Iterator[ChatUsage]:
        """The last usage that the upstream told, once."""
        if self._usage is not None:
            usage, self._usage = self._usage, None
            yield ChatUsage(usage)

    def end(self) -> Iterator[ChatEvent]:
        """The rest of the events, after a tidy end; raises ``UpstreamBroken`` if the answer is not complete."""
        if not self.done and (not self._unfinished or any(self._unfinished.values())):
            raise UpstreamBroken("The language model's answer ended before it was finished.")
        yield from self._open({}, force=True)
        yield from self.usage()

    def _parse(self, data: str | bytes, name: str) -> Mapping[str, Any]:
        try:
            payload = loads(data)
        except ValueError:
            payload = data if name == "error" else None
        error = error_in(payload, secret=self._secret)
        if error is None and name == "error":
            error = error_in({"error": payload}, secret=self._secret) or {"message": "An error without a message."}
        if error is not None:
            raise UpstreamBroken(f"The language model failed: {error['message']}")
        if not isinstance(payload, Mapping):
            raise UpstreamBroken("The language model sent something that is not a JSON object.")
        return payload

    def _chunk(self, chunk: Mapping[str, Any]) -> Iterator[ChatEvent]:
        choices = chunk.get("choices")
        if choices is None:
            choices = []
        if not isinstance(choices, list) or not all(isinstance(choice, Mapping) for choice in choices):
            raise UpstreamBroken(_NO_LIST.format("choices"))
        yield from self._open(chunk, force=bool(choices))
        if isinstance(chunk.get("usage"), Mapping):
            self._usage = chunk["usage"]
        for choice in choices:
            yield from self._choice(choice, chunk.get("modality"))

    def _open(self, chunk: Mapping[str, Any], *, force: bool) -> Iterator[ChatOpened]:
        # Azure sends a first chunk with blank id and model before the real ones.
        if self._opened or not (force or chunk.get("id")):
            return
        self._opened = True
        created, fingerprint = chunk.get("created"), chunk.get("system_fingerprint")
        yield ChatOpened(
            id=_text(chunk.get("id")) or f"chatcmpl-{uuid.uuid4().hex}",
            model=_text(chunk.get("model")) or self._model,
            created=int(created) if isinstance(created, int | float) and created > 0 else int(time.time()),
            system_fingerprint=fingerprint if isinstance(fingerprint, str) else None,
        )

    def _choice(self, choice: Mapping[str, Any], modality: object) -> Iterator[ChatDelta]:
        index = choice.get("index", 0)
        if not isinstance(index, int) or not 0 <= index < _MAX_CHOICES:
            raise UpstreamBroken("The language model sent a choice with an impossible index.")
        delta = choice.get("delta") or {}
        finish = choice.get("finish_reason") or None
        if not isinstance(delta, Mapping) or not isinstance(finish, str | None):
            raise UpstreamBroken("The language model sent a chunk of the wrong shape.")
        self._unfinished.setdefault(index, True)
        if finish:
            self._unfinished[index] = False
        sound = "audio" in (modality, choice.get("modality"), delta.get("modality")) or bool(delta.get("audio"))
        text, thought = ("", "") if sound else _content(delta.get("content"))
        refusal = delta.get("refusal") or ""
        if not isinstance(refusal, str):
            raise UpstreamBroken("The language model sent a refusal that is not text.")
        other = self._other(index, delta)
        if thought:
            other["reasoning_content"] = _text(other.get("reasoning_content")) + thought
        logprobs = choice.get("logprobs")
        allowed, allowed_refusal = self._cap(text), self._cap(refusal)
        event = ChatDelta(index, allowed, allowed_refusal, other, finish, logprobs)
        if allowed or allowed_refusal or other or finish or logprobs is not None:
            yield event
        if (allowed, allowed_refusal) != (text, refusal):
            raise UpstreamBroken(f"The language model wrote more than {self._max_chars} characters.")

    def _cap(self, text: str) -> str:
        text = text[: self._chars_left]
        self._chars_left -= len(text)
        return text

    def _other(self, index: int, delta: Mapping[str, Any]) -> dict[str, Any]:
        other = {name: value for name, value in delta.items() if name not in _NOT_PASSED_ON and value is not None}
        calls = delta.get("tool_calls")
        if calls:
            if not isinstance(calls, list) or not all(isinstance(call, Mapping) for call in calls):
                raise UpstreamBroken(_NO_LIST.format("tool_calls"))
            other["tool_calls"] = [self._with_index(index, call) for call in calls]
        return other

    def _with_index(self, choice: int, call: Mapping[str, Any]) -> Mapping[str, Any]:
        known = self._calls.setdefault(choice, {})
        number, call_id = call.get("index"), _text(call.get("id"))
        if not isinstance(number, int):
            last = max(known.values(), default=-1)
            function = call.get("function")
            begins = bool(call_id) or (isinstance(function, Mapping) and bool(function.get("name")))
            number = max(known.get(call_id, last + begins), 0)
            call = {"index": number, **{name: call[name] for name in call if name != "index"}}
        if len(known) >= _MAX_TOOL_CALLS:
            raise UpstreamBroken(f"The language model made more than {_MAX_TOOL_CALLS} tool calls.")
        known[call_id or f"#{number}"] = number
        return call


def _as_delta(choice: object) -> object:
    """A whole choice in the shape of a streamed one."""
    if not isinstance(choice, Mapping) or not isinstance(choice.get("message"), Mapping):
        raise UpstreamBroken("The language model answered with JSON that is not a chat completion.")
    streamed = {name: value for name, value in choice.items() if name != "message"}
    return {**streamed, "delta": choice["message"], "finish_reason": choice.get("finish_reason") or "stop"}


def _content(content: object) -> tuple[str, str]:
    """The text and the hidden thoughts in a ``content``: a string, None, or a list of parts.

    Parts that are neither (citations, pictures) have no place in a streamed delta of text and are left out.
    """
    if content is None or isinstance(content, str):
        return content or "", ""
    if not isinstance(content, list):
        raise UpstreamBroken("The language model sent content that is neither text nor a list of parts.")
    text, thought = [], []
    for part in content:
        if isinstance(part, str):
            text.append(part)
        elif not isinstance(part, Mapping):
            raise UpstreamBroken("The language model sent content that is neither text nor a list of parts.")
        elif part.get("type") in ("text", "output_text"):
            text.append(_text(part.get("text")))
        elif part.get("type") in ("thinking", "reasoning"):
            thought.append(_thought(part))
    return "".join(text), "".join(thought)


def _thought(part: Mapping[str, Any]) -> str:
    inner = part.get("thinking", part.get("text", ""))
    if isinstance(inner, list):
        return "".join(_text(piece.get("text")) for piece in inner if isinstance(piece, Mapping))
    return _text(inner)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
