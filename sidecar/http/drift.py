"""GET /v1/dialogs/{id}/drift: how steady a dialog's voice was, as JSON or as one page with plots."""

from __future__ import annotations

from typing import Any

from litestar import Request, get
from litestar.params import FromPath
from litestar.types import ASGIApp

from sidecar.faults import Fault, NotFound
from sidecar.http.service import Injected
from sidecar.http.wire import BodyStream, fault_response, in_pieces, openai_error, to_json
from voices.drift_html import report_html


@get("/v1/dialogs/{dialog:str}/drift")
async def dialog_drift(request: Request[Any, Any, Any], dialog: FromPath[str], service: Injected) -> ASGIApp:
    """The report; ``dialog`` is what ``x-sidecar-dialog`` said, or the ``audio.id`` of one of its replies.

    HTML for those who prefer it (``Accept: text/html``, or ``?format=html``), else JSON.
    """
    try:
        caller = service.authenticate(request)
        if dialog.startswith("audio_"):
            turns = await service.memory.recall(caller.tenant, [dialog])
            if dialog not in turns:
                raise NotFound("No such reply, or it has been forgotten.")
            dialog = turns[dialog].dialog
        report = await service.drift.report(caller.tenant, dialog)
    except Fault as fault:
        service.answered(fault)
        return fault_response(fault, openai_error).to_asgi_response(app=None, request=request)
    wants = request.query_params.get("format")
    html = wants == "html" or (wants is None and "text/html" in request.headers.get("accept", ""))
    content = report_html(report).encode() if html else to_json(report.to_json())
    headers = {
        "content-type": "text/html; charset=utf-8" if html else "application/json",
        "content-length": str(len(content)),
        "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:",
        "cache-control": "no-store",
    }
    return BodyStream(in_pieces(content), headers=headers, slow_consumer_s=service.config.server.slow_consumer_s)
