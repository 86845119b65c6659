"""Logs: one line of key=value per record, on stderr, without keys, texts or voices.

What is said goes into fields (``extra``), never into the message, because fields are redacted by their name.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from numbers import Number
from pathlib import PurePath
from types import TracebackType
from typing import TextIO

from sidecar.faults import Fault
from sidecar.redaction import redact_field

OUR_LOGGERS = ("sidecar", "segmenter", "voices", "adapters")
"""Roots of our own loggers. The libraries' ones (they put bodies into their messages) stay at warning."""

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
_BARE = re.compile(r"[\w.:/<>*@+-]+", re.ASCII)
_ASYNCIO_DETAIL = re.compile(r"[(<{\[].*")
_MAX_VALUE_CHARS = 1_000
_MAX_FIELDS = 32
_MAX_FRAMES = 6
_MAX_CAUSES = 4


def configure_logging(level: str, log_texts: bool, *, stream: TextIO | None = None) -> None:
    """Send every record of ``level`` (debug, info, warning, error) and above to ``stream``, by default stderr.

    ``log_texts`` shows the fields that hold texts, at level debug only; keys, audio and voice vectors never show.
    Replaces the handlers there are; exceptions that nobody caught are logged in the same form. Raises
    ``ValueError`` for an unknown level.
    """
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ValueError(f"unknown log level {level!r}")
    handler = _LineHandler(stream or sys.stderr)
    handler.setFormatter(LineFormatter(show_texts=log_texts and number <= logging.DEBUG))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(number, logging.WARNING))
    for name in OUR_LOGGERS:
        logging.getLogger(name).setLevel(number)
    logging.getLogger("uvicorn.error").setLevel(max(number, logging.WARNING))
    sys.excepthook = _log_uncaught
    threading.excepthook = lambda args: _log_uncaught(args.exc_type, args.exc_value, args.exc_traceback)


class LineFormatter(logging.Formatter):
    """Writes a record as one line: ``time=... level=... logger=... msg="..." field=value ...``.

    The record itself is left as it is. An exception is shown as its type and where it was raised; its message,
    which may quote what somebody said, only if it is a ``Fault``.
    """

    def __init__(self, *, show_texts: bool = False) -> None:
        super().__init__()
        self._show_texts = show_texts

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        pairs = dict(self._pairs(record))
        return " ".join(f"{key}={_shown(value)}" for key, value in pairs.items())

    def _pairs(self, record: logging.LogRecord) -> Iterator[tuple[str, object]]:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        yield "time", time.replace("+00:00", "Z")
        yield "level", record.levelname.lower()
        yield "logger", record.name
        yield "msg", self._message(record)
        extras = [name for name in vars(record) if name not in _STANDARD]
        for name in extras[:_MAX_FIELDS]:
            value = redact_field(name, getattr(record, name), show_texts=self._show_texts)
            yield re.sub(r"\W", "_", name[:64]), value
        if record.exc_info and record.exc_info[1] is not None:
            yield "error", " < ".join(_errors(record.exc_info[1]))

    def _message(self, record: logging.LogRecord) -> str:
        ours = record.name.partition(".")[0] in OUR_LOGGERS
        args: object = record.args
        if isinstance(args, Mapping):
            args = {name: _argument(redact_field(str(name), value), ours) for name, value in args.items()}
        elif args:
            args = tuple(_argument(value, ours) for value in record.args or ())
        message = str(record.msg) if isinstance(record.msg, str) else f"<{type(record.msg).__name__}>"
        message = message % args if args else message
        if ours:
            return message
        # Libraries print whole tracebacks and representations of objects below or behind the first words.
        first_line = message.partition("\n")[0]
        return _ASYNCIO_DETAIL.sub("", first_line).rstrip() if record.name == "asyncio" else first_line


class _LineHandler(logging.StreamHandler[TextIO]):
    """Never prints a record that it could not write: the standard way shows its message and arguments."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name is the library's
        kind = sys.exc_info()[0]
        try:
            self.stream.write(f"level=error logger={record.name} msg=unloggable error={kind and kind.__name__}\n")
        except (OSError, ValueError):
            return  # stderr is gone, and there is nobody else to tell


def _argument(value: object, ours: bool) -> object:
    """An argument of a message as it may be shown: numbers and strings; of anything else the type."""
    if value is None or isinstance(value, Number):
        return value
    if isinstance(value, str):
        return value if ours else value.partition("?")[0]
    if isinstance(value, Fault):
        return value.code or type(value).__name__
    if isinstance(value, BaseException | type):
        return value.__name__ if isinstance(value, type) else type(value).__name__
    return str(value) if isinstance(value, PurePath) else f"<{type(value).__name__}>"


def _errors(error: BaseException) -> Iterator[str]:
    """An exception and what led to it, each with the places where it passed through, the innermost first."""
    current: BaseException | None = error
    for _ in range(_MAX_CAUSES):
        if current is None:
            return
        inside = current.exceptions[:_MAX_CAUSES] if isinstance(current, BaseExceptionGroup) else ()
        kind = type(current).__name__ + (f"[{', '.join(type(e).__name__ for e in inside)}]" if inside else "")
        said = f" ({current.message})" if isinstance(current, Fault) else ""
        yield f"{kind}{said} at {_places(current.__traceback__)}"
        if inside:
            yield from _errors(inside[0])
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)


def _places(trace: TracebackType | None) -> str:
    steps = list(traceback.walk_tb(trace))[-_MAX_FRAMES:]
    places = [frame_place(frame.f_code.co_filename, line, frame.f_code.co_name) for frame, line in steps]
    return ", ".join(reversed(places)) or "an unknown place"


def frame_place(file: str, line: int, function: str) -> str:
    """``folder/file.py:12 function``: where in the code, without where the code is installed."""
    return f"{'/'.join(PurePath(file).parts[-2:])}:{line} {function}"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Number):
        return str(value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    if len(text) > _MAX_VALUE_CHARS:
        text = text[:_MAX_VALUE_CHARS] + "..."
    if not isinstance(value, str | list | dict) or _BARE.fullmatch(text):
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())


def _log_uncaught(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    if error is None or issubclass(kind, KeyboardInterrupt | SystemExit):
        return
    logging.getLogger("sidecar").critical("uncaught exception", exc_info=(kind, error, trace))
