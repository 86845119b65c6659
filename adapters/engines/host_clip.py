"""One recording that a hosted engine is asked to encode; asked again should the process break down over it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from adapters.engines.host_speaking import Line
from adapters.engines.host_wire import anchor_from_json, fault_from_json, pack, samples_to_bytes
from sidecar.faults import EngineLost, Fault
from sidecar.ports import Pcm
from voices.anchor import SpeakerAnchor


class HostedClip:
    """``opened`` ends with the anchor."""

    holds_row = False

    def __init__(self, line: Line, id: int, pcm: Pcm, transcript: str) -> None:
        self.id = id
        self.opened: asyncio.Future[SpeakerAnchor] = asyncio.get_running_loop().create_future()
        self._line = line
        self._pcm = pcm
        self._transcript = transcript
        self._replays = 0

    def message(self) -> bytes:
        """What asks a process for it. Raises ``ValueError`` when it is too long."""
        return pack({"op": "encode", "id": self.id, "transcript": self._transcript}, samples_to_bytes(self._pcm))

    def again(self) -> None:
        """The message was all."""

    def hear(self, header: Mapping[str, Any], body: bytes) -> None:
        """A message of the process for this recording."""
        match header.get("op"):
            case "encoded" if not self.opened.done():
                self.opened.set_result(anchor_from_json(header["anchor"]))
                self._line.leave(self.id)
            case "fault":
                self._fail(fault_from_json(header["fault"]))

    def cut(self, max_replays: int, *, deterministic: bool) -> None:
        """The process is gone: wait for the next one, if it may be asked."""
        if self._replays >= max_replays:
            self._fail(EngineLost("The speech engine's process broke down over this recording.", retry_after_s=1.0))
        self._replays += 1

    def lose(self, fault: EngineLost, *, complete: bool = False) -> None:
        """Nothing more comes."""
        self._fail(fault)

    def silent(self, now_ms: float, limit_ms: float) -> bool:
        """Never: its caller waits for a bounded time, and whether the process hangs is seen by its speech."""
        return False

    def cancel(self) -> None:
        """Its caller is gone. Idempotent."""
        if not self.opened.done():
            self._line.send({"op": "cancel", "id": self.id})
            self.opened.cancel()
        self._line.leave(self.id)

    def _fail(self, fault: Fault) -> None:
        if not self.opened.done():
            self.opened.set_exception(fault)
            self.opened.exception()  # read by its caller, if it still waits
        self._line.leave(self.id)
