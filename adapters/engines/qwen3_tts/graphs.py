"""CUDA graphs around functions of static shapes: a step of some thousand kernels becomes one launch.

A call is recorded once for each signature (shapes, types and the plain values among its arguments) and replayed from
then on: the arguments' tensors are copied into the recording's own, the results are copied out. Side effects on other
tensors (KV caches) are replayed too, so a function must only write what its arguments say, and write the same when it
is run again: warming up runs it several times.

Source: CUDA graphs as PyTorch documents them (``torch.cuda.CUDAGraph``): a side stream for warming up, one memory pool.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Hashable
from typing import Any, Protocol, cast

import torch

_log = logging.getLogger(__name__)

MOST_GRAPHS = 64
"""Signatures recorded by one function at most; rarer ones run without a graph."""

_WARM_UPS = 2

Function = Callable[..., tuple[torch.Tensor, ...]]


class Recording(Protocol):
    """What a device recorded of a function."""

    def replay(self) -> None:
        """Run it again on the same tensors; enqueues, does not wait."""


class Recorder(Protocol):
    """Records calls on a device."""

    def record(self, function: Function, arguments: tuple[Any, ...]) -> tuple[Recording, tuple[torch.Tensor, ...]]:
        """Warm up, record, return the recording and the tensors that every replay fills. May raise anything."""


class CudaRecorder:
    """Records CUDA graphs; all of them share one memory pool, since they are replayed one after another."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool: Any = torch.cuda.graph_pool_handle()

    def record(self, function: Function, arguments: tuple[Any, ...]) -> tuple[Recording, tuple[torch.Tensor, ...]]:
        """See ``Recorder``."""
        with torch.cuda.device(self._device):
            aside: Any = cast(Any, torch.cuda).Stream()
            aside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(aside):
                for _ in range(_WARM_UPS):
                    function(*arguments)
            torch.cuda.current_stream().wait_stream(aside)
            graph = torch.cuda.CUDAGraph()
            # Other threads of the process may allocate meanwhile (the decoder's): that must not spoil the recording.
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                results = function(*arguments)
        return graph, results


@dataclasses.dataclass(slots=True)
class _Kept:
    recording: Recording
    inputs: list[torch.Tensor]
    results: tuple[torch.Tensor, ...]


class Graphed:
    """``function`` behind recordings. Where recording fails it runs plainly from then on, with one warning.

    Arguments are tensors, plain hashable values, and tuples and dataclasses of them; results a tuple of tensors. Not
    thread-safe.
    """

    def __init__(self, function: Function, recorder: Recorder) -> None:
        self._function = function
        self._recorder = recorder
        self._kept: dict[Hashable, _Kept] = {}
        self._failed = False

    def __call__(self, *arguments: Any) -> tuple[torch.Tensor, ...]:
        """The function's results, in tensors of the caller's own."""
        if self._failed:
            return self._function(*arguments)
        tensors: list[torch.Tensor] = []
        key = _signature(arguments, tensors)
        kept = self._kept.get(key)
        if kept is None:
            if len(self._kept) >= MOST_GRAPHS:
                return self._function(*arguments)
            try:
                kept = self._record(arguments, tensors)
            except Exception as error:
                _log.warning("CUDA graphs are off: recording failed (%s)", type(error).__name__)
                self._failed = True
                self._kept.clear()
                return self._function(*arguments)
            self._kept[key] = kept
        for own, given in zip(kept.inputs, tensors, strict=True):
            own.copy_(given)
        kept.recording.replay()
        return tuple(result.clone() for result in kept.results)

    @property
    def recorded(self) -> int:
        """Signatures recorded so far."""
        return len(self._kept)

    def _record(self, arguments: tuple[Any, ...], tensors: list[torch.Tensor]) -> _Kept:
        inputs = [tensor.clone() for tensor in tensors]
        own = _with_tensors(arguments, iter(inputs))
        recording, results = self._recorder.record(self._function, own)
        return _Kept(recording, inputs, results)


def _signature(value: Any, tensors: list[torch.Tensor]) -> Hashable:
    """What decides whether a recording fits; the tensors found are appended in order."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return (tuple(value.shape), value.dtype, value.device)
    if isinstance(value, tuple):
        return tuple(_signature(one, tensors) for one in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = (_signature(getattr(value, field.name), tensors) for field in dataclasses.fields(value))
        return (type(value), *parts)
    if not isinstance(value, Hashable):
        raise TypeError(f"an argument of type {type(value).__name__} cannot be part of a signature")
    return value


def _with_tensors(value: Any, tensors: Any) -> Any:
    """The same structure with other tensors, taken in order."""
    if isinstance(value, torch.Tensor):
        return next(tensors)
    if isinstance(value, tuple):
        return tuple(_with_tensors(one, tensors) for one in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: _with_tensors(getattr(value, field.name), tensors) for field in dataclasses.fields(value)}
        return type(value)(**parts)
    return value


def graphs_for(device: torch.device) -> Callable[[Function], Function] | None:
    """What to put around step functions on this device; None where there is nothing to gain."""
    if device.type != "cuda":
        return None
    recorder = CudaRecorder(device)
    return lambda function: Graphed(function, recorder)
