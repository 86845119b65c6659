"""The built-in engine: speaks sentence by sentence in a few worker threads."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import numpy as np

from adapters.engines.builtin.catalogue import AUTO, Catalogue
from adapters.engines.builtin.level import levelled
from adapters.engines.builtin.speaking import Job, SentenceSpeaking
from adapters.engines.builtin.synthesis import Stop
from adapters.engines.rows import Rows
from sidecar.faults import EngineFault, EngineLost, Fault, UnsupportedByEngine
from sidecar.ports import SAMPLE_RATE_HZ, EngineHealth, EngineTraits, Pcm, Utterance
from voices.anchor import SpeakerAnchor


@dataclass(frozen=True, slots=True)
class BuiltinSettings:
    """Sizes of the built-in engine; raises ``ValueError`` when a value makes no sense.

    ``threads``: worker threads, each busy with one sentence at a time. ``max_rows`` utterances speak at once (a
    row holds at most two sentences of audio), ``max_waiting`` more wait up to ``row_wait_ms``. ``voice``: the
    default voice, whose model is loaded at ``start``; the others load when first asked for.
    ``sentence_pause_ms``: silence between two sentences of one utterance.
    """

    threads: int = 2
    max_rows: int = 64
    max_waiting: int = 64
    row_wait_ms: float = 2_000.0
    voice: str = AUTO
    chunk_ramp_frames: tuple[int, ...] = (2, 4, 8, 16, 25)
    sentence_pause_ms: int = 160

    def __post_init__(self) -> None:
        ramp = self.chunk_ramp_frames
        if not ramp or ramp[0] < 1 or ramp[-1] > 25 or list(ramp) != sorted(ramp):
            raise ValueError("chunk_ramp_frames must lie in 1..25 and never shrink")
        if not 1 <= self.threads <= 64 or self.max_rows < 1 or self.max_waiting < 0 or self.row_wait_ms < 0:
            raise ValueError("threads (at most 64) and max_rows must be at least 1, waiting limits not negative")
        if not 0 <= self.sentence_pause_ms <= 2_000:
            raise ValueError("sentence_pause_ms must lie in 0..2000")


class BuiltinEngine:
    """Speech from the models inside the installed packages; see the package. ``instructions`` have no effect."""

    def __init__(self, settings: BuiltinSettings | None = None) -> None:
        self._settings = settings or BuiltinSettings()
        self._catalogue = Catalogue()
        self._rows = Rows(
            self._settings.max_rows,
            max_waiting=self._settings.max_waiting,
            wait_ms=self._settings.row_wait_ms,
            sleep=lambda ms: asyncio.sleep(ms / 1e3),
        )
        self._workers: ThreadPoolExecutor | None = None
        self._speaking: set[SentenceSpeaking] = set()
        self._jobs: set[Future[Pcm]] = set()
        self._state: Literal["new", "running", "closed"] = "new"
        self._traits = EngineTraits(
            name="builtin",
            voices=self._catalogue.voices,
            default_voice=self._settings.voice,
            languages=self._catalogue.languages,
            max_rows=self._settings.max_rows,
            deterministic=True,
            more_voices=self._catalogue.more_voices,
        )

    @property
    def traits(self) -> EngineTraits:
        """Fixed from the beginning; the voices are those this machine has the packages for."""
        return self._traits

    async def start(self) -> None:
        """Load the default voice; nothing is downloaded.

        Raises ``UnknownVoice``, ``EngineFault`` and, after ``close``, ``EngineLost``.
        """
        if self._state == "closed":
            raise EngineLost("The built-in engine was stopped.")
        if self._state == "running":
            return
        self._catalogue.entry(self._settings.voice)
        workers = ThreadPoolExecutor(self._settings.threads, thread_name_prefix="builtin-voice")
        try:
            await asyncio.get_running_loop().run_in_executor(workers, self._catalogue.load, self._settings.voice)
        except BaseException as error:
            workers.shutdown(wait=False, cancel_futures=True)
            if isinstance(error, Fault) or not isinstance(error, Exception):
                raise
            raise EngineFault("The built-in voices cannot be loaded; reinstall hibari-tts and onnxruntime.") from error
        if self._rows.closed:  # meanwhile
            workers.shutdown(wait=True)
            raise EngineLost("The built-in engine was stopped.")
        self._workers = workers
        self._state = "running"

    async def open(self, utterance: Utterance) -> SentenceSpeaking:
        """Begin to speak; see ``Engine.open``."""
        if self._state != "running":
            raise EngineLost("The built-in engine is not running.")
        _check_abilities(utterance)
        choice = self._catalogue.choose(utterance.text, utterance.voice, utterance.language)
        await self._rows.take()
        if self._rows.closed:  # after the row was promised
            self._rows.give()
            raise EngineLost("The built-in engine was stopped.")
        speaking = SentenceSpeaking(
            choice, utterance, self._settings.chunk_ramp_frames, submit=self._submit, leave=self._leave
        )
        self._speaking.add(speaking)
        return speaking

    async def encode_voice(self, pcm: Pcm, transcript: str | None) -> SpeakerAnchor:
        """Raises ``UnsupportedByEngine``: these voices are what they are."""
        raise UnsupportedByEngine("The built-in engine cannot clone voices.", param="ref_audio")

    async def health(self) -> EngineHealth:
        """Rows count as active until the last sentence begun for them has come to its end."""
        running = self._state == "running"
        return EngineHealth(running, "" if running else "not running", self._rows.active)

    async def close(self) -> None:
        """End every utterance with ``EngineLost``; wait for sentences at work. Idempotent."""
        self._state = "closed"
        self._rows.close()
        for speaking in list(self._speaking):
            speaking.lose()
        workers, self._workers = self._workers, None
        if workers is None:
            return
        jobs = [asyncio.wrap_future(job) for job in self._jobs]
        workers.shutdown(wait=False, cancel_futures=True)
        await asyncio.gather(*jobs, return_exceptions=True)
        for synthesiser in self._catalogue.synthesisers:
            synthesiser.close()
        workers.shutdown(wait=True)

    def _submit(self, job: Job, stop: Stop) -> Future[Pcm]:
        if self._workers is None:
            raise EngineLost("The built-in engine was stopped.")
        future = self._workers.submit(self._work, job, stop)
        self._jobs.add(future)
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda done: _on_loop(loop, self._jobs.discard, done))
        return future

    def _work(self, job: Job, stop: Stop) -> Pcm:
        entry = job.entry
        try:
            parts = entry.synthesiser.speak(job.text, entry.inner, job.language, job.seed, stop)
        except Fault:
            raise
        except Exception as error:
            raise EngineFault("The built-in voice failed on this text.") from error
        if not all(np.isfinite(part).all() for part in parts):
            raise EngineFault("The built-in voice made a broken sound of this text.")
        pause_samples = 0 if job.last else self._settings.sentence_pause_ms * SAMPLE_RATE_HZ // 1000
        return levelled(parts, entry.gain_db, pause_samples)

    def _leave(self, speaking: SentenceSpeaking) -> None:
        if speaking not in self._speaking:
            return
        self._speaking.remove(speaking)
        busy = speaking.job
        if busy is None or busy.done() or busy.cancel():
            self._rows.give()
            return
        loop = asyncio.get_running_loop()
        busy.add_done_callback(lambda _: _on_loop(loop, self._rows.give))


def _check_abilities(utterance: Utterance) -> None:
    lacks = {
        "speaker_embedding": (utterance.anchor is not None, "clone voices"),
        "output_mode": (utterance.output != "pcm", "give codes"),
        "input": (utterance.live, "speak a text that is still coming"),
    }
    for param, (asked, what) in lacks.items():
        if asked:
            raise UnsupportedByEngine(f"The built-in engine cannot {what}.", param=param)


def _on_loop(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *arguments: object) -> None:
    # A worker may end after the loop has been closed: then nobody counts any more.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(call, *arguments)
