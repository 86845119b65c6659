"""POST /v1/audio/replies/{audio_id}/heard: how far a listener heard a spoken chat reply before interrupting it."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response, post
from litestar.params import FromPath

from sidecar.core.dialog import MAX_ID_CHARS
from sidecar.core.playhead import Heard, played_ms
from sidecar.faults import Fault, UnknownAudio
from sidecar.http.service import Injected, Service
from sidecar.http.wire import fault_response, openai_error, parse_object, read_body, require_json, to_json

MAX_BODY_BYTES = 4_096


@post("/v1/audio/replies/{audio_id:str}/heard", status_code=200)
async def reply_heard(request: Request[Any, Any, Any], service: Injected, audio_id: FromPath[str]) -> Response[bytes]:
    """``{"played_ms": n}``: a reply that speaks stops, one that has ended is remembered anew.

    ``played_ms`` counts from the beginning of its audio; without it everything that was sent counts as heard.
    """
    try:
        caller = service.authenticate(request)
        require_json(request)
        raw = await read_body(request, MAX_BODY_BYTES, service.config.server.body_timeout_s)
        played = played_ms(parse_object(raw).get("played_ms"))
        heard = await _heard(service, caller.tenant, audio_id, played)
    except Fault as fault:
        service.answered(fault)
        return fault_response(fault, openai_error)
    answer = {"audio_id": audio_id, "played_ms": heard.played_ms, "heard_text": heard.text}
    return Response(to_json(answer), media_type="application/json")


async def _heard(service: Service, tenant: str, audio_id: str, played: float | None) -> Heard:
    if len(audio_id) > MAX_ID_CHARS:
        raise UnknownAudio("The audio is unknown or has expired.", param="audio_id")
    if (reply := service.replies.get((tenant, audio_id))) is not None:
        return await reply.heard(audio_id, played)
    return await service.memory.correct(tenant, audio_id, played)
