"""Which seed a cloned voice speaks best with: each says three sentences, and the one whose worst is best stays.

A fixed seed makes a voice behave alike from sentence to sentence, but some seeds are steady and some are wild. How
close a sentence comes is the cosine between its own speaker embedding, by the engine's encoder, and the voice's.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

import numpy as np

from sidecar.faults import EngineFault, EngineOverloaded, Fault
from sidecar.ports import Engine, Pcm, Utterance
from sidecar.speech_line import checked_chunks, longest_samples
from voices.anchor import SpeakerAnchor
from voices.seeds import segment_seed
from voices.vectors import cosine

log = logging.getLogger(__name__)

SEEDS_RANGE = (2, 16)
"""How many seeds may be tried; 8 to 16 are worth while."""

MAX_SENTENCE_FRAMES = 150
"""12 s: what is longer has gone astray."""

SENTENCES = {
    "en": (
        "Good morning, I hope you slept well.",
        "Could you tell me where the nearest station is?",
        "We will meet again on Thursday at half past nine.",
    ),
    "de": (
        "Guten Morgen, ich hoffe, Sie haben gut geschlafen.",
        "Können Sie mir sagen, wo der nächste Bahnhof ist?",
        "Wir sehen uns am Donnerstag um halb zehn wieder.",
    ),
    "fr": (
        "Bonjour, j'espère que vous avez bien dormi.",
        "Pouvez-vous me dire où se trouve la gare la plus proche ?",
        "Nous nous reverrons jeudi à neuf heures et demie.",
    ),
    "es": (
        "Buenos días, espero que haya dormido bien.",
        "¿Puede decirme dónde está la estación más cercana?",
        "Nos veremos otra vez el jueves a las nueve y media.",
    ),
    "it": (
        "Buongiorno, spero che abbia dormito bene.",
        "Mi può dire dove si trova la stazione più vicina?",
        "Ci rivedremo giovedì alle nove e mezza.",
    ),
    "pt": (
        "Bom dia, espero que tenha dormido bem.",
        "Pode me dizer onde fica a estação mais próxima?",
        "Vamos nos encontrar de novo na quinta às nove e meia.",
    ),
    "ru": (
        "Доброе утро, надеюсь, вы хорошо спали.",
        "Не подскажете, где ближайший вокзал?",
        "Мы снова встретимся в четверг в половине десятого.",
    ),
    "zh": ("早上好，希望您睡得很好。", "请问最近的车站在哪里？", "我们星期四九点半再见面。"),
    "ja": (
        "おはようございます。よく眠れましたか。",
        "一番近い駅はどこか教えていただけますか。",
        "木曜日の九時半にまたお会いしましょう。",
    ),
    "ko": (
        "안녕하세요, 잘 주무셨기를 바랍니다.",
        "가장 가까운 역이 어디인지 알려 주시겠어요?",
        "목요일 아홉 시 반에 다시 만나요.",
    ),
}
"""What is said, by ISO 639-1 code."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What one seed sounded like: ``worst`` and ``mean`` cosine of its sentences, None if one of them failed."""

    seed: int
    worst: float | None
    mean: float | None


async def auditioned(
    engine: Engine, anchor: SpeakerAnchor, language: str, seeds: Sequence[int], chunk_timeout_s: float
) -> AsyncGenerator[Heard, None]:
    """Try the seeds one after another; ``language`` is an ISO 639-1 code or empty.

    A seed whose speech fails or goes astray is told as such. Raises ``EngineOverloaded``, and ``EngineFault`` when
    the engine is gone.
    """
    spoken = language if language in SENTENCES and language in engine.traits.languages else ""
    sentences = SENTENCES[spoken or "en"]
    for seed in seeds:
        try:
            likeness = []
            for index, text in enumerate(sentences):
                asked = Utterance(
                    text,
                    "",
                    segment_seed(seed, 0, index),
                    language=spoken or None,
                    max_frames=MAX_SENTENCE_FRAMES,
                    anchor=anchor,
                )
                pcm = await _said(engine, asked, chunk_timeout_s)
                likeness.append(cosine(anchor.embedding, (await engine.encode_voice(pcm, None)).embedding))
        except EngineOverloaded:
            raise
        except Fault as fault:
            if isinstance(fault, EngineFault) and not (await engine.health()).ok:
                raise
            log.info("a seed failed its audition", extra={"code": fault.code})
            yield Heard(seed, None, None)
        else:
            yield Heard(seed, min(likeness), sum(likeness) / len(likeness))


async def _said(engine: Engine, asked: Utterance, chunk_timeout_s: float) -> Pcm:
    speaking = await engine.open(asked)
    chunks = checked_chunks(speaking, chunk_timeout_s, longest_samples(asked))
    async with aclosing(chunks):
        pieces = [chunk.pcm async for chunk in chunks]
    pcm: Pcm = np.concatenate(pieces)
    return pcm


def best(heard: Sequence[Heard]) -> Heard | None:
    """The seed with the best worst case; among equals the better on the whole. None if all failed."""
    good = [one for one in heard if one.worst is not None and one.mean is not None]
    return max(good, key=lambda one: (one.worst or 0.0, one.mean or 0.0), default=None)
