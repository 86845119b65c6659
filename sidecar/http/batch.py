"""POST /v1/audio/speech/batch: up to 32 texts in one request, spoken side by side, answered in order.

Contract: vLLM-Omni's batch endpoint. Whatever is wrong with one item is told in its result; the others are spoken.
"""

from __future__ import annotations

import asyncio
import base64
import secrets
from collections.abc import AsyncGenerator, Mapping
from typing import Annotated, Any

import msgspec
from litestar import Request, post
from litestar.types import ASGIApp
from msgspec import Meta

from sidecar.faults import BadRequest, Fault, TooLarge
from sidecar.gate import Caller
from sidecar.http.service import Injected, Service
from sidecar.http.speech import SpeechAnswer, checked, opened
from sidecar.http.speech_fields import convert_body
from sidecar.http.wire import (
    BodyStream,
    fault_response,
    field_fault,
    in_pieces,
    omni_error,
    parse_object,
    read_body,
    request_id,
    require_json,
    to_json,
    unless_gone,
)

MAX_ITEMS = 32
MAX_AT_ONCE = 8
"""Items spoken side by side, if the engine has as many rows."""

MAX_AUDIO_BYTES = 64 << 20
"""Audio of a whole batch; items beyond it fail."""

SHARED = (
    "voice", "speaker", "instructions", "response_format", "sample_rate", "speed", "task_type", "language",
    "ref_audio", "ref_text", "x_vector_only_mode", "max_new_tokens", "initial_codec_chunk_frames",
    "non_streaming_mode", "clean_text",
)  # fmt: skip
"""Members that an item may have, and the batch for those of its items that do not."""


class BatchBody(msgspec.Struct, kw_only=True):
    """The members of the request that are not shared defaults. Unknown ones are ignored."""

    items: Annotated[list[dict[str, Any]], Meta(min_length=1)]
    model: str | None = None


@post("/v1/audio/speech/batch", status_code=200)
async def speech_batch(request: Request[Any, Any, Any], service: Injected) -> ASGIApp:
    """Speak every item. 400 only for what is wrong with the request as a whole."""
    try:
        caller = service.authenticate(request)
        require_json(request)
        server = service.config.server
        members = parse_object(await read_body(request, server.max_body_bytes, server.body_timeout_s))
        items = batch_items(members)
        at_once = min(len(items), MAX_AT_ONCE, service.engine.traits.max_rows)
        async with service.place(caller, at_once):
            results = await unless_gone(request, _Batch(service, caller, at_once).spoken(items))
    except Fault as fault:
        service.answered(fault)
        return fault_response(fault, omni_error).to_asgi_response(app=None, request=request)
    succeeded = sum(result["status"] == "success" for result in results)
    body = {
        "id": f"speech-batch-{secrets.token_hex(16)}",
        "results": results,
        "total": len(results),
        "succeeded": succeeded,
        "failed": len(results) - succeeded,
    }
    headers = {"content-type": "application/json", "x-request-id": request_id(request)}
    return BodyStream(_written(body), headers=headers, slow_consumer_s=server.slow_consumer_s)


async def _written(body: dict[str, Any]) -> AsyncGenerator[bytes, None]:
    """The answer result by result: all of it at once would hold everybody up for a second."""
    results = body["results"]
    before, after = to_json({**body, "results": []}).split(b"[]", 1)
    yield before + b"["
    for at, result in enumerate(results):
        results[at] = None
        async for piece in in_pieces((b"," if at else b"") + to_json(result)):
            yield piece
    yield b"]" + after


def batch_items(members: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each item with the batch's defaults behind its own members. Raises ``BadRequest`` for the request as a whole."""
    try:
        batch = msgspec.convert(members, BatchBody)
    except msgspec.ValidationError as error:
        raise field_fault(error, "body") from None
    if len(batch.items) > MAX_ITEMS:
        raise BadRequest(f"A batch has at most {MAX_ITEMS} items, not {len(batch.items)}.", param="items")
    for index, item in enumerate(batch.items):
        if not isinstance(item.get("input"), str):
            raise BadRequest(f"items[{index}].input must be a string.", param=f"items[{index}].input")
    defaults = {name: members[name] for name in SHARED if members.get(name) is not None}
    items = []
    for item in batch.items:
        own = {name: item[name] for name in SHARED if item.get(name) is not None}
        if own.keys() & {"voice", "speaker"}:
            shared = {name: value for name, value in defaults.items() if name not in ("voice", "speaker")}
        else:
            shared = defaults
        items.append({**shared, **own, "input": item["input"], "model": batch.model})
    return items


class _Batch:
    """The items of one request, ``at_once`` of them speaking at any time."""

    def __init__(self, service: Service, caller: Caller, at_once: int) -> None:
        self._service = service
        self._caller = caller
        self._turns = asyncio.Semaphore(at_once)
        self._bytes = 0

    async def spoken(self, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """A result for each, in order. Leaving early frees every row."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._result(index, item)) for index, item in enumerate(items)]
        return [task.result() for task in tasks]

    async def _result(self, index: int, item: dict[str, Any]) -> dict[str, Any]:
        async with self._turns:
            try:
                return {"index": index, "status": "success", **await self._said(item)}
            except Fault as fault:
                self._service.answered(fault)
                return {"index": index, "status": "error", "error": fault.message}

    async def _said(self, item: dict[str, Any]) -> dict[str, Any]:
        if self._bytes >= MAX_AUDIO_BYTES:
            raise TooLarge(f"The batch holds more than {MAX_AUDIO_BYTES >> 20} MiB of audio.")
        fields = convert_body(item, prefix="items")
        if isinstance(fields.ref_audio, list):
            raise BadRequest("ref_audio of a batch is one string.", param="ref_audio")
        asked = await checked(fields, self._service, self._caller, whole=True)
        async with opened(asked, self._service) as (speaking, stack):
            answer = SpeechAnswer(asked, speaking, self._service, stack)
            content = await answer.collected()
        self._bytes += len(content)
        return {
            "audio_data": await asyncio.to_thread(lambda: base64.b64encode(content).decode("ascii")),
            "media_type": answer.media_type,
            "usage": answer.usage(),
        }
