"""Server-sent events, incrementally: bytes in, events out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sidecar.faults import UpstreamBroken

_BOM = b"\xef\xbb\xbf"
_LF = 0x0A
_COLON = 0x3A


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One dispatched event: its ``data`` lines joined with LF, its ``name`` and the last ``id`` seen."""

    data: str
    name: str = "message"
    id: str = ""


class SseParser:
    """The event stream interpretation of the WHATWG, with bounds.

    However the bytes are cut, the same events come out. Holds at most one line of ``max_line_bytes`` and one
    event of ``max_event_bytes`` (bytes of its data). Bytes that are not UTF-8 become U+FFFD, as the standard has
    it; comments, ``retry`` and unknown fields are read over.
    """

    def __init__(self, *, max_line_bytes: int = 1 << 20, max_event_bytes: int | None = None) -> None:
        self._max_line_bytes = max_line_bytes
        self._max_event_bytes = max_line_bytes if max_event_bytes is None else max_event_bytes
        self._line = bytearray()
        self._skip_lf = False
        self._first_line = True
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._name = ""
        self._id = ""

    def feed(self, chunk: bytes) -> Iterator[SseEvent]:
        """Yield the events that ``chunk`` completes; must be iterated to its end before the next call.

        Raises ``UpstreamBroken`` when a line or an event is over its limit, after the events before it.
        """
        if self._skip_lf and chunk:
            self._skip_lf = False
            if chunk[0] == _LF:
                chunk = chunk[1:]
        for piece in chunk.splitlines(keepends=True):
            line = piece.rstrip(b"\r\n")
            if len(self._line) + len(line) > self._max_line_bytes:
                raise UpstreamBroken(f"The language model sent a line of over {self._max_line_bytes} bytes.")
            self._line += line
            if len(line) == len(piece):
                return
            event = self._end_line()
            if event is not None:
                yield event
        if chunk.endswith(b"\r"):
            self._skip_lf = True

    def finish(self) -> Iterator[SseEvent]:
        """Yield the event that lacks only its last line ends; for a body that ended tidily, never after a cut.

        The standard drops such an event because it may be incomplete; a body with a tidy end is not.
        Raises ``UpstreamBroken`` like ``feed``.
        """
        for event in (self._end_line() if self._line else None, self._dispatch()):
            if event is not None:
                yield event

    def _end_line(self) -> SseEvent | None:
        line = bytes(self._line)
        self._line.clear()
        if self._first_line:
            self._first_line = False
            line = line.removeprefix(_BOM)
        if not line:
            return self._dispatch()
        if line[0] != _COLON:
            field, _, value = line.partition(b":")
            self._set(field, value.removeprefix(b" "))
        return None

    def _set(self, field: bytes, value: bytes) -> None:
        if field == b"data":
            self._data_bytes += len(value) + 1
            if self._data_bytes > self._max_event_bytes + 1:
                raise UpstreamBroken(f"The language model sent an event of over {self._max_event_bytes} bytes.")
            self._data.append(value)
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
        elif field == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")

    def _dispatch(self) -> SseEvent | None:
        data, name = self._data, self._name
        self._data, self._data_bytes, self._name = [], 0, ""
        if not data:
            return None
        return SseEvent(b"\n".join(data).decode("utf-8", "replace"), name or "message", self._id)
