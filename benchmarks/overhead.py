"""What the sidecar itself costs: ``python -m benchmarks.overhead``.

Chat replies that all speak at once, through the real server (a process of its own, real sockets) with the tone engine
and the scripted model, whose own cost is small but counts. Requests arrive in an open loop, spread over the first
seconds; after ``--seconds`` whoever still listens hangs up. The load generator runs on the same cores. Reported:

- ``token_to_engine``: from the model's token that completes a segment to the call of ``Engine.open``, where no other
  segment is in the way (``segment_waited`` is the product's own metric, which begins when the segment is cut);
- ``chunk_waited``: from an engine chunk that can be read to its bytes in the socket;
- lag of the event loop, CPU, and memory: growth of the server's RSS after a warm-up, per concurrent reply.

``--text`` measures requests without audio instead: through a sidecar in front of a model, against that model directly.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from typing import Any

from adapters.llm.scripted_request import pieces_of
from benchmarks.client import CONTENT, DONE, Heard, ask, chat
from benchmarks.figures import Neighbours, core_ms, load_average, machine, median, quantile
from benchmarks.server import Server
from benchmarks.texts import prose

PATH = "/v1/chat/completions"
WARM_UP_REPLIES = 8
WARM_UP_CHARS = 300
WARM_UP_TIMEOUT_S = 60.0
SAMPLE_RSS_S = 0.25

Figures = dict[str, Any]


# ---------------------------------------------------------------- spoken
async def spoken(options: argparse.Namespace) -> Figures:
    """Many spoken replies at once; the figures of one run."""
    settings = {
        "engine.kind": "tone",
        "engine.tone_realtime_factor": options.factor,
        "engine.max_rows": 4 * options.replies,
        "llm.scripted_tokens_per_s": options.tokens_per_s,
        "server.max_replies": 2 * options.replies,
    }
    async with Server(settings, options.profile) as server:
        await _warm_up(server)
        before = await server.mark()
        before_ms = core_ms()
        neighbours, cpu_s, began_s = Neighbours(), time.process_time(), time.monotonic()
        watch = asyncio.create_task(_peak_rss(server))
        heard = await _crowd(server, chat(prose(options.chars)), options)
        watch.cancel()
        wall_s, client_s = time.monotonic() - began_s, time.process_time() - cpu_s
        report = await server.report()
        others = neighbours.cores_used(report["cpu_s"] + client_s, wall_s)
        stolen = neighbours.cores_stolen(wall_s)
        growth_bytes = await watch - before["rss_bytes"]
        fixed_loop_ms = {"before": round(before_ms, 1), "after": round(core_ms(), 1)}
    first_ms = [h.audio_ms for h in heard if h.audio_ms is not None]
    return {
        **report,
        "ended": sum(h.complete for h in heard),
        "failed": sum(h.status != 200 or h.audio_ms is None for h in heard),
        "received_mb": round(sum(h.received_bytes for h in heard) / 1e6, 1),
        "first_audio_ms": {"p50": round(quantile(first_ms, 0.5), 1), "p99": round(quantile(first_ms, 0.99), 1)},
        "wall_s": round(wall_s, 1),
        "client_cpu_s": round(client_s, 2),
        "rss_before_mib": round(before["rss_bytes"] / 2**20, 1),
        "mib_per_reply": round(growth_bytes / 2**20 / options.replies, 3),
        "load_average": load_average(),
        "others_cores": round(others, 2),
        "stolen_cores": round(stolen, 2),
        "fixed_loop_ms": fixed_loop_ms,
    }


async def _warm_up(server: Server) -> None:
    replies = [ask(server.host, server.port, PATH, chat(prose(WARM_UP_CHARS))) for _ in range(WARM_UP_REPLIES)]
    async with asyncio.timeout(WARM_UP_TIMEOUT_S):
        await asyncio.gather(*replies)


async def _crowd(server: Server, body: Figures, options: argparse.Namespace, words: bytes | None = None) -> list[Heard]:
    """Requests at random moments of the first ``arrive_s`` seconds; all hang up after ``seconds``."""
    moments = random.Random(options.seed)
    hang_up = asyncio.Event()
    asyncio.get_running_loop().call_later(options.seconds, hang_up.set)
    marks = {} if words is None else {"words": words, "audio": DONE}

    async def one(after_s: float) -> Heard:
        await asyncio.sleep(after_s)
        return await ask(server.host, server.port, PATH, body, until=hang_up, **marks)

    return await asyncio.gather(*(one(moments.uniform(0, options.arrive_s)) for _ in range(options.replies)))


async def _peak_rss(server: Server) -> int:
    peak_bytes = 0
    try:
        while True:
            peak_bytes = max(peak_bytes, server.rss_bytes())
            await asyncio.sleep(SAMPLE_RSS_S)
    except asyncio.CancelledError:
        return peak_bytes


# ---------------------------------------------------------------- text only
async def text_only(options: argparse.Namespace) -> Figures:
    """Requests without audio, to a model and through a sidecar before it, in turn; medians over all runs."""
    scripted = {"engine.kind": "tone", "llm.scripted_tokens_per_s": options.tokens_per_s}
    body = chat(prose(options.chars), spoken=False)
    tokens = len(pieces_of(prose(options.chars))) * options.replies
    runs: dict[str, list[Figures]] = {"direct": [], "sidecar": []}
    async with Server(scripted) as model:
        behind = {"engine.kind": "tone", "llm.kind": "openai", "llm.url": f"http://{model.host}:{model.port}/v1"}
        async with Server(behind) as sidecar:
            for name in ("direct", "sidecar") * (options.runs + 1):
                neighbours, began_s = Neighbours(), time.monotonic()
                await model.mark()
                await sidecar.mark()
                heard = await _crowd(sidecar if name == "sidecar" else model, body, options, CONTENT)
                model_s, sidecar_s = (await model.report())["cpu_s"], (await sidecar.report())["cpu_s"]
                first_ms = [h.words_ms for h in heard if h.words_ms is not None]
                runs[name].append(
                    {
                        "first_token_ms": quantile(first_ms, 0.5),
                        "first_token_p99_ms": quantile(first_ms, 0.99),
                        "model_cpu_us_per_token": model_s * 1e6 / tokens,
                        "sidecar_cpu_us_per_token": sidecar_s * 1e6 / tokens,
                        "failed": sum(not h.complete for h in heard),
                        "others_cores": neighbours.cores_used(model_s + sidecar_s, time.monotonic() - began_s),
                    }
                )
    # The first round warms up.
    figures: Figures = {name: _medians(rounds[1:]) for name, rounds in runs.items()}
    direct, through = figures["direct"], figures["sidecar"]
    figures["ratio_first_token"] = round(through["first_token_ms"] / direct["first_token_ms"], 3)
    figures["ratio_cpu_per_token"] = round(through["sidecar_cpu_us_per_token"] / direct["model_cpu_us_per_token"], 2)
    return figures | {"load_average": load_average()}


def _medians(runs: list[Figures]) -> Figures:
    """Key by key; the values are numbers, or mappings of numbers."""
    merged: Figures = {}
    for key in runs[0]:
        column: list[Any] = [run[key] for run in runs if key in run]
        merged[key] = _medians(column) if isinstance(column[0], dict) else round(median(column), 3)
    return merged


# ---------------------------------------------------------------- command line
def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replies", type=int, default=100, help="replies at once")
    parser.add_argument("--factor", type=float, default=1.0, help="tone engine: seconds of work per second of audio")
    parser.add_argument("--tokens-per-s", type=float, default=20.0, help="pace of the scripted model")
    parser.add_argument("--chars", type=int, default=1_800, help="length of each reply")
    parser.add_argument("--arrive-s", type=float, default=4.0, help="requests arrive within the first so many seconds")
    parser.add_argument("--seconds", type=float, default=25.0, help="length of a run")
    parser.add_argument("--runs", type=int, default=3, help="the median of so many runs is printed")
    parser.add_argument("--seed", type=int, default=1, help="of the arrival times")
    parser.add_argument("--profile", help="file for a cProfile of the server (one run; slows it down)")
    parser.add_argument("--text", action="store_true", help="requests without audio instead")
    return parser.parse_args()


async def _main(options: argparse.Namespace) -> None:
    print(machine())
    if options.text:
        print(json.dumps(await text_only(options), indent=1))
        return
    runs = []
    for _ in range(1 if options.profile else options.runs):
        runs.append(await spoken(options))
        print(json.dumps(runs[-1]), flush=True)
    if len(runs) > 1:
        print("median:", json.dumps(_medians(runs), indent=1))


if __name__ == "__main__":
    asyncio.run(_main(_options()))
