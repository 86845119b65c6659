"""The state machine of one speech socket: told what came in, it answers with what to send. No I/O, no clock.

Contract: vLLM-Omni 0.30's ``WS /v1/audio/speech/stream`` plus ``input.cancel``. Units are spoken strictly in order;
text that was accepted is spoken or its utterance is answered; nothing is ever sent after the close.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from sidecar.core.playhead import played_ms
from sidecar.faults import Fault

Config = TypeVar("Config")

UNIT_WEIGHT_CHARS = 64
"""What a unit costs beside its text, as characters."""


@dataclass(frozen=True, slots=True)
class SendJson:
    """A text frame to send."""

    message: dict[str, Any]


@dataclass(frozen=True, slots=True)
class SendBytes:
    """A binary frame to send."""

    data: bytes


@dataclass(frozen=True, slots=True)
class StopSpeaking:
    """Cancel every unit that was handed out by ``next_unit`` and is not over yet."""


@dataclass(frozen=True, slots=True)
class Close:
    """Close the socket. The last effect there is."""

    code: int
    reason: str = ""


Effect = SendJson | SendBytes | StopSpeaking | Close


@dataclass(frozen=True, slots=True)
class UnitText:
    """What a splitter cut off: the client's own text and what is to be said of it."""

    text: str
    spoken: str


class Splitter(Protocol):
    """Cuts one utterance's text into units."""

    def feed(self, text: str) -> list[UnitText]:
        """Units that are certain now."""

    def flush(self) -> list[UnitText]:
        """The rest."""

    @property
    def pending_chars(self) -> int:
        """Characters held."""


class LiveText:
    """The text of a unit that is spoken while it comes. ``changed`` is called when there is more."""

    def __init__(self) -> None:
        self.chars = 0
        self.finished = False
        self.changed: Callable[[], None] = lambda: None
        self._pieces: list[str] = []

    def append(self, text: str) -> None:
        """More of it."""
        self._pieces.append(text)
        self.chars += len(text)
        self.changed()

    def finish(self) -> None:
        """It is complete."""
        self.finished = True
        self.changed()

    def take(self) -> str:
        """What has come since the last call."""
        text, self._pieces = "".join(self._pieces), []
        return text


@dataclass(frozen=True, slots=True)
class Unit(Generic[Config]):
    """One unit of speech and the configuration it was accepted under.

    ``live``: it is a whole utterance, spoken while it is written; ``text`` is how it began.
    """

    utterance_index: int
    sentence_index: int
    text: UnitText
    config: Config
    live: LiveText | None = None


@dataclass(slots=True)
class _Flush:
    """The end of an utterance, in the queue behind its units."""

    utterance_index: int
    total_sentences: int
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Bounds of one socket (characters of JSON text, milliseconds)."""

    config_timeout_ms: float = 10_000
    idle_timeout_ms: float = 30_000
    max_config_chars: int = 4 * 1024 * 1024
    max_message_chars: int = 128 * 1024
    max_buffered_chars: int = 1024 * 1024
    max_queued_utterances: int = 256


class SpeechSession(Generic[Config]):
    """One socket. ``parse_config`` raises ``BadRequest``; ``new_splitter`` starts an utterance."""

    def __init__(
        self,
        limits: SessionLimits,
        parse_config: Callable[[dict[str, Any]], Config],
        new_splitter: Callable[[Config], Splitter],
        now_ms: float,
        is_live: Callable[[Config], bool] = lambda config: False,
    ) -> None:
        self._is_live = is_live
        self._live: LiveText | None = None
        self._limits = limits
        self._parse_config = parse_config
        self._new_splitter = new_splitter
        self._config: Config | None = None
        self._splitter: Splitter | None = None
        self._utterance_index = 0
        self._sentences = 0
        self._queue: deque[Unit[Config] | _Flush] = deque()
        self._handed_out = 0
        self._in_bracket = False
        self._bracket_cancelled = False
        self._closing = False
        self._close_code = 1000
        self._queued_chars = 0
        self._last_activity_ms = now_ms
        self.closed = False
        self.cancels = 0
        self.cut_ms: float | None = None
        """Up to when the client has heard, as its last cancel says; None where it does not."""

    # ------------------------------------------------------------ what the client sends
    def text_frame(self, frame: str, now_ms: float) -> list[Effect]:
        """One text frame."""
        if self.closed:
            return []
        self._last_activity_ms = now_ms
        message, problem = self._read(frame)
        kind = message.get("type") if message is not None else None
        if self._config is None:
            if problem is None and kind != "session.config":
                problem = "The first message must be session.config."
            if problem is not None:
                return self._fatal(problem)
            return self._configure(message or {})
        if problem is not None:
            return [_error(problem)]
        handler = {
            "session.config": self._configure,
            "input.text": self._text,
            "input.done": self._done,
            "input.cancel": self._cancel,
            "session.close": self._close,
        }.get(kind if isinstance(kind, str) else "")
        if self._closing:
            return self._cancel(message or {}) if kind == "input.cancel" else []
        if handler is None:
            return [_error(f"Unknown message type: {str(kind)[:64]}")]
        return handler(message or {})

    def binary_frame(self, now_ms: float) -> list[Effect]:
        """Binary frames are no part of the protocol: an error, and the session goes on once it is configured."""
        if self.closed:
            return []
        self._last_activity_ms = now_ms
        problem = "Binary frames are not part of this protocol."
        return self._fatal(problem) if self._config is None else [_error(problem)]

    def _read(self, frame: str) -> tuple[dict[str, Any] | None, str | None]:
        limits = self._limits
        if len(frame) > limits.max_config_chars:
            return None, f"The message is longer than {limits.max_config_chars} characters."
        try:
            message = json.loads(frame)
        except (ValueError, RecursionError):
            return None, "Invalid JSON message."
        if not isinstance(message, dict):
            return None, "The message must be a JSON object."
        if message.get("type") != "session.config" and len(frame) > limits.max_message_chars:
            return None, f"The message is longer than {limits.max_message_chars} characters."
        return message, None

    def _configure(self, message: dict[str, Any]) -> list[Effect]:
        if self._splitter is not None or self._live is not None:
            return [_error("session.config is not allowed while an utterance is open.")]
        try:
            self._config = self._parse_config(message)
        except Fault as fault:
            return self._fatal(fault.message) if self._config is None else [_error(fault.message)]
        return []

    def _text(self, message: dict[str, Any]) -> list[Effect]:
        text = message.get("text", "")
        if not isinstance(text, str):
            return [_error("input.text needs a string 'text'.")]
        if not text:
            return []
        held = self._queued_chars + (self._splitter.pending_chars if self._splitter is not None else 0)
        if held + len(text) > self._limits.max_buffered_chars:
            return [_error("Too much text is waiting to be spoken; this piece was not taken.")]
        if self._config is not None and self._is_live(self._config):
            return self._live_text(text, self._config)
        if self._splitter is None and self._config is not None:
            self._splitter = self._new_splitter(self._config)
        if self._splitter is not None:
            self._enqueue(self._splitter.feed(text))
        return []

    def _live_text(self, text: str, config: Config) -> list[Effect]:
        """Text that is spoken as it comes: its utterance is one unit, which begins with the first word."""
        if self._live is None:
            text = text.lstrip()
            if not text:
                return []
            self._live = LiveText()
            self._queue.append(Unit(self._utterance_index, 0, UnitText(text, text), config, self._live))
            self._queued_chars += UNIT_WEIGHT_CHARS + len(text)
            self._sentences = 1
        elif self._live.chars + len(text) > self._limits.max_buffered_chars:
            return [_error("The utterance is too long; this piece was not taken.")]
        self._live.append(text)
        return []

    def _end_live(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.finish()

    def _done(self, message: dict[str, Any]) -> list[Effect]:
        if sum(isinstance(item, _Flush) for item in self._queue) >= self._limits.max_queued_utterances:
            return [_error("Too many utterances are waiting to be spoken; this input.done was not taken.")]
        self._end_live()
        if self._splitter is not None:
            self._enqueue(self._splitter.flush())
            self._splitter = None
        self._queue.append(_Flush(self._utterance_index, self._sentences))
        self._utterance_index += 1
        self._sentences = 0
        return self._settle()

    def _cancel(self, message: dict[str, Any]) -> list[Effect]:
        """Drop everything that is queued or buffered. An open bracket gets no more audio; ``unit_done`` closes it.

        A ``played_ms`` that is none is told, and the silence that was asked for is kept all the same.
        """
        self.cancels += 1
        problems: list[Effect] = []
        try:
            self.cut_ms = played_ms(message.get("played_ms"))
        except Fault as fault:
            self.cut_ms = None
            problems.append(_error(fault.message))
        self._end_live()
        open_bracket = self._in_bracket
        flushes = [item for item in self._queue if isinstance(item, _Flush)]
        sounding = self._queue[0] if open_bracket else None
        index = flushes[0].utterance_index if flushes else self._utterance_index
        self._queue.clear()
        self._queued_chars = 0
        self._splitter = None
        self._sentences = 0
        effects: list[Effect] = [StopSpeaking()] if self._handed_out else []
        if sounding is not None:
            self._bracket_cancelled = True
            self._queue.append(sounding)
        else:
            effects.append(SendJson({"type": "input.cancelled", "utterance_index": index}))
        for flush in flushes:
            flush.cancelled = True
        self._queue.extend(flushes)
        self._handed_out = 1 if open_bracket else 0
        return problems + effects + self._settle()

    def _close(self, message: dict[str, Any]) -> list[Effect]:
        """What was flushed before is still spoken, then the socket closes; text without input.done is dropped."""
        self._closing = True
        self._splitter = None
        self._end_live()
        return self._settle()

    def _enqueue(self, units: list[UnitText]) -> None:
        if self._config is None:
            return
        for text in units:
            self._queue.append(Unit(self._utterance_index, self._sentences, text, self._config))
            self._queued_chars += _weight(text)
            self._sentences += 1

    # ------------------------------------------------------------ time
    def deadline_ms(self) -> float | None:
        """When ``timeout`` is to be called next, or None while something is being spoken."""
        if self.closed or (self._queue and self._live is None):
            return None
        limit = self._limits.config_timeout_ms if self._config is None else self._limits.idle_timeout_ms
        return self._last_activity_ms + limit

    def timeout(self, now_ms: float) -> list[Effect]:
        """Nothing came for too long."""
        deadline = self.deadline_ms()
        if deadline is None or now_ms < deadline:
            return []
        if self._config is None:
            return self._fatal("Timeout waiting for session.config.")
        return self._fatal("Idle timeout: no message for too long.")

    # ------------------------------------------------------------ the speaker's side
    def next_unit(self) -> Unit[Config] | None:
        """The next unit to be prepared, each handed out once."""
        seen = 0
        for item in self._queue:
            if isinstance(item, Unit):
                if seen == self._handed_out:
                    self._handed_out += 1
                    return item
                seen += 1
        return None

    def unit_opened(self, unit: Unit[Config], start: dict[str, Any]) -> list[Effect]:
        """The engine speaks this unit (or failed to): its bracket opens. ``start`` is the start event's own part."""
        if not self._is_head(unit):
            return []
        self._in_bracket = True
        return [SendJson({**start, **_indices(unit), "sentence_text": unit.text.text})]

    def unit_audio(
        self, unit: Unit[Config], frame: bytes | dict[str, Any], now_ms: float | None = None
    ) -> list[Effect]:
        """Audio of the unit; nothing comes of it unless its bracket is open and not cancelled."""
        self._last_activity_ms = self._last_activity_ms if now_ms is None else now_ms
        if not (self._is_head(unit) and self._in_bracket) or self._bracket_cancelled:
            return []
        return [SendBytes(frame) if isinstance(frame, bytes) else SendJson({**frame, **_indices(unit)})]

    def unit_done(
        self, unit: Unit[Config], done: dict[str, Any], fault: Fault | None, now_ms: float, closing: bytes = b""
    ) -> list[Effect]:
        """The unit is over. ``done`` is the done event's own part; a unit that never opened gets no bracket.

        ``closing`` is a last frame that the bracket of a unit without a fault must have, cancelled or not. Once
        cancelled, a unit ends as cancelled, even if it was complete or failed by then: the client waits for that.
        """
        if not self._is_head(unit):
            return []
        effects: list[Effect] = []
        if self._bracket_cancelled:
            done, fault = {**done, "cancelled": True}, None
        if fault is not None:
            message: dict[str, Any] = {"type": "error", "message": _failed(unit, fault)}
            if done.get("total_bytes") and fault.status >= 500:
                message |= {"partial_audio": True, "action": "discard"}
            effects.append(SendJson(message))
        if self._in_bracket:
            if closing and fault is None:
                effects.append(SendBytes(closing))
            effects.append(SendJson({**done, **_indices(unit), "error": fault is not None}))
        self._in_bracket = self._bracket_cancelled = False
        self._queue.popleft()
        self._handed_out -= 1
        self._queued_chars = max(0, self._queued_chars - _weight(unit.text))
        self._last_activity_ms = now_ms
        return effects + self._settle()

    def wants(self, unit: Unit[Config]) -> bool:
        """False once the unit has been dropped by a cancel or the close."""
        return not self.closed and any(item is unit for item in self._queue)

    def going_away(self) -> list[Effect]:
        """The server shuts down: what was accepted is still spoken, then the socket closes with 1001."""
        if self.closed:
            return []
        self._closing = True
        self._close_code = 1001
        self._splitter = None
        self._end_live()
        return self._settle()

    def slow_consumer(self) -> list[Effect]:
        """The client took nothing for too long."""
        return self._end(4008, "slow_consumer")

    # ------------------------------------------------------------ helpers
    def _is_head(self, unit: Unit[Config]) -> bool:
        return not self.closed and bool(self._queue) and self._queue[0] is unit

    def _settle(self) -> list[Effect]:
        """Answer every flush that has come to the head of the queue; close if that was all that was waited for."""
        effects: list[Effect] = []
        while self._queue and isinstance(flush := self._queue[0], _Flush):
            self._queue.popleft()
            message: dict[str, Any] = {
                "type": "session.done",
                "utterance_index": flush.utterance_index,
                "total_sentences": flush.total_sentences,
            }
            if flush.cancelled:
                message["cancelled"] = True
            effects.append(SendJson(message))
        if self._closing and not self._queue:
            effects += self._end(self._close_code)
        return effects

    def _fatal(self, problem: str) -> list[Effect]:
        return [_error(problem), *self._end(1008, problem[:100])]

    def _end(self, code: int, reason: str = "") -> list[Effect]:
        if self.closed:
            return []
        self.closed = True
        stop: list[Effect] = [StopSpeaking()] if self._handed_out else []
        self._queue.clear()
        self._splitter = None
        return [*stop, Close(code, reason)]


def _weight(text: UnitText) -> int:
    """Characters that a waiting unit counts for: many tiny ones cost memory too."""
    return len(text.text) + UNIT_WEIGHT_CHARS


def _error(message: str) -> SendJson:
    return SendJson({"type": "error", "message": message})


def _indices(unit: Unit[Any]) -> dict[str, int]:
    return {"utterance_index": unit.utterance_index, "sentence_index": unit.sentence_index}


def _failed(unit: Unit[Any], fault: Fault) -> str:
    where = f"utterance {unit.utterance_index}, sentence {unit.sentence_index}"
    return f"Generation failed for {where}: {fault.message}"
