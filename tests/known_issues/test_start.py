"""Known issues of starting up, and that every item has its answer."""

from __future__ import annotations

import re
from pathlib import Path
from unittest.mock import patch

import httpx
import pytest

from sidecar.http.app import create_app
from sidecar.ports import Speaking, Utterance
from sidecar.server import BackgroundServer
from sidecar.wiring import build
from tests.e2e.conftest import config_with

FOLDER = Path(__file__).parent
PAGE = FOLDER.parent.parent / "docs" / "known_issues.md"
ITEMS = range(1, 55)


async def test_k43_the_first_sentence_is_the_servers_own() -> None:
    """Whatever an engine compiles at its first words, no user waits for it."""
    service = build(config_with(engine__tone_first_chunk_delay_ms=300))
    asked: list[Utterance] = []
    real = service.engine.open

    async def opened(utterance: Utterance) -> Speaking:
        asked.append(utterance)
        return await real(utterance)

    with patch.object(service.engine, "open", opened):
        async with (
            BackgroundServer(create_app(service), service.config.server) as server,
            httpx.AsyncClient(base_url=server.url, timeout=60) as http,
        ):
            assert (await http.get("/health")).status_code == 503
            await service.until_ready()
            assert (await http.get("/health")).status_code == 200
            assert len(asked) == 1


def numbered_tests() -> dict[int, list[str]]:
    """The names of the tests here, by the items that they are for."""
    found: dict[int, list[str]] = {number: [] for number in ITEMS}
    for file in FOLDER.glob("test_*.py"):
        for name in re.findall(r"^(?:async )?def (test_k\w+)", file.read_text(encoding="utf-8"), re.MULTILINE):
            for number in re.findall(r"k(\d\d)", name):
                found[int(number)].append(name)
    return found


@pytest.mark.parametrize("number", ITEMS)
def test_every_item_has_its_answer(number: int) -> None:
    """Each has a paragraph, which names its tests if there are any."""
    page = PAGE.read_text(encoding="utf-8")
    (paragraph,) = re.findall(rf"^{number}\. (\*\*.+?)(?=^\d+\. |^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert len(paragraph) > 30
    assert (f"`k{number:02d}`" in paragraph) is bool(numbered_tests()[number])
