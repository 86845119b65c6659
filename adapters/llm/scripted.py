"""A language model that recites: for demos, for load tests, and for trying Sidecar without any other server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import unquote

from adapters.llm.openai_errors import loads
from adapters.llm.scripted_request import (
    DEFAULT_REPLIES,
    ECHO,
    Refused,
    ScriptedRequest,
    read_request,
    unknown_model,
)
from sidecar.faults import ConfigError, UpstreamRefused, UpstreamUnreachable
from sidecar.ports import ChatDelta, ChatEvent, ChatOpened, ChatStream, ChatUsage, Clock, RawAnswer

__all__ = ["ScriptedLanguageModel", "ScriptedSettings"]

_FINGERPRINT = "fp_scripted"
_JSON = {"content-type": "application/json"}

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class ScriptedSettings:
    """How fast it writes and what it knows.

    The first piece comes after ``first_token_ms``, the others at ``tokens_per_s`` (``inf``: as fast as they are
    taken). ``replies`` maps model names to texts; ``scripted-echo`` is always there. Raises ``ConfigError``.
    """

    tokens_per_s: float = 20.0
    first_token_ms: float = 150.0
    replies: Mapping[str, str] = field(default_factory=lambda: dict(DEFAULT_REPLIES))

    def __post_init__(self) -> None:
        problems = []
        if not self.tokens_per_s > 0:
            problems.append("llm.tokens_per_s must be greater than 0")
        if not 0 <= self.first_token_ms < float("inf"):
            problems.append("llm.first_token_ms must be 0 or more")
        if problems:
            raise ConfigError(problems)


class ScriptedLanguageModel:
    """Writes known replies piece by piece at the pace of a real model, and is OpenAI-compatible when forwarded to.

    Honours ``n``, ``stop``, ``max_completion_tokens`` and ``stream_options``, and counts usage; the same request
    gets the same answer.
    """

    def __init__(self, settings: ScriptedSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._created = int(clock.unix_s())
        self._closed = False

    async def stream(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> ChatStream:
        """Begin to recite; see ``LanguageModel.stream``. Raises ``UpstreamRefused``."""
        self._check_open()
        try:
            request = read_request(body, self._settings.replies)
        except Refused as no:
            raise UpstreamRefused(str(no), upstream_status=no.status, upstream_error=no.error) from None
        pace = _Pace(self._settings, self._clock)
        return _Recital(self._events(request, pace), pace)

    async def forward(self, path: str, body: bytes | None, headers: Mapping[str, str]) -> RawAnswer:
        """Answer like an OpenAI-compatible server: chat completions, streamed or not, and the models."""
        self._check_open()
        pace = _Pace(self._settings, self._clock)
        try:
            if body is None:
                return self._listing(path.partition("?")[0], pace)
            if path != "/chat/completions":
                raise Refused(404, "There is no such path.")
            request = read_request(_parsed(body), self._settings.replies)
        except Refused as no:
            return _RawRecital(no.status, _JSON, _once({"error": no.error}), pace)
        if request.stream:
            return _RawRecital(200, {"content-type": "text/event-stream"}, self._sse(request, pace), pace)
        return _RawRecital(200, _JSON, self._completion(request, pace), pace)

    async def models(self) -> Sequence[Mapping[str, Any]]:
        """A card for each known reply, and one for the echo."""
        self._check_open()
        return [self._card(name) for name in (*self._settings.replies, ECHO)]

    async def close(self) -> None:
        """Refuse everything from now on. Idempotent."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise UpstreamUnreachable("The scripted language model has been closed.")

    def _card(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": self._created, "owned_by": "sidecar"}

    def _listing(self, path: str, pace: _Pace) -> RawAnswer:
        names = (*self._settings.replies, ECHO)
        if path == "/models":
            cards = [self._card(name) for name in names]
            return _RawRecital(200, _JSON, _once({"object": "list", "data": cards}), pace)
        if not path.startswith("/models/"):
            raise Refused(404, "There is no such path.")
        name = unquote(path.removeprefix("/models/"))
        if name not in names:
            raise unknown_model(name)
        return _RawRecital(200, _JSON, _once(self._card(name)), pace)

    async def _events(self, request: ScriptedRequest, pace: _Pace) -> AsyncGenerator[ChatEvent, None]:
        yield ChatOpened(_new_id(), request.model, int(self._clock.unix_s()), _FINGERPRINT)
        for number, piece in enumerate(request.pieces):
            await pace.wait_for(number)
            for choice in range(request.choices):
                yield ChatDelta(choice, text=piece)
        for choice in range(request.choices):
            yield ChatDelta(choice, finish_reason=request.finish_reason)
        yield ChatUsage(request.usage())

    async def _sse(self, request: ScriptedRequest, pace: _Pace) -> AsyncGenerator[bytes, None]:
        head: dict[str, Any] = {}
        async with contextlib.aclosing(self._events(request, pace)) as events:
            async for event in events:
                if isinstance(event, ChatOpened):
                    head = {"id": event.id, "object": "chat.completion.chunk", "created": event.created}
                    head |= {"model": event.model, "system_fingerprint": event.system_fingerprint}
                    if request.include_usage:
                        head["usage"] = None
                    for choice in range(request.choices):
                        yield _frame(head, _streamed(choice, {"role": "assistant", "content": "", "refusal": None}))
                elif isinstance(event, ChatDelta):
                    delta = {"content": event.text} if event.text else {}
                    yield _frame(head, _streamed(event.choice, delta, event.finish_reason))
                elif request.include_usage:
                    yield _frame({**head, "usage": event.body})
        yield b"data: [DONE]\n\n"

    async def _completion(self, request: ScriptedRequest, pace: _Pace) -> AsyncGenerator[bytes, None]:
        await pace.wait_for(max(len(request.pieces) - 1, 0))
        message: dict[str, Any] = {
            "role": "assistant",
            "content": "".join(request.pieces),
            "refusal": None,
            "annotations": [],
        }
        finish = request.finish_reason
        answer = {
            "id": _new_id(),
            "object": "chat.completion",
            "created": int(self._clock.unix_s()),
            "model": request.model,
            "system_fingerprint": _FINGERPRINT,
            "choices": [
                {"index": choice, "message": message, "logprobs": None, "finish_reason": finish}
                for choice in range(request.choices)
            ],
            "usage": request.usage(),
        }
        yield _dumps(answer)


class _Pace:
    """When each piece is due. Counted from the request, so that a slow reader does not slow the writing down."""

    def __init__(self, settings: ScriptedSettings, clock: Clock) -> None:
        self._clock = clock
        self._begun_ms = clock.now_ms()
        self._first_ms = settings.first_token_ms
        self._step_ms = 1_000 / settings.tokens_per_s
        self._sleep: asyncio.Task[None] | None = None
        self._woken = False

    async def wait_for(self, piece: int) -> None:
        left_ms = self._begun_ms + self._first_ms + piece * self._step_ms - self._clock.now_ms()
        if left_ms <= 0:
            # The reader's task must not keep the loop to itself, however fast the pieces come.
            await asyncio.sleep(0)
            return
        self._sleep = asyncio.ensure_future(self._clock.sleep(left_ms))
        try:
            await self._sleep
        except asyncio.CancelledError:
            reader = asyncio.current_task()
            if not self._woken or (reader is not None and reader.cancelling()):
                raise
        finally:
            self._sleep.cancel()

    def wake(self) -> None:
        self._woken = True
        if self._sleep is not None:
            self._sleep.cancel()


class _Recital(Generic[Item]):
    """Items as they become due. Iterate it once, from one task; ``aclose`` may come from another."""

    def __init__(self, items: AsyncGenerator[Item, None], pace: _Pace) -> None:
        self.headers: Mapping[str, str] = {}
        self._items = items
        self._pace = pace
        self._closed = False

    def __aiter__(self) -> AsyncIterator[Item]:
        return self

    async def __anext__(self) -> Item:
        if self._closed:
            raise StopAsyncIteration
        item = await anext(self._items)
        if self._closed_meanwhile():
            await self._items.aclose()
            raise StopAsyncIteration
        return item

    def _closed_meanwhile(self) -> bool:
        return self._closed

    async def aclose(self) -> None:
        """Stop reciting. Idempotent."""
        self._closed = True
        self._pace.wake()
        # A reader that waits in another task wakes up and finds that it is over.
        with contextlib.suppress(RuntimeError):
            await self._items.aclose()


class _RawRecital(_Recital[bytes]):
    def __init__(
        self, status: int, headers: Mapping[str, str], items: AsyncGenerator[bytes, None], pace: _Pace
    ) -> None:
        super().__init__(items, pace)
        self.status = status
        self.headers = headers


async def _once(value: object) -> AsyncGenerator[bytes, None]:
    yield _dumps(value)


def _parsed(body: bytes) -> object:
    try:
        return loads(body)
    except ValueError:
        raise Refused(400, "The body is not JSON.") from None


def _streamed(choice: int, delta: Mapping[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    return {"index": choice, "delta": delta, "logprobs": None, "finish_reason": finish_reason}


def _frame(head: Mapping[str, Any], *choices: Mapping[str, Any]) -> bytes:
    return b"data: " + _dumps({**head, "choices": choices}) + b"\n\n"


def _dumps(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _new_id() -> str:
    return f"chatcmpl-{uuid.uuid4().hex}"
