"""What a replay sends, when, and what counts as a difference."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sidecar.faults import BadRequest
from sidecar.relay.compare import compare, ending_of, steps_of, tally_of
from sidecar.relay.recording import Entry, RecordedSocket
from sidecar.relay.seen import Side

C, S = Side.CLIENT, Side.SERVER
CONFIG = {"type": "session.config", "voice": "v"}


def socket(*entries: tuple[float, Side, dict[str, Any] | str | int | None]) -> RecordedSocket:
    """Messages, closes (a number), frames (``"frame"``) and cut connections (None)."""
    made = []
    for at_ms, side, what in entries:
        if isinstance(what, dict):
            made.append(Entry(at_ms, side, message=what))
        elif what == "frame":
            made.append(Entry(at_ms, side, data_bytes=480, sound_ms=10.0))
        elif isinstance(what, str):
            made.append(Entry(at_ms, side, text=what))
        elif isinstance(what, int):
            made.append(Entry(at_ms, side, close_code=what))
        else:
            made.append(Entry(at_ms, side, end="closed"))
    return RecordedSocket(1, "/x", 101, made)


def start(utterance: int = 0, sentence: int = 0, **more: Any) -> dict[str, Any]:
    return {"type": "audio.start", "utterance_index": utterance, "sentence_index": sentence, **more}


def done(utterance: int = 0, sentence: int = 0, **more: Any) -> dict[str, Any]:
    return {"type": "audio.done", "utterance_index": utterance, "sentence_index": sentence, "error": False, **more}


def over(utterance: int = 0, sentences: int = 1) -> dict[str, Any]:
    return {"type": "session.done", "utterance_index": utterance, "total_sentences": sentences}


TEXT = {"type": "input.text", "text": "Hi."}
DONE = {"type": "input.done"}
ONE = (
    (10.0, C, CONFIG),
    (30.0, C, TEXT),
    (40.0, C, DONE),
    (90.0, S, start(sentence_text="Hi.")),
    (100.0, S, "frame"),
    (120.0, S, "frame"),
    (130.0, S, done()),
    (131.0, S, over()),
)


# ---------------------------------------------------------------- steps
def test_messages_keep_their_pace() -> None:
    steps = steps_of(socket(*ONE))
    assert [step.wait_ms for step in steps] == [0.0, 20.0, 10.0]
    assert [json.loads(str(step.payload)) for step in steps] == [CONFIG, TEXT, DONE]
    assert {step.after_answers for step in steps} == {0}


def test_what_followed_an_answer_waits_for_one() -> None:
    steps = steps_of(socket(*ONE, (231.0, C, TEXT), (240.0, C, DONE), (300.0, S, over(1, 0))))
    assert [(step.after_answers, step.wait_ms) for step in steps[3:]] == [(1, 100.0), (1, 9.0)]


def test_a_cancel_waits_for_sound_if_it_cut_some() -> None:
    cancel = {"type": "input.cancel"}
    steps = steps_of(socket(*ONE[:5], (150.0, C, cancel), (151.0, S, done(cancelled=True)), (152.0, S, over())))
    assert steps[-1].after_sound
    assert not steps_of(socket(*ONE[:3], (50.0, C, cancel)))[-1].after_sound
    assert not steps_of(socket(*ONE[:5], (150.0, C, TEXT)))[-1].after_sound
    assert not steps_of(socket(*ONE[:5], (150.0, C, "junk")))[-1].after_sound
    for leaving in (None, 1000):
        assert steps_of(socket(*ONE[:5], (150.0, C, leaving)))[-1].after_sound
        assert not steps_of(socket(*ONE, (150.0, C, leaving)))[-1].after_sound


def test_how_the_client_left_is_repeated() -> None:
    left = steps_of(socket(*ONE, (200.0, C, 1001), (201.0, S, 1001), (202.0, C, None)))
    assert (left[-1].payload, left[-1].close_code, left[-1].wait_ms) == (None, 1001, 69.0)
    assert steps_of(socket(*ONE, (200.0, C, 1005)))[-1].close_code == 1000
    cut = steps_of(socket(*ONE, (200.0, C, None)))[-1]
    assert (cut.payload, cut.close_code) == (None, None)


def test_the_echo_of_the_servers_close_is_no_step() -> None:
    assert len(steps_of(socket(*ONE, (200.0, S, 1000), (201.0, C, 1000), (202.0, C, None)))) == 3


def test_members_of_the_config_can_be_replaced() -> None:
    config = {"type": "session.config", "voice": "v", "ref_audio": {"hidden": 9}}
    recorded = socket((0.0, C, config), (1.0, C, TEXT))
    with pytest.raises(BadRequest, match="ref_audio: never recorded"):
        steps_of(recorded)
    steps = steps_of(recorded, {"ref_audio": None, "voice": "w"})
    assert json.loads(str(steps[0].payload)) == {"type": "session.config", "voice": "w"}
    assert json.loads(str(steps[1].payload)) == TEXT


def test_what_was_null_stays_null() -> None:
    steps = steps_of(socket((0.0, C, {"type": "session.config", "speed": None, "voice": "v"})), {"voice": "w"})
    assert json.loads(str(steps[0].payload)) == {"type": "session.config", "speed": None, "voice": "w"}


def test_frames_of_the_client_must_have_been_kept() -> None:
    with pytest.raises(BadRequest, match="--frames"):
        steps_of(RecordedSocket(1, "/", 101, [Entry(0.0, C, data_bytes=4)]))
    assert steps_of(RecordedSocket(1, "/", 101, [Entry(0.0, C, data=b"abcd", data_bytes=4)]))[0].payload == b"abcd"


def test_how_a_conversation_ended() -> None:
    assert ending_of(socket(*ONE)).over is False
    assert ending_of(socket(*ONE)).events == 4
    closed = ending_of(socket(*ONE, (500.0, S, 1000)))
    assert (closed.over, closed.after_ms) == (True, 460.0)
    assert ending_of(socket((9_000.0, S, 1008))).after_ms == 9_000.0, "a client that said nothing"
    assert ending_of(socket()).events == 0


# ---------------------------------------------------------------- comparing
def test_the_same_events_are_the_same_however_the_sound_is_cut() -> None:
    other = [*ONE[:4], (200.0, S, "frame"), *ONE[6:]]
    result = compare(tally_of(socket(*ONE)), tally_of(socket(*other)))
    assert result.same
    assert result.lines == [
        "events      4 recorded, 4 replayed: the same sequence",
        "utterance 0   recorded  0.02 s of sound, first after 70 ms, longest gap 20 ms, ran dry for 10 ms; "
        "1 units, 2 frames, 960 B",
        "utterance 0   replayed  0.01 s of sound, first after 170 ms, longest gap 0 ms; 1 units, 1 frames, 480 B",
    ]


@pytest.mark.parametrize(
    "other",
    [
        ONE[:7],
        [*ONE[:4], *ONE[6:]],
        [*ONE[:6], (130.0, S, done(error=True)), ONE[7]],
        [*ONE[:6], (130.0, S, done(cancelled=True)), ONE[7]],
        [*ONE[:7], (131.0, S, over(0, 2))],
        [*ONE, (140.0, S, 1000)],
        [*ONE[:3], (80.0, S, {"type": "error", "message": "canary"}), *ONE[3:]],
        [*ONE[:3], (80.0, S, "junk"), *ONE[3:]],
    ],
)
def test_another_sequence_is_a_mismatch(other: list[tuple[float, Side, Any]]) -> None:
    result = compare(tally_of(socket(*ONE)), tally_of(socket(*other)))
    assert not result.same
    assert any("on differ" in line for line in result.lines)
    assert "canary" not in "".join(result.lines)


def test_an_error_beside_speech_may_come_at_another_moment() -> None:
    error = (95.0, S, {"type": "error", "message": "x"})
    before, between, after = [*ONE[:3], error, *ONE[3:]], [*ONE[:5], error, *ONE[5:]], [*ONE[:6], error, *ONE[6:]]
    tallies = [tally_of(socket(*entries)) for entries in (before, between, after)]
    for other in tallies[1:]:
        result = compare(tallies[0], other)
        assert result.same
        assert "another moment" in result.lines[0]
    twice = tally_of(socket(*ONE[:3], error, error, *ONE[3:]))
    assert not compare(tallies[0], twice).same, "as many as there were"


def test_other_words_are_reported_by_their_number() -> None:
    other = [*ONE[:3], (90.0, S, start(sentence_text="canary")), *ONE[4:]]
    result = compare(tally_of(socket(*ONE)), tally_of(socket(*other)))
    assert result.same
    assert "1 of 1 units have another text" in "\n".join(result.lines)
    assert "canary" not in "".join(result.lines)


def test_several_utterances_are_told_apart() -> None:
    tally = tally_of(
        socket(*ONE, (200.0, C, TEXT), (201.0, C, DONE), (300.0, S, start(1)), (350.0, S, "frame"), (360.0, S, over(1)))
    )
    assert [spoken.first_audio_ms for spoken in tally.spoken] == [70.0, 150.0]
    assert tally.answers == 2


def test_chunks_in_json_are_sound() -> None:
    chunk = Entry(95.0, S, message={"type": "audio.chunk", "audio_b64": {"hidden": 9}}, sound_ms=80.0)
    recorded = socket(*ONE[:4])
    recorded.entries += [chunk, chunk]
    tally = tally_of(recorded)
    assert tally.events[-1] == "sound"
    assert tally.spoken[0].clock.sound_ms == 160.0
