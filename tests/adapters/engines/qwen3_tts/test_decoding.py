"""A decoder in a thread of its own: the same samples, a talker that goes on, bounds that hold."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from adapters.engines.qwen3_tts.code2wav import Code2Wav
from adapters.engines.qwen3_tts.decoding import Stages
from adapters.engines.qwen3_tts.requests import Ask, Ended, Event, Failed, Limits, Samples
from adapters.engines.qwen3_tts.runtime import Runtime
from adapters.engines.qwen3_tts.stages import FRAME_SAMPLES, Frames, Prompt, Sampling
from sidecar.faults import EngineLost
from tests.adapters.engines.qwen3_tts.loaded import checkpoint
from tests.adapters.engines.qwen3_tts.toy import ToyDecoder, ToyTalker, alone, samples_of

WAIT_S = 30


class GatedDecoder(ToyDecoder):
    """Decodes only while its gate is open, and says when it has begun."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.begun = threading.Event()
        self.fails = False
        self.threads: set[str] = set()

    def decode(self, pieces: Sequence[tuple[Any, Frames]]) -> list[NDArray[np.float32]]:
        self.threads.add(threading.current_thread().name)
        self.begun.set()
        assert self.gate.wait(WAIT_S)
        if self.fails:
            raise RuntimeError("out of memory")
        return super().decode(pieces)


class CountingTalker(ToyTalker):
    """Says when it has stepped so often."""

    def __init__(self, rows: int) -> None:
        super().__init__(rows)
        self.counted = threading.Semaphore(0)

    def step(self, rows: Sequence[int]) -> Any:
        stepped = super().step(rows)
        self.counted.release()
        return stepped


class Apart:
    """A runtime on toys whose decoder has a thread of its own."""

    def __init__(self, rows: int = 4, **limits: Any) -> None:
        self.talker, self.decoder = CountingTalker(rows), GatedDecoder()
        stages = Stages(self.talker, self.decoder, apart=True)
        self.runtime = Runtime(lambda: stages, Limits(**limits))

    def __enter__(self) -> Apart:
        self.runtime.start().result()
        return self

    def __exit__(self, *_: object) -> None:
        self.decoder.gate.set()
        self.runtime.close()
        self.runtime.join()

    def ask(self, seed: int, words: int = 12) -> tuple[Any, queue.SimpleQueue[Event]]:
        inbox: queue.SimpleQueue[Event] = queue.SimpleQueue()
        return self.runtime.submit(Ask(prompt(seed, words)), inbox.put), inbox


def prompt(seed: int, words: int = 12) -> Prompt:
    return Prompt(tuple(range(seed, seed + words)), sampling=Sampling(seed=seed))


def heard(ticket: Any, inbox: queue.SimpleQueue[Event]) -> NDArray[np.float32]:
    parts: list[NDArray[np.float32]] = []
    while not isinstance(event := inbox.get(timeout=WAIT_S), Ended):
        assert not isinstance(event, Failed), event
        if isinstance(event, Samples):
            assert event.first == sum(map(len, parts))
            parts.append(event.pcm)
            ticket.took(len(event.pcm))
    return np.concatenate(parts)


def test_samples_are_those_of_one_pass_and_made_elsewhere() -> None:
    with Apart() as here:
        here.decoder.gate.set()
        asked = [here.ask(seed) for seed in range(9)]
        for seed, (ticket, inbox) in enumerate(asked):
            np.testing.assert_array_equal(heard(ticket, inbox), samples_of(alone(prompt(seed))))
        assert here.decoder.threads == {"qwen3-tts-decoder"}


def test_the_talker_goes_on_while_samples_are_made() -> None:
    with Apart() as here:
        ticket, inbox = here.ask(1)
        assert here.decoder.begun.wait(WAIT_S)
        for _ in range(10):
            assert here.talker.counted.acquire(timeout=WAIT_S)
        assert here.decoder.calls == []
        here.decoder.gate.set()
        np.testing.assert_array_equal(heard(ticket, inbox), samples_of(alone(prompt(1))))


def test_a_decoder_that_falls_behind_stops_the_row_at_its_bound() -> None:
    with Apart(max_lead_frames=25) as here:
        ticket, inbox = here.ask(1, words=30)
        assert here.decoder.begun.wait(WAIT_S)
        for _ in range(25):
            assert here.talker.counted.acquire(timeout=WAIT_S)
        assert not here.talker.counted.acquire(timeout=0.2), "stepped beyond its lead"
        here.decoder.gate.set()
        np.testing.assert_array_equal(heard(ticket, inbox), samples_of(alone(prompt(1, 30))))


def test_a_cancel_while_it_is_decoded_frees_the_row() -> None:
    with Apart(rows=1) as here:
        ticket, inbox = here.ask(1)
        assert here.decoder.begun.wait(WAIT_S)
        ticket.cancel()
        here.decoder.gate.set()
        again, other = here.ask(2)
        np.testing.assert_array_equal(heard(again, other), samples_of(alone(prompt(2))))
        while not inbox.empty():
            assert not isinstance(inbox.get(), Samples | Ended | Failed)


def test_a_decoder_that_fails_loses_the_engine() -> None:
    with Apart() as here:
        here.decoder.fails = True
        here.decoder.gate.set()
        _, inbox = here.ask(1)
        while not isinstance(event := inbox.get(timeout=WAIT_S), Failed):
            assert not isinstance(event, Samples)
        assert isinstance(event.fault, EngineLost)
        with pytest.raises(EngineLost):
            here.ask(2)


def test_closing_waits_for_the_batch_at_work() -> None:
    here = Apart()
    here.runtime.start().result()
    _, inbox = here.ask(1)
    assert here.decoder.begun.wait(WAIT_S)
    here.runtime.close()
    here.decoder.gate.set()
    here.runtime.join()
    assert not any(thread.name == "qwen3-tts-decoder" for thread in threading.enumerate())
    events = [inbox.get() for _ in range(inbox.qsize())]
    assert isinstance(events[-1], Failed)


def test_one_by_one_a_stream_is_the_same_whatever_it_comes_with() -> None:
    """Bit for bit, so that a reply sounds the same on every instance whoever else is speaking there."""
    opened = checkpoint()
    decoder = Code2Wav(opened.codec.decoder, opened.codec_weights, one_by_one=True)
    random = np.random.default_rng(3)
    streams = random.integers(0, opened.codec.decoder.codebook_size, (5, 8, 16)).astype(np.int16)
    states = [decoder.new_state() for _ in streams]
    together = decoder.decode(list(zip(states, streams, strict=True)))
    for codes, pcm in zip(streams, together, strict=True):
        assert len(pcm) == 8 * FRAME_SAMPLES
        np.testing.assert_array_equal(decoder.decode([(decoder.new_state(), codes)])[0], pcm)
