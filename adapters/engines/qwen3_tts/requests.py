"""What is asked of the runtime and what it answers: plain values that cross from thread to thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from adapters.engines.qwen3_tts.guard import GuardSettings
from adapters.engines.qwen3_tts.stages import FRAME_SAMPLES, Prompt
from sidecar.faults import Fault
from sidecar.ports import Output

CHUNK_RAMP = (1, 2, 4, 8, 16, 25)


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds the scheduler keeps; raises ``ValueError`` when a value makes no sense.

    ``max_waiting``: requests that wait while every row is taken. ``max_lead_frames``: frames of one row that no
    reader has taken yet, decoded or not; at this bound the row pauses (25 frames are 2 s). ``chunk_ramp``: frames of
    the first chunks of a row; the last length repeats. ``admits_per_turn``: prefills between two steps, so that rows
    that speak wait for one newcomer at most. ``decode_frames_per_turn``: frames of later chunks decoded between two
    steps (one chunk is decoded in any case). ``min_cap_frames``, ``cap_frames_per_token``: a row ends after
    ``max(min_cap_frames, cap_frames_per_token * text tokens)`` frames, about four times what speech takes.
    ``frames_per_token``: what must fit into the model's positions for a text to be taken. ``guard`` None: loops are
    not looked for.
    """

    max_waiting: int = 64
    max_lead_frames: int = 25
    chunk_ramp: tuple[int, ...] = CHUNK_RAMP
    admits_per_turn: int = 1
    decode_frames_per_turn: int = 100
    min_cap_frames: int = 192
    cap_frames_per_token: int = 12
    frames_per_token: int = 4
    guard: GuardSettings | None = field(default_factory=GuardSettings)

    def __post_init__(self) -> None:
        ramp = self.chunk_ramp
        if not ramp or ramp[0] < 1 or list(ramp) != sorted(ramp):
            raise ValueError("chunk_ramp must be positive and never shrink")
        if self.max_lead_frames < ramp[-1]:
            raise ValueError("max_lead_frames must hold the longest chunk of chunk_ramp")
        if self.max_waiting < 0 or self.admits_per_turn < 1 or self.decode_frames_per_turn < 1:
            raise ValueError("max_waiting must not be negative, admits and decoded frames per turn at least 1")
        if self.min_cap_frames < 1 or self.cap_frames_per_token < 1 or self.frames_per_token < 1:
            raise ValueError("min_cap_frames, cap_frames_per_token and frames_per_token must be at least 1")


@dataclass(frozen=True, slots=True)
class Ask:
    """One request. The prompt of a live text may have no ids yet and is not closed.

    ``max_frames``: an end set by the caller (the audio is cut there). ``first_chunk_frames``: length of the first
    chunk in place of the ramp's. ``output`` codes: nothing is decoded.
    """

    prompt: Prompt
    max_frames: int | None = None
    first_chunk_frames: int | None = None
    output: Output = "pcm"


@dataclass(frozen=True, slots=True)
class Placed:
    """The request has its row."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Decoded audio, float32 ``(frames * 1920,)``; ``first`` is the index of its first sample.

    ``codes (frames, 16)`` int16 where they were asked for; ``pcm`` is empty where nothing else was.
    """

    pcm: NDArray[np.float32]
    first: int
    codes: NDArray[np.int16] | None = None

    @property
    def count(self) -> int:
        """Samples that this stands for."""
        return len(self.pcm) or (0 if self.codes is None else len(self.codes) * FRAME_SAMPLES)


EndReason = Literal["end", "max_frames", "cap"]


@dataclass(frozen=True, slots=True)
class Ended:
    """All samples have been given. ``reason``: the model drew its end, or a bound cut it."""

    reason: EndReason
    frames: int


@dataclass(frozen=True, slots=True)
class Failed:
    """Nothing more comes."""

    fault: Fault


Event = Placed | Samples | Ended | Failed

Sink = Callable[[Event], None]
"""Takes the events of one request, called in the step loop's thread: must neither wait nor raise."""
