"""One voice for a whole dialog: the same on every instance, after a restart, and without the store's memory."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.adapters.engines.qwen3_tts import tiny
from tests.e2e.conftest import Running, running

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]

SCRIPT = ("Good morning to you. It rains.", "And now, the second thing. Are you there?", "Well then. Good bye.")


@dataclass
class Dialog:
    """A client that keeps the messages of one dialog, as SDKs do."""

    voice: str
    messages: list[dict[str, Any]] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)
    name: str = ""

    async def turn(self, server: Running, say: str, **audio: Any) -> bytes:
        """Have the scripted model say this, and hear it."""
        self.messages.append({"role": "user", "content": say})
        answer = await server.openai.chat.completions.with_raw_response.create(
            model="scripted-echo",
            messages=self.messages,  # type: ignore[arg-type]
            modalities=["text", "audio"],
            audio={"voice": self.voice, "format": "pcm16", "segments": True, **audio},  # type: ignore[typeddict-unknown-key]
            stream=True,
        )
        self.name = answer.headers["x-sidecar-dialog"]
        data, audio_id, words = b"", "", ""
        async for chunk in answer.parse():
            for choice in chunk.choices:
                segment: Any = (choice.model_extra or {}).get("segment")
                if segment and segment["type"] == "started":
                    self.seeds.append(segment["seed"])
                part: Any = choice.delta.model_dump().get("audio") or {}
                audio_id = part.get("id") or audio_id
                words += part.get("transcript") or ""
                data += base64.b64decode(part.get("data") or "")
        self.messages.append({"role": "assistant", "content": words, "audio": {"id": audio_id}})
        return data


async def whole(dialog: Dialog, *servers: Running) -> list[bytes]:
    """The script, each turn on the next of these servers."""
    return [await dialog.turn(servers[at % len(servers)], say) for at, say in enumerate(SCRIPT)]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write(tmp_path_factory.mktemp("checkpoints") / "custom", kind="custom_voice")


def settings(engine: str, checkpoint: Path, store: Path) -> dict[str, Any]:
    more: dict[str, Any] = {"engine__kind": engine, "store__url": f"local:{store}", "chat__idle_flush_ms": 30_000}
    if engine == "qwen3_tts":
        more |= {"engine__checkpoint": str(checkpoint), "engine__max_positions": 112}
    return more


VOICES = {"tone": "bass", "builtin": "alloy", "qwen3_tts": "ryan"}


@dataclass
class Pair:
    """Two instances that share a store."""

    engine: str
    one: Running
    two: Running

    def dialog(self) -> Dialog:
        return Dialog(VOICES[self.engine])


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["tone", "builtin", "qwen3_tts"])
async def pair(
    request: pytest.FixtureRequest, checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Pair]:
    store = tmp_path_factory.mktemp("store") / "dialogs.db"
    async with AsyncExitStack() as stack:
        both = [
            await stack.enter_async_context(running(**settings(request.param, checkpoint, store))) for _ in range(2)
        ]
        yield Pair(request.param, *both)


quick = pytest.mark.parametrize("pair", ["tone", "builtin"], indirect=True)
"""What does not depend on the engine is not tried on the slow one."""


async def test_a_dialog_sounds_the_same_on_two_instances(pair: Pair) -> None:
    seed = {"seed": 77}
    here, there = pair.dialog(), pair.dialog()
    first = [await here.turn(pair.one, say, **seed) for say in SCRIPT]
    other = [await there.turn((pair.one, pair.two)[at % 2], say, **seed) for at, say in enumerate(SCRIPT)]
    assert here.seeds == there.seeds
    assert len(set(here.seeds)) == len(here.seeds) >= 6
    assert first == other
    assert all(map(len, first))


async def test_a_store_that_forgot_everything_changes_nothing_audible(pair: Pair) -> None:
    seed = {"seed": 5}
    told, forgotten = pair.dialog(), pair.dialog()
    expected = [await told.turn(pair.one, say, **seed) for say in SCRIPT]
    heard = []
    for say in SCRIPT:
        heard.append(await forgotten.turn(pair.one, say, **seed))
        for kind in ("spoken-turn", "carry"):
            for key in await pair.one.service.store.keys("local", kind):
                await pair.one.service.store.delete("local", kind, key)
    assert heard == expected
    assert told.seeds == forgotten.seeds


@quick
async def test_a_dialog_without_a_seed_goes_on_from_its_own(pair: Pair) -> None:
    """What its first reply was called is enough, on an instance that never heard of it, with a store that forgot."""
    dialog = pair.dialog()
    await dialog.turn(pair.one, SCRIPT[0])
    again = Dialog(dialog.voice, [dict(one) for one in dialog.messages])
    for key in await pair.one.service.store.keys("local", "spoken-turn"):
        await pair.one.service.store.delete("local", "spoken-turn", key)
    await dialog.turn(pair.two, SCRIPT[1])
    await again.turn(pair.two, SCRIPT[1])
    assert dialog.seeds[-len(again.seeds) :] == again.seeds
    assert dialog.name == again.name


@quick
async def test_another_dialog_has_other_seeds(pair: Pair) -> None:
    one, two = pair.dialog(), pair.dialog()
    await one.turn(pair.one, SCRIPT[0])
    await two.turn(pair.one, SCRIPT[0])
    assert not set(one.seeds) & set(two.seeds)
    assert one.name != two.name


@quick
async def test_the_report_of_a_dialog(pair: Pair) -> None:
    dialog = pair.dialog()
    await whole(dialog, pair.one)
    for name in (dialog.name, dialog.messages[-1]["audio"]["id"]):
        answer = await pair.one.http.get(f"/v1/dialogs/{name}/drift")
        assert answer.status_code == 200, answer.text
        report = answer.json()
        assert sum(report["verdicts"].values()) == len(dialog.seeds)
    page = await pair.one.http.get(f"/v1/dialogs/{dialog.name}/drift", headers={"accept": "text/html"})
    assert page.headers["content-type"].startswith("text/html")
    assert "<svg" in page.text
    assert "<script" not in page.text
    assert SCRIPT[0] not in page.text
    unknown = await pair.one.http.get("/v1/dialogs/dialog_nobody/drift")
    assert unknown.status_code == 404
    assert unknown.json()["error"]["message"]


async def test_after_a_restart_it_is_the_same(checkpoint: Path, tmp_path: Path) -> None:
    for engine in ("tone", "qwen3_tts"):
        heard = []
        for restart in (False, True):
            dialog = Dialog(VOICES[engine])
            options = settings(engine, checkpoint, tmp_path / f"{engine}{restart}.db")
            said = []
            async with running(**options) as server:
                said.append(await dialog.turn(server, SCRIPT[0], seed=9))
                if not restart:
                    said.append(await dialog.turn(server, SCRIPT[1], seed=9))
            if restart:
                async with running(**options) as server:
                    said.append(await dialog.turn(server, SCRIPT[1], seed=9))
            heard.append(said)
        assert heard[0] == heard[1]


async def test_what_was_said_shapes_what_is_said_next(checkpoint: Path, tmp_path: Path) -> None:
    """The carry is really used: without it the second segment sounds otherwise, the first one the same."""
    spoken = {}
    for carry in (True, False):
        options = settings("qwen3_tts", checkpoint, tmp_path / f"{carry}.db")
        async with running(**options, voices__carry=carry) as server:
            dialog = Dialog("ryan")
            spoken[carry] = [await dialog.turn(server, say, seed=3, language="en") for say in SCRIPT[:2]]
    assert spoken[True][1] != spoken[False][1]
