"""The pause that the maker of a segment tells of is the one that listeners hear."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.engines.tone import ToneEngine, ToneSettings
from segmenter import Segment, SegmentKind, SegmentOptions
from sidecar.clock import SystemClock
from sidecar.core.events import ReplyAudio, SegmentStarted
from sidecar.drift_watch import DriftWatch
from sidecar.heard_pauses import Pause, SegmentEdges
from sidecar.ports import SAMPLE_RATE_HZ, AudioChunk, Pcm, Utterance
from sidecar.reply import Reply, ReplyLimits, Voicing
from sidecar.reply_ears import ReplyEars, WatchedDialog
from sidecar.sounding import Sounding

STEP_MS = 5.0
PER_MS = SAMPLE_RATE_HZ // 1_000


def segment(index: int, text: str, pause_after_ms: int = 0) -> Segment:
    return Segment(index, text, text, 0, len(text), SegmentKind.SENTENCE, pause_after_ms)


def sound(lead_ms: int, active_ms: int, tail_ms: int) -> Pcm:
    tone = 0.3 * np.sin(np.arange(active_ms * PER_MS) * (2 * np.pi * 440 / SAMPLE_RATE_HZ))
    silence = [np.zeros(ms * PER_MS) for ms in (lead_ms, tail_ms)]
    return np.concatenate((silence[0], tone, silence[1])).astype(np.float32)


def heard_gap_ms(pcm: Pcm) -> float:
    """The longest stretch without sound."""
    loud = np.flatnonzero(np.abs(pcm) > 0.01)
    return float(np.diff(loud).max()) / PER_MS


def told(first: Segment, before: Pcm, after: Pcm, piece: int, *, shaped: bool = True) -> Pause | None:
    edges = SegmentEdges(first, shaped=shaped, before=None)
    assert edges.pause() is None
    spoken(edges, before, piece)
    edges.played(edges.end())
    following = SegmentEdges(segment(1, "And on."), shaped=shaped, before=edges)
    spoken(following, after, piece)
    following.end()
    return following.pause()


def spoken(edges: SegmentEdges, pcm: Pcm, piece: int) -> None:
    edges.begin()
    for at in range(0, len(pcm), piece):
        edges.feed(pcm[at : at + piece])


@settings(max_examples=40, deadline=None)
@given(
    text=st.sampled_from(["One.", "One,", "One"]),
    pause_after_ms=st.sampled_from([0, 650]),
    silences=st.tuples(*[st.integers(0, 900)] * 3),
    piece=st.sampled_from([480, 1_920, 7_001, 100_000]),
)
def test_what_is_told_is_what_is_heard(
    text: str, pause_after_ms: int, silences: tuple[int, int, int], piece: int
) -> None:
    first = segment(0, text, pause_after_ms)
    before, after = sound(silences[0], 300, silences[1]), sound(silences[2], 300, 0)
    pause = told(first, before, after, piece)
    assert pause is not None
    assert pause.heard_ms is not None
    sounding = Sounding()
    out = [sounding.begin(), sounding.feed(before), sounding.end(first), sounding.begin(), sounding.feed(after)]
    assert len(out[3]) == pytest.approx(pause.inserted_ms * PER_MS, abs=STEP_MS * PER_MS)
    assert heard_gap_ms(np.concatenate(out)) == pytest.approx(pause.heard_ms, abs=3 * STEP_MS)
    assert pause.wanted_ms == (pause_after_ms or {"One.": 400, "One,": 200, "One": 60}[text])


def test_unshaped_pauses_are_read_off_the_samples() -> None:
    args = sound(0, 300, 100), sound(0, 300, 0), 1_920
    assert told(segment(0, "One.", 250), *args, shaped=False) == Pause(250, 250.0, None)
    assert told(segment(0, "One."), *args, shaped=False) == Pause(0, 400.0, None)


def test_nothing_is_told_beside_a_segment_that_was_lost_or_made_no_sound() -> None:
    silent, loud = np.zeros(4_800, np.float32), sound(20, 300, 20)
    assert told(segment(0, "One."), silent, loud, 1_920) is None
    assert told(segment(0, "One."), loud, silent, 1_920) is None


async def test_the_watch_over_a_reply_learns_of_them() -> None:
    watch = DriftWatch(SystemClock())
    ears = ReplyEars(0, 1, None, WatchedDialog("local", "dialog_x", watch))
    try:
        for index, tail_ms in enumerate((20, 700, 20)):
            ear = ears.ear(segment(index, "Hello there."), "anna", shaped=True)
            ear.opened(Utterance("Hello there.", "anna", 7, language="en"), "en", 3)
            ear.chunk(AudioChunk(sound(60, 900, tail_ms), 0, None))
            await ear.over(lambda: False)
        report = await watch.report("local", "dialog_x")
    finally:
        await watch.close()
    first, second, third = [row.pause_ms for row in report.rows]
    assert first is None
    assert second == pytest.approx(400, abs=10)
    assert third == pytest.approx(505, abs=10)
    assert report.rows[2].target_pause_ms == 400


async def test_a_chat_reply_s_pauses_are_measured() -> None:
    watch = DriftWatch(SystemClock())
    ears = ReplyEars(0, 1, None, WatchedDialog("local", "dialog_x", watch))
    engine = ToneEngine(ToneSettings(), SystemClock())
    await engine.start()
    starts: list[int] = []
    parts: list[Pcm] = []
    voicing = Voicing(engine.traits.default_voice, 1, language="en")
    try:
        async with Reply(engine, SystemClock(), voicing, SegmentOptions(), ReplyLimits(), ears=ears) as reply:
            await reply.feed("The first train leaves early. The second one leaves late. The third one never leaves.")
            reply.finish()
            async for event in reply.events():
                if isinstance(event, SegmentStarted):
                    starts.append(event.first_sample)
                elif isinstance(event, ReplyAudio):
                    parts.append(event.pcm)
        report = await watch.report("local", "dialog_x")
    finally:
        await watch.close()
        await engine.close()
    assert len(report.rows) == len(starts) > 1
    assert report.rows[0].pause_ms is None
    loud = np.flatnonzero(np.abs(np.concatenate(parts)) > 0.004)
    for row, start in zip(report.rows[1:], starts[1:], strict=True):
        heard_ms = (loud[loud >= start][0] - loud[loud < start][-1]) / PER_MS
        assert row.pause_ms == pytest.approx(heard_ms, abs=4 * STEP_MS)
