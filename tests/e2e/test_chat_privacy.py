"""What people say and the keys they use appear in no log, no figure and no error, whatever goes wrong."""

from __future__ import annotations

import io
import logging
import sys
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from sidecar.telemetry_log import OUR_LOGGERS, configure_logging
from tests.e2e.chat_helpers import CHAT, body_of, rows_free, upstream_of
from tests.e2e.conftest import Running

PROMPT = "canary-prompt"
ANSWER = "canary-answer"
KEY = "canary-key"
WRONG_KEY = "canary-wrong-key"
UPSTREAM_KEY = "canary-upstream-key"
VOICE = "canary-voice"
STYLE = "canary-style"
AUDIO_ID = "canary-audio-id"
CANARIES = (PROMPT, ANSWER, KEY, WRONG_KEY, UPSTREAM_KEY, VOICE, STYLE, AUDIO_ID)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[io.StringIO]:
    """What the process would write to stderr at level debug, without log_texts."""
    loggers = [logging.getLogger(name) for name in ("", *OUR_LOGGERS, "uvicorn.error")]
    levels = [logger.level for logger in loggers]
    handlers = loggers[0].handlers[:]
    hooks = sys.excepthook, threading.excepthook
    stream = io.StringIO()
    configure_logging("debug", False, stream=stream)
    loggers[0].addHandler(caplog.handler)
    yield stream
    sys.excepthook, threading.excepthook = hooks
    loggers[0].handlers[:] = handlers
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


def asking(script: str, **more: Any) -> dict[str, Any]:
    body = body_of(f"{script}?text={ANSWER} is said.", f"{PROMPT} {PROMPT}", **more)
    body["audio"] = {**body["audio"], "instructions": STYLE}
    return body


SPOKEN: list[dict[str, Any]] = [
    asking("plain"),
    asking("plain", stream=True),
    asking("plain", modalities=["text"]),
    asking("plain", modalities=["text"], stream=True),
    asking("tool_text", stream=True),
]
FAILING: list[dict[str, Any]] = [
    *(asking(script, stream=stream) for script in ("cut", "malformed", "error_object") for stream in (False, True)),
    *(asking(script) for script in ("http400", "http429", "http500", "http502html", "http200text", "nowhere")),
    asking("cut", modalities=["text"], stream=True),
    asking("plain", n=99),
    asking("plain", response_format={"type": "json_object"}),
    asking("plain", audio={"voice": 5, "format": "mp3", "x": PROMPT}),
    asking("plain", messages=[{"role": "assistant", "content": None, "name": PROMPT}]),
]


async def answers(server: Running, bodies: list[dict[str, Any]], **headers: str) -> str:
    """Every byte that came back."""
    text = ""
    for body in bodies:
        try:
            async with server.http.stream("POST", CHAT, json=body, headers=headers) as answer:
                async for piece in answer.aiter_text():
                    text += piece
        except httpx.RemoteProtocolError:
            pass
    return text


def assert_none(where: str, what: str) -> None:
    for canary in CANARIES:
        assert canary not in where, f"{canary} in {what}"


async def logs_and_figures(server: Running, log: io.StringIO, caplog: pytest.LogCaptureFixture) -> None:
    assert "level=" in log.getvalue(), "something was logged"
    assert_none(log.getvalue(), "the log")
    ours = [record.getMessage() for record in caplog.records if record.name.partition(".")[0] in OUR_LOGGERS]
    assert_none("\n".join(ours), "a message")
    assert_none((await server.http.get("/metrics")).text, "the figures")


async def test_nothing_said_is_written_down(start: Any, log: io.StringIO, caplog: pytest.LogCaptureFixture) -> None:
    async with start(upstream=True, llm__api_key=UPSTREAM_KEY, auth__api_keys=(KEY,)) as server:
        key = {"authorization": f"Bearer {KEY}"}
        spoken = await answers(server, SPOKEN, **key)
        assert ANSWER in spoken
        assert_none(spoken.replace(ANSWER, ""), "the answers")
        failed = await answers(server, FAILING, **key)
        assert failed.count('"error"') >= len(FAILING) - 1
        assert_none(failed.replace(ANSWER, ""), "the errors")
        raw = [b"{" + PROMPT.encode(), f'["{PROMPT}"]'.encode()]
        for content in raw:
            answer = await server.http.post(CHAT, content=content, headers={**key, "content-type": "application/json"})
            assert_none(answer.text, "an error")
        wrong = await answers(server, [asking("plain")], authorization=f"Bearer {WRONG_KEY}")
        assert "invalid_api_key" in wrong
        assert_none(wrong, "the refusal of a key")
        await rows_free(server)
        await logs_and_figures(server, log, caplog)


async def test_an_upstream_that_tells_a_key_is_not_repeated(
    start: Any, log: io.StringIO, caplog: pytest.LogCaptureFixture
) -> None:
    async with start(upstream=True, llm__api_key=UPSTREAM_KEY) as server:
        upstream_of(server).api_key = "another"
        refused = await answers(server, [asking("plain"), asking("plain", stream=True)])
        assert "Incorrect API key" in refused
        assert_none(refused, "what the upstream said of its key")
        await logs_and_figures(server, log, caplog)


@pytest.mark.parametrize("fault", ["open", "mid", "nan"])
async def test_an_engine_that_fails_tells_nothing(
    start: Any, log: io.StringIO, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    async with start(upstream=True, engine__tone_fault=fault, engine__warm_up=False) as server:
        failed = await answers(server, [asking("plain"), asking("plain", stream=True)])
        assert failed.count("engine_error") == 2
        assert_none(failed.replace(ANSWER, ""), "the errors")
        await logs_and_figures(server, log, caplog)


async def test_a_failure_that_nobody_foresaw_tells_nothing(
    start: Any, log: io.StringIO, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start(upstream=True) as server:

        def fail(*args: Any, **more: Any) -> Any:
            raise RuntimeError(f"{PROMPT} {ANSWER} {UPSTREAM_KEY}")

        monkeypatch.setattr(server.service.codec, "start", fail)
        failed = await answers(server, [asking("plain"), asking("plain", stream=True)])
        assert failed.count("Internal error.") == 2
        assert_none(failed.replace(ANSWER, ""), "the errors")
        assert_none(log.getvalue(), "the log")
        assert "RuntimeError" in log.getvalue()
        assert_none((await server.http.get("/metrics")).text, "the figures")


async def test_names_that_are_unknown_are_told_to_nobody_else(
    start: Any, log: io.StringIO, caplog: pytest.LogCaptureFixture
) -> None:
    async with start(upstream=True) as server:
        unknown = asking("plain", audio={"voice": VOICE, "format": "mp3"})
        gone = asking("plain", messages=[{"role": "assistant", "audio": {"id": AUDIO_ID}}])
        assert "voice_not_found" in await answers(server, [unknown])
        assert "audio_expired" in await answers(server, [gone])
        await logs_and_figures(server, log, caplog)
