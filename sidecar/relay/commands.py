"""``sidecar relay`` and ``sidecar replay``: files, the terminal, signals."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from sidecar.clock import SystemClock
from sidecar.faults import BadRequest, ConfigError
from sidecar.relay.compare import compare, ending_of, steps_of, tally_of
from sidecar.relay.heads import Target
from sidecar.relay.lines import ConnectionLines
from sidecar.relay.recording import RecordedSocket, Recorder, RecordingOptions, read_recording
from sidecar.relay.relay import Relay, split_address
from sidecar.relay.replay import ReplayOptions, replay
from sidecar.relay.seen import Over, Seen
from sidecar.telemetry import configure_logging

_WAITING_LINES = 10_000


@dataclass(frozen=True, slots=True)
class RelayOptions:
    """What the command line asked for."""

    listen: str
    to: str
    record: Path | None
    show_text: bool
    recording: RecordingOptions


async def run_relay(options: RelayOptions) -> None:
    """Relay until a signal. Raises ``ConfigError`` for an address or a file that cannot be had."""
    configure_logging("warning", False)
    target, (host, port) = Target.of(options.to), split_address(options.listen)
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(_private_file(options.record)) if options.record is not None else None
        printer = stack.enter_context(Printer(_to_stdout))
        relay = Relay(target, Shown(printer, options, file), SystemClock())
        address = await relay.start(host, port)
        printer.line(f"listening on ws://{address} and http://{address}, for {target.origin}")
        try:
            await stopped.wait()
        finally:
            await relay.close()


class Shown:
    """Where facts go: lines to a printer, and to a recording if there is one."""

    def __init__(self, printer: Printer, options: RelayOptions, file: TextIO | None) -> None:
        self._printer = printer
        self._show_text = options.show_text
        self._lines: dict[int, ConnectionLines] = {}
        self._file = file
        self._recorder = Recorder(options.recording, SystemClock().unix_s())
        if file is not None:
            file.write(self._recorder.header())
            file.flush()

    def __call__(self, facts: list[Seen]) -> None:
        """Show and keep these facts."""
        for seen in facts:
            lines = self._lines.setdefault(seen.connection, ConnectionLines(show_text=self._show_text))
            for line in lines.of(seen):
                self._printer.line(line)
            self._keep(seen)
            if isinstance(seen.fact, Over):
                del self._lines[seen.connection]

    def _keep(self, seen: Seen) -> None:
        if self._file is None or not (line := self._recorder.of(seen)):
            return
        try:
            self._file.write(line)
            self._file.flush()
        except OSError as error:
            self._file = None
            self._printer.line(f"recording stopped: {error.strerror}")
        if self._recorder.full:
            self._file = None
            self._printer.line("recording stopped: it has reached its largest size")


class Printer:
    """Prints from a thread of its own: a terminal that stands still costs lines, never the traffic."""

    def __init__(self, write: Callable[[str], None]) -> None:
        """``write`` prints; an ``OSError`` of it ends the printing."""
        self._write = write
        self._waiting: queue.Queue[str | None] = queue.Queue(_WAITING_LINES)
        self._lost = 0
        self._thread = threading.Thread(target=self._print, name="printer", daemon=True)

    def __enter__(self) -> Printer:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with contextlib.suppress(queue.Full):
            self._waiting.put(None, timeout=1)
            self._thread.join(timeout=2)

    def line(self, text: str) -> None:
        """Print a line soon, or count it as lost."""
        try:
            if self._lost:
                self._waiting.put_nowait(f"({self._lost} lines lost: the terminal is too slow)")
                self._lost = 0
            self._waiting.put_nowait(text)
        except queue.Full:
            self._lost += 1

    def _print(self) -> None:
        while (line := self._waiting.get()) is not None:
            try:
                self._write(line + "\n")
            except OSError:
                return  # nobody reads any more; the traffic goes on


def _to_stdout(text: str) -> None:
    """Past Python's own buffer, whose lock a blocked thread would keep while the process ends."""
    data = text.encode("utf-8", "replace")
    while data:
        data = data[os.write(sys.stdout.fileno(), data) :]


def _private_file(path: Path) -> TextIO:
    """A new or emptied file that only its owner may read."""
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        if path.is_file():
            os.fchmod(number, 0o600)
    except OSError as error:
        raise ConfigError([f"cannot write {path}: {error.strerror}"]) from None
    return os.fdopen(number, "w", encoding="ascii")


# ---------------------------------------------------------------- replay
@dataclass(frozen=True, slots=True)
class ReplayCommand:
    """What the command line asked for. ``connection``: only this socket of the recording."""

    file: Path
    to: str
    connection: int | None
    members: Sequence[str]
    options: ReplayOptions


async def run_replay(command: ReplayCommand) -> bool:
    """Replay every socket of a recording, one after another, and print how the answers differ.

    Returns True if every socket could be replayed with the same sequence of events. Raises ``ConfigError`` and
    ``BadRequest``.
    """
    configure_logging("warning", False)
    target, members = Target.of(command.to), read_members(command.members)
    try:
        with command.file.open(encoding="ascii") as lines:
            recording = read_recording(lines)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"cannot read {command.file}: {type(error).__name__}"]) from None
    sockets = [s for s in recording.sockets if command.connection in (None, s.connection)]
    if not sockets:
        raise BadRequest("There is no such socket in this recording.")
    if recording.masked:
        print("note: the texts of this recording are masked, so units may be cut elsewhere")
    if recording.full:
        print("note: this recording broke off at its largest size")
    same = True
    for socket in sockets:
        same = await _replay_socket(target, socket, members, command.options) and same
    return same


async def _replay_socket(
    target: Target, socket: RecordedSocket, members: dict[str, Any], options: ReplayOptions
) -> bool:
    print(f"socket {socket.connection}")
    if socket.status != 101:
        print(f"  left out: the recorded server refused it with status {socket.status}")
        return True
    try:
        steps = steps_of(socket, members)
    except BadRequest as fault:
        print(f"  cannot be replayed: {fault.message}")
        return False
    path = socket.path if target.path == "/" else target.path
    url = f"ws{'s' if target.tls else ''}://{target.authority}{path}"
    replayed = await replay(url, steps, ending_of(socket), SystemClock(), options)
    comparison = compare(tally_of(socket), replayed)
    for line in comparison.lines:
        print(f"  {line}")
    return comparison.same


def read_members(pairs: Sequence[str]) -> dict[str, Any]:
    """``NAME=JSON`` pairs; what is no JSON is a string. Raises ``ConfigError``."""
    members: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise ConfigError([f"--set {pair[:40]}: give NAME=JSON, such as voice=vivian or seed=7"])
        try:
            members[name] = json.loads(value)
        except ValueError:
            members[name] = value
    return members
