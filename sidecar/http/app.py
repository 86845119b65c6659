"""The ASGI application: routes, errors that no endpoint caught, start and stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from litestar import Litestar, Request, Response
from litestar.config.cors import CORSConfig
from litestar.datastructures import State
from litestar.di import Provide
from litestar.exceptions import HTTPException
from litestar.types import ASGIApp

from sidecar.faults import BadRequest, Fault, NotFound
from sidecar.http import batch, chat, drift, heard, ops, passing, speech, stream, vector_sets, vectors, voices
from sidecar.http.access import AccessLog
from sidecar.http.service import Service
from sidecar.http.wire import fault_response, openai_error
from sidecar.speech_line import checked_chunks
from sidecar.telemetry import LoopMonitor
from sidecar.warm_up import warm_up_utterance

log = logging.getLogger(__name__)


def create_app(service: Service) -> ASGIApp:
    """The application around one service, which it starts if need be; closing it is left to who made it."""

    async def provide_service() -> Service:
        return service

    @asynccontextmanager
    async def lifespan(app: Litestar) -> AsyncIterator[None]:
        monitor = LoopMonitor(service.metrics)
        await service.start()
        warming = asyncio.create_task(_warm_up(service))
        # Loading models and modules holds the loop up; what counts is what happens once listeners come.
        warming.add_done_callback(lambda task: None if task.cancelled() else monitor.start())
        try:
            yield
        finally:
            monitor.stop()
            service.not_ready_reason = "going away"
            service.ready.clear()
            warming.cancel()
            await asyncio.gather(warming, return_exceptions=True)

    origins = list(service.config.server.cors_origins)
    app = Litestar(
        route_handlers=[
            chat.chat_completions,
            speech.speech,
            batch.speech_batch,
            drift.dialog_drift,
            heard.reply_heard,
            stream.speech_stream,
            ops.health,
            ops.live,
            ops.ready,
            ops.metrics,
            ops.models,
            ops.model,
            ops.audio_models,
            voices.list_voices,
            voices.upload_voice,
            voices.delete_voice,
            *vectors.HANDLERS,
            *vector_sets.HANDLERS,
            passing.other,
        ],
        dependencies={"service": Provide(provide_service)},
        lifespan=[lifespan],
        exception_handlers={Exception: _uncaught},
        cors_config=CORSConfig(allow_origins=origins) if origins else None,
        request_max_body_size=None,
        openapi_config=None,
        state=State({"service": service}),
        logging_config=None,
    )
    return AccessLog(app)


async def _warm_up(service: Service) -> None:
    """Speak once, unheard, so that the first listener does not pay for it."""
    voice = service.voices.own(service.config.voices.default or "")
    asked = warm_up_utterance(service.engine.traits, voice)
    if service.config.engine.warm_up and asked is not None:
        service.not_ready_reason = "warming up"
        try:
            speaking = await service.engine.open(asked)
            async for _ in checked_chunks(speaking, service.config.engine.chunk_timeout_s):
                pass
        except Fault as fault:
            service.not_ready_reason = f"the warm-up failed: {fault.message}"
            service.warmed.set()
            log.error("the warm-up failed: %s", fault.message)
            return
    service.ready.set()
    service.warmed.set()


def _uncaught(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Whatever no endpoint answered: routing errors keep their status, the rest is a 500 without details."""
    if isinstance(error, Fault):
        fault: Fault = error
    elif isinstance(error, HTTPException) and error.status_code == 404:
        fault = NotFound(f"Unknown request URL: {request.method} {request.url.path[:200]}")
    elif isinstance(error, HTTPException) and error.status_code < 500:
        return _misrouted(request, error)
    else:
        log.error("an endpoint failed", exc_info=error)
        fault = Fault("Internal error.")
    return fault_response(fault, openai_error)


def _misrouted(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    """What the framework refused itself: with its status, and with the headers that say what would do."""
    headers = dict(error.headers or {})
    fault = BadRequest("The request cannot be read.")
    status = error.status_code
    if headers.get("allow") == "websocket":
        status, headers = 426, {"upgrade": "websocket", "connection": "upgrade"}
        fault = BadRequest("This is a WebSocket; it cannot be asked for over plain HTTP.")
    elif status == 405:
        fault = BadRequest(f"{request.method} is not allowed here.")
    response = fault_response(fault, openai_error)
    response.status_code = status
    response.headers.update(headers)
    return response
