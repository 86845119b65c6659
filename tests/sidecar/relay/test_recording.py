"""Recordings: what is in them, what never is, how large they get, and what is refused when they are read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.faults import BadRequest
from sidecar.relay.recording import Entry, Recorder, RecordingOptions, read_recording
from sidecar.relay.seen import Answer, BodyPart, Over, Request, Seen, Side
from tests.sidecar.relay.helpers import talk

C, S = Side.CLIENT, Side.SERVER
CONFIG = {"type": "session.config", "voice": "v", "ref_audio": "canary", "api_key": "canary"}
START = {"type": "audio.start", "utterance_index": 0, "sentence_index": 0, "format": "pcm"}


def recorded(seen: list[Seen], **options: Any) -> list[str]:
    recorder = Recorder(RecordingOptions(**options), 12.0)
    return [recorder.header(), *(line for one in seen if (line := recorder.of(one)))]


SAID = talk(
    (5.0, C, CONFIG),
    (6.0, C, {"type": "input.text", "text": "Dr. Who, 7"}),
    (7.0, C, "{no json 7"),
    (8.0, S, START),
    (9.0, S, bytes(480)),
)


def test_what_was_said_can_be_read_again() -> None:
    recording = read_recording(recorded(SAID))
    assert not recording.masked
    assert not recording.full
    (socket,) = recording.sockets
    assert (socket.connection, socket.path, socket.status) == (1, "/v1/audio/speech/stream", 101)
    config, text, junk, start, frame = socket.entries
    assert config.message == {
        "type": "session.config", "voice": "v", "ref_audio": {"hidden": 6}, "api_key": {"hidden": 6},
    }  # fmt: skip
    assert text == Entry(6.0, C, message={"type": "input.text", "text": "Dr. Who, 7"})
    assert junk == Entry(7.0, C, text="{no json 7")
    assert start.message == START
    assert frame == Entry(9.0, S, data_bytes=480, sound_ms=10.0)


def test_nothing_secret_is_in_the_file() -> None:
    text = "".join(recorded(SAID))
    assert "canary" not in text
    assert "***" not in text, "not even the names in the query"


def test_texts_can_be_masked() -> None:
    lines = recorded(SAID, mask_text=True)
    recording = read_recording(lines)
    assert recording.masked
    assert recording.sockets[0].entries[1].message == {"type": "input.text", "text": "xx. xxx, 0"}
    assert recording.sockets[0].entries[2].text == "{xx xxxx 0"
    assert "Who" not in "".join(lines)


def test_frames_can_be_kept_whole() -> None:
    recording = read_recording(recorded(talk((1.0, S, START), (2.0, S, b"\1\0" * 24)), whole_frames=True))
    assert recording.sockets[0].entries[-1] == Entry(2.0, S, data=b"\1\0" * 24, data_bytes=48, sound_ms=1.0)


def test_equal_frames_can_be_told_from_others() -> None:
    lines = recorded(talk((1.0, S, b"aa"), (2.0, S, b"aa"), (3.0, S, b"ab")))
    first, second, third = (json.loads(line)["sha256"] for line in lines[3:])
    assert first == second != third


def test_plain_requests_are_not_kept() -> None:
    facts = [Request("POST", "/x"), BodyPart(b"canary"), Answer(200), BodyPart(b"canary"), Over()]
    assert len(recorded([Seen(2, 0.0, C, fact) for fact in facts])) == 1


@pytest.mark.parametrize("limit", [60, 200, 400])
def test_a_recording_does_not_outgrow_its_size(limit: int) -> None:
    lines = recorded(SAID * 20, max_bytes=limit)
    assert sum(map(len, lines[:-1])) <= limit
    assert json.loads(lines[-1]) == {"full": True}
    assert read_recording(lines).full


def test_memory_is_free_when_a_socket_is_over() -> None:
    recorder = Recorder(RecordingOptions(), 0.0)
    for number in range(50):
        recorder.of(Seen(number, 0.0, C, Request("GET", "/", socket=True)))
        recorder.of(Seen(number, 0.0, S, Over()))
    assert recorder.of(Seen(1, 0.0, S, Answer(101))) == ""


# ---------------------------------------------------------------- what is refused
HEADER = '{"sidecar_recording":1,"masked":false}\n'
OPEN = '{"c":1,"at_ms":0,"from":"client","path":"/x"}\n'


@pytest.mark.parametrize("first", [[], [""], ["{}"], ['{"sidecar_recording":2}'], ["[]"], ["junk"]])
def test_what_is_no_recording(first: list[str]) -> None:
    with pytest.raises(BadRequest, match="version 1"):
        read_recording(first)


@pytest.mark.parametrize(
    "line",
    [
        "junk",
        "{}",
        '{"c":2,"at_ms":0,"from":"client","text":"x"}',
        '{"c":1,"at_ms":"x","from":"client","text":"x"}',
        '{"c":1,"at_ms":0,"from":"nobody","text":"x"}',
        '{"c":1,"at_ms":0,"from":"client","message":"x"}',
        '{"c":1,"at_ms":0,"from":"client","base64":"?"}',
        '{"c":1,"at_ms":0,"from":"client","bytes":"x"}',
        '{"c":1,"at_ms":0,"from":"client"}',
        '{"c":[],"at_ms":0,"from":"client","text":"x"}',
    ],
)
def test_a_line_that_cannot_be_read_is_named(line: str) -> None:
    with pytest.raises(BadRequest, match="Line 3"):
        read_recording([HEADER, OPEN, line])


def test_a_file_that_is_too_large_is_refused() -> None:
    with pytest.raises(BadRequest, match="too large"):
        read_recording([HEADER, *([OPEN] * 50)], max_bytes=500)


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["c", "at_ms", "from", "path", "message", "text", "base64", "bytes", "close", "sound_ms"]),
            st.none()
            | st.integers()
            | st.text(max_size=5)
            | st.sampled_from(["client", "server"])
            | st.floats()
            | st.lists(st.integers(), max_size=2),
        ),
        max_size=5,
    )
)
def test_any_lines_are_read_or_refused(bodies: list[dict[str, Any]]) -> None:
    try:
        read_recording([HEADER, OPEN, *map(json.dumps, bodies)])
    except BadRequest:
        return


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN"])
def test_numbers_without_end_are_refused(number: str) -> None:
    with pytest.raises(BadRequest):
        read_recording([HEADER, OPEN, f'{{"c": {number}, "at_ms": 0, "from": "client", "path": "/"}}'])
