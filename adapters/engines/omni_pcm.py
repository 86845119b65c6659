"""The samples of one passage on their way from servers to the reader: joined, cut, and gone on with elsewhere."""

from __future__ import annotations

from collections import deque

import numpy as np

from sidecar.ports import FRAME_SAMPLES, Pcm

MAX_CHUNK_SAMPLES = 25 * FRAME_SAMPLES
SEAM_SAMPLES = 960
"""What of the sound before a seam is compared with what is said again (40 ms)."""

_STEP = np.float32(1 / 32_768)
_SEAM_SHARE = 0.1
_SEAM_FLOOR = 1e-3


class SampleJoiner:
    """Bytes of 16-bit little-endian samples, cut anywhere, as samples."""

    def __init__(self) -> None:
        self._half = b""

    def feed(self, data: bytes) -> Pcm:
        """The samples that are complete now, as float32."""
        data = self._half + data
        whole = len(data) & ~1
        self._half = data[whole:]
        return np.frombuffer(data[:whole], "<i2").astype(np.float32) * _STEP

    @property
    def broken(self) -> bool:
        """True if half a sample is left."""
        return bool(self._half)


class Passage:
    """All samples of one utterance in order, whichever server they come from.

    ``begin`` before each server's samples; what has been put before is skipped then, if it sounds the same around the
    seam. ``max_samples`` caps the whole, ``first_samples`` is the length of the first chunk.
    """

    def __init__(self, *, max_samples: int | None = None, first_samples: int | None = None) -> None:
        self._max = max_samples
        self._first = None if first_samples is None else min(max(first_samples, 1), MAX_CHUNK_SAMPLES)
        self._pieces: deque[Pcm] = deque()
        self.waiting = 0
        self.put_samples = 0
        self.taken = 0
        self._at = 0
        self._tail: Pcm = np.zeros(0, np.float32)
        self._again: list[Pcm] = []
        self.whole = False

    @property
    def full(self) -> bool:
        """True once ``max_samples`` have come."""
        return self._max is not None and self.put_samples >= self._max

    def begin(self) -> None:
        """From here on the samples are a new server's, from the first one on."""
        self._at = 0
        self._again = []

    def put(self, pcm: Pcm) -> bool:
        """The next samples of the server of now. False if they are not what the last server said: nothing is taken."""
        start, self._at = self._at, self._at + len(pcm)
        known = min(len(pcm), max(0, self.put_samples - start))
        if known and not self._same(pcm[:known], start):
            return False
        fresh = pcm[known:]
        if self._max is not None:
            fresh = fresh[: max(0, self._max - self.put_samples)]
        if len(fresh):
            self._pieces.append(fresh)
            self.waiting += len(fresh)
            self.put_samples += len(fresh)
            self._tail = np.concatenate((self._tail, fresh[-SEAM_SAMPLES:]))[-SEAM_SAMPLES:]
        return True

    @property
    def begun(self) -> bool:
        """True if the server of now has said something."""
        return self._at > 0

    @property
    def short(self) -> bool:
        """True if the server of now has said less than the one before."""
        return self._at < self.put_samples

    def take(self) -> tuple[Pcm, int] | None:
        """The next chunk, at most 25 frames, and the index of its first sample; None while it is not there.

        The first has the length asked for, unless everything (``whole``) is shorter.
        """
        wanted = MAX_CHUNK_SAMPLES
        if self._first is not None and self.taken == 0:
            wanted = self._first
            if self.waiting < wanted and not self.whole:
                return None
        if not self.waiting:
            return None
        taken: list[Pcm] = []
        while wanted and self._pieces:
            piece = self._pieces[0]
            taken.append(piece[:wanted])
            if len(piece) > wanted:
                self._pieces[0] = piece[wanted:]
            else:
                self._pieces.popleft()
            wanted -= len(taken[-1])
        pcm = taken[0] if len(taken) == 1 else np.concatenate(taken)
        first = self.taken
        self.taken += len(pcm)
        self.waiting -= len(pcm)
        return pcm, first

    def drop(self) -> None:
        """Forget what waits."""
        self._pieces.clear()
        self.waiting = 0

    def _same(self, said: Pcm, start: int) -> bool:
        """Whether what is said again sounds like the end of what was said; not decided before the seam is reached."""
        seam = self.put_samples - len(self._tail)
        self._again.append(said[max(0, seam - start) :])
        if start + len(said) < self.put_samples:
            return True
        again = np.concatenate(self._again)
        self._again = []
        gap = float(np.sqrt(np.mean(np.square(again - self._tail))))
        return gap <= _SEAM_SHARE * float(np.sqrt(np.mean(np.square(self._tail)))) + _SEAM_FLOOR
