"""Keeps a speech socket's account of what was heard: told of units and of the audio that was sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sidecar.core.events import SegmentGrew, SegmentStarted
from sidecar.core.session import Effect, SendJson, Unit
from sidecar.core.socket_heard import SocketHeard
from sidecar.http.speech_fields import SessionConfig
from sidecar.live_speaking import LiveSpeaking, Note
from sidecar.ports import AudioChunk


class UnitListener:
    """What the listener of one socket has been sent, and what of it was heard at a cancel."""

    def __init__(self) -> None:
        self._heard = SocketHeard()
        self._unit: Unit[SessionConfig] | None = None
        self._live: tuple[Unit[SessionConfig], LiveSpeaking] | None = None
        self._live_chars = 0
        self._cut: dict[str, Any] | None = None

    def live(self, unit: Unit[SessionConfig], speaking: LiveSpeaking) -> None:
        """A live unit is about to be spoken; it tells itself which words its samples are of."""
        self._live = unit, speaking

    def opened(self, unit: Unit[SessionConfig]) -> None:
        """The bracket of a unit opens."""
        config = unit.config
        self._unit, self._cut = unit, None
        self._heard.begin(unit.utterance_index, config.speed or 1.0)
        if unit.live is None:
            self._heard.unit(unit.text.text, unit.text.spoken, held_back=not config.stream_audio)

    def audio(self, unit: Unit[SessionConfig], chunk: AudioChunk, *, sent: bool) -> None:
        """Audio of a unit was made, and perhaps ``sent``; of a file that is sent whole it counts when it is."""
        if self._unit is not unit or self._cut is not None or not (sent or not unit.config.stream_audio):
            return
        if unit.live is None or self._live is None or self._live[0] is not unit:
            self._heard.sent(chunk.pcm, chunk.samples, chunk.text_chars)
            return
        notes, done = self._live[1].notes, 0
        while notes and notes[0][0] < chunk.first_sample + len(chunk.pcm):
            at = max(done, notes[0][0] - chunk.first_sample)
            self._heard.sent(chunk.pcm[done:at], 0, chunk.text_chars)
            done = at
            self._note(notes.popleft())
        self._heard.sent(chunk.pcm[done:], 0, chunk.text_chars)

    def _note(self, note: Note) -> None:
        playhead, event = self._heard.playhead, note[1]
        if isinstance(event, str):
            self._heard.wrote(event)
        elif isinstance(event, SegmentStarted):
            segment = event.segment
            playhead.began(segment.start, segment.end, segment.spoken, event.ends)
        elif isinstance(event, SegmentGrew):
            playhead.grew(event.spoken, event.ends)
        else:
            playhead.over()

    def over(self, unit: Unit[SessionConfig], *, whole: bool) -> dict[str, Any]:
        """The unit is over, ``whole`` or not. What its closing event says of what was heard, if it was cut off."""
        if self._unit is not unit:
            return {}
        self._unit = None
        cut, self._cut = self._cut, None
        if self._live is not None and self._live[0] is unit:
            while self._live[1].notes and cut is None:
                self._note(self._live[1].notes.popleft())
            self._live = None
        elif cut is None:
            self._heard.ended(whole=whole)
        return cut or {}

    def cut(self, effects: Sequence[Effect], played_ms: float | None) -> list[Effect]:
        """The listener interrupts: what is answered at once, with what was heard if nothing sounds any more."""
        heard = self._heard.cut(played_ms)
        if self._unit is not None:
            self._cut = heard
        elif played_ms is not None:
            return [_with(effect, heard) for effect in effects]
        return list(effects)


def _with(effect: Effect, heard: dict[str, Any]) -> Effect:
    if isinstance(effect, SendJson) and effect.message.get("type") == "input.cancelled":
        return SendJson({**effect.message, **heard})
    return effect
