"""The audition of a stored voice's seeds, told as server-sent events."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from typing import Any

from sidecar.faults import BadRequest, EngineFault, Fault
from sidecar.http.passing import SSE_HEADERS
from sidecar.http.service import Service
from sidecar.http.wire import BodyStream, omni_error, to_json
from sidecar.voice_audition import SEEDS_RANGE, Heard, auditioned, best
from voices.record import VoiceRecord
from voices.seeds import new_dialog_seed


def wished_seeds(raw: str) -> int:
    """How many seeds an upload wants to be tried, 0 for none. Raises ``BadRequest``."""
    low, high = SEEDS_RANGE
    if raw in ("", "0"):
        return 0
    if not (raw.isascii() and raw.isdigit() and len(raw) < 4 and low <= int(raw) <= high):
        raise BadRequest(f"'audition' is how many seeds to try, from {low} to {high}.", param="audition")
    return int(raw)


def audition_answer(
    service: Service, record: VoiceRecord, stored: dict[str, Any], count: int, cleanup: AsyncExitStack
) -> BodyStream:
    """The event stream of ``audition_events``; ``cleanup`` is closed at its end, whatever happens."""
    server = service.config.server
    return BodyStream(
        audition_events(service, record, stored, count),
        cleanup=cleanup,
        headers={"content-type": "text/event-stream; charset=utf-8", **SSE_HEADERS},
        slow_consumer_s=server.slow_consumer_s,
        idle_bytes=b": keep-alive\n\n",
        idle_s=server.keep_alive_comment_s,
    )


async def audition_events(
    service: Service, record: VoiceRecord, stored: dict[str, Any], count: int
) -> AsyncGenerator[bytes, None]:
    """Server-sent events: ``voice.stored``, ``voice.audition.progress`` for each seed, then ``voice.audition.done``.

    The record's own seed is among those tried; the best one is stored at the end. What goes wrong is a
    ``voice.audition.error``, and the voice stays as it was stored.
    """
    yield _event("voice.stored", stored)
    try:
        anchor = record.anchor(service.engine.traits.clone_widths)
        if anchor is None:
            raise BadRequest("This engine cannot speak with the voice.")
        seeds = [record.base_seed, *(new_dialog_seed() for _ in range(count - 1))]
        heard: list[Heard] = []
        timeout_s = service.config.engine.chunk_timeout_s
        async with aclosing(auditioned(service.engine, anchor, record.language, seeds, timeout_s)) as tried:
            async for one in tried:
                heard.append(one)
                progress = {"done": len(heard), "total": count, "seed": one.seed, "worst": one.worst, "mean": one.mean}
                yield _event("voice.audition.progress", progress)
        chosen = best(heard)
        if chosen is None:
            raise EngineFault("The engine did not speak with any of the seeds.")
        saved = await service.library.save(replace(record, base_seed=chosen.seed), record.version)
        done = {"seed": chosen.seed, "worst": chosen.worst, "mean": chosen.mean, "version": saved.version}
        yield _event("voice.audition.done", done | {"name": saved.name})
    except Fault as fault:
        service.answered(fault)
        yield _event("voice.audition.error", omni_error(fault))


def _event(kind: str, body: dict[str, Any]) -> bytes:
    return f"event: {kind}\ndata: ".encode() + to_json(body | {"type": kind}) + b"\n\n"
