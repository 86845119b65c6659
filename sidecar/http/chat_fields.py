"""What a chat request says about audio, checked, and what of it travels on to the language model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sidecar.faults import BadRequest, UnsupportedFormat

FORMATS = ("wav", "mp3", "flac", "opus", "pcm16", "aac")
STREAM_FORMAT = "pcm16"
MAX_CHOICES = 8
MODES = ("segment", "live")


@dataclass(frozen=True, slots=True)
class AudioWish:
    """The audio a client asked for. ``voice`` is the name it gave, ``format`` the codec's (``pcm`` for pcm16).

    ``mode`` None: as the server is configured.
    """

    voice: str
    format: str
    stream: bool
    n: int
    include_usage: bool
    segments: bool
    seed: int | None
    language: str | None
    instructions: str
    mode: str | None = None
    word_times: bool = False


def wants_audio(body: Mapping[str, Any]) -> bool:
    """True iff ``modalities`` contains ``audio``; the order is free."""
    modalities = body.get("modalities")
    return isinstance(modalities, list) and "audio" in modalities


def audio_wish(body: Mapping[str, Any]) -> AudioWish:
    """The checked wish. Raises ``BadRequest`` and its kinds, naming the field."""
    audio = body.get("audio")
    if not isinstance(audio, Mapping):
        raise BadRequest(
            "'audio' with 'voice' and 'format' is required when modalities contain 'audio'.", param="audio"
        )
    stream = body.get("stream") or False
    if not isinstance(stream, bool):
        raise BadRequest("'stream' must be a boolean.", param="stream")
    n = body.get("n")
    n = 1 if n is None else n
    if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= MAX_CHOICES:
        raise BadRequest(f"'n' must be a whole number from 1 to {MAX_CHOICES}.", param="n")
    _check_response_format(body)
    options = body.get("stream_options") or {}
    if not isinstance(options, Mapping):
        raise BadRequest("'stream_options' must be an object.", param="stream_options")
    seed = audio.get("seed")
    if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**63):
        raise BadRequest("'audio.seed' must be a whole number from 0 to 2^63 - 1.", param="audio.seed")
    return AudioWish(
        voice=_voice(audio),
        format=_format(audio, stream),
        stream=stream,
        n=n,
        include_usage=bool(options.get("include_usage")),
        segments=bool(audio.get("segments")),
        seed=seed,
        language=_optional_text(audio, "language", 40),
        instructions=_optional_text(audio, "instructions", 500) or "",
        mode=_mode(audio),
        word_times=bool(audio.get("word_times")),
    )


def _voice(audio: Mapping[str, Any]) -> str:
    voice = audio.get("voice")
    name = voice.get("id") if isinstance(voice, Mapping) else voice
    if not isinstance(name, str) or not name:
        raise BadRequest("'audio.voice' is required: a voice name or an object with an 'id'.", param="audio.voice")
    return name


def _format(audio: Mapping[str, Any], stream: bool) -> str:
    name = audio.get("format")
    if not isinstance(name, str) or name not in FORMATS:
        raise UnsupportedFormat(
            f"'audio.format' is required and must be one of {', '.join(FORMATS)}.", param="audio.format"
        )
    if stream and name != STREAM_FORMAT:
        # Clients match on this sentence of the hosted service.
        raise UnsupportedFormat(
            f"'audio.format' does not support '{name}' when stream=true. Supported values are: 'pcm16'.",
            param="audio.format",
        )
    return "pcm" if name == "pcm16" else name


def _mode(audio: Mapping[str, Any]) -> str | None:
    mode = audio.get("mode")
    if mode is not None and mode not in MODES:
        raise BadRequest(f"'audio.mode' must be one of {', '.join(MODES)}.", param="audio.mode")
    return mode


def _optional_text(audio: Mapping[str, Any], key: str, max_chars: int) -> str | None:
    value = audio.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > max_chars:
        raise BadRequest(f"'audio.{key}' must be a string of at most {max_chars} characters.", param=f"audio.{key}")
    return value


def _check_response_format(body: Mapping[str, Any]) -> None:
    wanted = body.get("response_format")
    kind = wanted.get("type") if isinstance(wanted, Mapping) else None
    if kind in ("json_object", "json_schema"):
        raise BadRequest(
            f"response_format '{kind}' cannot be spoken; leave 'audio' out of modalities to get JSON.",
            param="response_format",
        )


def upstream_body(body: Mapping[str, Any], messages: list[Any] | None) -> dict[str, Any]:
    """The request for a text model: audio fields out, messages replaced where they were resolved."""
    rest = {k: v for k, v in body.items() if k not in ("audio", "modalities")}
    modalities = body.get("modalities")
    if isinstance(modalities, list) and [m for m in modalities if m not in ("audio", "text")]:
        rest["modalities"] = [m for m in modalities if m != "audio"]
    if messages is not None:
        rest["messages"] = messages
    return rest
