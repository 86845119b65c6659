"""Recordings to speaker anchors, one at a time, in a thread beside the step loop: speech goes on meanwhile."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from sidecar.faults import EngineFault, EngineLost, EngineOverloaded, Fault
from sidecar.ports import Pcm
from voices.anchor import SpeakerAnchor

_log = logging.getLogger(__name__)

MAX_WAITING = 8
"""Recordings of up to a minute that wait for the one at work."""


class VoiceEncoder(Protocol):
    """What hears a recording. Called from one thread at a time."""

    def encode(self, pcm: Pcm, transcript: str | None) -> SpeakerAnchor:
        """See ``Engine.encode_voice``; raises ``BadRequest`` and ``EngineFault``."""


class EncoderThread:
    """Runs an encoder; lives in one event loop. The thread begins with the first recording."""

    def __init__(self) -> None:
        self._worker: ThreadPoolExecutor | None = None
        self._turn = asyncio.Lock()
        self._waiting: set[asyncio.Task[SpeakerAnchor]] = set()
        self._at_work: asyncio.Task[SpeakerAnchor] | None = None
        self._closed = False

    async def encode(self, encoder: VoiceEncoder, pcm: Pcm, transcript: str | None) -> SpeakerAnchor:
        """See ``Engine.encode_voice``. A caller that goes away takes its recording along if it still waits."""
        if self._closed:
            raise EngineLost("The speech engine was stopped.")
        if len(self._waiting) > MAX_WAITING:
            raise EngineOverloaded("Too many recordings wait to be encoded; try again shortly.", retry_after_s=5.0)
        task = asyncio.ensure_future(self._encode(encoder, pcm, transcript))
        self._waiting.add(task)
        task.add_done_callback(self._forget)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():  # by close
                raise EngineLost("The speech engine was stopped.") from None
            if task is not self._at_work:
                task.cancel()
            raise

    async def close(self) -> None:
        """What waits ends with ``EngineLost``; what is at work is waited for. Idempotent."""
        self._closed = True
        for task in self._waiting - {self._at_work}:
            task.cancel()
        if self._waiting:
            await asyncio.wait(self._waiting)
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.shutdown(wait=True)

    async def _encode(self, encoder: VoiceEncoder, pcm: Pcm, transcript: str | None) -> SpeakerAnchor:
        async with self._turn:
            self._at_work = asyncio.current_task()
            if self._worker is None:
                self._worker = ThreadPoolExecutor(1, thread_name_prefix="qwen3-tts-encoder")
            return await asyncio.get_running_loop().run_in_executor(self._worker, _encode, encoder, pcm, transcript)

    def _forget(self, task: asyncio.Task[SpeakerAnchor]) -> None:
        self._waiting.discard(task)
        if not task.cancelled():
            task.exception()  # its caller may be gone


def _encode(encoder: VoiceEncoder, pcm: Pcm, transcript: str | None) -> SpeakerAnchor:
    try:
        return encoder.encode(pcm, transcript)
    except Fault:
        raise
    except Exception as error:
        _log.exception("a recording could not be encoded")
        raise EngineFault("The speech engine failed on this recording.") from error
