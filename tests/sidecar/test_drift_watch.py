from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import numpy as np
import pytest

from sidecar.drift_watch import DriftWatch, DriftWatchLimits, SegmentFacts
from sidecar.faults import NotFound
from sidecar.ports import SAMPLE_RATE_HZ, Pcm
from tests.voices.speech import toy_speech


class Hand:
    """A clock that is moved by hand."""

    ms = 0.0

    def now_ms(self) -> float:
        return self.ms

    def unix_s(self) -> float:
        return self.ms / 1_000

    async def sleep(self, ms: float) -> None:
        self.ms += ms


class Seen:
    def __init__(self) -> None:
        self.judged: list[tuple[str, tuple[str, ...]]] = []
        self.skipped: list[str] = []

    def drift_judged(self, verdict: str, meters: tuple[str, ...]) -> None:
        self.judged.append((verdict, meters))

    def drift_skipped(self, reason: str) -> None:
        self.skipped.append(reason)


class Held:
    """An encoder that waits until it may go on: the thread is busy for as long as the test wants."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.free = threading.Event()

    def __call__(self, pcm: Pcm) -> Pcm:
        self.entered.set()
        self.free.wait(30)
        return np.ones(4, np.float32)


def facts(index: int = 0, text: str = "A sentence.") -> SegmentFacts:
    return SegmentFacts(text, 0, index, 100.0)


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
async def watch(seen: Seen) -> AsyncIterator[DriftWatch]:
    watch = DriftWatch(Hand(), DriftWatchLimits(max_dialogs=3, dialog_ttl_s=10, queued_s=20), observer=seen)
    yield watch
    await watch.close()


async def test_segments_are_judged_and_reported(watch: DriftWatch, seen: Seen) -> None:
    pcm = toy_speech(2)
    for index in range(3):
        tap = watch.segment("t", "d", facts(index))
        for at in range(0, len(pcm), 5_000):
            tap.add(pcm[at : at + 5_000])
        judgement = await tap.end()
        assert judgement is not None
    report = await watch.report("t", "d")
    assert report.segments == 3
    assert report.rows[0].duration_s == 2
    assert seen.judged == [("ok", ())] * 3
    assert watch.held_s == 0


async def test_the_samples_are_copied(watch: DriftWatch) -> None:
    pcm = toy_speech(2)
    tap = watch.segment("t", "d", facts())
    tap.add(pcm)
    pcm[:] = np.nan
    assert await tap.end() is not None


async def test_dialogs_belong_to_their_tenant(watch: DriftWatch) -> None:
    tap = watch.segment("one", "d", facts())
    tap.add(toy_speech(1))
    await tap.end()
    with pytest.raises(NotFound):
        await watch.report("other", "d")


async def test_a_take_that_was_only_judged_does_not_count(watch: DriftWatch) -> None:
    bad, good = watch.segment("t", "d", facts()), watch.segment("t", "d", facts())
    for tap in (bad, good):
        tap.add(toy_speech(1))
        assert await tap.judge() is not None
    assert (await watch.report("t", "d")).segments == 0
    good.accept()
    good.accept()
    bad.drop()
    assert (await watch.report("t", "d")).segments == 1


async def test_what_lags_is_left_out_and_counted(seen: Seen) -> None:
    held = Held()
    watch = DriftWatch(Hand(), DriftWatchLimits(queued_s=5), held, seen)
    first = watch.segment("t", "d", facts())
    first.add(toy_speech(3))
    working = first.end()
    await asyncio.to_thread(held.entered.wait, 30)
    second = watch.segment("t", "d", facts(1))
    second.add(toy_speech(1.5))
    second.add(toy_speech(1.5))
    second.add(toy_speech(0.1))
    assert await second.end() is None
    assert seen.skipped == ["lagging"]
    assert watch.held_s == 3
    held.free.set()
    assert await working is not None
    assert watch.held_s == 0
    await watch.close()


async def test_a_segment_without_end_is_left_out(seen: Seen) -> None:
    watch = DriftWatch(Hand(), DriftWatchLimits(queued_s=1_000), observer=seen)
    tap = watch.segment("t", "d", facts())
    for _ in range(70):
        tap.add(np.zeros(SAMPLE_RATE_HZ, np.float32))
    assert await tap.end() is None
    assert seen.skipped == ["too_long"]
    assert watch.held_s == 0
    await watch.close()


async def test_a_dropped_segment_gives_its_room_back(watch: DriftWatch) -> None:
    tap = watch.segment("t", "d", facts())
    tap.add(toy_speech(1))
    assert watch.held_s == 1
    tap.drop()
    tap.drop()
    tap.add(toy_speech(1))
    assert watch.held_s == 0
    assert await tap.end() is None


async def test_broken_samples_cost_one_judgement(
    watch: DriftWatch, seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    tap = watch.segment("t", "d", facts(text="a secret"))
    tap.add(np.full(100, np.nan, np.float32))
    assert await tap.end() is None
    assert seen.skipped == ["failed"]
    assert "secret" not in caplog.text
    assert watch.held_s == 0


async def test_old_and_surplus_dialogs_are_forgotten() -> None:
    clock = Hand()
    watch = DriftWatch(clock, DriftWatchLimits(max_dialogs=2, dialog_ttl_s=10))
    for name in ("a", "b", "c"):
        watch.segment("t", name, facts()).drop()
    with pytest.raises(NotFound):
        await watch.report("t", "a")
    assert (await watch.report("t", "c")).segments == 0
    clock.ms += 10_000
    with pytest.raises(NotFound):
        await watch.report("t", "c")
    await watch.close()


async def test_after_closing_nothing_is_judged(seen: Seen) -> None:
    watch = DriftWatch(Hand(), observer=seen)
    early = watch.segment("t", "d", facts())
    early.add(toy_speech(1))
    await watch.close()
    await watch.close()
    assert await early.end() is None
    assert seen.skipped == ["closed"]
    with pytest.raises(NotFound):
        await watch.report("t", "d")
