"""The speech socket's state machine: every message in every state, and the laws that hold whatever happens."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from sidecar.core.session import (
    Close,
    Effect,
    SendBytes,
    SendJson,
    SessionLimits,
    SpeechSession,
    StopSpeaking,
    Unit,
    UnitText,
)
from sidecar.faults import BadRequest, EngineFault


@dataclass(frozen=True)
class Config:
    tag: str = ""


class Sentences:
    """A unit per full stop."""

    def __init__(self, config: Config) -> None:
        self.held = ""

    def feed(self, text: str) -> list[UnitText]:
        self.held += text
        *whole, self.held = self.held.split(".")
        return [UnitText(f"{part.strip()}.", part.strip()) for part in whole if part.strip()]

    def flush(self) -> list[UnitText]:
        rest, self.held = self.held.strip(), ""
        return [UnitText(rest, rest)] if rest else []

    @property
    def pending_chars(self) -> int:
        return len(self.held)


def parse(message: dict[str, Any]) -> Config:
    if message.get("bad"):
        raise BadRequest("bad config")
    return Config(message.get("tag", ""))


LIMITS = SessionLimits(max_message_chars=200, max_config_chars=400, max_buffered_chars=500, max_queued_utterances=6)


def make() -> SpeechSession[Config]:
    return SpeechSession(LIMITS, parse, Sentences, now_ms=0.0)


def send(session: SpeechSession[Config], **message: Any) -> list[Effect]:
    return session.text_frame(json.dumps(message), 0.0)


def configured() -> SpeechSession[Config]:
    session = make()
    assert send(session, type="session.config") == []
    return session


def messages(effects: list[Effect]) -> list[dict[str, Any]]:
    return [e.message for e in effects if isinstance(e, SendJson)]


def kinds(effects: list[Effect]) -> list[str]:
    names = {SendBytes: "bytes", Close: "close", StopSpeaking: "stop"}
    return [e.message["type"] if isinstance(e, SendJson) else names[type(e)] for e in effects]


def speak(session: SpeechSession[Config], unit: Unit[Config] | None, **done: Any) -> list[Effect]:
    assert unit is not None
    effects = session.unit_opened(unit, {"type": "audio.start"})
    effects += session.unit_audio(unit, b"xx")
    return effects + session.unit_done(unit, {"type": "audio.done", "total_bytes": 2, **done}, None, 0.0)


def test_one_utterance_from_config_to_done() -> None:
    session = configured()
    assert send(session, type="input.text", text="One. Two") == []
    first = session.next_unit()
    assert session.next_unit() is None
    assert messages(speak(session, first)) == [
        {"type": "audio.start", "utterance_index": 0, "sentence_index": 0, "sentence_text": "One."},
        {"type": "audio.done", "total_bytes": 2, "utterance_index": 0, "sentence_index": 0, "error": False},
    ]
    assert send(session, type="input.done") == []
    last = session.next_unit()
    assert messages(speak(session, last))[-1] == {"type": "session.done", "utterance_index": 0, "total_sentences": 2}


def test_units_are_handed_out_once_and_ahead() -> None:
    session = configured()
    send(session, type="input.text", text="One. Two. Three.")
    units = [session.next_unit() for _ in range(4)]
    assert [u.text.text if u else None for u in units] == ["One.", "Two.", "Three.", None]
    assert speak(session, units[1]) == [], "a unit that is not at the head of the line sends nothing"
    assert kinds(speak(session, units[0])) == ["audio.start", "bytes", "audio.done"]


def test_an_empty_flush_is_answered_and_counted() -> None:
    session = configured()
    send(session, type="input.text", text="   ")
    for index in range(2):
        done = {"type": "session.done", "utterance_index": index, "total_sentences": 0}
        assert messages(send(session, type="input.done")) == [done]


def test_a_failed_unit_keeps_its_bracket_and_the_next_goes_on() -> None:
    session = configured()
    send(session, type="input.text", text="One. Two.")
    one, two = session.next_unit(), session.next_unit()
    assert one is not None
    session.unit_opened(one, {"type": "audio.start"})
    effects = session.unit_done(one, {"type": "audio.done", "total_bytes": 4}, EngineFault("broke"), 0.0)
    error, done = messages(effects)
    assert error["partial_audio"] is True
    assert error["action"] == "discard"
    assert "utterance 0, sentence 0" in error["message"]
    assert done["error"] is True
    assert kinds(speak(session, two)) == ["audio.start", "bytes", "audio.done"]


def test_config_is_refused_while_an_utterance_is_open_even_if_splitting_emptied_the_buffer() -> None:
    session = configured()
    send(session, type="input.text", text="One.")
    speak(session, session.next_unit())
    assert kinds(send(session, type="session.config", tag="new")) == ["error"]
    send(session, type="input.done")
    assert send(session, type="session.config", tag="new") == []
    send(session, type="input.text", text="Two.")
    unit = session.next_unit()
    assert unit is not None
    assert unit.config.tag == "new"
    assert unit.utterance_index == 1


def test_an_empty_text_opens_no_utterance() -> None:
    session = configured()
    send(session, type="input.text", text="")
    assert send(session, type="session.config") == []


def test_a_bad_later_config_keeps_the_first() -> None:
    session = make()
    send(session, type="session.config", tag="first")
    assert kinds(send(session, type="session.config", bad=True)) == ["error"]
    send(session, type="input.text", text="One.")
    unit = session.next_unit()
    assert unit is not None
    assert unit.config.tag == "first"


# ---------------------------------------------------------------- cancel
def test_cancel_when_idle_drops_the_buffer_and_keeps_the_index() -> None:
    session = configured()
    send(session, type="input.text", text="never spoken")
    assert messages(send(session, type="input.cancel")) == [{"type": "input.cancelled", "utterance_index": 0}]
    assert messages(send(session, type="input.done")) == [
        {"type": "session.done", "utterance_index": 0, "total_sentences": 0}
    ]


def test_cancel_in_a_bracket_ends_it_and_drops_what_is_queued() -> None:
    session = configured()
    send(session, type="input.text", text="One. Two. Three. tail")
    one, two = session.next_unit(), session.next_unit()
    assert one is not None
    assert two is not None
    session.unit_opened(one, {"type": "audio.start"})
    assert kinds(send(session, type="input.cancel")) == ["stop"]
    assert not session.wants(two)
    done = session.unit_done(one, {"type": "audio.done", "total_bytes": 0, "cancelled": True}, None, 0.0)
    assert messages(done) == [
        {
            "type": "audio.done", "total_bytes": 0, "cancelled": True,
            "utterance_index": 0, "sentence_index": 0, "error": False,
        }
    ]  # fmt: skip
    assert speak(session, two) == [], "nothing of a dropped unit is sent"
    assert send(session, type="session.config") == [], "the utterance is closed"


def test_cancel_of_a_running_flush_is_followed_by_its_session_done() -> None:
    session = configured()
    send(session, type="input.text", text="One. Two.")
    send(session, type="input.done")
    one = session.next_unit()
    assert one is not None
    session.unit_opened(one, {"type": "audio.start"})
    send(session, type="input.cancel")
    send(session, type="input.text", text="New.")
    done = session.unit_done(one, {"type": "audio.done", "cancelled": True}, None, 0.0)
    assert messages(done)[1] == {
        "type": "session.done", "utterance_index": 0, "total_sentences": 2, "cancelled": True
    }  # fmt: skip
    unit = session.next_unit()
    assert unit is not None
    assert (unit.text.text, unit.utterance_index, unit.sentence_index) == ("New.", 1, 0)


def test_cancel_before_the_first_sound_of_a_flush() -> None:
    session = configured()
    send(session, type="input.text", text="One.")
    send(session, type="input.done")
    assert session.next_unit() is not None
    assert kinds(send(session, type="input.cancel")) == ["stop", "input.cancelled", "session.done"]


def test_close_waits_for_what_was_flushed() -> None:
    session = configured()
    send(session, type="input.text", text="One.")
    send(session, type="input.done")
    assert send(session, type="session.close") == []
    assert send(session, type="input.text", text="too late") == []
    assert kinds(speak(session, session.next_unit())) == ["audio.start", "bytes", "audio.done", "session.done", "close"]
    assert session.closed


# ---------------------------------------------------------------- errors, limits, time
@pytest.mark.parametrize(
    "frame",
    ["{", "", "[1]", "null", '"x"', '{"type":"input.text","text":"x"}', "{}", '{"type":null}', "[" * 150],
)
def test_anything_but_a_config_first_ends_the_socket(frame: str) -> None:
    session = make()
    assert kinds(session.text_frame(frame, 0.0)) == ["error", "close"]
    assert session.closed
    assert send(session, type="session.config") == []


@pytest.mark.parametrize(
    "frame",
    [
        "{", "", "[1]", "null", '{"type":"nonsense"}', '{"text":"x"}', '{"type":["x"]}',
        '{"type":"input.text","text":5}', '{"type":"input.text","text":null}',
        json.dumps({"type": "input.text", "text": "x" * 300}),
    ],
)  # fmt: skip
def test_a_bad_message_is_one_error_and_the_buffer_survives(frame: str) -> None:
    session = configured()
    send(session, type="input.text", text="Kept ")
    assert kinds(session.text_frame(frame, 0.0)) == ["error"]
    send(session, type="input.text", text="text.")
    unit = session.next_unit()
    assert unit is not None
    assert unit.text.text == "Kept text."


def test_binary_frames() -> None:
    assert kinds(make().binary_frame(0.0)) == ["error", "close"]
    assert kinds(configured().binary_frame(0.0)) == ["error"]


def test_text_that_waits_is_bounded() -> None:
    session = configured()
    piece = "x" * 100
    taken = [send(session, type="input.text", text=piece) == [] for _ in range(8)]
    assert taken == [True] * 5 + [False] * 3


def test_units_that_wait_are_bounded_by_what_they_cost() -> None:
    session = configured()
    outcomes = [kinds(send(session, type="input.text", text="A.")) for _ in range(9)]
    assert outcomes == [[]] * 8 + [["error"]], "a unit of two characters counts for 66"


def test_input_done_is_taken_however_many_units_its_utterance_has() -> None:
    session = configured()
    send(session, type="input.text", text="A. B. C. D. E. F. G. H. I. J.")
    assert send(session, type="input.done") == []
    last = [kinds(speak(session, session.next_unit())) for _ in range(10)][-1]
    assert last == ["audio.start", "bytes", "audio.done", "session.done"]


def test_utterances_that_wait_are_bounded() -> None:
    session = configured()
    send(session, type="input.text", text="A.")
    outcomes = [kinds(send(session, type="input.done")) for _ in range(8)]
    assert outcomes == [[]] * 6 + [["error"]] * 2


def test_a_server_that_goes_away_lets_what_was_accepted_be_spoken() -> None:
    session = configured()
    send(session, type="input.text", text="One. tail")
    send(session, type="input.done")
    assert session.going_away() == []
    assert send(session, type="input.text", text="more") == []
    assert kinds(speak(session, session.next_unit())) == ["audio.start", "bytes", "audio.done"]
    effects = speak(session, session.next_unit())
    assert kinds(effects) == ["audio.start", "bytes", "audio.done", "session.done", "close"]
    assert effects[-1] == Close(1001)
    idle = configured()
    assert idle.going_away() == [Close(1001)]
    assert idle.going_away() == []


def test_no_config_in_time() -> None:
    session = make()
    assert session.deadline_ms() == LIMITS.config_timeout_ms
    assert session.timeout(LIMITS.config_timeout_ms - 1) == []
    effects = session.timeout(LIMITS.config_timeout_ms)
    assert kinds(effects) == ["error", "close"]
    assert "timeout" in messages(effects)[0]["message"].lower()


def test_idle_time_does_not_count_while_speaking() -> None:
    session = configured()
    send(session, type="input.text", text="One.")
    assert session.deadline_ms() is None
    unit = session.next_unit()
    assert unit is not None
    session.unit_opened(unit, {"type": "audio.start"})
    session.unit_done(unit, {"type": "audio.done"}, None, 50_000.0)
    assert session.deadline_ms() == 50_000.0 + LIMITS.idle_timeout_ms


@given(st.lists(st.text(max_size=40), max_size=30))
def test_no_frame_makes_it_raise(frames: list[str]) -> None:
    session = configured()
    for frame in frames:
        session.text_frame(frame, 0.0)


# ---------------------------------------------------------------- laws
class Laws(RuleBasedStateMachine):
    """A client and a speaker that do anything in any order."""

    @initialize()
    def start(self) -> None:
        self.session = configured()
        self.handed: list[Unit[Config]] = []
        self.open: Unit[Config] | None = None
        self.closed = False
        self.dones: list[int] = []
        self.flushes = 0

    def check(self, effects: list[Effect]) -> None:
        for effect in effects:
            assert not self.closed, "nothing may come after the close"
            if isinstance(effect, Close):
                self.closed = True
            elif isinstance(effect, SendBytes):
                assert self.open is not None, "audio outside a bracket"
            elif isinstance(effect, SendJson):
                self.message(effect.message)

    def message(self, message: dict[str, Any]) -> None:
        if message["type"] == "audio.start":
            assert self.open is None, "brackets never interleave"
            self.open = self.handed[0]
        elif message["type"] == "audio.done":
            assert self.open is not None
            self.open = None
        elif message["type"] == "session.done":
            assert self.open is None
            self.dones.append(message["utterance_index"])
            assert self.dones == list(range(len(self.dones))), "every flush is answered once, in order"

    @rule(text=st.sampled_from(["a", "b.", "c. d.", "", " ", "x" * 90]))
    def text(self, text: str) -> None:
        self.check(send(self.session, type="input.text", text=text))

    @rule()
    def done(self) -> None:
        effects = send(self.session, type="input.done")
        if not self.closed and "error" not in kinds(effects):
            self.flushes += 1
        self.check(effects)

    @rule()
    def cancel(self) -> None:
        effects = send(self.session, type="input.cancel")
        if any(isinstance(e, StopSpeaking) for e in effects):
            self.handed = self.handed[:1] if self.open is not None else []
        self.check(effects)

    @rule()
    def config(self) -> None:
        self.check(send(self.session, type="session.config"))

    @rule()
    def prepare(self) -> None:
        unit = self.session.next_unit()
        if unit is not None:
            self.handed.append(unit)

    @precondition(lambda self: self.handed)
    @rule(fails=st.booleans())
    def finish(self, fails: bool) -> None:
        unit = self.handed[0]
        if self.open is None:
            self.check(self.session.unit_opened(unit, {"type": "audio.start"}))
        self.check(self.session.unit_audio(unit, b"x"))
        fault = EngineFault("x") if fails else None
        effects = self.session.unit_done(unit, {"type": "audio.done", "total_bytes": 1}, fault, 0.0)
        self.check(effects)
        self.handed.pop(0)

    @precondition(lambda self: self.handed and self.open is None)
    @rule()
    def open_unit(self) -> None:
        self.check(self.session.unit_opened(self.handed[0], {"type": "audio.start"}))

    def teardown(self) -> None:
        if not hasattr(self, "session") or self.closed:
            return
        self.check(send(self.session, type="session.close"))
        while (unit := self.session.next_unit()) is not None:
            self.handed.append(unit)
        while self.handed:
            self.finish(fails=False)
        assert self.closed, "a close is always carried out once everything has been said"
        assert len(self.dones) == self.flushes, "every accepted input.done is answered"


def test_laws_of_the_session() -> None:
    run_state_machine_as_test(Laws)
