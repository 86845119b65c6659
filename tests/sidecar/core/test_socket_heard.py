"""What was heard of a socket's utterances, over many interruptions; and of text that grows."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.core.playhead import HeardRecord, Playhead, played_ms
from sidecar.core.socket_heard import SocketHeard

NOISE = np.random.default_rng(1).normal(0, 0.1, 24_000 * 4).astype(np.float32)
NOTHING = np.zeros(0, np.float32)


def test_one_thousand_random_interruptions() -> None:
    draw = random.Random(5)
    for _ in range(1_000):
        heard, sent_text, sent_samples = SocketHeard(), "", 0
        heard.begin(0, 1.0)
        for _ in range(draw.randint(1, 4)):
            text = " ".join(draw.choices(["so", "it", "was", "said.", "today", "今天"], k=draw.randint(1, 6)))
            sent_text += f" {text}" if sent_text else text
            heard.unit(text, text, held_back=False)
            for _ in range(draw.randint(0, 3)):
                samples = draw.randint(1, 24_000)
                heard.sent(NOISE[:samples], samples, draw.choice([None, draw.randint(0, len(text))]))
                sent_samples += samples
            if draw.random() < 0.7:
                heard.ended(whole=draw.random() < 0.9)
        before = heard.playhead.record()
        at_ms = draw.choice([None, draw.uniform(-10, 9_000), 1e300, -1e300])
        cut = heard.cut(at_ms)
        assert sent_text.startswith(cut["heard_text"])
        assert 0 <= cut["played_ms"] <= sent_samples // 24
        assert cut["heard_text"] == "" or cut["heard_text"][-1] not in " ."
        assert before.heard(at_ms).text == cut["heard_text"]
        assert heard.cut(1e9)["heard_text"].startswith(cut["heard_text"]), "asked again it never forgets"


def test_what_is_sent_faster_is_heard_faster() -> None:
    heard = SocketHeard()
    heard.begin(0, 2.0)
    heard.unit("One two three.", "One two three.", held_back=True)
    heard.sent(NOISE[:48_000], 48_000, None)
    assert heard.cut(None) == {"played_ms": 0, "heard_text": ""}, "it was held back"
    heard.begin(1, 2.0)
    heard.unit("One two three.", "One two three.", held_back=True)
    heard.sent(NOISE[:48_000], 48_000, None)
    heard.ended(whole=True)
    assert heard.cut(None) == {"played_ms": 1_000, "heard_text": "One two three"}


def test_codes_count_once_they_are_all_sent() -> None:
    heard = SocketHeard()
    heard.begin(0, 1.0)
    heard.unit("One two.", "One two.", held_back=False)
    heard.sent(NOTHING, 24_000, 3)
    assert heard.playhead.heard().text == ""
    heard.ended(whole=True)
    heard.unit("Three.", "Three.", held_back=False)
    heard.sent(NOTHING, 1_920, None)
    assert heard.cut(1_000) == {"played_ms": 1_000, "heard_text": "One two"}


def test_an_index_may_be_used_again_after_a_cut() -> None:
    heard = SocketHeard()
    for _ in range(2):
        heard.begin(0, 1.0)
        heard.unit("One two.", "One two.", held_back=False)
        heard.sent(NOISE[:48_000], 48_000, None)
        heard.ended(whole=True)
        assert heard.cut(None)["heard_text"] == "One two"


# ---------------------------------------------------------------- text that grows
def test_words_of_a_text_that_grows_have_their_places_in_the_raw_text() -> None:
    head = Playhead()
    raw = "So **be** it. And"
    head.wrote(raw)
    head.began(0, 3, "So ", ends=[1, 2, 3])
    head.grew("be it.", [6, 7, 10, 11, 12, 13])
    head.sent(NOISE[:48_000], 9)
    assert raw.startswith(head.heard().text)
    assert head.heard(100).text == ""
    times = head.ended()
    assert [(time.word, raw[time.start : time.end]) for time in times] == [("So", "So"), ("be", "be"), ("it", "it")]
    assert head.heard().text == "So **be** it"


def test_of_a_growing_text_no_word_counts_that_the_engine_has_not_taken_in() -> None:
    head = Playhead()
    head.wrote("One two three four")
    head.began(0, 18, "One two three four", ends=list(range(1, 19)))
    head.sent(NOISE, 8)
    assert head.heard().text == "One two"


# ---------------------------------------------------------------- the record
def test_a_record_comes_back_from_its_bytes() -> None:
    record = HeardRecord("One zwö 三.", 900, (100, 300), (3, 7))
    assert HeardRecord.from_bytes(record.to_bytes()) == record
    assert record.heard(150).text == "One"
    assert record.heard().text == "One zwö"


@pytest.mark.parametrize(
    "wrong",
    [
        b"", b"{}", b"[]", b"\xff", b'{"text":1,"sent_ms":1,"ms":[],"chars":[]}',
        b'{"text":"a","sent_ms":-1,"ms":[],"chars":[]}', b'{"text":"a","sent_ms":1,"ms":[1],"chars":[]}',
        b'{"text":"a","sent_ms":1,"ms":[1],"chars":[2]}', b'{"text":"a","sent_ms":1,"ms":[2,1],"chars":[0,1]}',
        b'{"text":"a","sent_ms":1,"ms":[true],"chars":[1]}', b'{"text":"a","sent_ms":1,"ms":5,"chars":[1]}',
    ],
)  # fmt: skip
def test_what_is_no_record_is_none(wrong: bytes) -> None:
    assert HeardRecord.from_bytes(wrong) is None


@given(st.binary(max_size=60))
def test_any_bytes_are_read(value: bytes) -> None:
    HeardRecord.from_bytes(value)


def test_whole_numbers_have_no_end() -> None:
    assert played_ms(10**400) == 1e12
    assert played_ms(-(10**400)) == -1e12
