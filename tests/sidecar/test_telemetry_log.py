from __future__ import annotations

import asyncio
import io
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar import faults
from sidecar.redaction import Secret
from sidecar.telemetry import configure_logging
from sidecar.telemetry_log import LineFormatter

CANARY = "canary-4711"


@pytest.fixture
def logged() -> Iterator[Callable[[str, bool], io.StringIO]]:
    names = ["", "sidecar", "segmenter", "voices", "adapters", "uvicorn.error"]
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    handlers = loggers[0].handlers[:]
    hooks = sys.excepthook, threading.excepthook

    def configure(level: str, log_texts: bool) -> io.StringIO:
        stream = io.StringIO()
        configure_logging(level, log_texts, stream=stream)
        return stream

    yield configure
    sys.excepthook, threading.excepthook = hooks
    loggers[0].handlers[:] = handlers
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


def line(show_texts: bool = False, *, name: str = "sidecar.x", msg: Any = "said", args: Any = (), **extra: Any) -> str:
    record = logging.makeLogRecord(
        {"name": name, "levelname": "INFO", "msg": msg, "args": args, "created": 0.5, **extra}
    )
    return LineFormatter(show_texts=show_texts).format(record)  # fmt: skip


def test_a_line_is_key_value() -> None:
    got = line(reply=3, ratio=0.25, done=True, voice="anna", why="no room", none=None, items=[1, "a b"])
    assert got == (
        "time=1970-01-01T00:00:00.500Z level=info logger=sidecar.x msg=said reply=3 ratio=0.25 done=true "
        'voice=anna why="no room" none=null items="[1, \\"a b\\"]"'
    )


def test_switches_are_shown_whatever_they_switch() -> None:
    got = line(**{"speech.clean_text": False, "chat_mirror_content": True, "api_key": 0, "content": CANARY})
    assert got.endswith("speech_clean_text=false chat_mirror_content=true api_key=*** content=***")


@pytest.mark.parametrize(
    "field",
    ["api_key", "authorization", "Authorization", "x-api-key", "text", "heard_text", "prompt", "transcript",
     "audio", "ref_audio", "vector", "embedding", "speaker_embedding", "messages", "input", "instructions",
     "api_keys"],
)  # fmt: skip
@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: [v], lambda v: {"deep": [v]}, lambda v: v.encode()])
def test_sensitive_fields_are_hidden(field: str, wrap: Callable[[str], object]) -> None:
    extra: dict[str, Any] = {field: wrap(CANARY)}
    got = line(**extra)
    assert CANARY not in got
    assert "***" in got


@pytest.mark.parametrize(
    "value",
    [{"text": CANARY}, {"a": {"Api-Key": CANARY}}, [{"url": f"http://h/?q={CANARY}"}], Secret(CANARY),
     CANARY.encode(), np.array([1.5]), ValueError(CANARY), {"a": {"b": {"c": {"d": [CANARY]}}}},
     [0] * 20 + [CANARY]],
)  # fmt: skip
def test_sensitive_things_inside_other_fields_are_hidden(value: object) -> None:
    got = line(details=value)
    assert CANARY not in got
    assert "1.5" not in got


def test_urls_lose_their_query_and_password() -> None:
    got = line(url=f"https://u:{CANARY}@h/v1/audio?key={CANARY}#x", path=f"/v1/x?key={CANARY}")
    assert "url=https://***@h/v1/audio path=/v1/x" in got
    assert CANARY not in got


def test_texts_show_only_where_asked_for_but_keys_never() -> None:
    fields = dict.fromkeys(("text", "transcript", "api_key", "audio", "embedding"), CANARY)
    assert line(True, **fields).count(CANARY) == 2
    assert line(False, **fields).count(CANARY) == 0


@pytest.mark.parametrize(
    ("level", "log_texts", "shown"),
    [("debug", True, True), ("debug", False, False), ("info", True, False), ("info", False, False)],
)
def test_texts_need_the_switch_and_level_debug(
    level: str, log_texts: bool, shown: bool, logged: Callable[[str, bool], io.StringIO]
) -> None:
    stream = logged(level, log_texts)
    logging.getLogger("sidecar.reply").warning("said", extra={"text": CANARY})
    assert (CANARY in stream.getvalue()) is shown
    assert "msg=said" in stream.getvalue()


@given(st.text(), st.text(), st.text())
def test_one_record_is_one_line(msg: str, value: str, name: str) -> None:
    got = line(name=f"sidecar.{name}", msg=msg, thing=value)
    assert got.isprintable()


def raised(make: Callable[[], None]) -> dict[str, Any]:
    try:
        make()
    except BaseException:
        return {"exc_info": sys.exc_info()}
    raise AssertionError


def fail_twice() -> None:
    try:
        raise KeyError(CANARY)
    except KeyError as error:
        raise ValueError(f"what {CANARY} said") from error


def fail_in_a_group() -> None:
    raise ExceptionGroup(CANARY, [ValueError(CANARY), OSError(CANARY)])


def fail_with_a_fault() -> None:
    try:
        raise ValueError(CANARY)
    except ValueError:
        raise faults.EngineLost("the engine is gone") from None


def test_exceptions_show_type_and_place_but_not_what_they_say() -> None:
    got = line(**raised(fail_twice))
    assert CANARY not in got
    assert "ValueError at sidecar/test_telemetry_log.py:" in got
    assert "fail_twice" in got
    assert "KeyError at" in got


def test_exception_groups_show_the_types_inside() -> None:
    got = line(**raised(fail_in_a_group))
    assert CANARY not in got
    assert "ExceptionGroup[ValueError, OSError] at" in got


def test_faults_may_speak() -> None:
    got = line(**raised(fail_with_a_fault))
    assert "EngineLost (the engine is gone) at" in got
    assert "ValueError" not in got


def test_a_chain_of_causes_is_cut() -> None:
    error: BaseException = ValueError(CANARY)
    for _ in range(50):
        following = ValueError(CANARY)
        following.__cause__ = error
        error = following
    error.__context__ = error
    got = line(exc_info=(type(error), error, None))
    assert got.count("ValueError") == 4


@pytest.mark.parametrize(
    ("msg", "args", "shown"),
    [
        ("took %d ms of %.1f", (3, np.float32(2)), "took 3 ms of 2.0"),
        ("failed: %s", (ValueError(CANARY),), "failed: ValueError"),
        ("failed: %s", (faults.EngineLost("x"),), "failed: engine_lost"),
        ("got %s", ([CANARY],), "got <list>"),
        ("got %r", (CANARY.encode(),), "got '<bytes>'"),
        ("%(text)s in %(n)d", ({"text": CANARY, "n": 3},), "*** in 3"),
        (ValueError(CANARY), (), "<ValueError>"),
        ("100%", (), "100%"),
    ],
)
def test_messages_show_scalars_only(msg: object, args: tuple[object, ...], shown: str) -> None:
    record = logging.LogRecord("sidecar.x", logging.INFO, "p", 1, msg, args, None)
    got = LineFormatter().format(record)
    assert shown in got
    assert CANARY not in got


@pytest.mark.parametrize(
    ("name", "msg", "args"),
    [
        ("uvicorn.error", '%s - "WebSocket %s" [accepted]', ("1.2.3.4:5", f"/v1/audio?key={CANARY}")),
        ("uvicorn.error", f"Traceback (most recent call last):\nValueError: {CANARY}", ()),
        ("asyncio", f"Task exception was never retrieved\nfuture: <Task exception=ValueError('{CANARY}')>", ()),
        ("asyncio", f"Exception in callback speak('{CANARY}')\nhandle: <Handle speak('{CANARY}')>", ()),
        ("asyncio", f"Executing <Task name={CANARY}> took 0.2 seconds", ()),
    ],
)
def test_libraries_messages_are_cut_before_they_quote(name: str, msg: str, args: tuple[object, ...]) -> None:
    got = LineFormatter().format(logging.LogRecord(name, logging.ERROR, "p", 1, msg, args, None))
    assert CANARY not in got
    assert "msg=" in got


def test_levels(logged: Callable[[str, bool], io.StringIO]) -> None:
    stream = logged("debug", True)
    for name in ("sidecar.a", "adapters.b", "voices", "segmenter", "openai", "websockets.server", "uvicorn.error"):
        logging.getLogger(name).debug("debug of %s", name)
        logging.getLogger(name).info("info of %s", name)
    got = stream.getvalue()
    assert [name for name in ("sidecar.a", "adapters.b", "voices", "segmenter") if f"debug of {name}" in got] == [
        "sidecar.a",
        "adapters.b",
        "voices",
        "segmenter",
    ]
    assert "of openai" not in got
    assert "of websockets" not in got
    assert "info of uvicorn.error" not in got, "our own line for each connection is enough"
    assert "debug of uvicorn.error" not in got
    quiet = logged("error", False)
    logging.getLogger("sidecar.a").warning("hushed")
    assert quiet.getvalue() == ""
    assert len(logging.getLogger().handlers) == 1
    with pytest.raises(ValueError, match="loud"):
        logged("loud", False)


def test_a_record_that_cannot_be_written_is_not_quoted(
    logged: Callable[[str, bool], io.StringIO], capsys: pytest.CaptureFixture[str]
) -> None:
    stream = logged("info", False)
    logging.getLogger("sidecar.a").info("%d things", CANARY)
    logging.getLogger("sidecar.a").info("%s and %s", CANARY)
    assert stream.getvalue().count("msg=unloggable error=TypeError") == 2
    assert CANARY not in stream.getvalue() + "".join(capsys.readouterr())
    stream.close()
    logging.getLogger("sidecar.a").info(CANARY)
    assert CANARY not in "".join(capsys.readouterr())


def test_what_nobody_caught_is_logged_without_its_message(
    logged: Callable[[str, bool], io.StringIO], capsys: pytest.CaptureFixture[str]
) -> None:
    stream = logged("info", False)
    for make in (fail_twice, fail_in_a_group):
        sys.excepthook(*raised(make)["exc_info"])
        threading.excepthook(threading.ExceptHookArgs((*raised(make)["exc_info"], None)))
    sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert stream.getvalue().count("uncaught exception") == 4
    assert CANARY not in stream.getvalue() + "".join(capsys.readouterr())


async def test_forgotten_tasks_do_not_leak(logged: Callable[[str, bool], io.StringIO]) -> None:
    stream = logged("info", False)
    asyncio.get_running_loop().call_exception_handler(
        {"message": "Task exception was never retrieved", "exception": ValueError(CANARY), "future": CANARY}
    )
    assert "Task exception was never retrieved" in stream.getvalue()
    assert CANARY not in stream.getvalue()
