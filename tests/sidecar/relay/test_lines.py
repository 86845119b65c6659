"""Lines: what a person who debugs a speech socket reads."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest

from sidecar.codec_wire import CodecWriter, start_event
from sidecar.relay.lines import ConnectionLines
from sidecar.relay.seen import (
    Answer,
    BodyEnd,
    BodyPart,
    CloseFrame,
    Ended,
    Fact,
    Over,
    Ping,
    Request,
    Seen,
    Side,
    Unseen,
)
from tests.sidecar.relay.helpers import talk

C, S = Side.CLIENT, Side.SERVER
START = {"type": "audio.start", "utterance_index": 0, "sentence_index": 0, "sentence_text": "canary", "format": "pcm"}
DONE = {"type": "audio.done", "utterance_index": 0, "sentence_index": 0, "total_bytes": 9_600, "error": False}
SESSION_DONE = {"type": "session.done", "utterance_index": 0, "total_sentences": 1}


def pcm(ms: int, level: int = 16_384) -> bytes:
    return np.full(24 * ms, level, "<i2").tobytes()


def shown(seen: list[Seen], *, show_text: bool = False) -> list[str]:
    lines = ConnectionLines(show_text=show_text)
    return [line for one in seen for line in lines.of(one)]


def of(*facts: Fact, side: Side = S) -> list[str]:
    return shown([Seen(3, 1_500.0, side, fact) for fact in facts])


def test_a_conversation_is_told_line_by_line() -> None:
    lines = shown(
        talk(
            (10.0, C, {"type": "session.config", "voice": "vivian", "seed": 7, "ref_audio": "data:canary"}),
            (20.0, C, {"type": "input.text", "text": "canary"}),
            (30.0, S, {**START, "sample_rate": 24_000}),
            (40.0, S, pcm(100)),
            (100.0, S, pcm(100, 0)),
            (400.0, S, pcm(100)),
            (410.0, S, DONE),
            (411.0, S, SESSION_DONE),
        )
    )
    assert "canary" not in "\n".join(lines)
    assert lines[0].split() == [
        "0.000", "#1", "-->", "GET", "socket", "/v1/audio/speech/stream?key=***", "from", "c:1,", "without", "a", "key",
    ]  # fmt: skip
    assert lines[1].endswith("a socket from here on")
    assert lines[2].startswith("    0.010  #1   --> session.config")
    assert lines[2].endswith("voice=vivian seed=7 ref_audio=<hidden, 11>")
    assert lines[3].endswith("text=<6 chars>")
    first, second, third = lines[5:8]
    assert first.endswith("4800 B  pcm peak -6 dB  0.100 s, 0.10 s so far, 0.10 s ahead")
    assert second.endswith("pcm silence  0.100 s, 0.20 s so far, 60 ms after the last, 0.14 s ahead")
    assert third.endswith("0.30 s so far, 300 ms after the last, 0.10 s ahead, RAN DRY 160 ms")
    assert lines[8].endswith("error=false  unit 0.30 s")
    assert lines[9].endswith("total_sentences=1  0.30 s, longest gap 300 ms, ran dry for 160 ms")


def test_texts_are_shown_when_asked_for() -> None:
    seen = talk((1.0, C, {"type": "input.text", "text": "Good morning"}), (2.0, C, "no json \x1b[2J"))
    lines = shown(seen, show_text=True)
    assert lines[-2].endswith('text="Good morning"')
    assert lines[-1].endswith("no json \\u001b[2J")
    assert shown(seen)[-1].endswith("not a JSON object")


def test_every_utterance_is_a_stretch_of_its_own() -> None:
    seen = talk(
        (0.0, S, START), (1.0, S, pcm(100)), (2.0, S, SESSION_DONE), (9_000.0, S, START), (9_001.0, S, pcm(100))
    )
    assert shown(seen)[-1].endswith("0.10 s so far, 0.10 s ahead"), "the pause between replies is no gap"


@pytest.mark.parametrize(("rate_hz", "channels", "seconds"), [(24_000, 1, 0.1), (8_000, 1, 0.3), (24_000, 2, 0.05)])
def test_the_rate_is_the_one_that_was_told(rate_hz: int, channels: int, seconds: float) -> None:
    start = {**START, "sample_rate": rate_hz, "channels": channels}
    assert f"{seconds:.3f} s" in shown(talk((0.0, S, start), (1.0, S, pcm(100))))[-1]


@pytest.mark.parametrize("wrong", [0, -1, True, None, "x", 10**9, 1.5])
def test_a_rate_that_cannot_be_is_24_khz(wrong: object) -> None:
    assert "0.100 s" in shown(talk((0.0, S, {**START, "sample_rate": wrong}), (1.0, S, pcm(100))))[-1]


def test_whole_files() -> None:
    header = (
        b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0" + (8_000).to_bytes(4, "little") + b"\0\0\0\0\2\0\x10\0data\0\0\0\0"
    )
    wav = shown(talk((0.0, S, {**START, "format": "wav"}), (1.0, S, header + bytes(16_000))))[-1]
    assert "wav  1.000 s" in wav
    mp3 = shown(talk((0.0, S, {**START, "format": "mp3"}), (1.0, S, b"\xff\xfb" * 50)))[-1]
    assert mp3.endswith("100 B  mp3")
    assert "binary" in shown(talk((1.0, S, b"RIFF" + bytes(60))))[-1]


def test_chunks_in_json_count_as_sound() -> None:
    chunk = {"type": "audio.chunk", "audio_b64": base64.b64encode(pcm(80)).decode(), "chunk_id": 0}
    line = shown(talk((0.0, S, START), (1.0, S, chunk)))[-1]
    assert "audio_b64=<hidden, 5120> chunk_id=0  pcm peak -6 dB  0.080 s" in line
    assert shown(talk((1.0, S, {**chunk, "audio_b64": "?"})))[-1].endswith("not base64")


def test_codec_tokens_are_told_by_packet() -> None:
    writer = CodecWriter()
    codes = np.zeros((2, 16), np.int16)
    lines = shown(
        talk(
            (0.0, S, {**start_event(decoder_id="d"), "sentence_text": "canary"}),
            (1.0, S, writer.frames(codes)),
            (81.0, S, writer.end()),
            (82.0, S, b"broken"),
            (83.0, S, writer.done()),
        )
    )
    assert lines[-4].endswith("71 B  codec seq 0 2 frames  0.160 s, 0.16 s so far, 0.16 s ahead")
    assert lines[-3].endswith("7 B  codec seq 1 0 frames EOS")
    assert "broken codec packet" in lines[-2]
    assert lines[-1].endswith("cancelled=false  unit 0.16 s")
    other = shown(talk((0.0, S, {"type": "codec.start", "version": 9}), (1.0, S, bytes(71))))
    assert other[-1].endswith("71 B  codec")


def test_the_rest_of_a_socket() -> None:
    lines = of(Ping(4), Ping(4, pong=True), CloseFrame(4008, "slow"), Ended("reset"), Unseen("ProtocolError"), Over())
    assert [line[19:].split() for line in lines] == [
        ["ping", "4", "B"],
        ["pong", "4", "B"],
        ["close", "4008", "slow"],
        ["end", "reset"],
        ["unreadable", "ProtocolError:", "passed", "on,", "not", "shown", "any", "more"],
        ["over"],
    ]
    assert all(line.startswith("    1.500  #3   <-- ") for line in lines)


# ---------------------------------------------------------------- plain requests
def test_a_json_request_is_shown_by_its_members() -> None:
    body = json.dumps({"input": "canary", "voice": "vivian"}).encode()
    lines = of(
        Request("POST", "/v1/audio/speech", "1.2.3.4:5", keyed=True),
        BodyPart(body[:9]),
        BodyPart(body[9:]),
        BodyEnd(),
        side=C,
    )
    assert lines[0].endswith("POST                           /v1/audio/speech from 1.2.3.4:5, with a key")
    assert lines[1].endswith(f"{len(body)} B  input=<6 chars> voice=vivian")


def test_streamed_sound_is_told_piece_by_piece() -> None:
    lines = shown(
        [
            Seen(1, 1.0, S, Answer(200, "audio/pcm")),
            Seen(1, 2.0, S, BodyPart(bytes(100))),
            Seen(1, 52.0, S, BodyPart(bytes(60))),
            Seen(1, 53.0, S, BodyEnd()),
        ]
    )
    assert lines[0].endswith("audio/pcm")
    assert lines[2].endswith("60 B  50 ms after the last")
    assert lines[3].endswith("160 B  longest gap 50 ms")


@pytest.mark.parametrize("cut", [1, 7, 1_000])
def test_server_sent_events_are_told_one_by_one(cut: int) -> None:
    events = [
        {"type": "speech.audio.delta", "audio": "canary"},
        {"type": "speech.audio.done", "usage": {"total_tokens": 3}},
    ]
    text = "".join(f"event: {one['type']}\r\ndata: {json.dumps(one)}\r\n\r\n" for one in events) + "data: [DONE]\n\n"
    data = text.encode()
    facts: list[Fact] = [Answer(200, "text/event-stream")]
    facts += [BodyPart(data[at : at + cut]) for at in range(0, len(data), cut)]
    lines = of(*facts, BodyEnd())
    assert "canary" not in "".join(lines)
    assert [line.split()[3] for line in lines[1:4]] == ["speech.audio.delta", "speech.audio.done", "event"]
    assert lines[2].endswith("usage={total_tokens=3}")
    assert lines[3].endswith("[DONE]")


def test_a_large_body_is_not_kept() -> None:
    body = json.dumps({"voice": "x" * 2_000_000}).encode()
    lines = of(BodyPart(body), BodyEnd(), side=C)
    assert lines == [f"    1.500  #3   --> {'body complete':<18} {f'{len(body)} B':>10}"]
