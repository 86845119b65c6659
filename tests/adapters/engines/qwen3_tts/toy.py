"""Two toy stages that compute with integers: same interface, same rules about text, no model.

A row's codes are a hash of (seed, step, the text ids seen so far), so that any mix-up of rows, a missed or doubled step
or a text id seen too early changes them. The samples of a frame depend on all frames before it. Both stages complain
when they are used in a way the interface does not allow.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from adapters.engines.qwen3_tts.decoding import Stages
from adapters.engines.qwen3_tts.stages import CODEBOOKS, FRAME_SAMPLES, Frame, Frames, Prompt, Stepped

LOOPING_ID = 60_000
"""A text id after which a row repeats itself and never ends."""

SILENT_ID = 60_001
"""A text that begins with this id ends before its first frame."""


@dataclass
class _Row:
    prompt: Prompt
    ids: list[int]
    closed: bool
    step: int = 0
    ended: bool = False


def frames_of(ids: Sequence[int], seed: int) -> int:
    """How many frames the toy says a text in."""
    return sum(2 + (7 * id + seed) % 3 for id in ids)


def _codes(row: _Row, seen: int) -> Frame:
    if LOOPING_ID in row.ids[:seen]:
        return np.full(CODEBOOKS, row.step % 3, np.int16)
    p = row.prompt
    said = p.carry and p.carry.text_ids
    key = f"{p.sampling.seed} {row.step} {row.ids[:seen]} {p.language} {p.speaker} {p.instruct_ids} {p.layout} {said}"
    digest = hashlib.blake2b(key.encode(), digest_size=2 * CODEBOOKS).digest()
    return (np.frombuffer(digest, np.uint16) % 2_048).astype(np.int16)


class ToyTalker:
    """Stage 0. ``steps`` keeps which rows were stepped together."""

    def __init__(self, max_rows: int = 8, max_positions: int = 4_096) -> None:
        self.max_rows = max_rows
        self.max_positions = max_positions
        self.rows: dict[int, _Row] = {}
        self.steps: list[tuple[int, ...]] = []
        self.most_rows = 0

    def positions(self, prompt: Prompt) -> int:
        assert prompt.text_ids
        text = len(prompt.text_ids) + 1 if prompt.layout == "whole" else 1
        return 9 + len(prompt.instruct_ids) + text

    def admit(self, row: int, prompt: Prompt) -> None:
        assert 0 <= row < self.max_rows
        assert row not in self.rows, "admitted a row that is taken"
        assert prompt.text_ids
        assert prompt.closed or prompt.layout == "streaming"
        self.rows[row] = _Row(prompt, list(prompt.text_ids), prompt.closed)
        self.most_rows = max(self.most_rows, len(self.rows))

    def can_step(self, row: int) -> bool:
        here = self.rows[row]
        return here.closed or len(here.ids) > here.step

    def append(self, row: int, text_ids: Sequence[int]) -> None:
        assert not self.rows[row].closed
        self.rows[row].ids.extend(text_ids)

    def close(self, row: int) -> None:
        self.rows[row].closed = True

    def step(self, rows: Sequence[int]) -> list[Stepped]:
        assert rows
        assert len(set(rows)) == len(rows)
        self.steps.append(tuple(rows))
        return [self._step(row) for row in rows]

    def _step(self, row: int) -> Stepped:
        here = self.rows[row]
        assert not here.ended, "stepped a row that is over"
        assert self.can_step(row), "stepped a row that lacks text"
        whole = here.prompt.layout == "whole"
        looping = LOOPING_ID in here.ids
        if here.closed and not looping and here.step >= frames_of(here.ids, here.prompt.sampling.seed):
            here.ended = True
        if here.ids[0] == SILENT_ID:
            here.ended = True
        if here.ended:
            return Stepped(row, None)
        frame = _codes(here, len(here.ids) if whole else here.step + 1)
        here.step += 1
        return Stepped(row, frame)

    def release(self, row: int) -> None:
        self.rows.pop(row, None)


@dataclass
class _State:
    frames: int = 0
    memory: int = 1

    def clone(self) -> _State:
        return replace(self)


class ToyDecoder:
    """Stage 1: each frame a tone whose pitch depends on its codes and on all frames before it."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []

    def new_state(self) -> _State:
        return _State()

    def decode(self, pieces: Sequence[tuple[_State, Frames]]) -> list[NDArray[np.float32]]:
        assert len({id(state) for state, _ in pieces}) == len(pieces)
        self.calls.append([len(frames) for _, frames in pieces])
        return [self._decode(state, frames) for state, frames in pieces]

    def listen(self, state: _State, codes: Frames) -> None:
        self._decode(state, codes)

    def _decode(self, state: _State, frames: Frames) -> NDArray[np.float32]:
        assert frames.shape[1:] == (CODEBOOKS,)
        assert len(frames) > 0
        made = []
        for frame in frames:
            state.memory = (state.memory * 31 + int(frame.astype(np.int64).sum())) % 65_521
            state.frames += 1
            turns = 10 + state.memory % 40
            made.append(np.sin(np.arange(FRAME_SAMPLES) * (2 * math.pi * turns / FRAME_SAMPLES)) * 0.2)
        return np.concatenate(made).astype(np.float32)


def stages(rows: int = 8, positions: int = 4_096) -> Stages:
    """A toy talker and decoder."""
    return Stages(ToyTalker(rows, positions), ToyDecoder())


def alone(prompt: Prompt, max_frames: int = 10_000) -> Frames:
    """The codes of a prompt when nothing else goes on."""
    talker = ToyTalker(1)
    talker.admit(0, prompt)
    frames: list[Frame] = []
    while len(frames) < max_frames and (frame := talker.step([0])[0].frame) is not None:
        frames.append(frame)
    return np.stack(frames) if frames else np.zeros((0, CODEBOOKS), np.int16)


def samples_of(frames: Frames) -> NDArray[np.float32]:
    """What the toy decoder makes of these codes."""
    decoder = ToyDecoder()
    return decoder.decode([(decoder.new_state(), frames)])[0]
