"""What one socket's conversation came to: the sequence of events, and of each utterance the sound and its timing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sidecar.play_clock import PlayClock
from sidecar.relay.hiding import printable
from sidecar.relay.recording import Entry
from sidecar.relay.seen import Side

_PARTS = ("utterance_index", "sentence_index", "total_sentences", "error", "cancelled", "partial_audio")
SOUND = "sound"
"""Any number of frames: how sound is cut is no part of the sequence."""
ANSWERS = ("session.done", "input.cancelled")
"""Events that end what the client asked for."""


@dataclass(slots=True)
class Spoken:
    """One utterance. ``asked_ms``: when the client's first text of it was sent; ``clock`` counts its sound."""

    asked_ms: float | None = None
    clock: PlayClock = field(default_factory=PlayClock)
    units: int = 0
    frames: int = 0
    frame_bytes: int = 0
    cancelled: bool = False

    @property
    def first_audio_ms(self) -> float | None:
        """From the first text to the first sound."""
        first_ms = self.clock.first_ms
        return None if first_ms is None or self.asked_ms is None else first_ms - self.asked_ms


class Tally:
    """Told what each side said in order, on one clock (ms)."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.texts: list[str] = []
        self.spoken: list[Spoken] = []
        self.answers = 0
        self.close_code: int | None = None
        self._asked_ms: list[float | None] = [None]
        self._current: Spoken | None = None

    def entry(self, entry: Entry) -> None:
        """The next thing that was said."""
        if entry.side is Side.CLIENT:
            self._asked(entry.message or {}, entry.at_ms)
        elif entry.message is not None:
            self._message(entry.message, entry)
        elif entry.text is not None:
            self.events.append("text that is no message")
        elif entry.data_bytes is not None:
            self._heard(entry, entry.data_bytes)
        elif entry.close_code is not None:
            self.close_code = entry.close_code
            self.events.append(f"close {entry.close_code}")

    def _asked(self, message: Mapping[str, Any], at_ms: float) -> None:
        if message.get("type") == "input.text" and message.get("text") and self._asked_ms[-1] is None:
            self._asked_ms[-1] = at_ms
        elif message.get("type") == "input.done":
            self._asked_ms.append(None)

    def _message(self, message: Mapping[str, Any], entry: Entry) -> None:
        kind = printable(str(message.get("type")), 40)
        if kind in ("audio.start", "codec.start"):
            self._utterance(message).units += 1
            if isinstance(text := message.get("sentence_text"), str):
                self.texts.append(text)
        if kind == "audio.chunk":
            self._heard(entry, 0)
            return
        if message.get("cancelled") and self._current is not None:
            self._current.cancelled = True
        parts = [f"{name}={message[name]}" for name in _PARTS if isinstance(message.get(name), int)]
        self.events.append(" ".join([kind, *parts]))
        if kind in ANSWERS:
            self.answers += 1
        if kind == "session.done":
            self._current = None

    @property
    def sounding(self) -> bool:
        """True while the last thing heard was sound."""
        return bool(self.events) and self.events[-1] == SOUND

    def _utterance(self, message: Mapping[str, Any]) -> Spoken:
        if self._current is None:
            index = message.get("utterance_index")
            asked_ms = None
            if isinstance(index, int) and 0 <= index < len(self._asked_ms):
                asked_ms = self._asked_ms[index]
            self._current = Spoken(asked_ms)
            self.spoken.append(self._current)
        return self._current

    def _heard(self, entry: Entry, size: int) -> None:
        spoken = self._utterance({})
        spoken.frames += 1
        spoken.frame_bytes += size
        if entry.sound_ms:
            spoken.clock.piece(entry.at_ms, entry.sound_ms)
        if not self.sounding:
            self.events.append(SOUND)
