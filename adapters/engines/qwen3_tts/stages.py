"""What the scheduler asks of the two stages. It decides who is stepped; the stages compute.

Neither stage knows of sockets, text or fairness: stage 0 holds rows (KV caches, sampler counters), stage 1 decoder
states. The scheduler is tested with toy stages, the real ones with goldens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

CODEBOOKS = 16
FRAME_SAMPLES = 1_920

Frame = NDArray[np.int16]
"""The codes of one frame, shape ``(16,)``."""

Frames = NDArray[np.int16]
"""Shape ``(frames, 16)``."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How codes are drawn. ``seed`` keys every draw together with (step, codebook); greedy draws nothing."""

    seed: int = 0
    greedy: bool = False
    temperature: float = 0.9
    top_k: int = 50
    top_p: float = 1.0
    repetition_penalty: float = 1.05
    predictor_temperature: float = 0.9
    predictor_top_k: int = 50
    predictor_top_p: float = 1.0
    min_frames: int = 2


@dataclass(frozen=True, slots=True)
class Reference:
    """What a clone sounds like: ``embedding`` float32 ``(1024,)`` or ``(2048,)``; for in-context cloning also the
    reference's ``codes`` ``(frames, 16)`` int16 and the ``text_ids`` of its transcript."""

    embedding: NDArray[np.float32]
    codes: Frames | None = None
    text_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Said:
    """Speech that has just been: its ``codes (frames, 16)`` int16, at least one, and the ``text_ids`` of its words."""

    codes: Frames
    text_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request as ids: what stage 0 lays out as its prefill (spec of the model, prompt layout).

    ``text_ids`` are the body's ids known when the row is admitted (at least one); more may follow with ``append``
    while ``closed`` is False, in streaming layout only. ``language`` is a key of the checkpoint's languages or None
    for auto, ``speaker`` a key of its speakers. ``carry`` comes after the reference and before the text. ``live``: the
    end cannot be drawn before the text has been fed to its end, even where all of it was there from the beginning.
    """

    text_ids: tuple[int, ...]
    closed: bool = True
    layout: Literal["streaming", "whole"] = "streaming"
    language: str | None = None
    speaker: str | None = None
    instruct_ids: tuple[int, ...] = ()
    reference: Reference | None = None
    carry: Said | None = None
    live: bool = False
    sampling: Sampling = field(default_factory=Sampling)

    @property
    def spoken(self) -> Said | None:
        """What counts as said before the text: the reference in context, then the carry."""
        parts = [] if self.carry is None else [self.carry]
        reference = self.reference
        if reference is not None and reference.codes is not None and len(reference.codes):
            parts.insert(0, Said(reference.codes, reference.text_ids))
        if len(parts) < 2:
            return parts[0] if parts else None
        first, then = parts
        return Said(np.concatenate((first.codes, then.codes)), (*first.text_ids, *then.text_ids))

    @property
    def ids_to_begin(self) -> int:
        """Text ids that a text still coming must have for its prefill.

        One; beside what was said before, whose codes and text run side by side, as many as its codes outrun its text.
        """
        return max(1, self.ids_fed(1))

    def ids_fed(self, frames: int) -> int:
        """In the streaming layout: ids of the text that have been fed when so many frames (at least one) are made.

        One before the first frame and one with each; beside what was said before, its own text comes first. More
        than there are, once the text has been fed to its end.
        """
        spoken = self.spoken
        return frames if spoken is None else max(0, frames + len(spoken.codes) - len(spoken.text_ids))


@dataclass(frozen=True, slots=True)
class Stepped:
    """What one step gave one row: its next frame, or None where the row has drawn its end."""

    row: int
    frame: Frame | None


class Talker(Protocol):
    """Stage 0: rows of talker and code predictor. Not thread-safe; called from one step loop."""

    max_rows: int
    max_positions: int

    def positions(self, prompt: Prompt) -> int:
        """Length of the prompt's prefill."""

    def admit(self, row: int, prompt: Prompt) -> None:
        """Prefill a free row and draw its first code. Raises ``BadRequest`` when it cannot fit."""

    def can_step(self, row: int) -> bool:
        """False while the next step needs text that has not come (streaming layout, prompt not closed)."""

    def append(self, row: int, text_ids: Sequence[int]) -> None:
        """More text for a row that is not closed."""

    def close(self, row: int) -> None:
        """The row's text is complete: after its last id end-of-speech may be drawn. Idempotent."""

    def step(self, rows: Sequence[int]) -> list[Stepped]:
        """One frame for each of these rows (all of them admitted, steppable and not ended), in this order.

        The frame belonging to the code drawn last is completed and the next code drawn; a row whose drawn code is
        the end gives None and is over. A row's codes do not depend on which other rows are stepped with it.
        """

    def release(self, row: int) -> None:
        """Free a row at any time. Idempotent."""


class Decoder(Protocol):
    """Stage 1: codes to samples, with carried state."""

    def new_state(self) -> Any:
        """The state before the first frame."""

    def decode(self, pieces: Sequence[tuple[Any, Frames]]) -> list[NDArray[np.float32]]:
        """Decode the next frames of several streams in one batch; states are updated in place.

        Returns float32 ``(frames * 1920,)`` for each piece. Decoding in any pieces equals decoding in one, within
        float rounding.
        """
