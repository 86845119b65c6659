"""How soon a listener hears something: ``python -m benchmarks.first_audio``.

One listener, the built-in voice, the scripted model at the pace of a real one, the OpenAI SDK. Time from the request
to the first bytes of audio, four ways:

- ``clause``: the chat endpoint as it is, whose first segment may end at a clause;
- ``sentence``: the same with ``chat.first_by_clause = false``;
- ``client, sentence``: a client that reads the text itself and sends the first sentence to ``/v1/audio/speech``;
- ``client, answer``: a client that waits for the whole answer and then sends it there.

For three answers: one that opens with a short sentence, one whose first sentence has a clause to stop at, one whose
first sentence is long and has none.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from typing import cast

from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionAudioParam

from benchmarks.figures import load_average, machine, median
from benchmarks.server import Server

ANSWERS = {
    "short opener": (
        "Good question. The tide follows the moon, which pulls on the water that faces it. Twice a day the sea rises, "
        "and twice a day it falls. Twice a month, when sun and moon pull together, the range is largest."
    ),
    "with a clause": (
        "In most harbors along this coast, the water rises and falls twice a day because the moon pulls on the side of "
        "the earth that faces it more strongly than on the rest. When sun and moon pull together, the range is largest."
    ),
    "long and whole": (
        "The water in most harbors along this coast rises and falls twice a day because the moon pulls on the side of "
        "the earth that faces it more strongly than on the rest. When sun and moon pull together, the range is largest."
    ),
}
VOICE = "heart"
_SENTENCE_END = re.compile(r"[.!?]\s")

Way = Callable[[AsyncOpenAI, str], Awaitable[float]]


async def through_chat(client: AsyncOpenAI, answer: str) -> float:
    """Milliseconds to the first audio of a spoken chat completion."""
    began_s = time.monotonic()
    stream = await client.chat.completions.create(
        model="scripted-echo",
        messages=[{"role": "user", "content": answer}],
        modalities=["text", "audio"],
        audio=cast(ChatCompletionAudioParam, {"voice": VOICE, "format": "pcm16"}),
        stream=True,
    )
    async with stream:
        async for chunk in stream:
            for choice in chunk.choices:
                audio = choice.delta.audio
                if audio and audio.data:
                    return (time.monotonic() - began_s) * 1000
    raise RuntimeError("no audio came")


async def sentence_by_client(client: AsyncOpenAI, answer: str) -> float:
    """Milliseconds for a client that cuts off the first sentence itself."""
    return await _by_client(client, answer, whole=False)


async def answer_by_client(client: AsyncOpenAI, answer: str) -> float:
    """Milliseconds for a client that waits for the whole answer."""
    return await _by_client(client, answer, whole=True)


async def _by_client(client: AsyncOpenAI, answer: str, *, whole: bool) -> float:
    began_s = time.monotonic()
    text = ""
    stream = await client.chat.completions.create(
        model="scripted-echo", messages=[{"role": "user", "content": answer}], stream=True
    )
    async with stream:
        async for chunk in stream:
            text += "".join(choice.delta.content or "" for choice in chunk.choices)
            if not whole and (end := _SENTENCE_END.search(text)):
                text = text[: end.end()]
                break
    speech = client.audio.speech.with_streaming_response.create(
        model="tts-1", voice=VOICE, input=text, response_format="pcm"
    )
    async with speech as response:
        async for data in response.iter_bytes(1024):
            if data:
                return (time.monotonic() - began_s) * 1000
    raise RuntimeError("no audio came")


WAYS: dict[str, tuple[bool, Way]] = {
    "clause": (True, through_chat),
    "sentence": (False, through_chat),
    "client, sentence": (True, sentence_by_client),
    "client, answer": (True, answer_by_client),
}


async def measure(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Way -> answer -> median milliseconds. The ways take turns, so that all see the same neighbours."""
    base = {"engine.kind": "builtin", "llm.scripted_tokens_per_s": options.tokens_per_s}
    times: dict[str, dict[str, list[float]]] = {way: {name: [] for name in ANSWERS} for way in WAYS}
    async with (
        Server({**base, "chat.first_by_clause": True}) as by_clause,
        Server({**base, "chat.first_by_clause": False}) as by_sentence,
        AsyncOpenAI(base_url=f"http://{by_clause.host}:{by_clause.port}/v1", api_key="none") as to_clause,
        AsyncOpenAI(base_url=f"http://{by_sentence.host}:{by_sentence.port}/v1", api_key="none") as to_sentence,
    ):
        for run in range(options.runs + 1):
            for name, answer in ANSWERS.items():
                for way, (clause, listen) in WAYS.items():
                    taken_ms = await listen(to_clause if clause else to_sentence, answer)
                    if run:  # the first round warms up
                        times[way][name].append(taken_ms)
    return {way: {name: median(values) for name, values in row.items()} for way, row in times.items()}


def _print(figures: dict[str, dict[str, float]]) -> None:
    whole = figures["client, answer"]
    print("ms to the first audio (times faster than waiting for the answer)")
    print(f"{'':18}" + "".join(f"{name:>22}" for name in ANSWERS))
    for way, row in figures.items():
        cells = (f"{row[name]:,.0f} ({whole[name] / row[name]:.1f} x)" for name in ANSWERS)
        print(f"{way:18}" + "".join(f"{cell:>22}" for cell in cells))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens-per-s", type=float, default=20.0, help="pace of the scripted model")
    parser.add_argument("--runs", type=int, default=5, help="the median of so many is printed")
    figures = asyncio.run(measure(parser.parse_args()))
    print(f"{machine()}, load {load_average():.1f}")
    _print(figures)


if __name__ == "__main__":
    main()
