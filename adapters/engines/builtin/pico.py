"""German, Spanish, French, Italian and British English by SVOX Pico (py-nanotts, Linux only)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from adapters.engines.builtin.synthesis import Stop, VoiceEntry
from sidecar.faults import EngineFault
from sidecar.ports import SAMPLE_RATE_HZ, EngineVoice, Pcm

_PICO_HZ = 16_000
# Far above what a piece of text takes (about 0.1 s), even on a busy machine.
_LIMIT_S = 20.0
# Name, locale, language, gain to -20 LUFS (pyloudnorm over three to ten trimmed sentences), description.
_VOICES = (
    ("pico-de", "de-DE", "de", -8.0, "German, female (Pico)"),
    ("pico-en-gb", "en-GB", "en", -8.6, "British English, female (Pico)"),
    ("pico-es", "es-ES", "es", -9.5, "Spanish, female (Pico)"),
    ("pico-fr", "fr-FR", "fr", -7.6, "French, female (Pico)"),
    ("pico-it", "it-IT", "it", -6.6, "Italian, female (Pico)"),
)
PICO_LANGUAGES = frozenset(language for _, _, language, _, _ in _VOICES)
"""What Pico speaks where it can be installed."""


class PicoSynthesiser:
    """All Pico voices, in one child process that is started at ``load`` and again should it die.

    See ``Synthesiser``. Pico has no seed: the samples depend on the text alone.
    """

    piece_characters = 300

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._closed = False

    def voices(self) -> list[VoiceEntry]:
        """Its part of the catalogue."""
        return [
            VoiceEntry(EngineVoice(name, (language,), description), self, locale, (language,), gain_db)
            for name, locale, language, gain_db, description in _VOICES
        ]

    def load(self) -> None:
        """Start the child process; raises ``EngineFault`` if it cannot speak."""
        with self._lock:
            self._running()

    def speak(self, text: str, voice: str, language: str, seed: int, stop: Stop) -> Sequence[Pcm]:
        """See ``Synthesiser``; ``voice`` is a Pico locale such as ``de-DE``."""
        import soxr

        with self._lock:
            if stop.requested:
                return []
            raw = self._ask(text, voice)
        samples = np.frombuffer(raw, "<i2").astype(np.float32) / np.float32(32768)
        resampled: Pcm = soxr.resample(samples, _PICO_HZ, SAMPLE_RATE_HZ)
        return [resampled]

    def close(self) -> None:
        """End the child process."""
        with self._lock:
            self._closed = True
            self._end()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._closed:
            raise EngineFault("The Pico voices were stopped.")
        if self._child is None or self._child.poll() is not None:
            self._end()
            script = Path(__file__).with_name("pico_child.py")
            self._child = subprocess.Popen(  # noqa: S603 - our own file, no shell
                [sys.executable, "-P", str(script)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "MALLOC_MMAP_THRESHOLD_": "131072"},
                start_new_session=True,  # a Ctrl-C in the terminal is for the server, which may want to drain
            )
        return self._child

    def _ask(self, text: str, voice: str) -> bytes:
        child = self._running()
        watchdog = threading.Timer(_LIMIT_S, child.kill)
        watchdog.start()
        try:
            return _exchange(child, {"text": text, "voice": voice})
        except (OSError, EOFError) as error:
            self._end()
            raise EngineFault("The Pico voice failed on this text.") from error
        finally:
            watchdog.cancel()
            watchdog.join()

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                _close_quietly(pipe)


def _exchange(child: subprocess.Popen[bytes], request: dict[str, str]) -> bytes:
    if child.stdin is None or child.stdout is None:
        raise EOFError
    child.stdin.write(json.dumps(request).encode() + b"\n")
    child.stdin.flush()
    head = child.stdout.read(4)
    length = int.from_bytes(head, "big", signed=True)
    if length < 0:
        raise EngineFault("The Pico voice cannot say this text.")
    samples = child.stdout.read(length)
    if len(head) < 4 or len(samples) < length:
        raise EOFError
    return samples


def _close_quietly(pipe: Any) -> None:
    try:
        pipe.close()
    except OSError:  # what was still buffered for a dead child cannot be written any more
        return
