"""A chat spoken through another sidecar that is killed, and started again, while it speaks."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.adapters.engines.sidecars import Sidecar
from tests.e2e.conftest import Running, running

SENTENCES = [f"This is sentence number {number} of what is said about the sea." for number in range(1, 6)]
BYTES_PER_S = 48_000


@dataclass
class Heard:
    """What a client of the chat endpoint has got so far."""

    audio: bytes = b""
    text: str = ""
    marks: list[dict[str, Any]] = field(default_factory=list)
    errors: list[dict[str, Any]] = field(default_factory=list)
    done: bool = False

    @property
    def lost(self) -> list[int]:
        """The segments that the client was told to be incomplete."""
        return [mark["index"] for mark in self.marks if mark["type"] == "ended" and "error" in mark]

    @property
    def ended(self) -> list[int]:
        return [mark["index"] for mark in self.marks if mark["type"] == "ended"]


async def listen(server: Running) -> AsyncIterator[Heard]:
    """Ask for the sentences to be spoken; what has been heard, after each event."""
    body = {
        "model": "scripted",
        "messages": [{"role": "user", "content": " ".join(SENTENCES)}],
        "modalities": ["text", "audio"],
        "audio": {"voice": "alto", "format": "pcm16", "segments": True, "seed": 7},
        "stream": True,
    }
    heard = Heard()
    async with server.http.stream("POST", "/v1/chat/completions", json=body) as answer:
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            if not line.startswith("data: "):
                continue
            if line == "data: [DONE]":
                heard.done = True
                break
            event = json.loads(line[6:])
            if "error" in event:
                heard.errors.append(event["error"])
                break
            for choice in event["choices"]:
                audio = choice["delta"].get("audio") or {}
                heard.audio += base64.b64decode(audio.get("data") or "")
                heard.text += audio.get("transcript") or ""
                if "segment" in choice:
                    heard.marks.append(choice["segment"])
            yield heard
    yield heard


def front(url: str, **flags: Any) -> Any:
    """A sidecar whose engine is the one at ``url``."""
    usual: dict[str, Any] = {
        "engine__kind": "omni",
        "engine__urls": [url],
        "engine__server_wait_s": 60,
        "chat__ahead_segments": 0,
        "chat__join_short": False,
        "chat__first_by_clause": False,
        "voices__drift": "off",
        "llm__scripted_first_token_ms": 0,
        "llm__scripted_tokens_per_s": 500,
    }
    return running(**usual | flags)


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    """Speaks five times as fast as one listens: there is time to kill it within any sentence."""
    sidecar = Sidecar(tmp_path_factory.mktemp("behind"), engine__tone_realtime_factor=0.2)
    sidecar.start()
    yield sidecar
    sidecar.kill()


@pytest.fixture(scope="module")
def whole(behind: Sidecar) -> Heard:
    """What is heard when nothing happens."""

    async def undisturbed() -> Heard:
        async with front(behind.url) as server:
            return [heard async for heard in listen(server)][-1]

    heard = asyncio.run(undisturbed())
    assert heard.done
    assert heard.lost == []
    return heard


async def restarted(server: Running, behind: Sidecar, when: Any) -> Heard:
    """What is heard when the sidecar behind dies once ``when`` holds, and is started again."""
    starting: asyncio.Future[None] | None = None
    heard = Heard()
    async for heard in listen(server):
        if starting is None and when(heard):
            behind.kill()
            starting = asyncio.ensure_future(asyncio.to_thread(behind.start))
    assert starting is not None, "it was over before it could be disturbed"
    await starting
    return heard


async def test_killed_within_a_segment_the_same_is_heard(behind: Sidecar, whole: Heard) -> None:
    async with front(behind.url) as server:
        heard = await restarted(server, behind, lambda heard: len(heard.audio) > 1.0 * BYTES_PER_S)
    assert heard.errors == []
    assert heard.done
    assert heard.text == whole.text
    assert heard.lost == []
    assert heard.audio == whole.audio


async def test_killed_within_a_segment_that_is_lost_the_rest_is_spoken(behind: Sidecar, whole: Heard) -> None:
    async with front(behind.url, engine__deterministic="no") as server:
        heard = await restarted(server, behind, lambda heard: len(heard.audio) > 1.0 * BYTES_PER_S)
    assert heard.errors == []
    assert heard.done
    assert heard.text == whole.text
    assert len(heard.lost) == 1
    assert heard.ended == whole.ended
    assert 0.5 * len(whole.audio) < len(heard.audio) < len(whole.audio)


async def test_killed_between_segments_nothing_is_lost(behind: Sidecar, whole: Heard) -> None:
    async with front(behind.url, engine__deterministic="no") as server:
        heard = await restarted(server, behind, lambda heard: len(heard.ended) == 2)
    assert heard.errors == []
    assert heard.done
    assert set(heard.lost) <= {2}  # the third may have begun by then
    assert heard.ended == whole.ended
    if not heard.lost:
        assert heard.audio == whole.audio


async def test_one_that_stays_away_ends_the_reply_with_its_reason(behind: Sidecar) -> None:
    async with front(behind.url, engine__server_wait_s=0.5) as server:
        heard = Heard()
        async for heard in listen(server):
            if len(heard.audio) > 0.5 * BYTES_PER_S:
                behind.kill()
        assert not heard.done
        assert [error["code"] for error in heard.errors] == ["engine_lost"]
        assert not (await server.service.engine.health()).ok
        behind.start()
        async with asyncio.timeout(60):
            while not (await server.service.engine.health()).ok:
                await asyncio.sleep(0.05)
        again = [heard async for heard in listen(server)][-1]
    assert again.done
