"""Where stage 1 runs: within the step loop, or in a thread of its own behind a queue of one job.

On one device both stages share its time anyway, and the loop waits for nothing else. Where the decoder has a device of
its own (a CPU beside the GPU, another GPU) the talker steps on while samples are made; a decoder that falls behind is
given no second job, so frames wait with the scheduler, whose bounds hold.
"""

from __future__ import annotations

import queue
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from adapters.engines.qwen3_tts.scheduler import Piece
from adapters.engines.qwen3_tts.stages import Decoder, Frames, Prompt, Talker

Pcm = NDArray[np.float32]


class Listening(Protocol):
    """A decoder that can be brought past codes whose sound nobody needs, and whose states can be copied."""

    def listen(self, state: Any, codes: Frames) -> None:
        """Bring a state past ``codes (frames, 16)``."""


class Stages:
    """A talker and a decoder. States after the references of in-context voices are kept for the next utterance.

    ``apart``: the decoder runs in a thread of its own.
    """

    _KEPT = 8

    def __init__(self, talker: Talker, decoder: Decoder, *, apart: bool = False) -> None:
        self.talker = talker
        self.decoder = decoder
        self.apart = apart
        self._after: OrderedDict[bytes, Any] = OrderedDict()

    def first_state(self, prompt: Prompt) -> Any:
        """The decoder's state before the first frame: what was said before has been heard already then."""
        state = self._after_reference(prompt)
        if prompt.carry is not None:
            cast(Listening, self.decoder).listen(state, prompt.carry.codes)
        return state

    def _after_reference(self, prompt: Prompt) -> Any:
        reference = prompt.reference
        if reference is None or reference.codes is None or not len(reference.codes):
            return self.decoder.new_state()
        key = reference.codes.tobytes()
        if key not in self._after:
            state = self.decoder.new_state()
            cast(Listening, self.decoder).listen(state, reference.codes)
            self._after[key] = state
            if len(self._after) > self._KEPT:
                self._after.popitem(last=False)
        self._after.move_to_end(key)
        return self._after[key].clone()


@dataclass(slots=True, eq=False)
class Stream:
    """The sound of one request; its state is made with its first frames and touched by the decoder's side alone."""

    prompt: Prompt
    sounding: bool
    state: Any = None


Batch = Sequence[tuple[Piece, Stream]]
Decoded = list[tuple[Piece, Pcm]]


def decode(stages: Stages, batch: Batch) -> Decoded:
    """The samples of each piece, ``(frames * 1920,)``; none for streams of which only codes are wanted."""
    sounding = [(piece, stream) for piece, stream in batch if stream.sounding]
    for _, stream in sounding:
        if stream.state is None:
            stream.state = stages.first_state(stream.prompt)
    pieces = [(stream.state, piece.frames) for piece, stream in sounding]
    made = iter(stages.decoder.decode(pieces) if pieces else ())
    return [(piece, next(made) if stream.sounding else np.zeros(0, np.float32)) for piece, stream in batch]


class Inline:
    """Decodes when it is asked to."""

    def __init__(self, stages: Stages) -> None:
        self._stages = stages
        self._done: list[Decoded] = []
        self.free = True

    @property
    def ready(self) -> bool:
        """True if ``done`` has something to give."""
        return bool(self._done)

    def put(self, batches: Sequence[Batch]) -> None:
        """Decode these, in order."""
        self._done += [decode(self._stages, batch) for batch in batches]

    def done(self) -> list[Decoded]:
        """What has been decoded since."""
        done, self._done = self._done, []
        return done

    def close(self) -> None:
        """Nothing to stop."""


class Apart:
    """Decodes in a thread of its own, one job at a time; ``wake`` is called from it whenever a batch is done."""

    def __init__(self, stages: Stages, wake: Callable[[], None]) -> None:
        self._stages = stages
        self._wake = wake
        self._jobs: queue.SimpleQueue[Sequence[Batch] | None] = queue.SimpleQueue()
        self._done: deque[Decoded | Exception] = deque()
        self._pending = 0
        self._thread = threading.Thread(target=self._run, name="qwen3-tts-decoder", daemon=True)
        self._thread.start()

    @property
    def free(self) -> bool:
        """True if a job may be given: the one before is done."""
        return self._pending == 0

    @property
    def ready(self) -> bool:
        """True if ``done`` has something to give."""
        return bool(self._done)

    def put(self, batches: Sequence[Batch]) -> None:
        """Begin to decode these, in order."""
        if batches:
            self._pending = len(batches)
            self._jobs.put(batches)

    def done(self) -> list[Decoded]:
        """What has been decoded since. Raises what the decoder raised."""
        found = []
        while self._done:
            one = self._done.popleft()
            if isinstance(one, Exception):
                raise one
            self._pending -= 1
            found.append(one)
        return found

    def close(self) -> None:
        """Stop after the batch at work, and wait for that."""
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (batches := self._jobs.get()) is not None:
            for batch in batches:
                try:
                    self._done.append(decode(self._stages, batch))
                except Exception as error:
                    self._done.append(error)
                    self._wake()
                    return
                self._wake()
