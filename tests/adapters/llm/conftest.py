from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from adapters.llm.openai_chat import OpenAiChat, OpenAiChatSettings
from tests.upstream import Upstream


@pytest.fixture
async def up() -> AsyncIterator[Upstream]:
    async with Upstream() as upstream:
        yield upstream


@pytest.fixture
async def llm(up: Upstream) -> AsyncIterator[OpenAiChat]:
    made = OpenAiChat(OpenAiChatSettings(up.base_url, api_key="sk-canary"))
    yield made
    await made.close()
