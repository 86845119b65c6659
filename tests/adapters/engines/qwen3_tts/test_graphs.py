"""Recordings of step functions, on a recorder that replays by calling: what CUDA would be asked, and when."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any

import numpy as np
import pytest
import torch

from adapters.engines.qwen3_tts import graphs
from adapters.engines.qwen3_tts.graphs import Function, Graphed, Recording
from adapters.engines.qwen3_tts.stages import Prompt, Sampling
from tests.adapters.engines.qwen3_tts.loaded import stage0


class _Replayed:
    def __init__(self, function: Function, arguments: tuple[Any, ...], results: tuple[torch.Tensor, ...]) -> None:
        self.function, self.arguments, self.results = function, arguments, results

    def replay(self) -> None:
        for own, new in zip(self.results, self.function(*self.arguments), strict=True):
            own.copy_(new)


class CallingRecorder:
    """Replays by calling the function again on the recorded tensors, writing into the recorded results."""

    def __init__(self) -> None:
        self.recorded = 0

    def record(self, function: Function, arguments: tuple[Any, ...]) -> tuple[Recording, tuple[torch.Tensor, ...]]:
        self.recorded += 1
        for _ in range(2):
            function(*arguments)
        results = tuple(result.clone() for result in function(*arguments))
        return _Replayed(function, arguments, results), results


@dataclasses.dataclass(frozen=True, slots=True)
class _Rule:
    factor: torch.Tensor
    negate: bool


def _scaled(x: torch.Tensor, where: tuple[torch.Tensor, int], rule: _Rule) -> tuple[torch.Tensor]:
    out = x[:, where[0]][:, : where[1]] * rule.factor
    return (-out if rule.negate else out,)


def test_one_recording_serves_every_call_of_its_signature() -> None:
    recorder = CallingRecorder()
    graphed = Graphed(_scaled, recorder)
    for seed in range(5):
        x = torch.randn(2, 6, generator=torch.Generator().manual_seed(seed))
        index, rule = torch.randperm(6), _Rule(torch.tensor([[float(seed)]]), negate=False)
        torch.testing.assert_close(graphed(x, (index, 4), rule), _scaled(x, (index, 4), rule), rtol=0, atol=0)
    assert recorder.recorded == 1
    x, rule = torch.ones(2, 6), _Rule(torch.ones(1, 1), negate=True)
    assert graphed(x, (torch.arange(6), 4), rule)[0].tolist() == [[-1.0] * 4] * 2
    graphed(x, (torch.arange(6), 5), rule)
    graphed(torch.ones(3, 6), (torch.arange(6), 5), rule)
    assert recorder.recorded == 4


def test_results_are_the_callers_own() -> None:
    graphed = Graphed(lambda x: (x + 1,), CallingRecorder())
    first = graphed(torch.zeros(2))[0]
    graphed(torch.ones(2))
    assert first.tolist() == [1.0, 1.0]


def test_signatures_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "MOST_GRAPHS", 3)
    recorder = CallingRecorder()
    graphed = Graphed(lambda x, n: (x * n,), recorder)
    for n in range(10):
        assert graphed(torch.ones(1), n)[0].item() == n
    assert recorder.recorded == graphed.recorded == 3


def test_a_recording_that_fails_leaves_the_plain_function(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def record(self, function: Function, arguments: tuple[Any, ...]) -> Any:
            raise RuntimeError("operation not permitted when stream is capturing")

    graphed = Graphed(lambda x: (x + 1,), Broken())
    with caplog.at_level(logging.WARNING):
        assert [graphed(torch.tensor([1.0]))[0].item() for _ in range(3)] == [2.0, 2.0, 2.0]
    assert [record.getMessage() for record in caplog.records] == [
        "CUDA graphs are off: recording failed (RuntimeError)"
    ]


def test_nothing_is_wrapped_on_a_cpu() -> None:
    assert graphs.graphs_for(torch.device("cpu")) is None


def test_steps_behind_recordings_give_the_same_codes() -> None:
    """Rows come, go and sample by rules of their own; the recorded steps say what the plain ones say."""
    recorder = CallingRecorder()
    plain = stage0(rows=3, slots=True)
    graphed = stage0(rows=3, slots=True, wrap=lambda function: Graphed(function, recorder))
    codes: list[list[Any]] = []
    for stage in (plain, graphed):
        said: list[Any] = []

        def admit(row: int, greedy: bool, stage: Any = stage) -> None:
            rules = Sampling(seed=row, greedy=greedy, min_frames=40)
            stage.admit(row, Prompt((5, 6, 7, 8 + row), speaker="ryan", sampling=rules))

        admit(0, False)
        said += [stage.step([0])[0].frame for _ in range(3)]
        admit(1, True)
        admit(2, False)
        said += [step.frame for _ in range(3) for step in stage.step([0, 1, 2])]
        stage.release(0)
        said += [step.frame for _ in range(2) for step in stage.step([2, 1])]
        codes.append(said)
    np.testing.assert_array_equal(codes[0], codes[1])
    assert 2 <= recorder.recorded <= 8
