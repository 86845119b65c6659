"""Facts of one connection as lines to read: when, which connection, from whom, what, how large, what in it."""

from __future__ import annotations

from typing import Any

from sidecar.play_clock import Arrival, PlayClock
from sidecar.relay.hiding import line_of, parsed, printable
from sidecar.relay.seen import (
    Answer,
    Binary,
    BodyEnd,
    BodyPart,
    CloseFrame,
    Ended,
    Over,
    Ping,
    Request,
    Seen,
    Side,
    Text,
    Unseen,
)
from sidecar.relay.sound import Heard, SoundReader

_MAX_BODY_BYTES = 1024 * 1024
_MAX_EVENT_BYTES = 4 * 1024 * 1024
_ARROW = {Side.CLIENT: "-->", Side.SERVER: "<--"}


class ConnectionLines:
    """Lines of one connection. ``show_text``: texts may be seen; voices and keys never are."""

    def __init__(self, *, show_text: bool = False) -> None:
        self._show_text = show_text
        self._sound = SoundReader()
        self._clock = PlayClock()
        self._unit_ms = 0.0
        self._bodies = {side: _Body(show_text, side is Side.SERVER) for side in Side}
        self._bytes = dict.fromkeys(Side, 0)
        self._sound_ms = 0.0

    def of(self, seen: Seen) -> list[str]:
        """The lines for one fact, usually one."""
        rows = self._rows(seen)
        start = f"{seen.at_ms / 1000:9.3f}  #{seen.connection:<3} {_ARROW[seen.side]}"
        return [f"{start} {kind:<18} {size:>10}  {detail}".rstrip() for kind, size, detail in rows]

    def _rows(self, seen: Seen) -> list[tuple[str, str, str]]:
        match seen.fact:
            case Request() as request:
                keyed = "with a key" if request.keyed else "without a key"
                kind = f"{request.method} socket" if request.socket else request.method
                return [(kind, "", f"{printable(request.path, 200)} from {printable(request.peer)}, {keyed}")]
            case Answer(status, media_type):
                self._bodies[Side.SERVER].media_type = media_type
                return [(str(status), "", "a socket from here on" if status == 101 else printable(media_type))]
            case BodyPart(data):
                return self._bodies[seen.side].part(data, seen.at_ms)
            case BodyEnd():
                return self._bodies[seen.side].end()
            case Text(text, frames):
                self._bytes[seen.side] += len(text.encode("utf-8", "replace"))
                return [self._text(seen, text, frames)]
            case Binary(data, frames):
                self._bytes[seen.side] += len(data)
                return [self._binary(seen, data, frames)]
            case Ping(size, pong):
                return [("pong" if pong else "ping", f"{size} B", "")]
            case CloseFrame(code, reason):
                return [("close", "", f"{code} {printable(reason)}".strip())]
            case Ended(how):
                return [("end", "", printable(how))]
            case Over():
                told = ", ".join(f"{side.value} {self._bytes[side]} B of messages" for side in Side)
                return [
                    ("over", "", f"{told}, {self._sound_ms / 1000:.2f} s of sound" if any(self._bytes.values()) else "")
                ]
            case Unseen(why):
                return [("unreadable", "", f"{why}: passed on, not shown any more")]

    def _text(self, seen: Seen, text: str, frames: int) -> tuple[str, str, str]:
        size = f"{len(text)} ch" + (f"/{frames}" if frames > 1 else "")
        message = parsed(text)
        if message is None:
            detail = printable(text) if self._show_text else "not a JSON object"
            return "text", size, detail
        from_server = seen.side is Side.SERVER
        detail = line_of(message, show_text=self._show_text, from_server=from_server)
        if from_server:
            if heard := self._sound.message(message):
                detail += f"  {self._heard(heard, seen.at_ms)}"
            detail += self._over(message.get("type"))
        return printable(str(message.get("type")), 40), size, detail

    def _over(self, kind: object) -> str:
        """What an event that ends something can say of its sound."""
        if kind in ("audio.done", "codec.done"):
            unit_ms, self._unit_ms = self._unit_ms, 0.0
            return f"  unit {unit_ms / 1000:.2f} s" if unit_ms else ""
        if kind != "session.done" or not self._clock.sound_ms:
            return ""
        clock, self._clock = self._clock, PlayClock()
        dry = f", ran dry for {clock.dry_ms:.0f} ms" if clock.dry_ms else ""
        return f"  {clock.sound_ms / 1000:.2f} s, longest gap {clock.max_gap_ms:.0f} ms{dry}"

    def _binary(self, seen: Seen, data: bytes, frames: int) -> tuple[str, str, str]:
        size = f"{len(data)} B" + (f"/{frames}" if frames > 1 else "")
        if seen.side is Side.CLIENT:
            return "binary", size, ""
        return "binary", size, self._heard(self._sound.frame(data), seen.at_ms)

    def _heard(self, heard: Heard, at_ms: float) -> str:
        if not heard.sound_ms:
            return heard.note
        arrival = self._clock.piece(at_ms, heard.sound_ms)
        self._unit_ms += heard.sound_ms
        self._sound_ms += heard.sound_ms
        so_far_s = self._clock.sound_ms / 1000
        return f"{heard.note}  {heard.sound_ms / 1000:.3f} s, {so_far_s:.2f} s so far{_arrived(arrival)}"


def _arrived(arrival: Arrival) -> str:
    gap = "" if arrival.gap_ms is None else f", {arrival.gap_ms:.0f} ms after the last"
    dry = f", RAN DRY {arrival.dry_ms:.0f} ms" if arrival.dry_ms >= 1 else ""
    return f"{gap}, {arrival.ahead_ms / 1000:.2f} s ahead{dry}"


class _Body:
    """A plain HTTP body: JSON as its members, server-sent events one by one, sound and the rest by size."""

    def __init__(self, show_text: bool, from_server: bool) -> None:
        self.media_type = ""
        self._show_text = show_text
        self._from_server = from_server
        self._kept = b""
        self._bytes = 0
        self._last_ms: float | None = None
        self._max_gap_ms = 0.0

    def part(self, data: bytes, at_ms: float) -> list[tuple[str, str, str]]:
        gap_ms = None if self._last_ms is None else at_ms - self._last_ms
        self._last_ms = at_ms
        self._max_gap_ms = max(self._max_gap_ms, gap_ms or 0.0)
        self._bytes += len(data)
        if self.media_type == "text/event-stream":
            return self._events(data)
        if self.media_type.startswith("audio/"):
            after = "" if gap_ms is None else f"{gap_ms:.0f} ms after the last"
            return [("body", f"{len(data)} B", after)]
        self._kept = (self._kept + data)[: _MAX_BODY_BYTES + 1]
        return []

    def end(self) -> list[tuple[str, str, str]]:
        kept, total, gap_ms = self._kept, self._bytes, self._max_gap_ms
        self._kept, self._bytes, self._last_ms, self._max_gap_ms = b"", 0, None, 0.0
        if not total:
            return []
        message = parsed(kept.decode("utf-8", "replace")) if len(kept) <= _MAX_BODY_BYTES else None
        if message is not None:
            return [("body", f"{total} B", self._members(message))]
        gap = f"longest gap {gap_ms:.0f} ms" if gap_ms else ""
        return [("body complete", f"{total} B", gap)]

    def _events(self, data: bytes) -> list[tuple[str, str, str]]:
        *whole, self._kept = (self._kept + data).replace(b"\r\n", b"\n").split(b"\n\n")
        if len(self._kept) > _MAX_EVENT_BYTES:
            self._kept = b""
        return [self._event(one) for one in whole]

    def _event(self, event: bytes) -> tuple[str, str, str]:
        lines = event.decode("utf-8", "replace").split("\n")
        text = "\n".join(line[5:].strip() for line in lines if line.startswith("data:"))
        message = parsed(text)
        if message is None:
            return "event", f"{len(event)} B", printable(text) if text == "[DONE]" else ""
        name = message.get("type") or message.get("object") or "event"
        return printable(str(name), 40), f"{len(event)} B", self._members(message)

    def _members(self, message: dict[str, Any]) -> str:
        return line_of(message, show_text=self._show_text, from_server=self._from_server)
