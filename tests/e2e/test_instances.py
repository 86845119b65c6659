"""What compose.yaml starts, as local processes: two instances that share a Redis, behind a balancer."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.adapters.stores.redis_server import RedisServer, needs_redis, redis_server

pytestmark = needs_redis

CHAT = "/v1/chat/completions"
SEED = 1_234
TURNS = tuple(
    " ".join(f"This is sentence number {number} of what is said about the {topic}." for number in range(1, 9))
    for topic in ("sea", "wind", "mountains", "night")
)
"""The scripted model says them again: 32 segments."""


class Instance:
    """One ``sidecar serve`` with the tone engine and the scripted language model."""

    def __init__(self, folder: Path, store: str) -> None:
        self._folder = folder
        self._store = store
        self.process: subprocess.Popen[str] | None = None
        self.url = ""

    def start(self) -> None:
        env = {name: value for name, value in os.environ.items() if not name.startswith("SIDECAR_")}
        env |= {
            "SIDECAR_DATA_DIR": str(self._folder),
            "SIDECAR_STORE__TIMEOUT_MS": "20000",
            "SIDECAR_LLM__SCRIPTED_TOKENS_PER_S": "200",
            "SIDECAR_LLM__SCRIPTED_FIRST_TOKEN_MS": "0",
            "SIDECAR_SERVER__SHUTDOWN_GRACE_S": "2",
        }
        command = (sys.executable, "-m", "sidecar", "serve", "--engine", "tone", "--port", "0", "--store", self._store)
        self.process = subprocess.Popen(
            (*command, "--log-level", "error"), env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("listening on "), line
        self.url = line.split()[-1]

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def kill(self) -> None:
        """SIGKILL. Idempotent."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.communicate()


@contextlib.contextmanager
def instances(folder: Path, store: str, count: int) -> Iterator[list[Instance]]:
    made = []
    try:
        for index in range(count):
            (folder / str(index)).mkdir()
            made.append(Instance(folder / str(index), store))
            made[-1].start()
        yield made
    finally:
        for instance in made:
            instance.kill()


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(scope="module")
def pair(redis: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Instance]]:
    with instances(tmp_path_factory.mktemp("pair"), redis.url, 2) as made:
        yield made


@contextlib.asynccontextmanager
async def balancer(*behind: Instance) -> AsyncIterator[str]:
    """Every connection to the next instance; to the one after it if that one is gone."""
    order = itertools.cycle(behind)
    open_now: set[asyncio.Task[Any]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_now.add(task)
        task.add_done_callback(open_now.discard)
        for _ in behind:
            with contextlib.suppress(OSError):
                back, ahead = await asyncio.open_connection("127.0.0.1", next(order).port)
                await asyncio.gather(pump(reader, ahead), pump(back, writer))
                return
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        if open_now:
            await asyncio.wait(open_now)


def spoken(messages: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    audio = {"voice": "alloy", "format": "pcm16", "segments": True, "seed": SEED, **more}
    return {"model": "scripted-echo", "messages": messages, "modalities": ["text", "audio"], "audio": audio}


async def ask(url: str, messages: list[dict[str, Any]], **more: Any) -> httpx.Response:
    """On a connection of its own."""
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        return await client.post(CHAT, json=spoken(messages, **more))


class Dialog:
    """Turns that follow one another, each referring to the ones before by their ids."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.sounds: list[bytes] = []

    async def say(self, url: str, text: str) -> None:
        self.messages.append({"role": "user", "content": text})
        answer = await ask(url, self.messages)
        assert answer.status_code == 200, answer.text
        audio = answer.json()["choices"][0]["message"]["audio"]
        self.sounds.append(base64.b64decode(audio["data"]))
        self.messages.append({"role": "assistant", "audio": {"id": audio["id"]}})


async def spoken_by(*urls: str) -> list[bytes]:
    """The dialog, its turns on these instances in turn."""
    dialog = Dialog()
    for text, url in zip(TURNS, itertools.cycle(urls), strict=False):
        await dialog.say(url, text)
    return dialog.sounds


async def test_a_dialog_sounds_the_same_wherever_its_turns_are_spoken(pair: list[Instance]) -> None:
    one, two = (instance.url for instance in pair)
    alone = await spoken_by(one)
    assert len(set(alone)) == len(TURNS)
    assert await spoken_by(two, one) == alone
    async with balancer(*pair) as url:
        assert await spoken_by(url) == alone


async def test_a_dialog_survives_the_death_of_the_instance_that_spoke(
    redis: RedisServer, pair: list[Instance], tmp_path: Path
) -> None:
    alone = await spoken_by(pair[0].url)
    with instances(tmp_path, redis.url, 2) as fresh:
        async with balancer(*fresh) as url:
            dialog = Dialog()
            await dialog.say(url, TURNS[0])
            await dialog.say(url, TURNS[1])
            fresh[0].kill()
            await dialog.say(url, TURNS[2])
            fresh[0].start()
            fresh[1].kill()
            await dialog.say(url, TURNS[3])
    assert dialog.sounds == alone


async def streamed(url: str, text: str, redis: RedisServer | None) -> bytes:
    """The sound of a streamed answer; ``redis`` is emptied as soon as something was heard."""
    pcm = b""
    body = spoken([{"role": "user", "content": text}]) | {"stream": True}
    async with httpx.AsyncClient(timeout=60) as client, client.stream("POST", url + CHAT, json=body) as response:
        async for line in response.aiter_lines():
            if not line.startswith("data: {"):
                continue
            for choice in json.loads(line[6:])["choices"]:
                audio = choice["delta"].get("audio") or {}
                pcm += base64.b64decode(audio.get("data") or "")
            if pcm and redis is not None:
                async with redis.client() as client_:
                    await client_.flushall()
                    await client_.script_flush()
                redis = None
    return pcm


async def test_a_flush_in_the_middle_changes_nothing_that_is_heard(redis: RedisServer, pair: list[Instance]) -> None:
    undisturbed = await streamed(pair[0].url, TURNS[0], None)
    assert len(undisturbed) > 480_000
    assert await streamed(pair[1].url, TURNS[0], redis) == undisturbed


async def test_what_was_flushed_is_told_and_the_clients_words_help(redis: RedisServer, pair: list[Instance]) -> None:
    dialog = Dialog()
    await dialog.say(pair[0].url, TURNS[0])
    async with redis.client() as client:
        await client.flushall()
    for instance in pair:
        again = [*dialog.messages, {"role": "user", "content": TURNS[1]}]
        answer = await ask(instance.url, again)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "audio_expired")
        again[1] = {"role": "assistant", "audio": again[1]["audio"], "content": "What was said."}
        assert (await ask(instance.url, again)).status_code == 200


async def test_a_dialog_goes_on_while_redis_is_away_and_is_shared_once_it_is_back(
    redis: RedisServer, pair: list[Instance]
) -> None:
    alone = await spoken_by(pair[0].url)
    redis.kill()
    dialog = Dialog()
    for text in TURNS[:2]:
        await dialog.say(pair[0].url, text)
    async with httpx.AsyncClient(base_url=pair[0].url, timeout=60) as client, asyncio.timeout(60):
        while (ready := await client.get("/ready")).json() == {"status": "ready"}:
            await asyncio.sleep(0.05)
        assert (ready.status_code, ready.json()) == (200, {"status": "ready", "degraded": ["store"]})
        redis.start()
        while (await client.get("/ready")).json() != {"status": "ready"}:
            await asyncio.sleep(0.05)
    async with asyncio.timeout(60):
        while (await ask(pair[1].url, [*dialog.messages, {"role": "user", "content": TURNS[2]}])).is_error:
            await asyncio.sleep(0.05)
    for text in TURNS[2:]:
        await dialog.say(pair[1].url, text)
    assert dialog.sounds == alone
