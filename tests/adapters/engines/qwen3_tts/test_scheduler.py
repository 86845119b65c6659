from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from adapters.engines.qwen3_tts.requests import Ask, EndReason, Limits
from adapters.engines.qwen3_tts.scheduler import Piece, Scheduler
from adapters.engines.qwen3_tts.stages import FRAME_SAMPLES, Frames, Prompt, Reference, Sampling
from sidecar.faults import BadRequest, EngineOverloaded, Fault
from tests.adapters.engines.qwen3_tts.toy import LOOPING_ID, SILENT_ID, ToyTalker, alone, frames_of

Prompts = Callable[[int], Prompt]


class Driver:
    """A step loop without a thread: does what the scheduler says, with toy rows, and keeps what came of it."""

    def __init__(self, rows: int = 4, limits: Limits | None = None, positions: int = 4_096) -> None:
        self.talker = ToyTalker(rows, positions)
        self.scheduler = Scheduler(rows, limits or Limits())
        self.codes: dict[int, list[Frames]] = {}
        self.chunks: dict[int, list[int]] = {}
        self.ended: dict[int, EndReason] = {}
        self.failed: dict[int, Fault] = {}
        self.rows: dict[int, int] = {}
        self.batches: list[list[Piece]] = []

    def submit(self, id: int, ask: Ask) -> None:
        known = ask.prompt if ask.prompt.text_ids else replace(ask.prompt, text_ids=(0,))
        self.scheduler.submit(id, ask, self.talker.max_positions - self.talker.positions(known))
        self.codes[id], self.chunks[id] = [], []

    def turn(self, prompts: dict[int, Prompt] | None = None) -> bool:
        scheduler, talker = self.scheduler, self.talker
        scheduler.seat()
        for row in scheduler.released():
            talker.release(row)
        admitted = scheduler.admissions()
        for id, row in admitted:
            talker.admit(row, (prompts or {}).get(id) or scheduler._items[id].ask.prompt)
            self.rows[id] = row
            scheduler.admitted(id)
        stalled = {row for row in scheduler.open_rows() if not talker.can_step(row)}
        rows = scheduler.steps(stalled)
        for result in talker.step(rows) if rows else ():
            failed = scheduler.stepped(result.row, result.frame)
            if failed:
                self.failed[failed[0]] = failed[1]
        stalled = {row for row in scheduler.open_rows() if not talker.can_step(row)}
        self.batches = scheduler.decodes(stalled)
        for piece in [piece for batch in self.batches for piece in batch]:
            first = scheduler.decoded(piece)
            assert first == sum(self.chunks[piece.id]) * FRAME_SAMPLES
            self.codes[piece.id].append(piece.frames)
            self.chunks[piece.id].append(len(piece.frames))
        for ending in scheduler.endings():
            assert sum(self.chunks[ending.id]) == ending.frames
            self.ended[ending.id] = ending.reason
        return bool(admitted or rows or self.batches)

    def take_all(self, id: int) -> None:
        self.scheduler.took(id, 10**9)

    def run(self, *ids: int, turns: int = 2_000) -> None:
        """Turns until these have ended, with readers that take everything at once."""
        for _ in range(turns):
            if all(id in self.ended or id in self.failed for id in ids):
                return
            self.turn()
            for id in self.scheduler.ids():
                self.take_all(id)
        raise AssertionError("they do not end")

    def said(self, id: int) -> Frames:
        return np.concatenate(self.codes[id])


def prompt(*ids: int, seed: int = 1, **more: object) -> Prompt:
    return replace(Prompt(ids or (5, 6, 7, 8), sampling=Sampling(seed=seed)), **more)


LONG = tuple(range(100, 140))


# ---------------------------------------------------------------- one row
def test_a_row_alone_says_its_codes_in_the_ramp() -> None:
    driver = Driver()
    driver.submit(1, Ask(prompt(*LONG)))
    driver.run(1)
    expected = alone(prompt(*LONG))
    assert np.array_equal(driver.said(1), expected)
    assert driver.chunks[1][:6] == [1, 2, 4, 8, 16, 25]
    assert driver.ended[1] == "end"
    assert driver.scheduler.ids() == []


def test_first_audio_takes_one_prefill_one_step_and_one_frame_decoded() -> None:
    driver = Driver()
    driver.submit(1, Ask(prompt(*LONG)))
    driver.turn()
    assert driver.talker.steps == [(driver.rows[1],)]
    assert [[len(piece.frames) for piece in batch] for batch in driver.batches] == [[1]]


def test_the_first_chunk_can_be_longer() -> None:
    driver = Driver()
    driver.submit(1, Ask(prompt(*LONG), first_chunk_frames=3))
    driver.run(1)
    assert driver.chunks[1][:4] == [3, 4, 8, 16]


@pytest.mark.parametrize("frames", [1, 2, 3, 7, 20])
def test_max_frames_cuts(frames: int) -> None:
    driver = Driver()
    driver.submit(1, Ask(prompt(*LONG), max_frames=frames))
    driver.run(1)
    assert np.array_equal(driver.said(1), alone(prompt(*LONG))[:frames])
    assert driver.ended[1] == "max_frames"


def test_a_text_that_is_whole_needs_no_asking_for_more() -> None:
    driver = Driver()
    driver.submit(1, Ask(prompt(*LONG)))
    driver.turn()
    assert driver.scheduler.open_rows() == []


# ---------------------------------------------------------------- bounds
def test_the_wait_queue_is_bounded() -> None:
    driver = Driver(rows=2, limits=Limits(max_waiting=3))
    for id in range(5):
        driver.submit(id, Ask(prompt()))
    with pytest.raises(EngineOverloaded) as refused:
        driver.submit(5, Ask(prompt()))
    assert refused.value.retryable
    driver.turn()
    assert (driver.scheduler.active, driver.scheduler.waiting) == (2, 3)
    driver.run(*range(5))


def test_without_a_queue_free_rows_are_still_given() -> None:
    driver = Driver(rows=2, limits=Limits(max_waiting=0))
    driver.submit(1, Ask(prompt()))
    driver.submit(2, Ask(prompt()))
    with pytest.raises(EngineOverloaded):
        driver.submit(3, Ask(prompt()))
    driver.turn()
    with pytest.raises(EngineOverloaded):
        driver.submit(3, Ask(prompt()))
    assert driver.scheduler.cancel(1)
    driver.submit(3, Ask(prompt()))


def test_a_slow_reader_pauses_its_row_and_no_other() -> None:
    driver = Driver()
    driver.submit(1, Ask(prompt(*LONG)))
    driver.submit(2, Ask(prompt(*LONG, seed=2)))
    for _ in range(200):
        driver.turn()
        if 2 in driver.scheduler.ids():
            driver.take_all(2)
    assert driver.ended == {2: "end"}
    assert driver.scheduler.state(1) == "paused"
    assert driver.scheduler.held(1) == 25 * FRAME_SAMPLES
    driver.run(1)
    assert np.array_equal(driver.said(1), alone(prompt(*LONG)))


def test_a_row_that_ended_stays_taken_until_its_reader_has_everything() -> None:
    driver = Driver(rows=1)
    driver.submit(1, Ask(prompt(5)))
    for _ in range(20):
        driver.turn()
    assert driver.ended == {1: "end"}
    assert driver.scheduler.active == 1
    assert driver.talker.rows == {}
    assert driver.scheduler.state(1) == "ended"
    driver.take_all(1)
    assert driver.scheduler.active == 0


def test_the_cap_follows_the_text() -> None:
    driver = Driver(limits=Limits(min_cap_frames=3, cap_frames_per_token=1, frames_per_token=1))
    driver.submit(1, Ask(prompt(*LONG)))
    driver.submit(2, Ask(prompt(5, 6)))
    driver.run(1, 2)
    assert len(driver.said(1)) == len(LONG)
    assert len(driver.said(2)) == 3
    assert driver.ended == {1: "cap", 2: "cap"}


def test_a_text_that_cannot_fit_is_refused_with_figures() -> None:
    driver = Driver(positions=100)
    with pytest.raises(BadRequest, match=r"40 tokens need about 160 frames, 90 are left"):
        driver.submit(1, Ask(prompt(*LONG)))
    driver.submit(1, Ask(prompt(*LONG), max_frames=20))
    driver.submit(2, Ask(prompt(5, 6, 7)))
    driver.run(1, 2)


def test_positions_end_a_row() -> None:
    driver = Driver(positions=30, limits=Limits(frames_per_token=1))
    driver.submit(1, Ask(prompt(*range(2, 20))))
    driver.run(1)
    assert len(driver.said(1)) == 20
    assert driver.ended[1] == "cap"


# ---------------------------------------------------------------- faults
def test_a_loop_is_a_fault_and_costs_nobody_else() -> None:
    driver = Driver()
    driver.submit(1, Ask(prompt(LOOPING_ID, 1)))
    driver.submit(2, Ask(prompt(*LONG)))
    driver.run(1, 2)
    assert "repeats itself" in driver.failed[1].message
    assert sum(driver.chunks[1]) < 80
    assert np.array_equal(driver.said(2), alone(prompt(*LONG)))


def test_the_guard_can_be_left_out() -> None:
    driver = Driver(limits=Limits(guard=None))
    driver.submit(1, Ask(prompt(LOOPING_ID, 1)))
    driver.run(1)
    assert driver.ended[1] == "cap"


def test_nothing_said_is_a_fault() -> None:
    driver = Driver(rows=1)
    driver.submit(1, Ask(prompt(SILENT_ID)))
    driver.run(1)
    assert "before it said anything" in driver.failed[1].message
    driver.turn()
    assert driver.talker.rows == {}
    assert driver.scheduler.active == 0


# ---------------------------------------------------------------- fairness
def test_one_prefill_a_turn_in_order() -> None:
    driver = Driver(rows=4)
    for id in range(4):
        driver.submit(id, Ask(prompt(*LONG, seed=id)))
    for turn in range(4):
        driver.turn()
        assert [id for id in range(4) if driver.chunks[id]] == list(range(turn + 1))


def test_first_chunks_are_decoded_before_later_ones() -> None:
    driver = Driver(rows=2)
    driver.submit(1, Ask(prompt(*LONG)))
    driver.turn()
    driver.turn()
    driver.submit(2, Ask(prompt(*LONG, seed=2)))
    driver.turn()
    assert [[piece.id for piece in batch] for batch in driver.batches] == [[2], [1]]


def test_decoding_between_two_steps_is_bounded_and_the_most_urgent_go_first() -> None:
    driver = Driver(rows=8, limits=Limits(decode_frames_per_turn=20, admits_per_turn=8, chunk_ramp=(1, 10)))
    for id in range(8):
        driver.submit(id, Ask(prompt(*LONG, seed=id)))
    for _ in range(11):
        driver.turn()
        driver.take_all(3)
    assert [piece.id for batch in driver.batches for piece in batch] == [3, 0]
    driver.run(*range(8))
    for id in range(8):
        assert np.array_equal(driver.said(id), alone(prompt(*LONG, seed=id)))


@pytest.mark.parametrize("rows", [1, 3])
def test_nobody_starves_when_more_come_all_the_time(rows: int) -> None:
    driver = Driver(rows=rows, limits=Limits(max_waiting=5))
    came, turns = 0, 0
    while len(driver.ended) < 40:
        while driver.scheduler.waiting < 5:
            driver.submit(came, Ask(prompt(came % 50, seed=came)))
            came += 1
        driver.turn()
        for id in driver.scheduler.ids():
            driver.take_all(id)
        turns += 1
        assert turns < 1_000
    ended = list(driver.ended)
    assert all(abs(id - place) <= 3 * rows for place, id in enumerate(ended))


# ---------------------------------------------------------------- live text
@given(st.lists(st.integers(0, 3), max_size=60), st.integers(0, 3))
@settings(max_examples=30, deadline=None)
def test_any_arrival_of_the_text_gives_the_same_codes(arrivals: list[int], first: int) -> None:
    ids = list(LONG[:20])
    driver = Driver(rows=1)
    known = list(ids[:first])
    driver.submit(1, Ask(prompt(*known, closed=False) if known else replace(prompt(), text_ids=(), closed=False)))
    rest = ids[first:]
    for count in [*arrivals, len(rest)]:
        new, rest = rest[:count], rest[count:]
        known += new
        if new:
            driver.scheduler.text(1, len(new))
            if 1 in driver.rows:
                driver.talker.append(driver.rows[1], new)
        driver.turn({1: prompt(*known, closed=False)})
        driver.take_all(1)
    driver.scheduler.close(1)
    if 1 in driver.rows:
        driver.talker.close(driver.rows[1])
    for _ in range(200):
        driver.turn({1: prompt(*known)})
        driver.take_all(1)
    assert driver.ended == {1: "end"}
    assert np.array_equal(driver.said(1), alone(prompt(*ids)))


def test_a_row_without_text_stalls_and_others_go_on() -> None:
    driver = Driver(rows=2)
    driver.submit(1, Ask(prompt(5, 6, closed=False)))
    driver.submit(2, Ask(prompt(*LONG)))
    driver.run(2)
    row = driver.rows[1]
    assert not driver.talker.can_step(row)
    assert driver.scheduler.state(1, {row}) == "stalled"


def test_a_row_that_lacks_text_gives_its_reader_what_it_has() -> None:
    driver = Driver(rows=1)
    driver.submit(1, Ask(prompt(*LONG[:5], closed=False)))
    for _ in range(20):
        driver.turn()
    assert driver.chunks[1] == [1, 2]  # two frames are left, and the reader has not taken anything
    driver.take_all(1)
    driver.turn()
    assert driver.chunks[1] == [1, 2, 2]
    driver.take_all(1)
    assert not driver.turn()


def test_text_beside_a_longer_reference_waits_for_enough_of_it() -> None:
    reference = Reference(np.zeros(4, np.float32), np.zeros((5, 16), np.int16), (1, 2, 3))
    assert prompt(reference=reference).ids_to_begin == 3
    driver = Driver(rows=1)
    driver.submit(1, Ask(prompt(7, 8, closed=False, reference=reference)))
    driver.turn()
    assert driver.scheduler.state(1) == "seated"
    driver.scheduler.text(1, 1)
    driver.turn({1: prompt(7, 8, 9, closed=False)})
    assert driver.scheduler.state(1) == "stepping"


def test_a_whole_layout_waits_for_the_whole_text() -> None:
    driver = Driver(rows=1)
    driver.submit(1, Ask(prompt(5, 6, layout="whole", closed=False)))
    driver.turn()
    assert driver.scheduler.state(1) == "seated"
    driver.scheduler.close(1)
    driver.turn({1: prompt(5, 6, layout="whole")})
    assert driver.scheduler.state(1) == "stepping"


# ---------------------------------------------------------------- everything at once
class Interleavings(RuleBasedStateMachine):
    """Requests, readers and cancels in any order: each row says what it says alone, every bound holds."""

    @initialize(rows=st.integers(1, 4), waiting=st.integers(0, 3), lead=st.integers(8, 20), budget=st.integers(1, 30))
    def begin(self, rows: int, waiting: int, lead: int, budget: int) -> None:
        self.limits = Limits(
            max_waiting=waiting, max_lead_frames=lead, chunk_ramp=(1, 2, 4, 8), decode_frames_per_turn=budget
        )
        self.driver = Driver(rows, self.limits)
        self.asked: dict[int, Ask] = {}
        self.expected: dict[int, Frames] = {}
        self.compared: dict[int, int] = {}
        self.cancelled: set[int] = set()
        self.next = 0

    @rule(text=st.lists(st.integers(0, 50), min_size=1, max_size=12), cut=st.one_of(st.none(), st.integers(1, 15)))
    def submit(self, text: list[int], cut: int | None) -> None:
        ask = Ask(prompt(*text, seed=self.next), max_frames=cut)
        try:
            self.driver.submit(self.next, ask)
        except EngineOverloaded:
            assert self.driver.scheduler.waiting == self.limits.max_waiting + len(self.driver.scheduler._free)
            return
        self.asked[self.next] = ask
        self.expected[self.next] = alone(ask.prompt)
        self.next += 1

    @rule(turns=st.integers(1, 12))
    def turn(self, turns: int) -> None:
        for _ in range(turns):
            before = set(self.driver.scheduler.ids())
            self.driver.turn()
            for id in before - set(self.driver.scheduler.ids()):
                assert id in self.driver.ended

    @precondition(lambda self: self.driver.scheduler.ids())
    @rule(data=st.data(), samples=st.integers(1, 30 * FRAME_SAMPLES))
    def read(self, data: st.DataObject, samples: int) -> None:
        self.driver.scheduler.took(data.draw(st.sampled_from(self.driver.scheduler.ids())), samples)

    @precondition(lambda self: self.driver.scheduler.ids())
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(self.driver.scheduler.ids()))
        was = self.driver.scheduler.state(id)
        active = self.driver.scheduler.active
        assert self.driver.scheduler.cancel(id)
        assert not self.driver.scheduler.cancel(id)
        assert self.driver.scheduler.active == active - (was != "waiting")
        self.cancelled.add(id)

    @invariant()
    def bounds_hold(self) -> None:
        scheduler = self.driver.scheduler
        assert scheduler.active <= self.driver.talker.max_rows
        assert len(self.driver.talker.rows) <= self.driver.talker.max_rows
        assert scheduler.waiting <= self.limits.max_waiting + len(scheduler._free)
        for id in scheduler.ids():
            assert scheduler.held(id) <= self.limits.max_lead_frames * FRAME_SAMPLES

    @invariant()
    def codes_are_those_of_the_row_alone(self) -> None:
        for id, codes in self.driver.codes.items():
            done = self.compared.get(id, 0)
            if done < len(codes):
                said = self.driver.said(id)
                assert np.array_equal(said, self.expected[id][: len(said)])
                self.compared[id] = len(codes)

    def teardown(self) -> None:
        if not hasattr(self, "driver"):
            return
        left = [id for id in self.asked if id not in self.cancelled]
        self.driver.run(*left)
        for id in left:
            ask = self.asked[id]
            frames = frames_of(ask.prompt.text_ids, id)
            assert len(self.driver.said(id)) == min(frames, ask.max_frames or frames)
            self.driver.take_all(id)
        self.driver.turn()
        assert self.driver.talker.rows == {}
        assert self.driver.scheduler.active == 0
        assert self.driver.scheduler.ids() == []


Interleavings.TestCase.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
TestInterleavings = Interleavings.TestCase


@pytest.mark.parametrize(
    "wrong",
    [
        {"chunk_ramp": ()},
        {"chunk_ramp": (2, 1)},
        {"chunk_ramp": (0, 1)},
        {"max_lead_frames": 24},
        {"max_waiting": -1},
        {"admits_per_turn": 0},
        {"min_cap_frames": 0},
    ],
)
def test_limits_that_make_no_sense(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError):
        Limits(**wrong)


def test_a_talker_without_rows_is_refused() -> None:
    with pytest.raises(ValueError):
        Scheduler(0, Limits())
