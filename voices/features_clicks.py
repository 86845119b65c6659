"""Finds one-sample steps: a difference between neighbours that stands alone.

Speech at 24 kHz can change as fast as a click does (fricatives, plosives), but it never does so between just two
samples: the differences beside a large one are large too. A step is one difference above -34 dBFS that is several
times larger than every other one within a millisecond and a half.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MAX_CLICKS = 32
"""At most so many are reported of one segment."""

_NEIGHBOURS = 36
_BLOCK = 12
_STANDS_OUT = 4.0
_SMALLEST = 10 ** (-34 / 20)
_LONE_SAMPLE_BACK = 0.6


@dataclass(frozen=True, slots=True)
class Click:
    """A step of ``step`` (full scale 1) between the samples ``at_sample - 1`` and ``at_sample``."""

    at_sample: int
    step: float


def find_clicks(samples: NDArray[np.float32]) -> tuple[Click, ...]:
    """The steps within a segment, in order, at most ``MAX_CLICKS``. A lone wrong sample counts as one click."""
    steps = np.abs(np.diff(samples))
    found: list[Click] = []
    for candidate in _candidates(steps):
        at = candidate
        # A lone wrong sample makes two steps, and the second may be the larger one.
        if at and steps[at - 1] > steps[at] * _LONE_SAMPLE_BACK:
            at -= 1
        if found and at < found[-1].at_sample + 2:
            continue
        if _stands_alone(steps, at):
            found.append(Click(at + 1, float(steps[at])))
            if len(found) == MAX_CLICKS:
                break
    return tuple(found)


def _candidates(steps: NDArray[np.float32]) -> list[int]:
    """The largest step of each block that towers over the blocks near by: few, to be looked at one by one."""
    blocks = -(-len(steps) // _BLOCK)
    tall = np.zeros((blocks + 6) * _BLOCK, np.float32)
    tall[3 * _BLOCK : 3 * _BLOCK + len(steps)] = steps
    heights = tall.reshape(-1, _BLOCK).max(axis=1)
    # The blocks next to it are left out: a lone wrong sample has a second step, perhaps across the border.
    around = np.maximum.reduce([heights[1 : blocks + 1], heights[5 : blocks + 5]])
    own = heights[3 : blocks + 3]
    standing = np.flatnonzero((own > _SMALLEST) & (own > _STANDS_OUT * around))
    return [int(block * _BLOCK + steps[block * _BLOCK : (block + 1) * _BLOCK].argmax()) for block in standing]


def _stands_alone(steps: NDArray[np.float32], at: int) -> bool:
    before = steps[max(0, at - _NEIGHBOURS) : at]
    after = steps[at + 1 : at + 1 + _NEIGHBOURS]
    if len(after) and after[0] > steps[at] * _LONE_SAMPLE_BACK:
        after = after[1:]
    others = max(float(before.max(initial=0.0)), float(after.max(initial=0.0)))
    return bool(steps[at] > max(_SMALLEST, _STANDS_OUT * others))
