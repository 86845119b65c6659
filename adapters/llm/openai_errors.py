"""What upstreams send instead of an answer, turned into OpenAI error objects that are safe to show."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

MAX_MESSAGE_CHARS = 1_000

_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")
_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}


def safe_message(text: str, *, secret: str | None = None) -> str:
    """``text`` on one line, without control characters or the ``secret``, at most ``MAX_MESSAGE_CHARS`` long."""
    text = text[: 4 * MAX_MESSAGE_CHARS]
    if secret:
        text = text.replace(secret, "***")
    text = " ".join(_UNPRINTABLE.sub(" ", text).split())
    return text if len(text) <= MAX_MESSAGE_CHARS else text[: MAX_MESSAGE_CHARS - 1] + "…"


def loads(text: str | bytes) -> Any:
    """Parse JSON from outside; raises ``ValueError`` for anything unreadable.

    NaN and infinities become None, lone surrogates U+FFFD, so that the result can be written as JSON in UTF-8.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8", "replace")
        value = _DECODER.decode(text.removeprefix("\ufeff"))
        return _without_surrogates(value) if "\\ud" in text or "\\uD" in text else value
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _finite(digits: str) -> float | None:
    number = float(digits)
    return number if math.isfinite(number) else None


_DECODER = json.JSONDecoder(parse_constant=lambda _: None, parse_float=_finite)


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    return value


def error_in(payload: object, *, secret: str | None = None) -> dict[str, Any] | None:
    """The OpenAI error object (message, type, param, code) that a parsed payload carries, or None if it has none.

    Knows ``{"error": {...}}``, ``{"error": "..."}``, a list with one of these, FastAPI's ``{"detail": ...}``,
    and ``{"object": "error", "message": ...}``.
    """
    if isinstance(payload, list) and len(payload) == 1:
        payload = payload[0]
    if not isinstance(payload, Mapping):
        return None
    error = payload.get("error")
    if isinstance(error, Mapping):
        return _error_object(error, secret)
    if isinstance(error, str) and error:
        return _error_object({"message": error, "type": payload.get("type"), "code": payload.get("code")}, secret)
    if "detail" in payload and "choices" not in payload:
        return _from_detail(payload["detail"], secret)
    if payload.get("object") == "error" or (payload.get("type") == "error" and "message" in payload):
        return _error_object(payload, secret)
    return None


def refusal(status: int, body: bytes, *, secret: str | None = None) -> tuple[int, dict[str, Any]] | None:
    """The status and error object for a client from an upstream's error answer; None if the body is no such thing.

    FastAPI's 422 becomes the 400 that OpenAI clients expect for a bad request.
    """
    try:
        payload = loads(body)
    except ValueError:
        return None
    error = error_in(payload, secret=secret)
    if error is None and isinstance(payload, Mapping) and isinstance(payload.get("message"), str):
        error = _error_object(payload, secret)
    if error is None:
        return None
    if status == 422:
        status = 400
    if error["type"] is None:
        error["type"] = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return status, error


def _error_object(error: Mapping[str, Any], secret: str | None) -> dict[str, Any]:
    message = error.get("message")
    if not isinstance(message, str) or not message.strip():
        message = "The language model reports an error without a message."
    out: dict[str, Any] = {"message": safe_message(message, secret=secret)}
    for key in ("type", "param", "code"):
        value = error.get(key)
        if isinstance(value, str):
            out[key] = safe_message(value, secret=secret)[:200]
        else:
            out[key] = value if isinstance(value, int) and not isinstance(value, bool) else None
    return out


def _from_detail(detail: object, secret: str | None) -> dict[str, Any]:
    if isinstance(detail, Mapping):
        return error_in(detail, secret=secret) or _error_object(detail, secret)
    if isinstance(detail, str):
        return _error_object({"message": detail}, secret)
    messages: list[str] = []
    param = None
    for item in detail[:8] if isinstance(detail, list) else []:
        if not isinstance(item, Mapping) or not isinstance(item.get("msg"), str):
            continue
        place = item.get("loc")
        names = [str(part) for part in place if part != "body"] if isinstance(place, list) else []
        param = param or ".".join(names) or None
        messages.append(f"{'.'.join(names)}: {item['msg']}" if names else item["msg"])
    return _error_object({"message": "; ".join(messages), "param": param}, secret)
