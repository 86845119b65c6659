from __future__ import annotations

import asyncio
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.engines.rows import Rows, chunk_frames
from sidecar.faults import EngineLost, EngineOverloaded
from tests.adapters.engines.clocks import ManualClock, settle


def rows(size: int = 1, max_waiting: int = 2, wait_ms: float = 1_000) -> tuple[Rows, ManualClock]:
    clock = ManualClock()
    return Rows(size, max_waiting=max_waiting, wait_ms=wait_ms, sleep=clock.sleep), clock


async def test_rows_are_handed_on_in_order() -> None:
    pool, _ = rows()
    await pool.take()
    got: list[int] = []

    async def wait(number: int) -> None:
        await pool.take()
        got.append(number)

    waiting = [asyncio.ensure_future(wait(number)) for number in range(2)]
    await settle()
    for _ in range(2):
        pool.give()
        await settle()
    assert got == [0, 1]
    assert pool.active == 1
    pool.give()
    assert pool.active == 0
    await asyncio.gather(*waiting)


async def test_waiting_ends_at_the_limit() -> None:
    pool, clock = rows(wait_ms=500)
    await pool.take()
    waiting = asyncio.ensure_future(pool.take())
    await clock.advance(499)
    assert not waiting.done()
    await clock.advance(1)
    with pytest.raises(EngineOverloaded):
        await waiting
    pool.give()
    assert pool.active == 0


async def test_the_queue_is_bounded() -> None:
    pool, _ = rows(max_waiting=1)
    await pool.take()
    waiting = asyncio.ensure_future(pool.take())
    await settle()
    with pytest.raises(EngineOverloaded):
        await pool.take()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert pool.active == 1


async def test_a_waiter_cancelled_as_its_turn_comes_hands_the_row_on() -> None:
    pool, _ = rows()
    await pool.take()
    first, second = (asyncio.ensure_future(pool.take()) for _ in range(2))
    await settle()
    pool.give()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await second
    assert pool.active == 1


async def test_close_ends_the_wait() -> None:
    pool, _ = rows()
    await pool.take()
    waiting = asyncio.ensure_future(pool.take())
    await settle()
    pool.close()
    pool.close()
    with pytest.raises(EngineLost):
        await waiting
    with pytest.raises(EngineLost):
        await pool.take()


RAMPS = st.lists(st.integers(1, 25), min_size=1, max_size=8).map(sorted)


@given(RAMPS, st.one_of(st.none(), st.integers(-5, 100)))
def test_chunks_never_shrink_nor_pass_the_last_length(ramp: list[int], first: int | None) -> None:
    lengths = list(islice(chunk_frames(ramp, first), 20))
    assert lengths == sorted(lengths)
    assert lengths[-1] == ramp[-1]
    assert lengths[0] == (ramp[0] if first is None else min(max(first, 1), ramp[-1]))
