"""From a model's first token to the first sound, live mode against segment mode.

``python -m benchmarks.live [--engine tone] [--streams 24] [--tokens-per-s 20]``: scripted models write sentences of 20
words, one word a token; each stream is spoken in both modes by the engine itself, without server and network.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import Callable, Sequence

from segmenter import SegmentOptions
from sidecar.chat_turn import SpokenReply
from sidecar.clock import SystemClock
from sidecar.config import load
from sidecar.core.events import ReplyAudio
from sidecar.core.feed import FeedLimits
from sidecar.live_reply import LiveReply
from sidecar.ports import Engine
from sidecar.reply import Reply, ReplyLimits, Voicing
from sidecar.wiring import make_engine

SENTENCE_WORDS = 20
SENTENCES = 3

_WORDS = (  # noqa: SIM905
    "the a of in on from with under after about many some every little big old new bright quiet river house morning "
    "garden letter window winter table road people children teacher captain goes finds carries keeps remembers opens "
    "slowly again today never always often there here"
).split()  # fmt: skip


def script(seed: int) -> list[str]:
    """Tokens of ``SENTENCES`` sentences without a clause mark."""
    draw = random.Random(seed)
    tokens = []
    for _ in range(SENTENCES):
        words = draw.choices(_WORDS, k=SENTENCE_WORDS)
        words[0] = words[0].capitalize()
        tokens += [*(f"{word} " for word in words[:-1]), f"{words[-1]}. "]
    return tokens


async def first_sound_ms(reply: SpokenReply, tokens: Sequence[str], tokens_per_s: float) -> float:
    """Milliseconds from the first token to the first samples of a reply that is written at this pace."""
    begun_s = time.monotonic()

    async def write() -> None:
        for number, token in enumerate(tokens):
            await asyncio.sleep(max(0.0, begun_s + number / tokens_per_s - time.monotonic()))
            await reply.feed(token)
        reply.finish()

    async with reply:
        writing = asyncio.create_task(write())
        try:
            async for event in reply.events():
                if isinstance(event, ReplyAudio) and len(event.pcm):
                    return (time.monotonic() - begun_s) * 1000
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
    raise RuntimeError("nothing was spoken")


async def measure(make: Callable[[int], SpokenReply], streams: int, at_once: int, tokens_per_s: float) -> list[float]:
    """The waits of so many streams, ``at_once`` of them side by side."""
    places = asyncio.Semaphore(at_once)

    async def one(number: int) -> float:
        async with places:
            return await first_sound_ms(make(number), script(number), tokens_per_s)

    return list(await asyncio.gather(*(one(number) for number in range(streams))))


async def run(engine: Engine, streams: int, at_once: int, tokens_per_s: float) -> None:
    """Measure both modes and print them."""
    clock, limits = SystemClock(), ReplyLimits()
    voice = engine.traits.default_voice

    def live(number: int) -> SpokenReply:
        return LiveReply(engine, clock, Voicing(voice, number, language="en"), limits, FeedLimits())

    def segment(number: int) -> SpokenReply:
        return Reply(engine, clock, Voicing(voice, number, language="en"), SegmentOptions(), limits)

    print(f"{engine.traits.name}: {streams} streams at {tokens_per_s:g} tokens/s, sentences of {SENTENCE_WORDS} words")
    medians = {}
    for name, make in (("segment", segment), ("live", live)):
        waits = sorted(await measure(make, streams, at_once, tokens_per_s))
        medians[name] = statistics.median(waits)
        print(f"{name:<8} first sound after {medians[name]:7.0f} ms (median), {waits[-1]:7.0f} ms (longest)")
    print(f"live is {medians['segment'] / medians['live']:.1f} times sooner")


async def main() -> None:
    """Read the arguments, load the engine, measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", default="tone", choices=["tone", "qwen3_tts"])
    parser.add_argument("--checkpoint", help="folder or hub id, for qwen3_tts")
    parser.add_argument("--streams", type=int, default=24)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--tokens-per-s", type=float, default=20.0)
    asked = parser.parse_args()
    settings = {"engine.kind": asked.engine} | ({"engine.checkpoint": asked.checkpoint} if asked.checkpoint else {})
    engine = make_engine(load(None, {}, settings), SystemClock())
    await engine.start()
    try:
        await run(engine, asked.streams, asked.at_once, asked.tokens_per_s)
    finally:
        await engine.close()


if __name__ == "__main__":
    asyncio.run(main())
