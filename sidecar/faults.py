"""Every error that can reach a client, in one tree.

A fault knows what an endpoint needs to answer: HTTP status, WebSocket close code, whether a retry can
help, and a message that is safe to show (no paths, keys, prompts or upstream bodies).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


class Fault(Exception):
    """Base of all faults. ``message`` is shown to clients; ``param`` names the offending field."""

    status: ClassVar[int] = 500
    ws_close_code: ClassVar[int] = 1011
    retryable: ClassVar[bool] = False
    type: ClassVar[str] = "server_error"
    code: ClassVar[str | None] = None

    def __init__(self, message: str, *, param: str | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s


# ---------------------------------------------------------------- the client's doing
class BadRequest(Fault):
    """The request cannot be served as it stands."""

    status = 400
    ws_close_code = 1008
    type = "invalid_request_error"
    code = "invalid_value"


class UnknownVoice(BadRequest):
    """No voice of that name; the message lists those there are."""

    code = "voice_not_found"


class UnsupportedFormat(BadRequest):
    """The audio format is not offered here."""

    code = "unsupported_format"


class UnsupportedLanguage(BadRequest):
    """No voice for this language; the message names what to install."""

    code = "unsupported_language"


class UnsupportedByEngine(BadRequest):
    """A valid request, but this engine lacks the trait it needs (cloning, codec tokens, ...)."""

    code = "unsupported_by_engine"


class Unauthorized(Fault):
    """Missing or wrong API key."""

    status = 401
    ws_close_code = 1008
    type = "invalid_request_error"
    code = "invalid_api_key"


class Forbidden(Fault):
    """The key is good but may not do this."""

    status = 403
    ws_close_code = 1008
    type = "invalid_request_error"
    code = "forbidden"


class NotFound(Fault):
    """The named thing does not exist (for this tenant)."""

    status = 404
    ws_close_code = 1008
    type = "invalid_request_error"
    code = "not_found"


class UnknownModel(NotFound):
    """No such model."""

    code = "model_not_found"


class UnknownAudio(NotFound):
    """An ``audio.id`` in the messages is unknown or has expired."""

    code = "audio_expired"


class Conflict(Fault):
    """Somebody else changed the same record first."""

    status = 409
    ws_close_code = 1008
    type = "conflict_error"
    code = "conflict"


class TooLarge(Fault):
    """The body, frame or text is over its limit."""

    status = 413
    ws_close_code = 1009
    type = "invalid_request_error"
    code = "request_too_large"


class TooBusy(Fault):
    """All places are taken; try again after ``retry_after_s``."""

    status = 429
    ws_close_code = 1013
    retryable = True
    type = "rate_limit_error"
    code = "overloaded"


class SlowConsumer(Fault):
    """The client has not taken any audio for too long and is cut off."""

    status = 408
    ws_close_code = 4008
    type = "invalid_request_error"
    code = "slow_consumer"


class ClientGone(Fault):
    """The client hung up; nobody reads this."""

    status = 499
    type = "invalid_request_error"
    code = "client_gone"


# ---------------------------------------------------------------- the engine's doing
class EngineFault(Fault):
    """The speech engine failed on this utterance."""

    code = "engine_error"


class EngineOverloaded(EngineFault):
    """The engine has no room for this utterance now."""

    status = 503
    ws_close_code = 1013
    retryable = True
    code = "engine_overloaded"


class EngineLost(EngineFault):
    """The engine died or hangs; a supervisor may bring it back."""

    status = 503
    ws_close_code = 1013
    retryable = True
    code = "engine_lost"


class PassageLost(EngineLost):
    """The engine broke off within a passage that cannot be gone on with; what follows it can be spoken."""

    code = "passage_lost"


# ---------------------------------------------------------------- the upstream's doing
class UpstreamFault(Fault):
    """The language model behind us failed."""

    status = 502
    type = "upstream_error"
    code = "upstream_error"


class UpstreamUnreachable(UpstreamFault):
    """The connection to the language model could not be made."""

    retryable = True
    code = "upstream_unreachable"


class UpstreamTimeout(UpstreamFault):
    """The language model sent nothing for too long."""

    status = 504
    retryable = True
    code = "upstream_timeout"


class UpstreamBroken(UpstreamFault):
    """The language model's stream broke off or became unreadable."""

    code = "upstream_broken"


class UpstreamRefused(UpstreamFault):
    """The language model answered with an error of its own before the first byte.

    ``upstream_status`` and ``upstream_error`` (an OpenAI error object) are handed to the client as they came,
    with those of its headers that clients read (``Retry-After``, ``x-ratelimit-*``).
    """

    def __init__(
        self,
        message: str,
        *,
        upstream_status: int,
        upstream_error: Mapping[str, Any],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.upstream_status = upstream_status
        self.upstream_error = dict(upstream_error)
        self.headers = dict(headers or {})


# ---------------------------------------------------------------- our own doing
class StoreUnavailable(Fault):
    """The store does not answer; what needs it waits or fails, speech goes on."""

    status = 503
    ws_close_code = 1013
    retryable = True
    code = "store_unavailable"


class DamagedVoice(Fault):
    """A stored voice is not whole, or not ours; it can be deleted or made again."""

    code = "voice_damaged"


class ShuttingDown(Fault):
    """This instance is going away; another one can serve the request."""

    status = 503
    ws_close_code = 1001
    retryable = True
    code = "going_away"


class ConfigError(Exception):
    """The configuration is wrong. ``problems`` lists every mistake found; the process exits with 78."""

    exit_code = 78

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems
