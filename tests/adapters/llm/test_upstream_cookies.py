"""What an upstream sets for one client never travels with another's request."""

from __future__ import annotations

import json

from adapters.llm.openai_chat import OpenAiChat, OpenAiChatSettings
from tests.upstream import Upstream


async def test_cookies_are_not_kept() -> None:
    body = json.dumps({"model": "fake-http429", "messages": []}).encode()
    async with Upstream() as up:
        llm = OpenAiChat(OpenAiChatSettings(base_url=up.base_url))
        first = await llm.forward("/chat/completions", body, {})
        await first.aclose()
        second = await llm.forward("/chat/completions", body, {"cookie": "mine=1"})
        await second.aclose()
        await llm.close()
        assert "cookie" not in up.requests[-1].headers
