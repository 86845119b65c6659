"""What the engine asks of a synthesiser: text of one or two breaths in, raw samples out, in a worker thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from sidecar.ports import EngineVoice, Pcm


class Stop:
    """Tells a synthesis in another thread that nobody wants its result any more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requested = False
        self._then: list[Callable[[], None]] = []

    @property
    def requested(self) -> bool:
        """True once ``request`` has been called."""
        return self._requested

    def request(self) -> None:
        """Stop. Idempotent, never waits."""
        with self._lock:
            self._requested = True
            then, self._then = self._then, []
        for call in then:
            call()

    def then(self, call: Callable[[], None]) -> None:
        """Call this when the stop is requested; at once if it already was."""
        with self._lock:
            if not self._requested:
                self._then.append(call)
                return
        call()


class Synthesiser(Protocol):
    """One speech model. Every method blocks and may be called from several threads at once."""

    @property
    def piece_characters(self) -> int:
        """Longest text for one call of ``speak``: bounds its work and thereby how late a cancel can be."""

    def load(self) -> None:
        """Load the model; later calls return at once. Raises ``EngineFault`` with a way out."""

    def speak(self, text: str, voice: str, language: str, seed: int, stop: Stop) -> Sequence[Pcm]:
        """Samples at 24 kHz in one or more parts, at the model's own level, with its own edge silence.

        ``voice`` is the synthesiser's own name for it. Empty when nothing can be said or ``stop`` came.
        """

    def close(self) -> None:
        """Free the model. Idempotent."""


@dataclass(frozen=True, slots=True)
class VoiceEntry:
    """A voice of the catalogue: who speaks it (``inner``: the synthesiser's name for it), and how loud.

    ``speaks`` holds the languages whose pronunciation rules it can use, its own first.
    """

    voice: EngineVoice
    synthesiser: Synthesiser
    inner: str
    speaks: tuple[str, ...]
    gain_db: float
