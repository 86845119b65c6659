"""Asking for spoken chat answers, and the rules that every answer must keep."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import av
import httpx
from openai.types.chat import ChatCompletion

from tests.e2e.conftest import Running
from tests.upstream import Seen, Upstream

RATE_HZ = 24_000
BYTES_PER_S = RATE_HZ * 2
CHAT = "/v1/chat/completions"
LISTENING = {"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "pcm16"}}


def body_of(script: str, text: str = "Say hello.", **more: Any) -> dict[str, Any]:
    """A request for a spoken answer of ``fake-<script>``."""
    messages = [{"role": "user", "content": text}]
    return {"model": f"fake-{script}", "messages": messages, **LISTENING, **more}


def spoken_as(format: str, **more: Any) -> dict[str, Any]:
    """The ``audio`` member for a format."""
    return {"audio": {"voice": "alloy", "format": format, **more}}


def upstream_of(server: Running) -> Upstream:
    assert server.upstream is not None
    return server.upstream


def last_seen(server: Running) -> Seen:
    return upstream_of(server).requests[-1]


async def whole(server: Running, script: str = "plain", text: str = "Say hello.", **more: Any) -> ChatCompletion:
    """An answer in one piece, through the SDK."""
    create: Any = server.openai.chat.completions.create
    answer = await create(**body_of(script, text, **more))
    assert isinstance(answer, ChatCompletion)
    return answer


async def until(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    """Wait for something that nobody announces."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.005)


async def rows_free(server: Running, timeout_s: float = 20.0) -> None:
    async with asyncio.timeout(timeout_s):
        await server.rows_free()


# ---------------------------------------------------------------- audio
def decoded_s(data: bytes, format: str) -> float:
    """Seconds of sound in a file, decoded by FFmpeg; ``pcm16`` has no header to read."""
    if format == "pcm16":
        assert data, "no audio"
        assert len(data) % 2 == 0, "half a sample"
        assert data[:4] != b"RIFF"
        return len(data) / BYTES_PER_S
    with av.open(io.BytesIO(data), "r") as file:
        stream = file.streams.audio[0]
        samples = sum(frame.samples for frame in file.decode(stream))
        assert stream.rate
        return samples / stream.rate


def unbase64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def check_usage(usage: Any, samples: int) -> None:
    """The figures add up, with 20 audio tokens for a second of sound."""
    assert usage is not None
    figures = usage if isinstance(usage, dict) else usage.model_dump()
    details = figures["completion_tokens_details"]
    assert details["audio_tokens"] == math.ceil(samples / RATE_HZ * 20)
    assert details["text_tokens"] > 0
    assert figures["completion_tokens"] == details["text_tokens"] + details["audio_tokens"]
    assert figures["prompt_tokens"] > 0
    assert figures["prompt_tokens_details"]["text_tokens"] == figures["prompt_tokens"]
    assert figures["total_tokens"] == figures["prompt_tokens"] + figures["completion_tokens"]


# ---------------------------------------------------------------- streams
@dataclass
class Choice:
    """What has come of one choice."""

    audio_id: str | None = None
    transcript: str = ""
    pieces: list[str] = field(default_factory=list)
    expires_at: int | None = None
    finish_reason: str | None = None
    content: str = ""
    refusal: str = ""
    reasoning: str = ""
    tools: dict[int, dict[str, str]] = field(default_factory=dict)
    marks: list[dict[str, Any]] = field(default_factory=list)
    order: str = ""
    """One letter for each chunk: i(d), w(ords), a(udio), p(assed), s(egment), e(xpires), f(inish)."""

    @property
    def pcm(self) -> bytes:
        return b"".join(map(unbase64, self.pieces))


class Answer:
    """Holds every chunk to the order that all accumulators take. ``feed`` the chunks, then ``finish``."""

    def __init__(self, *, usage: bool = False, mirrored: bool = False) -> None:
        self.choices: dict[int, Choice] = {}
        self.usage: dict[str, Any] | None = None
        self.head: dict[str, Any] | None = None
        self._wants_usage = usage
        self._mirrored = mirrored

    def feed(self, chunk: dict[str, Any]) -> None:
        head = {name: chunk[name] for name in ("id", "object", "created", "model")}
        self.head = self.head or head
        assert head == self.head, "id, created and model never change"
        assert head["object"] == "chat.completion.chunk"
        assert self.usage is None, "nothing comes after the usage"
        assert ("usage" in chunk) == self._wants_usage
        if chunk.get("usage") is not None:
            assert chunk["choices"] == []
            assert all(choice.finish_reason for choice in self.choices.values())
            self.usage = chunk["usage"]
            return
        assert len(chunk["choices"]) == 1
        self._choice(chunk["choices"][0])

    def _choice(self, said: dict[str, Any]) -> None:
        assert set(said) - {"segment"} == {"index", "delta", "logprobs", "finish_reason"}
        index, delta = said["index"], said["delta"]
        if index not in self.choices:
            assert index == len(self.choices), "choices begin in index order"
            assert delta == {"role": "assistant", "content": None, "refusal": None}
            self.choices[index] = Choice()
            return
        choice = self.choices[index]
        assert choice.finish_reason is None, "nothing comes after the finish reason"
        assert "role" not in delta, "a role is sent once"
        if said["finish_reason"] is not None:
            assert delta == {}
            assert (choice.expires_at is None) == (choice.audio_id is None)
            choice.finish_reason = said["finish_reason"]
            choice.order += "f"
            return
        assert choice.expires_at is None, "only the finish reason comes after expires_at"
        if "segment" in said:
            assert delta == {}
            choice.order += "s"
            self._mark(choice, said["segment"])
        elif "audio" in delta:
            assert set(delta) <= ({"audio", "content"} if self._mirrored else {"audio"})
            choice.content += delta.get("content") or ""
            self._audio(choice, delta["audio"])
        else:
            assert delta
            choice.order += "p"
            self._passed(choice, delta)

    def _audio(self, choice: Choice, audio: dict[str, Any]) -> None:
        if "id" in audio:
            assert choice.audio_id is None, "an id is sent once"
            assert set(audio) == {"id", "transcript"}
            choice.audio_id = audio["id"]
            choice.transcript += audio["transcript"]
            choice.order += "iw"
            return
        assert choice.audio_id, "the id comes first"
        assert len(audio) == 1
        if "transcript" in audio:
            assert audio["transcript"]
            choice.transcript += audio["transcript"]
            choice.order += "w"
        elif "data" in audio:
            assert unbase64(audio["data"])
            assert not choice.pieces or "=" not in choice.pieces[-1], "padding in the middle ruins what is joined"
            choice.pieces.append(audio["data"])
            choice.order += "a"
        else:
            assert type(audio["expires_at"]) is int
            assert audio["expires_at"] > time.time()
            choice.expires_at = audio["expires_at"]
            choice.order += "e"

    def _mark(self, choice: Choice, mark: dict[str, Any]) -> None:
        if mark["type"] == "started":
            assert choice.transcript[mark["start"] : mark["end"]] == mark["text"], "words come ahead of their sound"
        choice.marks.append(mark)

    def _passed(self, choice: Choice, delta: dict[str, Any]) -> None:
        choice.refusal += delta.get("refusal") or ""
        choice.reasoning += delta.get("reasoning_content") or delta.get("reasoning") or ""
        for piece in delta.get("tool_calls") or []:
            call = choice.tools.setdefault(piece["index"], {"id": "", "name": "", "arguments": ""})
            call["id"] += piece.get("id") or ""
            call["name"] += piece["function"].get("name") or ""
            call["arguments"] += piece["function"].get("arguments") or ""

    def finish(self, n: int = 1, finish: str = "stop", *, audio: bool = True) -> Answer:
        """The stream is over."""
        assert sorted(self.choices) == list(range(n))
        for choice in self.choices.values():
            assert choice.finish_reason == finish
            assert bool(choice.pieces) == bool(choice.expires_at) == audio
            assert len(choice.pcm) % 2 == 0
            assert unbase64("".join(choice.pieces)) == choice.pcm, "the pieces also decode when they are joined"
        ids = [choice.audio_id for choice in self.choices.values()]
        assert len(set(ids)) == n or not audio
        assert (self.usage is not None) == self._wants_usage
        if self._wants_usage and audio:
            check_usage(self.usage, sum(len(choice.pcm) for choice in self.choices.values()) // 2)
        return self


async def streamed(
    server: Running,
    script: str = "plain",
    text: str = "Say hello.",
    *,
    usage: bool = False,
    finish: str = "stop",
    audible: bool = True,
    mirrored: bool = False,
    **more: Any,
) -> Answer:
    """A streamed answer through the SDK, held to the rules from beginning to end."""
    if usage:
        more["stream_options"] = {"include_usage": True}
    answer = Answer(usage=usage, mirrored=mirrored)
    create: Any = server.openai.chat.completions.create
    async for chunk in await create(**body_of(script, text, stream=True, **more)):
        answer.feed(chunk.to_dict())
    return answer.finish(more.get("n", 1), finish, audio=audible)


@asynccontextmanager
async def sse(server: Running, body: dict[str, Any], **headers: str) -> AsyncIterator[httpx.Response]:
    """The raw response of a streamed request, whose body is not read yet."""
    async with server.http.stream("POST", CHAT, json=body, headers=headers) as response:
        assert response.status_code == 200, await response.aread()
        yield response


@dataclass
class Wire:
    """The events of a raw stream. ``broken``: the body did not end as HTTP demands."""

    data: list[str] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)
    broken: bool = False

    @property
    def chunks(self) -> list[dict[str, Any]]:
        return [json.loads(data) for data in self.data if data != "[DONE]"]

    @property
    def error(self) -> dict[str, Any] | None:
        """The error object in the last event."""
        error: dict[str, Any] | None = json.loads(self.data[-1]).get("error") if self.data[-1] != "[DONE]" else None
        return error


async def wire(server: Running, body: dict[str, Any]) -> Wire:
    """Everything that a streamed request brings, to the letter."""
    raw, seen = b"", Wire()
    async with sse(server, body) as response:
        try:
            async for piece in response.aiter_raw():
                raw += piece
        except httpx.RemoteProtocolError:
            seen.broken = True
    assert raw.endswith(b"\n\n")
    for event in raw.decode().removesuffix("\n\n").split("\n\n"):
        assert "\n" not in event, "an event is one line"
        if event.startswith(":"):
            seen.comments.append(event)
        else:
            assert event.startswith("data: ")
            seen.data.append(event.removeprefix("data: "))
    return seen


async def lines_of(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    """The chunks of a raw stream as they arrive."""
    async for line in response.aiter_lines():
        if line.startswith("data: ") and line != "data: [DONE]":
            chunk: dict[str, Any] = json.loads(line.removeprefix("data: "))
            yield chunk


def audio_in(chunk: dict[str, Any], member: str) -> Any:
    """A member of the ``audio`` of a chunk's only choice, if it has one."""
    for choice in chunk["choices"]:
        return (choice["delta"].get("audio") or {}).get(member)
    return None
