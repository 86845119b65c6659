"""Stages that change how many samples there are: the pitch-preserving stretch and the resampler."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Protocol

import av
import av.filter
import numpy as np
import soxr
from av.error import BlockingIOError as AvNeedsMore
from av.error import EOFError as AvEnded

from adapters.audio.frames import audio_frame
from sidecar.ports import SAMPLE_RATE_HZ, Pcm

BLOCK_SAMPLES = 480
"""Stages are fed blocks of 20 ms, so that what comes out does not depend on how the input was cut."""

_SILENT = np.zeros(0, dtype=np.float32)


class Stage(Protocol):
    """A step between the samples that are fed and the writer. Not thread-safe."""

    def push(self, pcm: Pcm) -> Pcm:
        """Take samples, return those that are ready."""

    def drain(self) -> Pcm:
        """Return the rest; to be called once, last."""


class Blocks:
    """Regroups samples for ``stage`` into blocks of ``BLOCK_SAMPLES``; the last may be shorter."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._rest: Pcm = _SILENT

    def push(self, pcm: Pcm) -> Pcm:
        """Take any number of samples, return those that the stage has ready."""
        samples = np.concatenate([self._rest, pcm])
        whole = len(samples) - len(samples) % BLOCK_SAMPLES
        self._rest = samples[whole:].copy()
        return _joined([self._stage.push(samples[at : at + BLOCK_SAMPLES]) for at in range(0, whole, BLOCK_SAMPLES)])

    def drain(self) -> Pcm:
        """Return all that is still inside the stage."""
        return _joined([self._stage.push(self._rest), self._stage.drain()])


class Resampler:
    """24 kHz to ``rate_hz``; ``n`` samples become ``n * rate_hz / 24000``, rounded."""

    def __init__(self, rate_hz: int) -> None:
        self._stream = soxr.ResampleStream(SAMPLE_RATE_HZ, rate_hz, 1, dtype="float32", quality="HQ")

    def push(self, pcm: Pcm) -> Pcm:
        """Take samples, return those that are ready (some 40 ms later, 80 ms at 8 kHz)."""
        return self._run(pcm, last=False)

    def drain(self) -> Pcm:
        """Return the samples still in the filter."""
        return self._run(_SILENT, last=True)

    def _run(self, pcm: Pcm, *, last: bool) -> Pcm:
        return np.asarray(self._stream.resample_chunk(pcm, last=last), dtype=np.float32)


class Stretcher:
    """Plays ``speed`` times as fast at the same pitch; ``n`` samples become ``int(n / speed)``, at least one.

    FFmpeg's ``atempo`` does the work. One filter reaches from half to double speed with overlapping windows
    (faster, it would leave samples out), so beyond that two are chained.
    """

    # More than the filters' windows hold at any speed: pushes the last real samples out.
    _TAIL_SAMPLES = 8_192

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self._taken_samples = 0
        self._given_samples = 0
        self._position = 0
        tempos = (speed,) if 0.5 <= speed <= 2.0 else (math.sqrt(speed), math.sqrt(speed))
        self._graph = _atempo_graph(tempos)

    def push(self, pcm: Pcm) -> Pcm:
        """Take samples, return those that are ready (60 to 200 ms later)."""
        self._taken_samples += len(pcm)
        return self._give(self._filter(pcm)) if len(pcm) else _SILENT

    def drain(self) -> Pcm:
        """Return the rest, so that the length is exact."""
        if not self._taken_samples:
            return _SILENT
        rest = _joined([self._filter(np.zeros(self._TAIL_SAMPLES, dtype=np.float32)), self._filter(None)])
        missing = max(0, self._target_samples() - self._given_samples - len(rest))
        return self._give(np.concatenate([rest, np.zeros(missing, dtype=np.float32)]))

    def _target_samples(self) -> int:
        return max(1, int(self._taken_samples / self._speed))

    def _give(self, pcm: Pcm) -> Pcm:
        pcm = pcm[: max(0, self._target_samples() - self._given_samples)]
        self._given_samples += len(pcm)
        return pcm

    def _filter(self, pcm: Pcm | None) -> Pcm:
        if pcm is None:
            self._graph.push(None)
        else:
            self._graph.push(audio_frame(pcm, "flt", SAMPLE_RATE_HZ, self._position))
            self._position += len(pcm)
        out: list[Pcm] = []
        while True:
            try:
                frame = self._graph.pull()
            except (AvNeedsMore, AvEnded):
                return _joined(out)
            out.append(frame.to_ndarray().reshape(-1).astype(np.float32))


def _atempo_graph(tempos: tuple[float, ...]) -> av.filter.Graph:
    graph = av.filter.Graph()
    # Left alone, FFmpeg starts a thread per CPU for every graph.
    graph.threads = 1
    source = graph.add_abuffer(
        sample_rate=SAMPLE_RATE_HZ, format="flt", layout="mono", time_base=Fraction(1, SAMPLE_RATE_HZ)
    )
    filters = [graph.add("atempo", f"{tempo:.9f}") for tempo in tempos]
    graph.link_nodes(source, *filters, graph.add("abuffersink")).configure()
    return graph


def _joined(parts: list[Pcm]) -> Pcm:
    return np.concatenate(parts) if parts else _SILENT
