"""One utterance of the built-in engine: one sentence ahead of its reader, never more."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from adapters.engines.builtin.catalogue import Choice
from adapters.engines.builtin.level import fade_out
from adapters.engines.builtin.readings import written_out
from adapters.engines.builtin.synthesis import Stop, VoiceEntry
from adapters.engines.builtin.text import pieces
from adapters.engines.live_text import WholeText
from adapters.engines.rows import chunk_frames
from sidecar.faults import EngineLost
from sidecar.ports import FRAME_SAMPLES, AudioChunk, Pcm, Utterance

_SILENCE_FRAMES = 2


@dataclass(frozen=True, slots=True)
class Job:
    """One sentence for a worker thread. ``last``: no pause after it."""

    entry: VoiceEntry
    text: str
    language: str
    seed: int
    last: bool


class SentenceSpeaking(WholeText):
    """See ``Speaking``. ``submit`` gives a job to the workers, ``leave`` hands back the row."""

    def __init__(
        self,
        choice: Choice,
        utterance: Utterance,
        ramp: tuple[int, ...],
        *,
        submit: Callable[[Job, Stop], Future[Pcm]],
        leave: Callable[[SentenceSpeaking], None],
    ) -> None:
        self._choice = choice
        self._seed = utterance.seed
        text = written_out(choice.text, choice.language)
        self._sentences = list(pieces(text, choice.language, choice.entry.synthesiser.piece_characters))
        self._lengths = chunk_frames(ramp, utterance.first_chunk_frames)
        self._max_frames = utterance.max_frames
        self._text_tokens = max(1, len(utterance.text) // 4)
        self._submit = submit
        self._leave = leave
        self._stop = Stop()
        self._end: asyncio.Future[Literal["cancelled", "lost"]] = asyncio.get_running_loop().create_future()
        self._started = False
        self.job: Future[Pcm] | None = self._begin(0)

    @property
    def language(self) -> str:
        """The language whose pronunciation rules are used."""
        return self._choice.language

    @property
    def text_tokens(self) -> int:
        """One for every four characters."""
        return self._text_tokens

    def chunks(self) -> AsyncIterator[AudioChunk]:
        """See ``Speaking``; raises ``EngineFault`` and ``EngineLost``."""
        if self._started:
            raise RuntimeError("chunks() can be iterated only once")
        self._started = True
        return self._speak()

    def cancel(self) -> None:
        """The row is free at once, or as soon as the sentence at work ends."""
        self._finish("cancelled")

    def lose(self) -> None:
        """The engine is closed: ``chunks`` ends with ``EngineLost``."""
        self._finish("lost")

    def _finish(self, why: Literal["cancelled", "lost"]) -> None:
        if not self._end.done():
            self._end.set_result(why)
        self._stop.request()
        self._leave(self)

    def _begin(self, position: int) -> Future[Pcm] | None:
        if position >= len(self._sentences):
            return None
        choice = self._choice
        job = Job(
            choice.entry,
            self._sentences[position],
            choice.language,
            _sentence_seed(self._seed, position),
            position + 1 == len(self._sentences),
        )
        return self._submit(job, self._stop)

    async def _speak(self) -> AsyncIterator[AudioChunk]:
        done, position = 0, 0
        try:
            while self.job is not None:
                pcm = await self._result()
                if self._ended():
                    return
                position += 1
                self.job = self._begin(position) if self._wants_more(done + len(pcm)) else None
                for piece in self._cut(pcm, done):
                    await asyncio.sleep(0)
                    if self._ended():
                        return
                    yield AudioChunk(piece, done)
                    done += len(piece)
            if done == 0 and not self._ended():
                yield AudioChunk(np.zeros(_SILENCE_FRAMES * FRAME_SAMPLES, np.float32), 0)
        finally:
            self._stop.request()
            self._leave(self)

    def _ended(self) -> bool:
        if self._end.done() and self._end.result() == "lost":
            raise EngineLost("The built-in engine was stopped.")
        return self._end.done()

    async def _result(self) -> Pcm:
        if self.job is None or self._end.done():
            return np.zeros(0, np.float32)
        result = asyncio.wrap_future(self.job)
        either: set[asyncio.Future[Any]] = {result, self._end}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not result.done() or result.cancelled():
            return np.zeros(0, np.float32)
        return result.result()

    def _wants_more(self, samples: int) -> bool:
        return self._max_frames is None or samples < max(1, self._max_frames) * FRAME_SAMPLES

    def _cut(self, pcm: Pcm, done: int) -> list[Pcm]:
        if self._max_frames is not None:
            room = max(1, self._max_frames) * FRAME_SAMPLES - done
            pcm = pcm if len(pcm) <= room else fade_out(pcm[:room])
        cut: list[Pcm] = []
        while len(pcm):
            length = next(self._lengths) * FRAME_SAMPLES
            cut.append(pcm[:length])
            pcm = pcm[length:]
        return cut


def _sentence_seed(seed: int, position: int) -> int:
    digest = hashlib.blake2b(f"{seed} {position}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")
