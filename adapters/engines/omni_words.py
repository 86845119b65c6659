"""What is said to a speech server and what is understood of its answers. No socket.

Protocol: vLLM-Omni's speech WebSocket and REST endpoint, generations A to E; only a server's sound, its end and its
failures matter here, events that are not known mean nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.engines.omni_abilities import DEFAULT_VOICE, Abilities
from adapters.engines.omni_settings import CodesBracket
from sidecar.faults import (
    BadRequest,
    EngineFault,
    EngineOverloaded,
    Fault,
    UnknownVoice,
    UnsupportedByEngine,
    UnsupportedLanguage,
)
from sidecar.ports import SAMPLE_RATE_HZ, Utterance

PIECE_CHARS = 8_192
"""Characters of text in one message: even escaped they stay below 128 KiB."""

SOME_VOICE = "A calm, clear voice."
"""What a server is told that makes voices of instructions, where none are given: it speaks with nothing else."""

MAX_PACKET_FRAMES = 1_000
"""Codec frames in one packet: 80 s of sound."""

CANCEL = '{"type":"input.cancel"}'
DONE = '{"type":"input.done"}'

_INT64 = 1 << 63
_REFUSED = "The speech server refused the request"


# ---------------------------------------------------------------- to a server
def spoken_fields(utterance: Utterance, server: Abilities, model: str | None) -> dict[str, Any]:
    """The members that REST and WebSocket share. Raises ``UnsupportedLanguage``."""
    fields: dict[str, Any] = {"response_format": "pcm", "seed": _int64(utterance.seed)}
    if model:
        fields["model"] = model
    anchor = utterance.anchor
    if anchor is not None:
        # A named voice beside a vector would win over it.
        fields |= {"task_type": "Base", "x_vector_only_mode": True, "speaker_embedding": anchor.embedding.tolist()}
    elif server.designs:
        fields |= {"task_type": "VoiceDesign", "instructions": SOME_VOICE}
    elif utterance.voice != DEFAULT_VOICE:
        fields["voice"] = utterance.voice
    if (language := server.language_name(utterance.language)) is not None:
        fields["language"] = language
    if utterance.instructions:
        fields["instructions"] = _valid(utterance.instructions)
    # vLLM-Omni takes a clone that reaches its cap for a failure; the reader's end is cut here anyway.
    if utterance.max_frames is not None and (anchor is None or server.kind == "sidecar"):
        fields["max_new_tokens"] = max(1, utterance.max_frames)
    if utterance.first_chunk_frames:
        fields["initial_codec_chunk_frames"] = utterance.first_chunk_frames
    if utterance.whole_text is not None:
        fields["non_streaming_mode"] = utterance.whole_text
    return fields


def session_messages(utterance: Utterance, server: Abilities, model: str | None, *, codes: bool) -> Iterator[str]:
    """The WebSocket messages that ask for one utterance as one unit. Raises ``UnsupportedLanguage``."""
    config = {"type": "session.config", **spoken_fields(utterance, server, model)}
    config |= {"stream_audio": True, "split_granularity": "none"}
    if server.kind == "sidecar":
        config["split_rules"] = "vllm"
    if codes:
        config["output_mode"] = "codec_tokens"
    yield json.dumps(config)
    text = _valid(utterance.text)
    for at in range(0, len(text), PIECE_CHARS):
        yield json.dumps({"type": "input.text", "text": text[at : at + PIECE_CHARS]})
    yield DONE


def probe_messages(model: str | None) -> tuple[str, ...]:
    """WebSocket messages that tell what the server knows, and have nothing spoken."""
    config: dict[str, Any] = {"type": "session.config", "response_format": "pcm", "stream_audio": True}
    return json.dumps(config | ({"model": model} if model else {})), CANCEL, DONE


def codes_probe_messages(model: str | None) -> tuple[str, ...]:
    """WebSocket messages that have a word spoken in codec tokens, where a server has them."""
    config: dict[str, Any] = {"type": "session.config", "response_format": "pcm", "stream_audio": True}
    config |= {"output_mode": "codec_tokens", "max_new_tokens": 4} | ({"model": model} if model else {})
    return json.dumps(config), json.dumps({"type": "input.text", "text": "Ok."}), DONE


def rest_body(utterance: Utterance, server: Abilities, model: str | None) -> bytes:
    """The body of a POST that is answered by raw samples as they are made. Raises ``UnsupportedLanguage``."""
    fields = {"input": _valid(utterance.text), **spoken_fields(utterance, server, model), "stream_format": "audio"}
    if draws := drawn(utterance):
        fields["extra_params"] = draws
    if server.kind == "plain":
        fields.setdefault("voice", DEFAULT_VOICE)
    return json.dumps(fields).encode()


def drawn(utterance: Utterance) -> dict[str, float]:
    """How to draw, as far as it is said; the WebSocket has no member for it."""
    draws = utterance.draws
    told = {} if draws is None else {"temperature": draws.temperature, "top_p": draws.top_p, "top_k": draws.top_k}
    return {name: value for name, value in told.items() if value is not None}


def _int64(seed: int) -> int:
    return (seed + _INT64) % (2 * _INT64) - _INT64


def _valid(text: str) -> str:
    """Text without lone surrogates, which no server can read."""
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace") if _odd(text) else text


def _odd(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


# ---------------------------------------------------------------- from a server
@dataclass(frozen=True, slots=True, eq=False)
class Sound:
    """Bytes of 16-bit samples."""

    data: bytes


@dataclass(frozen=True, slots=True, eq=False)
class CodeFrames:
    """Codec frames ``(frames, 16)`` to decode; ``fresh``: with a new decoder state."""

    codes: NDArray[np.int16]
    fresh: bool


@dataclass(frozen=True, slots=True)
class Begun:
    """The server has begun with the utterance."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The utterance is over: ``failed``, or spoken."""

    failed: bool


Heard = Sound | CodeFrames | Begun | Ended


def event_of(frame: str) -> Mapping[str, Any]:
    """A text frame as an event. Raises ``EngineFault`` for text that is none."""
    try:
        message = json.loads(frame)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise EngineFault("The speech server sent something that is no event.")
    return message


class UnitReader:
    """Reads the answer to one utterance, up to ``session.done``. ``open_codes`` reads codec tokens, if they may come.

    Raises ``EngineFault`` for sound of another form, and for sound that is not all there.
    """

    def __init__(self, open_codes: Callable[[Mapping[str, Any]], CodesBracket] | None = None) -> None:
        self._open_codes = open_codes
        self._codes: CodesBracket | None = None
        self._fresh = True
        self._in_sound = False
        self._bytes = 0
        self._units = 0
        self._failed = False
        self.sticky = False
        """The socket may be used again: the server counts its utterances."""

    def text(self, frame: str) -> list[Heard]:
        """One text frame."""
        message = event_of(frame)
        match message.get("type"):
            case "audio.start":
                return self._started(message)
            case "codec.start":
                return self._codes_started(message)
            case "audio.done" | "codec.done":
                self._done(message)
            case "error":
                self._failed = True
                if not (self._units or self._in_sound or self._codes is not None):
                    # Refused, or never begun. What comes next might be spoken as the utterance before was asked for.
                    return [Ended(True)]
            case "session.done":
                self.sticky = "utterance_index" in message
                return [Ended(self._failed or self._units == 0)]
        return []

    def binary(self, data: bytes) -> list[Heard]:
        """One binary frame."""
        if self._codes is not None:
            packet = self._codes.packet(data)
            if len(packet.codes) > MAX_PACKET_FRAMES:
                raise EngineFault(f"The speech server sent more than {MAX_PACKET_FRAMES} codec frames at once.")
            fresh, self._fresh = self._fresh or packet.resets, False
            if not len(packet.codes):
                self._fresh = fresh
                return []
            return [CodeFrames(packet.codes, fresh)]
        if not self._in_sound:
            raise EngineFault("The speech server sent sound outside a unit.")
        self._bytes += len(data)
        return [Sound(data)]

    def _started(self, message: Mapping[str, Any]) -> list[Heard]:
        form = message.get("format", "pcm"), message.get("sample_rate", SAMPLE_RATE_HZ), message.get("channels", 1)
        if form != ("pcm", SAMPLE_RATE_HZ, 1):
            raise EngineFault(f"The speech server's sound is not mono pcm at {SAMPLE_RATE_HZ} Hz.")
        self._in_sound, self._bytes = True, 0
        return [Begun()]

    def _codes_started(self, message: Mapping[str, Any]) -> list[Heard]:
        if self._open_codes is None:
            raise EngineFault("The speech server sent codec tokens that nobody asked for.")
        self._codes, self._fresh = self._open_codes(message), True
        return [Begun()]

    def _done(self, message: Mapping[str, Any]) -> None:
        self._units += 1
        self._failed = self._failed or bool(message.get("error")) or bool(message.get("cancelled"))
        if self._codes is not None:
            self._codes.done(message)
        elif not self._failed and message.get("total_bytes", self._bytes) != self._bytes:
            raise EngineFault("The speech server's sound is not all there.")
        self._codes, self._in_sound = None, False


# ---------------------------------------------------------------- refusals
def refusal(status: int, content: bytes, utterance: Utterance) -> Fault:
    """The fault behind an error answer to a POST. What the server says in it is not passed on: it may quote texts."""
    if status in (429, 503):
        return EngineOverloaded("The speech server is busy; try again shortly.", retry_after_s=1.0)
    if status in (401, 403):
        return EngineFault("The speech server does not accept this server's key.")
    if not 400 <= status < 500:
        return EngineFault("The speech server failed on this passage.")
    param = _param(content)
    if param in ("voice", "speaker"):
        return UnknownVoice(f"The speech server has no voice '{utterance.voice[:64]}'.", param="voice")
    if param == "language":
        return UnsupportedLanguage("The speech server does not speak this language.", param="language")
    if param == "task_type":
        return UnsupportedByEngine(f"{_REFUSED}: its model lacks the ability.", param="task_type")
    if param in ("input", "instructions", "speaker_embedding", "max_new_tokens", "seed"):
        return BadRequest(f"{_REFUSED}: {param}.", param=param)
    if status == 404:
        return EngineFault("The speech server has no such model or endpoint.")
    return BadRequest(f"{_REFUSED}.")


def _param(content: bytes) -> str:
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        return ""
    error = answer.get("error") if isinstance(answer, dict) else None
    found = error.get("param") if isinstance(error, dict) else None
    return found.removeprefix("body.") if isinstance(found, str) else ""
