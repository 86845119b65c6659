"""Runs any engine in a supervised child process, so that neither its computing nor its crashes reach the server.

The engine is named by a factory (``package.module:function``, called with settings in JSON). A process that dies or
hangs is started anew with growing pauses; utterances it took along are opened again with the same seed, and the samples
their readers already have are skipped, so that a listener hears the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from adapters.engines.anchors import checked_clip
from adapters.engines.host_clip import HostedClip
from adapters.engines.host_speaking import HostedSpeaking
from adapters.engines.host_wire import (
    WireError,
    fault_from_json,
    pack,
    read,
    traits_from_json,
)
from sidecar.faults import EngineFault, EngineLost, EngineOverloaded, Fault, TooLarge, UnsupportedByEngine
from sidecar.ports import FRAME_SAMPLES, Clock, EngineHealth, EngineTraits, Pcm, Utterance
from voices.anchor import SpeakerAnchor

_log = logging.getLogger(__name__)


MAX_CLIPS = 9
"""Recordings that are encoded or wait for it."""

HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""Makes glibc ask for huge pages: one int8 row is computed a seventh faster when its weights lie in them."""


@dataclass(frozen=True, slots=True)
class HostSettings:
    """How the process is watched; raises ``ValueError`` when a value makes no sense.

    ``back_off_s``: pauses before the first, second, ... restart; the last repeats, and after ``crash_window_s``
    without a crash they begin anew. ``max_crashes`` within ``crash_window_s`` and it is down for ``retry_s``; whoever
    asks then, for speech or for its health, has it started once more, and until it has run for ``crash_window_s`` one
    crash is enough to bring it down again. ``window_frames``: an utterance sends no further chunk while so many frames
    wait at the reader's side. ``ping_every_s``; a process that
    has not answered a ping for ``hang_after_s``, says that it is not well, or gives a waiting reader of a complete text
    nothing for ``silent_after_s`` is killed. ``start_timeout_s`` for loading. ``restart_wait_s``: how long utterances
    wait for a restart. ``max_replays``: how often one utterance is opened again.
    """

    back_off_s: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
    max_crashes: int = 3
    crash_window_s: float = 60.0
    retry_s: float = 60.0
    window_frames: int = 8
    ping_every_s: float = 2.0
    hang_after_s: float = 30.0
    silent_after_s: float = 300.0
    start_timeout_s: float = 600.0
    restart_wait_s: float = 60.0
    stop_timeout_s: float = 10.0
    max_replays: int = 1

    def __post_init__(self) -> None:
        if not self.back_off_s or min(self.back_off_s) < 0 or self.max_crashes < 1 or self.window_frames < 1:
            raise ValueError("back_off_s must not be empty or negative, max_crashes and window_frames at least 1")
        times = (
            *(self.crash_window_s, self.retry_s, self.ping_every_s, self.hang_after_s, self.silent_after_s),
            *(self.start_timeout_s, self.restart_wait_s, self.stop_timeout_s),
        )
        if min(times) <= 0 or self.max_replays < 0:
            raise ValueError("times must be positive, max_replays not negative")


class HostedEngine:
    """See ``sidecar.ports.Engine``. Lives in one event loop."""

    def __init__(
        self, factory: str, settings: Mapping[str, Any], clock: Clock, host: HostSettings | None = None
    ) -> None:
        if factory.count(":") != 1:
            raise ValueError("factory must be package.module:function")
        self._start_message = {"op": "start", "factory": factory, "settings": dict(settings)}
        pack(self._start_message)  # not JSON: now rather than later
        self._host = host or HostSettings()
        self._clock = clock
        self._traits: EngineTraits | None = None
        self._state: Literal["new", "starting", "running", "restarting", "down", "closed"] = "new"
        self._reason = "not running"
        self._calls: dict[int, HostedSpeaking | HostedClip] = {}
        self._next_id = 1
        self._crashes: deque[float] = deque()
        self._came_up_ms: float | None = None
        self._retry_ms: float | None = None
        self._asked_again = asyncio.Event()
        self._supervisor: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline: int | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._pinged_ms: float | None = None

    # ------------------------------------------------------------ the port
    @property
    def traits(self) -> EngineTraits:
        """Those of the engine; raises ``EngineLost`` before ``start``."""
        if self._traits is None:
            raise EngineLost("The speech engine is not running.")
        return self._traits

    @property
    def pid(self) -> int | None:
        """The process that runs now."""
        return self._process.pid if self._process is not None else None

    async def start(self) -> None:
        """Start the process and wait until its engine is ready. Raises what the engine raised, ``EngineLost``."""
        if self._state == "closed":
            raise EngineLost("The speech engine was stopped.")
        if self._state != "new":
            return
        self._state, self._reason = "starting", "starting"
        self._ready = asyncio.get_running_loop().create_future()
        self._supervisor = asyncio.ensure_future(self._supervise(self._ready))
        try:
            await asyncio.shield(self._ready)
        except BaseException:
            await self.close()
            raise

    async def open(self, utterance: Utterance) -> HostedSpeaking:
        """See ``Engine.open``; while the process is started anew this waits for it, bounded."""
        call = HostedSpeaking(self, self._id(), utterance)
        await self._ask(call)
        return call

    async def encode_voice(self, pcm: Pcm, transcript: str | None) -> SpeakerAnchor:
        """See ``Engine.encode_voice``; while the process is started anew this waits for it, bounded."""
        if not self.traits.clone_widths:
            raise UnsupportedByEngine("This speech engine cannot clone voices.", param="ref_audio")
        clip, said = checked_clip(pcm, transcript, min_samples=1)
        if sum(isinstance(call, HostedClip) for call in self._calls.values()) >= MAX_CLIPS:
            raise EngineOverloaded("Too many recordings wait to be encoded; try again shortly.", retry_after_s=5.0)
        call = HostedClip(self, self._id(), clip, said)
        try:
            async with asyncio.timeout(self._host.silent_after_s):
                await self._ask(call)
        except TimeoutError:
            raise EngineLost("The speech engine takes too long over this recording.", retry_after_s=5.0) from None
        return call.opened.result()

    async def health(self) -> EngineHealth:
        """Not ok while the process starts or is started anew, and when it is down."""
        self._retry_if_due()
        active = sum(call.holds_row for call in self._calls.values())
        return EngineHealth(self._state == "running", "" if self._state == "running" else self._reason, active)

    async def close(self) -> None:
        """End every utterance with ``EngineLost`` and the process with it. Idempotent."""
        self._state, self._reason = "closed", "stopped"
        for call in list(self._calls.values()):
            call.lose(EngineLost("The speech engine was stopped."), complete=True)
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None:
            supervisor.cancel()
            await asyncio.wait({supervisor})
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(EngineLost("The speech engine was stopped."))
            self._ready.exception()

    # ------------------------------------------------------------ for the utterances
    def now_ms(self) -> float:
        """Monotonic milliseconds."""
        return self._clock.now_ms()

    def send(self, header: Mapping[str, Any]) -> None:
        """Hand a message to the process, if there is one; never waits."""
        if self._writer is not None and self._state == "running" and not self._writer.is_closing():
            self._writer.write(pack(header))

    def leave(self, id: int) -> None:
        """What was asked under this number is over."""
        self._calls.pop(id, None)

    # ------------------------------------------------------------ inside
    def _id(self) -> int:
        self._next_id += 1
        return self._next_id

    async def _ask(self, call: HostedSpeaking | HostedClip) -> None:
        self._retry_if_due()
        if self._state in ("new", "starting", "closed", "down"):
            left_s = 5.0 if self._retry_ms is None else max(1.0, (self._retry_ms - self._clock.now_ms()) / 1e3)
            raise EngineLost(f"The speech engine is not available: {self._reason}.", retry_after_s=left_s)
        try:
            message = call.message()
        except ValueError as error:
            raise TooLarge("The text is too long.", param="input") from error
        self._calls[call.id] = call
        try:
            if self._state == "running" and self._writer is not None:
                self._writer.write(message)
                await self._writer.drain()
            await call.opened
        except ConnectionError:
            await call.opened
        except BaseException:
            call.cancel()
            raise

    async def _supervise(self, ready: asyncio.Future[None]) -> None:
        restarts = crashes = 0
        on_trial = False
        while True:
            self._came_up_ms = None
            try:
                why = await self._run_once(ready)
            except Fault as fault:  # the engine itself says that it cannot start
                if not ready.done():
                    self._go_down(fault.message)
                    ready.set_exception(fault)
                    return
                why = fault.message
            now_s = self._clock.now_ms() / 1e3
            while self._crashes and now_s - self._crashes[0] > self._host.crash_window_s:
                self._crashes.popleft()
            restarts = restarts + 1 if self._crashes else 1
            self._crashes.append(now_s)
            _log.error("the engine process is gone: %s", why)
            if not ready.done():
                self._go_down(why)
                ready.set_exception(EngineFault(f"The speech engine's process ended while it started: {why}."))
                return
            on_trial = on_trial and not self._ran_well()
            crashes = crashes + 1 if on_trial else len(self._crashes)
            if on_trial or crashes >= self._host.max_crashes:
                await self._stay_down(f"{crashes} crashes, the last: {why}")
                on_trial = True
                continue
            self._state, self._reason = "restarting", f"is started anew after a crash ({why})"
            for call in list(self._calls.values()):
                call.cut(self._host.max_replays, deterministic=self.traits.deterministic)
            pause_s = self._host.back_off_s[min(restarts, len(self._host.back_off_s)) - 1]
            await self._clock.sleep(pause_s * 1e3)

    def _ran_well(self) -> bool:
        """Whether the process that is gone had run long enough for its crash to be a new one."""
        ran_from_ms, window_ms = self._came_up_ms, self._host.crash_window_s * 1e3
        return ran_from_ms is not None and self._clock.now_ms() - ran_from_ms > window_ms

    async def _stay_down(self, crashes: str) -> None:
        """Until somebody asks after ``retry_s``."""
        self._asked_again.clear()
        self._retry_ms = self._clock.now_ms() + self._host.retry_s * 1e3
        self._go_down(f"down after {crashes}; tried again every {self._host.retry_s:g} s when it is asked")
        await self._asked_again.wait()
        _log.warning("the engine process is tried again")

    def _retry_if_due(self) -> None:
        if self._state == "down" and self._retry_ms is not None and self._clock.now_ms() >= self._retry_ms:
            self._state, self._reason, self._retry_ms = "restarting", f"is tried again, was {self._reason}", None
            self._asked_again.set()

    def _go_down(self, reason: str) -> None:
        self._state, self._reason = "down", reason
        for call in list(self._calls.values()):
            call.lose(EngineLost("The speech engine's process is gone."))

    async def _run_once(self, ready: asyncio.Future[None]) -> str:
        """One process from start to end; why it ended."""
        waiting = asyncio.ensure_future(self._give_up_waiting()) if ready.done() else None
        try:
            reader, writer = await self._spawn()
            why = await self._greet(reader, writer)
            if why is not None:
                return why
            if waiting is not None:
                waiting.cancel()
            self._state, self._reason = "running", ""
            self._came_up_ms = self._clock.now_ms()
            if not ready.done():
                ready.set_result(None)
            for call in list(self._calls.values()):
                writer.write(call.message())
                call.again()
            watchdog = asyncio.ensure_future(self._watch())
            listening = asyncio.ensure_future(self._listen(reader))
            try:
                done, _ = await asyncio.wait({watchdog, listening}, return_when=asyncio.FIRST_COMPLETED)
                ended = done.pop().result()
            finally:
                for task in (watchdog, listening):
                    task.cancel()
                await asyncio.wait({watchdog, listening})
            if self._process is not None and ended is None:
                await self._exited(1.0)
                ended = _exit_reason(self._process.poll())
            return ended or "it hung up"
        finally:
            if waiting is not None:
                waiting.cancel()
            await self._bury()

    async def _give_up_waiting(self) -> None:
        """Utterances that were cut do not wait for ever."""
        while True:
            await self._clock.sleep(self._host.restart_wait_s * 1e3)
            for call in list(self._calls.values()):
                call.lose(EngineLost("The speech engine's process is gone.", retry_after_s=5.0))

    async def _spawn(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        ours, theirs = socket.socketpair()
        lifeline_read, self._lifeline = os.pipe()
        try:
            command = [sys.executable, "-m", "adapters.engines.host_child", str(theirs.fileno()), str(lifeline_read)]
            # What this process can import the engine's can, wherever it was started.
            path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
            self._process = subprocess.Popen(  # noqa: ASYNC220,S603  short, and our own interpreter
                command,
                pass_fds=(theirs.fileno(), lifeline_read),
                env={**HUGE_PAGES, **os.environ, "PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
            )
        except OSError as error:
            ours.close()
            raise EngineFault(f"The speech engine's process cannot be started ({error.strerror}).") from error
        finally:
            theirs.close()
            os.close(lifeline_read)
        try:
            reader, self._writer = await asyncio.open_connection(sock=ours)
        except BaseException:
            ours.close()
            raise
        return reader, self._writer

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str | None:
        """Have the engine started; why that was not to be. Raises the engine's own fault."""
        writer.write(pack({**self._start_message, "window": self._host.window_frames * FRAME_SAMPLES}))
        try:
            async with asyncio.timeout(self._host.start_timeout_s):
                answer = await read(reader)
        except TimeoutError:
            return f"not ready after {self._host.start_timeout_s:g} s"
        except WireError as error:
            return str(error)
        if answer is None:
            await self._exited(1.0)
            return _exit_reason(self._process.poll() if self._process is not None else None)
        header = answer[0]
        if header.get("op") == "failed":
            raise fault_from_json(header["fault"])
        try:
            self._traits = traits_from_json(header["traits"])
        except (WireError, KeyError):
            return "it did not introduce itself"
        return None

    async def _listen(self, reader: asyncio.StreamReader) -> str | None:
        """Hand messages to their utterances until the stream ends."""
        self._pinged_ms = None
        try:
            while (message := await read(reader)) is not None:
                header, body = message
                if header.get("op") == "pong":
                    self._pinged_ms = None
                    if not header.get("ok"):
                        return f"it is not well: {header.get('reason')}"
                elif (call := self._calls.get(header.get("id", 0))) is not None:
                    call.hear(header, body)
        except (WireError, KeyError, TypeError, ValueError) as error:
            return f"it sent something unreadable ({type(error).__name__})"
        return None

    async def _watch(self) -> str:
        """Why the process must be killed; does not return as long as it need not."""
        number = 0
        while True:
            await self._clock.sleep(self._host.ping_every_s * 1e3)
            now_ms = self._clock.now_ms()
            if self._pinged_ms is None:
                number += 1
                self._pinged_ms = now_ms
                self.send({"op": "ping", "n": number})
            elif now_ms - self._pinged_ms > self._host.hang_after_s * 1e3:
                return f"no answer for {self._host.hang_after_s:g} s"
            if any(call.silent(now_ms, self._host.silent_after_s * 1e3) for call in self._calls.values()):
                return f"no sound for {self._host.silent_after_s:g} s"

    async def _bury(self) -> None:
        """End the process: by asking while closing, else by force; nothing of it is left afterwards."""
        writer, self._writer = self._writer, None
        process = self._process
        if process is not None and writer is not None and self._state == "closed":
            writer.write(pack({"op": "stop"}))
            await self._exited(self._host.stop_timeout_s)
        if process is not None and process.poll() is None:
            process.kill()
            await self._exited(self._host.stop_timeout_s)
        self._process = None
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None
        if writer is not None:
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _exited(self, within_s: float) -> None:
        """Wait until the process has ended, and reap it. Asked in short turns: that needs neither thread nor signal."""
        process, waited_s, turn_s = self._process, 0.0, 0.002
        while process is not None and process.poll() is None and waited_s < within_s:
            await asyncio.sleep(turn_s)
            waited_s += turn_s
            turn_s = min(turn_s * 1.5, 0.05)


def _exit_reason(code: int | None) -> str:
    if code is None:
        return "it hung up"
    return f"killed by signal {-code}" if code < 0 else f"exit status {code}"
