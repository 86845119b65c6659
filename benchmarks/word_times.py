"""How far the word times are from those of a recogniser, on the built-in voices.

    python -m benchmarks.word_times [--language en] [--long] [--held-out]

The estimate of ``sidecar.core.word_times`` is made from the text and the sound's loudness; whisper-base hears the same
sound and says when each word was spoken (from its attention; itself good to about 50 to 100 ms). Words that both have
are compared. ``--long`` speaks all sentences as one text. Beside it an even split of the whole sound by letters: what
a client could do by itself.
"""

from __future__ import annotations

import argparse
import asyncio
import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import soxr

from adapters.engines.builtin import BuiltinEngine
from benchmarks.figures import machine, quantile
from sidecar.core.word_times import Loudness, word_times, words_of
from sidecar.ports import SAMPLE_RATE_HZ, Pcm, Utterance
from tests.intelligibility import sentences
from tests.intelligibility.asr import model_folder, normalised

TEXTS = {
    "en": sentences.ENGLISH,
    "de": sentences.GERMAN,
    "es": sentences.SPANISH,
    "fr": sentences.FRENCH,
    "it": sentences.ITALIAN,
}
HELD_OUT = {
    "en": (
        "My brother plays the violin, and his daughter sings in the school choir.",
        "After the storm we walked along the beach. There was nobody else.",
        "If you press the green button twice, the machine starts to clean itself.",
        "Thank you for waiting! Your ticket will be ready in a moment.",
        "The old bridge, which was built by monks, still carries the morning traffic.",
        "Honestly, I would rather stay here, read a book and drink some tea.",
    ),
    "de": (
        "Mein Bruder spielt Geige, und seine Tochter singt im Schulchor.",
        "Nach dem Sturm gingen wir am Strand spazieren. Es war sonst niemand da.",
        "Wenn Sie den grünen Knopf drücken, beginnt die Maschine mit der Reinigung.",
        "Vielen Dank für Ihre Geduld! Ihre Karte ist gleich fertig.",
        "Die alte Brücke, die von Mönchen gebaut wurde, trägt noch immer den Verkehr.",
        "Ehrlich gesagt würde ich lieber hier bleiben, lesen und Tee trinken.",
    ),
}
"""Sentences on which no constant of the estimate was chosen."""

_LISTENING_HZ = 16_000


@dataclass(frozen=True, slots=True)
class Span:
    """A word and when it sounds."""

    word: str
    start_ms: float
    end_ms: float


@dataclass
class Errors:
    """Distances to the recogniser's times, in ms (positive: ours is later)."""

    start_ms: list[float] = field(default_factory=list)
    end_ms: list[float] = field(default_factory=list)
    words: int = 0

    def add(self, ours: Sequence[Span], theirs: Sequence[Span]) -> None:
        """Compare the words that both have, in order."""
        self.words += len(ours)
        matcher = difflib.SequenceMatcher(None, [s.word for s in ours], [s.word for s in theirs], autojunk=False)
        for block in matcher.get_matching_blocks():
            for at in range(block.size):
                one, other = ours[block.a + at], theirs[block.b + at]
                self.start_ms.append(one.start_ms - other.start_ms)
                self.end_ms.append(one.end_ms - other.end_ms)

    def row(self, name: str) -> str:
        """A line of a table."""
        start, end = np.abs(self.start_ms), np.abs(self.end_ms)
        cells = [
            f"{len(start)} / {self.words}",
            *(f"{quantile(list(start), q):.0f}" for q in (0.5, 0.9, 0.99)),
            *(f"{quantile(list(end), q):.0f}" for q in (0.5, 0.9, 0.99)),
            f"{100 * float(np.mean(start <= 100)):.0f} %",
            f"{100 * float(np.mean(start <= 200)):.0f} %",
            f"{float(np.mean(self.start_ms)):+.0f}",
        ]
        return f"| {name} | " + " | ".join(cells) + " |"


class Listener:
    """whisper-base with word times."""

    def __init__(self) -> None:
        from faster_whisper import WhisperModel

        self._model: Any = WhisperModel(
            str(model_folder()), device="cpu", compute_type="int8", cpu_threads=2, local_files_only=True
        )

    def words(self, pcm: Pcm, language: str) -> list[Span]:
        """What it hears and when."""
        heard = soxr.resample(np.asarray(pcm, np.float32), SAMPLE_RATE_HZ, _LISTENING_HZ)
        segments, _ = self._model.transcribe(
            heard, language=language, beam_size=5, word_timestamps=True, condition_on_previous_text=False
        )
        return [
            Span(normalised(word.word, language), 1000 * word.start, 1000 * word.end)
            for segment in segments
            for word in segment.words
        ]


def estimated(text: str, pcm: Pcm, language: str) -> list[Span]:
    """Our times."""
    loudness = Loudness()
    loudness.feed(pcm)
    times = word_times(text, loudness)
    return [Span(normalised(time.word, language), time.start_ms, time.end_ms) for time in times]


def even_split(text: str, pcm: Pcm, language: str) -> list[Span]:
    """Each word as much of the whole sound as it has letters."""
    words = words_of(text)
    ends = np.cumsum([word.end - word.start for word in words]) * len(pcm) / 24.0
    ends = ends / sum(word.end - word.start for word in words)
    starts = [0.0, *ends[:-1]]
    return [
        Span(normalised(text[word.start : word.end], language), start, end)
        for word, start, end in zip(words, starts, ends, strict=True)
    ]


async def spoken(engine: BuiltinEngine, text: str, language: str) -> Pcm:
    """The text in the built-in voice of its language."""
    speaking = await engine.open(Utterance(text, "auto", seed=1, language=language))
    return np.concatenate([chunk.pcm async for chunk in speaking.chunks()])


async def main() -> None:
    """Speak, listen, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--language", action="append", choices=list(TEXTS))
    parser.add_argument("--long", action="store_true", help="all sentences as one text")
    parser.add_argument("--held-out", action="store_true", help="the sentences that nothing was chosen on")
    options = parser.parse_args()
    sets = HELD_OUT if options.held_out else TEXTS
    listener, engine = Listener(), BuiltinEngine()
    await engine.start()
    print(machine())
    print("| | words compared | start p50 | p90 | p99 | end p50 | p90 | p99 | start <= 100 ms | <= 200 ms | mean |")
    for language in options.language or list(sets):
        if language not in engine.traits.languages:
            continue
        texts = [" ".join(sets[language])] if options.long else sets[language]
        ours, split = Errors(), Errors()
        for text in texts:
            pcm = await spoken(engine, text, language)
            theirs = listener.words(pcm, language)
            ours.add(estimated(text, pcm, language), theirs)
            split.add(even_split(text, pcm, language), theirs)
        print(ours.row(language))
        print(split.row(f"{language}, even split"), flush=True)
    await engine.close()


if __name__ == "__main__":
    asyncio.run(main())
