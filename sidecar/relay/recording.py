"""A recording of speech sockets: JSON lines, the first of which says what the others are.

Kept: the path without its query, every message with what ``hiding`` leaves of it, when it came, close codes. Frames of
sound are kept as length and digest, or whole. Headers and plain HTTP requests are never kept.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from sidecar.faults import BadRequest
from sidecar.relay.hiding import kept, masked, parsed
from sidecar.relay.seen import Answer, Binary, CloseFrame, Ended, Over, Request, Seen, Side, Text
from sidecar.relay.sound import Heard, SoundReader

VERSION = 1
MAX_RECORDING_BYTES = 256 * 1024 * 1024
_MAX_LINE_CHARS = 48 * 1024 * 1024
_MARK = "sidecar_recording"


@dataclass(frozen=True, slots=True)
class RecordingOptions:
    """``whole_frames``: keep the sound itself. ``mask_text``: letters become ``x``, digits ``0``."""

    whole_frames: bool = False
    mask_text: bool = False
    max_bytes: int = MAX_RECORDING_BYTES


class Recorder:
    """Facts to lines, up to a number of bytes; then one last line that says so, and nothing more."""

    def __init__(self, options: RecordingOptions, unix_s: float) -> None:
        self._options = options
        self._sockets: dict[int, SoundReader] = {}
        header = {_MARK: VERSION, "unix_s": round(unix_s, 3), "masked": options.mask_text}
        self._header = _line(header)
        self._bytes = len(self._header)
        self.full = False

    def header(self) -> str:
        """The first line."""
        return self._header

    def of(self, seen: Seen) -> str:
        """The line for a fact, with its line feed; empty if it is not kept."""
        members = self._members(seen)
        if members is None or self.full:
            return ""
        entry = {"c": seen.connection, "at_ms": round(seen.at_ms, 3), "from": seen.side.value, **members}
        line = _line(entry)
        if self._bytes + len(line) > self._options.max_bytes:
            self.full = True
            return _line({"full": True})
        self._bytes += len(line)
        return line

    def _members(self, seen: Seen) -> dict[str, Any] | None:
        if isinstance(seen.fact, Request):
            if not seen.fact.socket:
                return None
            self._sockets[seen.connection] = SoundReader()
            return {"path": seen.fact.path.partition("?")[0]}
        sound = self._sockets.get(seen.connection)
        if sound is None:
            return None
        from_server = seen.side is Side.SERVER
        match seen.fact:
            case Answer(status):
                return {"status": status}
            case Text(text):
                return self._text(text, sound if from_server else None)
            case Binary(data):
                return self._binary(data) | (_sound(sound.frame(data)) if from_server else {})
            case CloseFrame(code, reason):
                return {"close": code, "reason": reason[:123]}
            case Ended(how):
                return {"end": how}
            case Over():
                del self._sockets[seen.connection]
        return None

    def _text(self, text: str, sound: SoundReader | None) -> dict[str, Any]:
        message = parsed(text)
        if message is None:
            return {"text": masked(text) if self._options.mask_text else text}
        members: dict[str, Any] = {
            "message": kept(message, mask_text=self._options.mask_text, from_server=sound is not None)
        }
        return members | _sound(sound.message(message) if sound is not None else None)

    def _binary(self, data: bytes) -> dict[str, Any]:
        if self._options.whole_frames:
            return {"base64": base64.b64encode(data).decode("ascii")}
        return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()[:16]}


def _sound(heard: Heard | None) -> dict[str, Any]:
    return {} if heard is None or heard.sound_ms is None else {"sound_ms": round(heard.sound_ms, 3)}


def _line(entry: dict[str, Any]) -> str:
    return json.dumps(entry, ensure_ascii=True, separators=(",", ":")) + "\n"


# ---------------------------------------------------------------- reading
@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that was said on a socket: a ``message``, another ``text``, a frame of ``data_bytes`` (with its
    ``data`` if that was kept), or a close. ``sound_ms`` is the length of the sound in it, where that is known."""

    at_ms: float
    side: Side
    message: dict[str, Any] | None = None
    text: str | None = None
    data: bytes | None = None
    data_bytes: int | None = None
    close_code: int | None = None
    end: str | None = None
    sound_ms: float | None = None


@dataclass(slots=True)
class RecordedSocket:
    """One socket of a recording. ``status`` is the server's answer to the handshake, 0 if it gave none."""

    connection: int
    path: str
    status: int
    entries: list[Entry]


@dataclass(slots=True)
class Recording:
    """A whole file. ``full``: it broke off at its largest size. ``masked``: its texts are no texts any more."""

    sockets: list[RecordedSocket]
    masked: bool
    full: bool


def read_recording(lines: Iterable[str], max_bytes: int = MAX_RECORDING_BYTES) -> Recording:
    """Read a recording. Raises ``BadRequest`` naming the line that is none of ours."""
    numbered = enumerate(lines, 1)
    _, first = next(numbered, (1, ""))
    header = parsed(first)
    if header is None or header.get(_MARK) != VERSION:
        raise BadRequest(f"This is no recording of version {VERSION}.")
    sockets: dict[int, RecordedSocket] = {}
    full, size = False, len(first)
    for number, line in numbered:
        size += len(line)
        if size > max_bytes or len(line) > _MAX_LINE_CHARS:
            raise BadRequest(f"Line {number} of the recording: too large.")
        body = parsed(line)
        if body is not None and body.get("full") is True:
            full = True
            break
        try:
            _read_entry(sockets, body or {})
        except (KeyError, TypeError, ValueError, OverflowError, binascii.Error):
            raise BadRequest(f"Line {number} of the recording cannot be read.") from None
    return Recording(list(sockets.values()), bool(header.get("masked")), full)


def _read_entry(sockets: dict[int, RecordedSocket], body: dict[str, Any]) -> None:
    connection, at_ms, side = int(body["c"]), float(body["at_ms"]), Side(body["from"])
    if "path" in body:
        sockets[connection] = RecordedSocket(connection, str(body["path"]), 0, [])
        return
    socket = sockets[connection]
    if "status" in body:
        socket.status = int(body["status"])
        return
    entry = Entry(at_ms, side, sound_ms=None if body.get("sound_ms") is None else float(body["sound_ms"]))
    if "message" in body:
        entry = replace(entry, message=dict(body["message"]))
    elif "text" in body:
        entry = replace(entry, text=str(body["text"]))
    elif "base64" in body:
        data = base64.b64decode(body["base64"], validate=True)
        entry = replace(entry, data=data, data_bytes=len(data))
    elif "bytes" in body:
        entry = replace(entry, data_bytes=abs(int(body["bytes"])))
    elif "close" in body:
        entry = replace(entry, close_code=int(body["close"]))
    else:
        entry = replace(entry, end=str(body["end"]))
    socket.entries.append(entry)
