from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.voices.speech import RATE_HZ, toy_speech
from voices.drift import MAX_RECORDS, DialogDrift, Judgement, Reason, Take, Verdict, VoiceAnchor
from voices.drift_calibrate import CleanSegment, calibrate
from voices.drift_html import report_html
from voices.drift_limits import DriftLimits, limits_from_json, limits_to_json
from voices.drift_meter import DriftMeter, SpokenSegment
from voices.drift_report import report_of, theil_sen
from voices.drift_text import PaceModel, inner_marks, text_counts
from voices.features import Features, measure
from voices.guard import SPARE, Action, Guard, better_take

TEXT = "This sentence takes about three seconds when it is said."


@pytest.fixture(scope="module")
def own() -> list[Features]:
    """A voice that says its sentence eight times."""
    return [measure(toy_speech(3.2, seed=seed, lead_s=0.02, tail_s=0.06)) for seed in range(8)]


def take(features: Features, index: int = 0, **facts: object) -> Take:
    return replace(Take(0, index, TEXT, features, pause_before_ms=320.0), **facts)  # type: ignore[arg-type]


def dialog_of(own: list[Features], segments: int = 10) -> DialogDrift:
    drift = DialogDrift()
    for index in range(segments):
        drift.feed(take(own[index % len(own)], index))
    return drift


def names(judgement: Judgement) -> set[str]:
    return {one.name for one in judgement.reasons}


def test_a_steady_voice_is_ok(own: list[Features]) -> None:
    drift = dialog_of(own, 30)
    assert drift.counts == {Verdict.OK: 30, Verdict.WATCH: 0, Verdict.REROLL: 0, Verdict.REANCHOR: 0}


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"level_db": 7.0}, "level_offset"),
        ({"pitch_st": 6.0}, "pitch_offset"),
        ({"active_s": 2.0}, "pace"),
        ({"leading_ms": 600.0}, "leading_silence"),
        ({"longest_gap_ms": 700.0}, "inner_gap"),
        ({"dropout_ms": 300.0}, "dropout"),
    ],
)
def test_each_fault_is_raised_by_its_own_meter(own: list[Features], change: dict[str, float], name: str) -> None:
    drift = dialog_of(own)
    spoilt = {key: getattr(own[0], key) + by for key, by in change.items()}
    judgement = drift.feed(take(replace(own[0], **spoilt), 10))
    assert name in names(judgement)
    assert judgement.verdict is Verdict.WATCH


def test_another_timbre_is_spoken_again(own: list[Features]) -> None:
    other = measure(toy_speech(3, formants_hz=(350.0, 2_100.0, 3_400.0)))
    judgement = dialog_of(own).assess(take(other, 10))
    assert "timbre_distance" in names(judgement)
    assert judgement.verdict is Verdict.REROLL


def test_short_segments_are_pooled_before_their_timbre_is_judged(own: list[Features]) -> None:
    drift = dialog_of(own)
    seen = []
    for index in range(10, 14):
        other = measure(toy_speech(0.7, formants_hz=(350.0, 2_100.0, 3_400.0), seed=index))
        seen.append(names(drift.feed(take(other, index, text="No."))) & {"timbre_distance"})
    assert seen[0] == seen[1] == set()
    assert seen[2] or seen[3]


def test_a_small_shift_that_stays_is_found_where_one_segment_would_not_show_it(own: list[Features]) -> None:
    drift = dialog_of(own)
    found = []
    for index in range(10, 20):
        shifted = replace(own[index % 8], pitch_st=own[index % 8].pitch_st + 2.5)
        found.append([one.segments for one in drift.feed(take(shifted, index)).reasons if one.name == "pitch_offset"])
    assert found[0] == []
    assert any(each and each[0] > 1 for each in found)


def test_two_watches_in_a_row_ask_for_a_new_anchor_once(own: list[Features]) -> None:
    drift = dialog_of(own)
    loud = replace(own[0], level_db=own[0].level_db + 8)
    verdicts = [drift.feed(take(loud, index)).verdict for index in range(10, 15)]
    assert verdicts[:2] == [Verdict.WATCH, Verdict.REANCHOR]
    assert Verdict.REANCHOR not in verdicts[2:5], "it rests before it asks again"


def test_clicks_and_pauses_never_ask_for_a_new_anchor(own: list[Features]) -> None:
    drift = dialog_of(own)
    late = [drift.feed(take(own[0], index, pause_before_ms=900.0)).verdict for index in range(10, 14)]
    assert late == [Verdict.WATCH] * 4


def test_pauses_are_counted_only_within_a_reply(own: list[Features]) -> None:
    drift = dialog_of(own)
    judgement = drift.feed(take(own[0], 0, reply=1, pause_before_ms=5_000.0))
    assert judgement.readings["seam_pause"] is None


def test_a_step_at_a_join_is_a_click(own: list[Features]) -> None:
    drift = dialog_of(own)
    head = tuple(0.2 + each for each in own[0].edges[0])
    assert "seam_step" in names(drift.feed(take(replace(own[0], edges=(head, own[0].edges[1])), 10)))


@pytest.mark.parametrize(("tokens", "bad"), [(2, True), (12, False), (40, True), (None, False)])
def test_too_long_or_too_short_for_its_tokens(own: list[Features], tokens: int | None, bad: bool) -> None:
    judgement = DialogDrift().assess(take(own[0], text_tokens=tokens))
    assert (judgement.verdict is Verdict.REROLL) == bad


def test_codes_that_loop_are_spoken_again(own: list[Features]) -> None:
    assert DialogDrift().assess(take(own[0], looped=True)).verdict is Verdict.REROLL


@pytest.mark.parametrize(("angle", "verdict"), [(0.3, Verdict.OK), (0.6, Verdict.WATCH), (0.9, Verdict.REROLL)])
def test_identity_by_the_speaker_embedding(own: list[Features], angle: float, verdict: Verdict) -> None:
    drift = DialogDrift(anchor=VoiceAnchor(embedding=np.array([1.0, 0.0])))
    embedding = np.array([np.cos(angle), np.sin(angle)])
    judgement = drift.assess(take(own[0], embedding=embedding, embedded_s=3.0))
    assert judgement.verdict is verdict
    assert judgement.readings["identity"] == pytest.approx(np.cos(angle))


def test_a_known_voice_is_judged_from_its_first_segment(own: list[Features]) -> None:
    anchor = VoiceAnchor(spectrum=own[0].spectrum.plus(own[1].spectrum).plus(own[2].spectrum), level_db=-35.0)
    judgement = DialogDrift(anchor=anchor).assess(take(own[3]))
    assert "level_offset" in names(judgement)


def test_assessing_changes_nothing(own: list[Features]) -> None:
    drift = dialog_of(own)
    before = json.dumps(report_of(drift).to_json())
    first = drift.assess(take(replace(own[0], level_db=0.0), 10))
    assert drift.assess(take(replace(own[0], level_db=0.0), 10)) == first
    assert json.dumps(report_of(drift).to_json()) == before


def test_a_dialog_without_end_stays_small(own: list[Features]) -> None:
    drift = dialog_of(own, MAX_RECORDS + 50)
    assert len(drift.records) == MAX_RECORDS
    assert drift.segments == MAX_RECORDS + 50


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 20_000), st.floats(0, 1), st.text(max_size=30)), max_size=12))
def test_anything_can_be_fed_and_reported(segments: list[tuple[int, float, str]]) -> None:
    random = np.random.default_rng(0)
    meter = DriftMeter()
    for index, (samples, level, text) in enumerate(segments):
        meter.feed(SpokenSegment(random.uniform(-level, level, samples).astype(np.float32), text, 0, index, 100.0))
    report = meter.report()
    json.dumps(report.to_json(), allow_nan=False)
    assert report_html(report).count("<svg") == report_html(report).count("</svg>")


# ---------------------------------------------------------------- embeddings of what is short
def test_short_segments_are_pooled_for_the_encoder() -> None:
    heard: list[int] = []

    def embed(pcm: np.ndarray) -> np.ndarray:
        heard.append(len(pcm))
        return np.array([1.0, 0.0])

    meter = DriftMeter(embed=embed)
    for index in range(6):
        meter.feed(SpokenSegment(toy_speech(0.8, lead_s=0.5, seed=index), "One.", 0, index))
    assert len(heard) == 2
    assert all(2 * RATE_HZ <= samples < 3 * RATE_HZ for samples in heard)


@pytest.mark.parametrize("answer", [None, np.array([np.nan, 1]), np.zeros(4), np.ones((2, 2)), np.ones(10_000)])
def test_an_encoder_that_fails_costs_only_the_identity(answer: np.ndarray | None) -> None:
    def embed(pcm: np.ndarray) -> np.ndarray:
        if answer is None:
            raise RuntimeError("out of memory")
        return answer

    meter = DriftMeter(embed=embed)
    assert meter.feed(SpokenSegment(toy_speech(3), TEXT)).readings["identity"] is None
    assert meter.embed_failures == 1


# ---------------------------------------------------------------- report
def test_the_report_has_every_meter_and_no_text(own: list[Features]) -> None:
    drift = dialog_of(own, 20)
    drift.feed(take(replace(own[0], level_db=0.0), 20))
    body = report_of(drift).to_json()
    meters = {one["id"] for one in body["meters"]}
    assert meters == {f"V{number}" for number in range(1, 14)}
    assert body["segments"] == len(body["rows"]) == 21
    assert body["rows"][-1]["reasons"][0]["id"] == "V6"
    page = report_html(report_of(drift), "<script>alert(1)</script>")
    assert "<script" not in page
    assert "sentence" not in page + json.dumps(body)


def test_slopes_are_medians() -> None:
    assert theil_sen([(0, 0), (1, 1), (2, 2), (3, 30)]) == pytest.approx(5.5, abs=5)
    assert theil_sen([(minute, 0.9 - 0.02 * minute) for minute in range(10)]) == pytest.approx(-0.02)
    assert theil_sen([(1, 2)]) is None
    assert theil_sen([(1, 2), (1, 3)]) is None


# ---------------------------------------------------------------- limits and calibration
def test_calibrated_limits_survive_their_json_form() -> None:
    segments = [
        CleanSegment(TEXT, measure(toy_speech(2 + seed % 3 / 2, seed=seed, level=0.1 + seed % 5 / 100)))
        for seed in range(44)
    ]
    limits = calibrate(segments)
    again = limits_from_json(limits_to_json(limits))
    assert limits.timbre.whitening is not None
    assert again.timbre.whitening is not None
    np.testing.assert_allclose(again.timbre.whitening, limits.timbre.whitening, atol=1e-6)
    assert limits_to_json(again) == limits_to_json(limits)
    assert limits_to_json(calibrate(segments)) == limits_to_json(limits)


def test_too_few_segments_cannot_calibrate(own: list[Features]) -> None:
    with pytest.raises(ValueError, match="at least 40"):
        calibrate([CleanSegment(TEXT, each) for each in own])


@pytest.mark.parametrize(
    "spoil",
    [
        lambda body: body.pop("form"),
        lambda body: body.update(form="other"),
        lambda body: body.update(surprise=1),
        lambda body: body.update(dropout_ms=float("nan")),
        lambda body: body.update(dropout_ms=-1),
        lambda body: body.update(dropout_ms=True),
        lambda body: body.update(dropout_ms=10**400),
        lambda body: body.update(level_db=[1, 2, 3, 4]),
        lambda body: body["level_db"].pop("least"),
        lambda body: body["timbre"].update(whitening=[[1.0]]),
        lambda body: body["timbre"].update(whitening=[["a"] * 24] * 24),
        lambda body: body.update(timbre="none"),
    ],
)
def test_spoilt_limits_are_refused(spoil: object) -> None:
    body = json.loads(limits_to_json(DriftLimits()))
    spoil(body)  # type: ignore[operator]
    with pytest.raises(ValueError, match="drift limits"):
        limits_from_json(json.dumps(body))


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 5_000, "x" * 100_000])
def test_what_is_no_limits_at_all_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="drift limits"):
        limits_from_json(text)


# ---------------------------------------------------------------- pace
def test_texts_are_counted() -> None:
    assert text_counts("It costs 25 euros.").tolist() == [2 + 5 + 8 + 5, 4.5, 0, 1]
    assert inner_marks("One, two: three. Four.") == 3
    assert inner_marks("1,000 well-known places") == 0 or inner_marks("1,000 places") <= 1
    assert PaceModel().expected_s("") == 0


@given(st.text(max_size=200), st.text(max_size=50))
def test_more_text_never_takes_less_time(text: str, more: str) -> None:
    model = PaceModel()
    assert model.expected_s(text + " " + more) >= model.expected_s(text) - model.mark_s * 2


# ---------------------------------------------------------------- guard
BAD = Judgement(Verdict.REROLL, (Reason("V7", "timbre_distance", 5, 3, "dB", 1.6),), {})
GOOD = Judgement(Verdict.OK, (), {})


def test_what_nobody_has_heard_is_spoken_again_once() -> None:
    guard = Guard()
    assert guard.decide(0, 0, BAD) is Action.REROLL
    assert guard.decide(0, 0, BAD) is Action.REANCHOR
    assert (guard.rerolls, guard.refused) == (1, 1)


def test_what_is_audible_is_never_replaced() -> None:
    guard = Guard()
    guard.sent(0, 3)
    assert guard.decide(0, 3, BAD) is Action.REANCHOR
    assert guard.decide(0, 2, BAD) is Action.REANCHOR
    assert guard.too_late == 2
    assert guard.decide(0, 4, BAD) is Action.REROLL
    assert guard.decide(0, 5, GOOD) is Action.PLAY


@given(st.lists(st.booleans(), max_size=200))
def test_a_voice_that_drifts_everywhere_is_not_spoken_twice_everywhere(bad: list[bool]) -> None:
    guard = Guard()
    for index, each in enumerate(bad):
        guard.decide(0, index, BAD if each else GOOD)
    assert guard.rerolls <= SPARE + 1 + 0.1 * len(bad)


def test_the_better_take_is_played() -> None:
    worse = replace(BAD, reasons=BAD.reasons * 2)
    assert better_take(BAD, GOOD) == 1
    assert better_take(GOOD, BAD) == 0
    assert better_take(worse, BAD) == 1
    assert better_take(BAD, BAD) == 0
