"""One utterance on the socket keeps one language, and so one voice."""

from __future__ import annotations

import json
from typing import Any

from websockets.asyncio.client import connect

from sidecar.ports import Utterance
from tests.e2e.conftest import Start


async def test_short_units_keep_the_language_of_their_utterance(start: Start, monkeypatch: Any) -> None:
    asked: list[Utterance] = []
    async with start(engine__kind="builtin") as server:
        engine = server.service.engine
        open_engine = engine.open

        async def noting(utterance: Utterance) -> Any:
            asked.append(utterance)
            return await open_engine(utterance)

        monkeypatch.setattr(engine, "open", noting)
        async with connect(server.ws_url, max_size=None) as ws:
            config = {"stream_audio": True, "response_format": "pcm", "split_granularity": "sentence"}
            await ws.send(json.dumps({"type": "session.config", **config}))
            for text in ("Heute scheint die Sonne über der ganzen Stadt. Ok. ", "The weather is fine today. "):
                await ws.send(json.dumps({"type": "input.text", "text": text}))
                await ws.send(json.dumps({"type": "input.done"}))
            dones = 0
            async for message in ws:
                dones += isinstance(message, str) and json.loads(message)["type"] == "session.done"
                if dones == 2:
                    break
    languages = [utterance.language for utterance in asked]
    assert languages == [None, "de" if "de" in engine.traits.languages else "en", None]
