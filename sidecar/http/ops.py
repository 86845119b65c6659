"""What operators, pickers and load balancers ask: health, readiness, metrics, models, voices."""

from __future__ import annotations

from typing import Any

from litestar import HttpMethod, Request, Response, route
from litestar.params import FromPath
from litestar.types import ASGIApp

from sidecar.config import is_loopback
from sidecar.faults import Fault, UnknownModel
from sidecar.http.service import Injected, Service
from sidecar.http.wire import fault_response, json_response, openai_error

_READ = (HttpMethod.GET, HttpMethod.HEAD)
"""Everything here can be asked for without its body: load balancers do."""

_CREATED = 1_764_000_000
"""A fixed birthday for our own models: lists must not change from call to call."""


@route("/health", http_method=_READ)
async def health(service: Injected) -> Response[bytes]:
    """Healthy once it can speak. JSON, so that no client takes it for another server."""
    state = await service.engine.health()
    if not service.ready.is_set():
        return json_response({"status": "unhealthy", "reason": service.not_ready_reason}, status=503)
    if not state.ok:
        return json_response({"status": "unhealthy", "reason": state.reason}, status=503)
    return json_response({"status": "healthy", "engine": service.engine.traits.name})


@route("/live", http_method=_READ)
async def live() -> Response[bytes]:
    """The process runs."""
    return json_response({"status": "alive"})


@route("/ready", http_method=_READ)
async def ready(service: Injected) -> Response[bytes]:
    """Ready after the warm-up synthesis; ``degraded`` names what is away that speech can do without."""
    state = await service.engine.health()
    missed = not service.store.answers
    if service.ready.is_set() and state.ok and not (missed and service.config.store.required):
        return json_response({"status": "ready", **({"degraded": ["store"]} if missed else {})})
    reason = service.not_ready_reason if not service.ready.is_set() else state.reason or "the store does not answer"
    return json_response({"status": "not ready", "reason": reason}, status=503, headers={"retry-after": "1"})


@route("/metrics", http_method=_READ)
async def metrics(request: Request[Any, Any, Any], service: Injected) -> Response[bytes]:
    """Prometheus text; beyond loopback only with a key, where keys are configured."""
    if not is_loopback(service.config.server.host):
        service.authenticate(request)
    service.metrics.engine_rows((await service.engine.health()).active_rows)
    body, media_type = service.metrics.render()
    return Response(content=body, headers={"content-type": media_type})


def _speech_models(service: Service) -> list[dict[str, Any]]:
    speech = service.config.speech
    return [
        {"id": name, "object": "model", "created": _CREATED, "owned_by": "sidecar"}
        for name in (*speech.models, *speech.openai_models)
    ]


@route(["/v1/models", "/v1/"], http_method=_READ)
async def models(request: Request[Any, Any, Any], service: Injected) -> ASGIApp:
    """Speech models first, then the upstream's; an upstream that is away only shortens the list."""
    try:
        _check_list(request, service)
    except Fault as fault:
        return fault_response(fault, openai_error).to_asgi_response(app=None, request=request)
    own = _speech_models(service)
    known = {card["id"] for card in own}
    try:
        others = [dict(card) for card in await service.llm.models() if card.get("id") not in known]
    except Fault as fault:
        service.answered(fault)
        others = []
    return json_response({"object": "list", "data": own + others}).to_asgi_response(app=None, request=request)


@route("/v1/models/{model_id:path}", http_method=_READ)
async def model(request: Request[Any, Any, Any], service: Injected, model_id: FromPath[str]) -> ASGIApp:
    """One model card; ids may contain slashes. Raises the upstream's own error for what it does not know."""
    name = str(model_id).lstrip("/")
    try:
        _check_list(request, service)
        for card in [*_speech_models(service), *await service.llm.models()]:
            if card.get("id") == name:
                return json_response(dict(card)).to_asgi_response(app=None, request=request)
        raise UnknownModel(f"The model '{name[:80]}' does not exist.", param="model")
    except Fault as fault:
        return fault_response(fault, openai_error).to_asgi_response(app=None, request=request)


@route("/v1/audio/models", http_method=_READ)
async def audio_models(request: Request[Any, Any, Any], service: Injected) -> ASGIApp:
    """The speech models, as pickers read them."""
    try:
        _check_list(request, service)
    except Fault as fault:
        return fault_response(fault, openai_error).to_asgi_response(app=None, request=request)
    cards = _speech_models(service)
    body = {"models": cards, "object": "list", "data": cards, "engine": _engine(service)}
    return json_response(body).to_asgi_response(app=None, request=request)


def _engine(service: Service) -> dict[str, Any]:
    """What the engine can do, for sidecars that use this one as theirs."""
    traits = service.engine.traits
    return {
        "name": traits.name,
        "voices": [voice.name for voice in traits.voices],
        "tasks": traits.tasks,
        "languages": traits.languages,
        "clone_widths": traits.clone_widths,
        "instructions": traits.instructions,
        "deterministic": traits.deterministic,
        "codes_out": traits.codes_out,
        "pcm_out": traits.pcm_out,
        "codec_id": traits.codec_id,
    }


def _check_list(request: Request[Any, Any, Any], service: Service) -> None:
    """Pickers ask for lists without a key; unless that is switched off they may."""
    if not service.config.auth.open_lists:
        service.authenticate(request)
