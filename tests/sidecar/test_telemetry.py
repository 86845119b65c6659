from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from sidecar import faults
from sidecar.telemetry import ENDPOINTS, OUTCOMES, LoopMonitor, Metrics


# ---------------------------------------------------------------- metrics
def samples(metrics: Metrics) -> dict[tuple[str, tuple[str, ...]], float]:
    text = metrics.render()[0].decode()
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_all_promised_metrics_are_there_from_the_start() -> None:
    body, content_type = Metrics().render()
    families = {family.name: family.type for family in text_string_to_metric_families(body.decode())}
    assert {name: kind for name, kind in families.items() if not name.endswith("_created")} == {
        "sidecar_time_to_first_audio_seconds": "histogram",
        "sidecar_first_token_to_first_audio_seconds": "histogram",
        "sidecar_live_lead_tokens": "histogram",
        "sidecar_live_stalls": "counter",
        "sidecar_live_rollovers": "counter",
        "sidecar_realtime_factor": "histogram",
        "sidecar_token_to_engine_seconds": "histogram",
        "sidecar_chunk_to_socket_seconds": "histogram",
        "sidecar_loop_lag_seconds": "histogram",
        "sidecar_replies": "counter",
        "sidecar_cancels": "counter",
        "sidecar_underruns": "counter",
        "sidecar_segments": "counter",
        "sidecar_drift_judged": "counter",
        "sidecar_drift_reasons": "counter",
        "sidecar_drift_skipped": "counter",
        "sidecar_audio_seconds": "counter",
        "sidecar_faults": "counter",
        "sidecar_active_replies": "gauge",
        "sidecar_engine_rows": "gauge",
    }
    assert content_type.startswith("text/plain")


def test_two_apps_do_not_share_metrics() -> None:
    one, other = Metrics(), Metrics()
    one.underrun()
    assert samples(one)["sidecar_underruns_total", ()] == 1
    assert samples(other)["sidecar_underruns_total", ()] == 0


def test_a_reply_from_its_request_to_its_end() -> None:
    metrics = Metrics()
    timer = metrics.reply_started("chat", 1_000)
    timer.token(1_200)
    timer.token(1_300)
    timer.audio(1_400, 0)
    timer.audio(1_600, 12_000)
    timer.audio(1_700, 12_000)
    timer.ended(1_900, "completed")
    timer.ended(2_000, "failed")
    found = samples(metrics)
    assert found["sidecar_time_to_first_audio_seconds_sum", ("chat",)] == pytest.approx(0.6)
    assert found["sidecar_time_to_first_audio_seconds_count", ("chat",)] == 1
    assert found["sidecar_first_token_to_first_audio_seconds_sum", ("segment",)] == pytest.approx(0.4)
    assert found["sidecar_realtime_factor_sum", ()] == pytest.approx(0.9)
    assert found["sidecar_audio_seconds_total", ()] == pytest.approx(1.0)
    assert found["sidecar_replies_total", ("chat", "completed")] == 1
    assert sum(value for (name, _), value in found.items() if name == "sidecar_replies_total") == 1
    assert found["sidecar_underruns_total", ()] == 0


def test_a_cancelled_reply_has_no_realtime_factor() -> None:
    metrics = Metrics()
    timer = metrics.reply_started("stream", 0)
    timer.audio(10, 24_000)
    timer.ended(20, "cancelled")
    found = samples(metrics)
    assert found["sidecar_replies_total", ("stream", "cancelled")] == 1
    assert found["sidecar_realtime_factor_count", ()] == 0
    assert found["sidecar_first_token_to_first_audio_seconds_count", ("segment",)] == 0


@pytest.mark.parametrize(("streamed", "gaps"), [(True, 2), (False, 0)])
def test_audio_that_comes_after_the_last_has_sounded_is_an_underrun(streamed: bool, gaps: int) -> None:
    metrics = Metrics()
    timer = metrics.reply_started("speech", 0, streamed=streamed)
    timer.audio(500, 2_400)  # sounds until 600
    timer.audio(600, 2_400)  # until 700, just in time
    timer.audio(701, 2_400)  # late: until 801
    timer.audio(702, 2_400)  # until 901
    timer.audio(950, 2_400)  # late
    assert samples(metrics)["sidecar_underruns_total", ()] == gaps


def test_gauges_follow_what_is_there() -> None:
    metrics = Metrics()
    metrics.engine_rows(5)
    with metrics.active(3), metrics.active():
        assert samples(metrics)["sidecar_active_replies", ()] == 4
    assert samples(metrics)["sidecar_engine_rows", ()] == 5
    with contextlib.suppress(RuntimeError), metrics.active():
        raise RuntimeError
    assert samples(metrics)["sidecar_active_replies", ()] == 0


def test_overheads_and_segments() -> None:
    metrics = Metrics()
    metrics.utterance_opened()
    metrics.cancelled()
    metrics.segment_waited(2)
    metrics.chunk_waited(3)
    metrics.loop_lag(4)
    found = samples(metrics)
    assert found["sidecar_segments_total", ()] == 1
    assert found["sidecar_cancels_total", ()] == 1
    assert found["sidecar_token_to_engine_seconds_sum", ()] == pytest.approx(0.002)
    assert found["sidecar_chunk_to_socket_seconds_sum", ()] == pytest.approx(0.003)
    assert found["sidecar_loop_lag_seconds_sum", ()] == pytest.approx(0.004)


def test_every_fault_has_its_label() -> None:
    metrics = Metrics()
    kinds = [kind for kind in vars(faults).values() if isinstance(kind, type) and issubclass(kind, faults.Fault)]
    assert len(kinds) > 15
    for kind in kinds:
        metrics.fault(kind.code)
    found = samples(metrics)
    for kind in kinds:
        assert found["sidecar_faults_total", (kind.code or "other",)] >= 1
    assert sum(value for (name, _), value in found.items() if name == "sidecar_faults_total") == len(kinds)


@settings(deadline=None)
@given(st.text(), st.text(), st.text(), st.floats(), st.floats(), st.integers())
def test_whatever_is_recorded_the_series_stay_the_same(
    endpoint: str, outcome: str, code: str, start_ms: float, end_ms: float, count: int
) -> None:
    metrics = Metrics()
    before = set(samples(metrics))
    assert len(before) <= 500
    timer = metrics.reply_started(endpoint, start_ms)
    timer.audio(end_ms, count)
    timer.audio(start_ms, count)
    timer.ended(end_ms, outcome)
    metrics.fault(code)
    metrics.segment_waited(start_ms)
    metrics.chunk_waited(end_ms)
    metrics.loop_lag(start_ms)
    found = samples(metrics)
    assert set(found) == before
    ended = (endpoint if endpoint in ENDPOINTS else "other", outcome if outcome in OUTCOMES else "other")
    assert found["sidecar_replies_total", ended] == 1


# ---------------------------------------------------------------- the event loop
class Notice(logging.Handler):
    def __init__(self, message: str) -> None:
        super().__init__()
        self.message = message
        self.seen = threading.Event()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() == self.message:
            self.records.append(record)
            self.seen.set()


@pytest.fixture
def notice() -> Iterator[Notice]:
    handler = Notice("the event loop is blocked")
    logger = logging.getLogger("sidecar.telemetry")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


class Lags:
    def __init__(self) -> None:
        self.values: list[float] = []
        self.arrived = asyncio.Event()

    def loop_lag(self, ms: float) -> None:
        self.values.append(ms)
        self.arrived.set()


def hang_until_noticed(notice: Notice) -> bool:
    return notice.seen.wait(30)


async def test_a_block_is_logged_with_its_place_while_it_lasts(notice: Notice) -> None:
    lags = Lags()
    monitor = LoopMonitor(lags, threshold_ms=40, interval_ms=5)
    monitor.start()
    try:
        assert hang_until_noticed(notice)
        lags.arrived.clear()
        await lags.arrived.wait()
    finally:
        monitor.stop()
    stack = vars(notice.records[0])["stack"]
    assert "hang_until_noticed" in stack
    assert "sidecar/test_telemetry.py:" in stack
    assert max(lags.values) >= 40
    assert all(lag >= 0 for lag in lags.values)


async def test_the_beat_goes_on_and_stops() -> None:
    lags = Lags()
    monitor = LoopMonitor(lags, interval_ms=1)
    monitor.start()
    monitor.start()
    for _ in range(3):
        lags.arrived.clear()
        await lags.arrived.wait()
    monitor.stop()
    monitor.stop()
    assert not [thread for thread in threading.enumerate() if thread.name == "loop-monitor"]
    count = len(lags.values)
    assert count >= 3
    monitor.start()
    lags.arrived.clear()
    await lags.arrived.wait()
    monitor.stop()
    assert len(lags.values) > count


async def test_it_feeds_the_metrics() -> None:
    metrics = Metrics()
    monitor = LoopMonitor(metrics, interval_ms=1)
    monitor.start()
    async with asyncio.timeout(30):
        while samples(metrics)["sidecar_loop_lag_seconds_count", ()] == 0:
            await asyncio.sleep(0)
    monitor.stop()


def test_live_replies() -> None:
    metrics = Metrics()
    timer = metrics.reply_started("chat", 0, mode="live")
    timer.token(100)
    timer.audio(300, 2_400)
    metrics.live_lead(5.0)
    metrics.live_stalled()
    metrics.live_rolled_over()
    metrics.live_rolled_over()
    found = samples(metrics)
    assert found["sidecar_first_token_to_first_audio_seconds_sum", ("live",)] == pytest.approx(0.2)
    assert found["sidecar_first_token_to_first_audio_seconds_count", ("segment",)] == 0
    assert found["sidecar_live_lead_tokens_sum", ()] == 5.0
    assert found["sidecar_live_stalls_total", ()] == 1
    assert found["sidecar_live_rollovers_total", ()] == 2
