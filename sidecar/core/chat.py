"""The wire shape of a spoken chat completion: the one chunk order that every SDK's accumulator accepts.

Per choice: role -> audio id with the first words -> transcript and data in any mix -> ``expires_at`` alone ->
``finish_reason``; after all choices the usage. Ids and roles are sent once (Python's helper concatenates them), data
in multiples of six bytes until the last piece (whole samples, no base64 padding in the middle), first chunks in index
order (Python's helper indexes by position).
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

AUDIO_TOKENS_PER_S = 20
"""One audio token for 50 ms of output: the rate of the hosted model's own figures."""

_WHOLE = 6
"""Bytes: three whole 16-bit samples, which base64 writes without padding."""

_CHARS_PER_TOKEN = 4
"""A rough measure, for upstreams that report no usage."""


@dataclass(slots=True)
class ChoiceState:
    """What has been sent of one choice."""

    audio_id: str | None = None
    remainder: bytes = b""
    audio_bytes: int = 0
    transcript_chars: int = 0


@dataclass(slots=True)
class ChatChunks:
    """Builds the chunks of one streamed answer. Every method returns chunks (JSON objects) to be sent in order."""

    id: str
    created: int
    model: str
    include_usage: bool = False
    mirror_content: bool = False
    system_fingerprint: str | None = None
    service_tier: str | None = None
    choices: dict[int, ChoiceState] = field(default_factory=dict)

    def _chunk(self, choices: list[dict[str, Any]], usage: Mapping[str, Any] | None = None) -> dict[str, Any]:
        chunk: dict[str, Any] = {
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }
        if self.system_fingerprint is not None:
            chunk["system_fingerprint"] = self.system_fingerprint
        if self.include_usage:
            chunk["usage"] = usage
        return chunk

    def _delta(self, choice: int, delta: dict[str, Any], finish: str | None = None, **beside: Any) -> dict[str, Any]:
        return self._chunk([{"index": choice, "delta": delta, "logprobs": None, "finish_reason": finish, **beside}])

    def open(self, n: int) -> list[dict[str, Any]]:
        """The role of every choice, in index order, once."""
        self.choices = {choice: ChoiceState() for choice in range(n)}
        return [self._delta(c, {"role": "assistant", "content": None, "refusal": None}) for c in range(n)]

    def passed(self, choice: int, delta: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Members of the upstream's delta that go through untouched (tool calls, reasoning, refusal)."""
        return [self._delta(choice, dict(delta))] if delta else []

    def transcript(self, choice: int, text: str, audio_id: str) -> list[dict[str, Any]]:
        """Words, ahead of their sound. ``audio_id`` is sent with the first ones."""
        if not text:
            return []
        state = self.choices[choice]
        state.transcript_chars += len(text)
        audio: dict[str, Any] = {"transcript": text}
        if state.audio_id is None:
            state.audio_id = audio_id
            audio = {"id": audio_id, **audio}
        delta: dict[str, Any] = {"audio": audio}
        if self.mirror_content:
            delta["content"] = text
        return [self._delta(choice, delta)]

    def audio(self, choice: int, pcm16: bytes) -> list[dict[str, Any]]:
        """Samples (s16le). What does not fill six bytes waits for the next piece."""
        state = self.choices[choice]
        state.audio_bytes += len(pcm16)
        whole = state.remainder + pcm16
        cut = len(whole) - len(whole) % _WHOLE
        state.remainder = whole[cut:]
        return self._data(choice, whole[:cut])

    def _data(self, choice: int, data: bytes) -> list[dict[str, Any]]:
        if not data:
            return []
        return [self._delta(choice, {"audio": {"data": base64.b64encode(data).decode("ascii")}})]

    def beside(self, choice: int, **members: Any) -> list[dict[str, Any]]:
        """An extension: an empty delta with members beside it, where no accumulator looks."""
        return [self._delta(choice, {}, **members)]

    def close(self, choice: int, finish_reason: str, expires_at: int) -> list[dict[str, Any]]:
        """The last samples, ``expires_at`` alone, then the finish reason."""
        state = self.choices[choice]
        chunks = self._data(choice, state.remainder)
        state.remainder = b""
        if state.audio_id is not None:
            chunks.append(self._delta(choice, {"audio": {"expires_at": expires_at}}))
        chunks.append(self._delta(choice, {}, finish_reason))
        return chunks

    def usage(self, usage: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The closing chunk with the figures, if the client asked for it."""
        return [self._chunk([], usage)] if self.include_usage else []


def audio_tokens(samples: int, rate_hz: int) -> int:
    """Audio tokens for so many samples of output."""
    return math.ceil(samples * AUDIO_TOKENS_PER_S / rate_hz)


def spoken_usage(
    upstream: Mapping[str, Any] | None, spoken_tokens: int, prompt_chars: int, text_chars: int
) -> dict[str, Any]:
    """The usage object of a spoken answer: the upstream's text tokens plus the audio tokens.

    Without figures from upstream the text tokens are estimated from the character counts.
    """
    upstream = upstream or {}
    prompt = _count(upstream, "prompt_tokens") or max(1, prompt_chars // _CHARS_PER_TOKEN)
    text = _count(upstream, "completion_tokens") or max(1, text_chars // _CHARS_PER_TOKEN)
    prompt_details = _details(upstream, "prompt_tokens_details")
    text_details = _details(upstream, "completion_tokens_details")
    return {
        "prompt_tokens": prompt,
        "completion_tokens": text + spoken_tokens,
        "total_tokens": prompt + text + spoken_tokens,
        "prompt_tokens_details": {
            "cached_tokens": 0, "audio_tokens": 0, "text_tokens": prompt, "image_tokens": 0, **prompt_details
        },
        "completion_tokens_details": {
            "reasoning_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
            **text_details,
            "text_tokens": text,
            "audio_tokens": spoken_tokens,
        },
    }  # fmt: skip


def _count(usage: Mapping[str, Any], key: str) -> int:
    value = usage.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _details(usage: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = usage.get(key)
    return {k: v for k, v in value.items() if v is not None} if isinstance(value, Mapping) else {}


@dataclass(slots=True)
class MessageBuilder:
    """Puts one choice of a streamed answer together again, for clients that did not ask for a stream."""

    transcript: str = ""
    refusal: str = ""
    other: dict[str, Any] = field(default_factory=dict)
    tool_calls: dict[int, dict[str, Any]] = field(default_factory=dict)

    def add(self, delta: Mapping[str, Any]) -> None:
        """Members of a delta beside the text: strings are joined, lists too, tool calls merged by index."""
        for key, value in delta.items():
            if key == "tool_calls" and isinstance(value, list):
                for call in value:
                    self._add_call(call)
            elif key == "refusal" and isinstance(value, str):
                self.refusal += value
            elif (isinstance(value, str) and isinstance(self.other.get(key), str)) or (
                isinstance(value, list) and isinstance(self.other.get(key), list)
            ):
                self.other[key] += value
            elif key == "function_call" and isinstance(value, Mapping) and isinstance(self.other.get(key), dict):
                _merge(self.other[key], value)
            elif value is not None:
                self.other[key] = value

    def _add_call(self, call: Mapping[str, Any]) -> None:
        index = call.get("index")
        index = index if isinstance(index, int) else len(self.tool_calls)
        merged = self.tool_calls.setdefault(index, {})
        _merge(merged, {k: v for k, v in call.items() if k != "index"})

    def message(self, audio: Mapping[str, Any] | None) -> dict[str, Any]:
        """The ``message`` object: ``content`` is null beside audio, the text is in ``audio.transcript``."""
        message: dict[str, Any] = {
            "role": "assistant",
            "content": None,
            "refusal": self.refusal or None,
            "annotations": [],
            **self.other,
        }
        if audio is not None:
            message["audio"] = dict(audio)
        if self.tool_calls:
            message["tool_calls"] = [
                {"type": "function", **self.tool_calls[index]} for index in sorted(self.tool_calls)
            ]
        return message


def _merge(into: dict[str, Any], piece: Mapping[str, Any]) -> None:
    """Streamed objects: names, ids and types are sent once, argument strings in pieces."""
    for key, value in piece.items():
        if isinstance(value, Mapping):
            _merge(into.setdefault(key, {}), value)
        elif isinstance(value, str) and isinstance(into.get(key), str) and key in ("arguments", "input"):
            into[key] += value
        elif value is not None and not (key in into and value == ""):
            into[key] = value
