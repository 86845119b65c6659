"""What the parts of the engine that drives speech servers decide: samples, servers, words."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.engines.omni_abilities import (
    Abilities,
    listed_widths,
    model_ids,
    refuses_task,
    stored_names,
    told_by_sidecar,
    traits_of,
    voice_names,
    widths_named,
)
from adapters.engines.omni_fleet import Fleet
from adapters.engines.omni_pcm import MAX_CHUNK_SAMPLES, SEAM_SAMPLES, Passage, SampleJoiner
from adapters.engines.omni_settings import base_url, socket_url
from adapters.engines.omni_words import (
    Ended,
    Sound,
    UnitReader,
    refusal,
    rest_body,
    session_messages,
    spoken_fields,
)
from sidecar.faults import EngineFault, Fault, UnsupportedLanguage
from sidecar.ports import Draws, Utterance
from voices.anchor import SpeakerAnchor

ASKED = Utterance("Hello there.", "anna", seed=7, language="en")
SOUND = np.random.default_rng(1).uniform(-0.5, 0.5, 150_000).astype(np.float32)


def cuts(length: int, sizes: list[int]) -> list[slice]:
    """``length`` in pieces of these sizes, the last one again and again."""
    found, at = [], 0
    for turn in range(length):
        if at >= length:
            break
        size = sizes[min(turn, len(sizes) - 1)]
        found.append(slice(at, min(length, at + size)))
        at += size
    return found


def taken(passage: Passage) -> list[np.ndarray]:
    """What can be taken now; indices without gaps."""
    found = []
    while (chunk := passage.take()) is not None:
        found.append(chunk[0])
    return found


sizes = st.lists(st.integers(1, 40_000), min_size=1, max_size=6).map(lambda some: [*some, 30_000])


# ---------------------------------------------------------------- samples
@given(st.binary(max_size=400), st.lists(st.integers(0, 9), min_size=1, max_size=50))
def test_samples_are_the_same_however_their_bytes_are_cut(data: bytes, pieces: list[int]) -> None:
    joiner, found, at = SampleJoiner(), [], 0
    for size in [*pieces, len(data)]:
        found.append(joiner.feed(data[at : at + size]))
        at += size
    whole = np.frombuffer(data[: len(data) & ~1], "<i2") / 32_768
    assert np.array_equal(np.concatenate(found), whole)
    assert joiner.broken == bool(len(data) % 2)


@given(st.integers(1, 150_000), st.lists(st.tuples(st.integers(0, 150_000), sizes), max_size=4), sizes)
def test_any_number_of_breaks_gives_the_same_sound(length: int, breaks: list[tuple[int, list[int]]], last: Any) -> None:
    passage, found = Passage(), []
    for until, some in [*breaks, (length, last)]:
        passage.begin()
        for piece in cuts(min(until, length), some):
            assert passage.put(SOUND[piece])
            found += taken(passage)
    assert not passage.short
    passage.whole = True
    found += taken(passage)
    assert np.array_equal(np.concatenate(found), SOUND[:length])
    assert all(len(one) <= MAX_CHUNK_SAMPLES for one in found)


@given(st.integers(1, 60_000), st.integers(0, 60_000), sizes, st.floats(0, 1e-4))
def test_rounding_is_no_other_sound_but_another_is(before: int, shift: int, some: list[int], noise: float) -> None:
    for other, same in ((SOUND + np.float32(noise), True), (np.roll(SOUND, shift + 100), False)):
        passage = Passage()
        passage.begin()
        assert passage.put(SOUND[:before])
        passage.begin()
        agreed = [passage.put(other[piece].astype(np.float32)) for piece in cuts(before, some)]
        if before >= SEAM_SAMPLES:
            assert all(agreed) == same


@given(st.integers(1, 150_000), st.integers(1, 150_000), st.integers(1, 60_000), sizes)
def test_the_cap_and_the_first_chunk_are_exact(length: int, cap: int, first: int, some: list[int]) -> None:
    passage, found = Passage(max_samples=cap, first_samples=first), []
    passage.begin()
    for piece in cuts(length, some):
        passage.put(SOUND[piece])
        found += taken(passage)
    assert passage.full == (length >= cap)
    passage.whole = True
    found += taken(passage)
    whole = min(length, cap)
    assert len(np.concatenate(found)) == whole
    assert len(found[0]) == min(first, whole, MAX_CHUNK_SAMPLES)


def test_a_server_that_says_less_than_the_one_before_is_short() -> None:
    passage = Passage()
    passage.begin()
    passage.put(SOUND[:5_000])
    passage.begin()
    assert not passage.begun
    passage.put(SOUND[:4_000])
    assert (passage.short, passage.begun) == (True, True)
    passage.put(SOUND[4_000:5_000])
    assert (passage.short, passage.begun) == (False, True)


# ---------------------------------------------------------------- servers
def fleet(count: int, chance: float = 0.0) -> Fleet:
    return Fleet(count, check_every_ms=1_000, back_off_ms=100, back_off_max_ms=1_000, chance=lambda: chance)


def test_the_least_busy_is_chosen_then_the_one_that_waits_longest() -> None:
    servers = fleet(3)
    assert servers.choose(lambda _: True) is None
    for number in range(3):
        servers.well(number, 0)
    order = []
    for _ in range(7):
        chosen = servers.choose(lambda _: True)
        assert chosen is not None
        servers.begun(chosen)
        order.append(chosen)
    assert order == [0, 1, 2, 0, 1, 2, 0]
    servers.over(2)
    servers.over(2)
    assert servers.choose(lambda _: True) == 2
    assert servers.choose(lambda number: number != 2) == 1
    assert servers.choose(lambda _: True, avoid=[2]) == 1
    assert servers.choose(lambda number: number == 2, avoid=[2]) == 2
    assert servers.choose(lambda _: False) is None


def test_pauses_double_up_to_a_limit_and_only_speech_ends_them() -> None:
    servers = fleet(1)
    pauses = []
    for _ in range(6):
        servers.failed(0, 0)
        assert not servers.any_up
        pauses.append(servers.check_in_ms(0, 0))
        servers.well(0, 0)
        assert servers.up(0)
    assert pauses == [100, 200, 400, 800, 1_000, 1_000]
    servers.begun(0)
    servers.over(0, served=False)
    servers.failed(0, 0)
    assert servers.check_in_ms(0, 0) == 1_000
    servers.begun(0)
    servers.over(0, served=True)
    servers.failed(0, 0)
    assert servers.check_in_ms(0, 0) == 100


@given(st.integers(0, 10_000), st.floats(0, 1, exclude_max=True), st.floats(0, 1e9))
def test_a_pause_is_bounded_whatever_has_happened(failures: int, chance: float, now_ms: float) -> None:
    servers = fleet(1, chance)
    for _ in range(min(failures, 50)):
        servers.failed(0, now_ms)
    assert 0 <= servers.check_in_ms(0, now_ms) <= 1_000
    servers.well(0, now_ms)
    assert servers.check_in_ms(0, now_ms + 2_000) == 0


# ---------------------------------------------------------------- words
def config_of(asked: Utterance, server: Abilities, **how: Any) -> dict[str, Any]:
    messages = [
        json.loads(one)
        for one in session_messages(asked, server, how.pop("model", None), codes=how.pop("codes", False))
    ]
    assert [one["type"] for one in messages[:1] + messages[-1:]] == ["session.config", "input.done"]
    assert "".join(one["text"] for one in messages[1:-1]) == asked.text
    return dict(messages[0])


def test_what_a_server_is_told() -> None:
    config = config_of(ASKED, Abilities("omni"), model="m")
    assert config == {
        "type": "session.config",
        "response_format": "pcm",
        "seed": 7,
        "model": "m",
        "voice": "anna",
        "language": "English",
        "stream_audio": True,
        "split_granularity": "none",
    }
    assert config_of(ASKED, Abilities("sidecar"), codes=True)["output_mode"] == "codec_tokens"
    assert json.loads(rest_body(replace(ASKED, voice="default"), Abilities("plain"), None))["voice"] == "default"
    assert "voice" not in json.loads(rest_body(replace(ASKED, voice="default"), Abilities("omni"), None))


def test_how_to_draw_goes_over_rest_and_the_layout_over_both() -> None:
    asked = replace(ASKED, draws=Draws(temperature=0.5, top_k=20), whole_text=False)
    body = json.loads(rest_body(asked, Abilities("omni"), None))
    assert body["extra_params"] == {"temperature": 0.5, "top_k": 20}
    assert body["non_streaming_mode"] is False
    config = config_of(asked, Abilities("omni"))
    assert config["non_streaming_mode"] is False
    assert "extra_params" not in config


@given(st.integers(-(1 << 70), 1 << 70))
def test_a_seed_fits_into_64_bits_and_stays_what_it_is_where_it_does(seed: int) -> None:
    told = spoken_fields(replace(ASKED, seed=seed), Abilities(), None)["seed"]
    assert -(1 << 63) <= told < 1 << 63
    assert (told - seed) % (1 << 64) == 0


@given(st.text(max_size=30_000))
def test_no_message_is_longer_than_servers_take(text: str) -> None:
    messages = list(session_messages(replace(ASKED, text=text), Abilities("omni"), None, codes=False))
    assert all(len(message) <= 128 * 1024 for message in messages)


def test_languages_are_told_as_each_server_wants_them() -> None:
    assert Abilities("sidecar").language_name("sv") == "sv"
    assert Abilities("plain").language_name("sv") is None
    assert Abilities("omni").language_name("de") == "German"
    with pytest.raises(UnsupportedLanguage):
        Abilities("omni").language_name("sv")


def read(*frames: dict[str, Any] | bytes, sticky: bool | None = None) -> list[Any]:
    reader, found = UnitReader(), []
    for frame in frames:
        found += reader.binary(frame) if isinstance(frame, bytes) else reader.text(json.dumps(frame))
    if sticky is not None:
        assert reader.sticky == sticky
    return found


START = {"type": "audio.start", "format": "pcm", "sample_rate": 24_000}
DONE = {"type": "session.done", "utterance_index": 0}


def test_units_are_read_one_after_another() -> None:
    found = read(
        START,
        b"ab",
        {"type": "audio.done", "total_bytes": 2},
        START,
        b"cdef",
        {"type": "audio.done"},
        DONE,
        sticky=True,
    )
    assert [one.data for one in found if isinstance(one, Sound)] == [b"ab", b"cdef"]
    assert found[-1] == Ended(False)


@pytest.mark.parametrize(
    "frames",
    [
        [DONE],
        [{"type": "error", "message": "no"}],
        [START, {"type": "error"}, {"type": "audio.done", "error": True, "total_bytes": 0}, DONE],
        [START, b"ab", {"type": "audio.done", "error": False, "cancelled": True, "total_bytes": 9}, DONE],
    ],
)
def test_failures_are_read(frames: list[Any]) -> None:
    assert read(*frames)[-1] == Ended(True)


@pytest.mark.parametrize(
    "frames",
    [
        [b"ab"],
        [START | {"sample_rate": 8_000}],
        [START | {"channels": 2}],
        [START | {"format": "mp3"}],
        [START, b"ab", {"type": "audio.done", "total_bytes": 4}],
        [START, {"type": "audio.done", "total_bytes": 0}, b"ab"],
        [{"type": "codec.start"}],
    ],
)
def test_sound_that_is_not_as_it_should_be_is_a_fault(frames: list[Any]) -> None:
    with pytest.raises(EngineFault):
        read(*frames)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
odd_events = st.dictionaries(
    st.sampled_from(["type", "error", "total_bytes", "format", "sample_rate", "channels", "utterance_index", "x"]),
    json_values | st.sampled_from(["audio.start", "audio.done", "codec.start", "codec.done", "error", "session.done"]),
)


@given(st.lists(st.binary(max_size=8) | odd_events.map(json.dumps) | st.text(max_size=20), max_size=12))
def test_nothing_a_server_sends_is_worse_than_a_fault(frames: list[str | bytes]) -> None:
    reader = UnitReader()
    for frame in frames:
        try:
            _ = reader.binary(frame) if isinstance(frame, bytes) else reader.text(frame)
        except EngineFault:
            return


@given(st.integers(100, 599), st.binary(max_size=40) | json_values.map(lambda value: json.dumps(value).encode()))
def test_every_refusal_is_a_fault_that_quotes_nothing(status: int, content: bytes) -> None:
    assert isinstance(refusal(status, content, ASKED), Fault)
    quoting = json.dumps({"error": {"message": "secret", "param": "secret"}}).encode()
    assert "secret" not in refusal(status, quoting, ASKED).message


# ---------------------------------------------------------------- abilities
@given(json_values)
def test_no_answer_upsets_the_probe(answer: Any) -> None:
    for wrapped in (answer, {"voices": answer, "data": answer, "uploaded_voices": answer, "engine": answer}):
        assert all(name == name.lower() for name in voice_names(wrapped))
        model_ids(wrapped)
        listed_widths(wrapped)
        refuses_task(400, wrapped)
        refuses_task(400, {"error": wrapped})
        told_by_sidecar(wrapped, ())
    members = ("languages", "tasks", "clone_widths", "deterministic", "codes_out", "codec_id", "instructions")
    told = told_by_sidecar({"engine": dict.fromkeys(members, answer)}, ("anna",))
    assert told is not None
    assert traits_of([told], 4, None).default_voice == "default"
    stored_names(answer)


def test_voices_come_as_names_or_objects() -> None:
    assert voice_names({"voices": ["default", "Anna", " bert "]}) == ("anna", "bert")
    assert voice_names({"data": [{"id": "Anna", "name": "Anna K."}, {"name": "bert"}]}) == ("anna", "bert")
    assert voice_names(["x"]) == ("x",)
    assert listed_widths({"uploaded_voices": [{"embedding_dim": 2_048}, {"embedding_dim": None}, {}]}) == (2_048,)
    assert widths_named(["Qwen/Qwen3-TTS-12Hz-0.6B-Base"]) == (1_024,)
    assert widths_named(["tts"]) == (1_024, 2_048)


def test_servers_together_can_what_one_of_them_can() -> None:
    anna = Abilities("sidecar", ("anna",), ("en", "sv"), ("CustomVoice",), (), True)
    base = Abilities("omni", ("bert",), ("de",), ("Base",), (1_024,), False)
    traits = traits_of([anna, base], 4, None)
    assert [voice.name for voice in traits.voices] == ["default", "anna", "bert"]
    assert traits.languages == ("de", "en", "sv")
    assert (traits.tasks, traits.clone_widths, traits.deterministic) == (("CustomVoice", "Base"), (1_024,), False)
    assert traits_of([anna], 4, None).deterministic
    assert traits_of([base], 4, True).deterministic
    anchor = SpeakerAnchor(np.ones(1_024, np.float32))
    assert [one.can_speak(ASKED) for one in (anna, base)] == [True, False]
    assert [one.can_speak(replace(ASKED, language="de", anchor=anchor)) for one in (anna, base)] == [False, True]


@pytest.mark.parametrize(
    ("given_url", "base"),
    [
        ("http://h:1", "http://h:1"),
        ("http://h:1/", "http://h:1"),
        ("https://h/v1/", "https://h"),
        ("ws://h/v1/audio/speech/stream", "http://h"),
        ("wss://h/tts/v1", "https://h/tts"),
    ],
)
def test_addresses_may_be_written_in_several_ways(given_url: str, base: str) -> None:
    assert base_url(given_url) == base
    assert socket_url(base).startswith("ws" + base[4:])
