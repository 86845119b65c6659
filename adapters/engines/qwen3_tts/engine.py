"""Qwen3-TTS as a speech engine of this process; ``make`` is what a host process runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from adapters.engines.builtin.languages import Languages
from adapters.engines.live_text import TextCount
from adapters.engines.qwen3_tts.decoding import Stages
from adapters.engines.qwen3_tts.encoding import EncoderThread, VoiceEncoder
from adapters.engines.qwen3_tts.requests import Ask, Limits
from adapters.engines.qwen3_tts.runtime import Runtime, Trace
from adapters.engines.qwen3_tts.speaking import RowSpeaking
from adapters.engines.qwen3_tts.stages import Prompt
from adapters.engines.qwen3_tts.utterances import LayoutChoice, Model, prompt_of, spoken_language, traits_of
from sidecar.faults import ConfigError, EngineFault, EngineLost, EngineOverloaded, Fault, UnsupportedByEngine
from sidecar.ports import EngineHealth, EngineTraits, Pcm, Utterance
from voices.anchor import SpeakerAnchor

_log = logging.getLogger(__name__)

Precision = Literal["auto", "float32", "bfloat16", "int8"]


@dataclass(frozen=True, slots=True)
class Qwen3TtsSettings:
    """One checkpoint and how it is run; raises ``ValueError`` when a value makes no sense.

    ``checkpoint``: a folder or a hub id. ``device`` and ``precision`` are the talker's; the decoder computes in
    float32 on ``decoder_device`` (``none``: it is not loaded, only codec frames can be asked for). ``precision`` auto:
    bfloat16 on a GPU, else float32. ``max_rows`` utterances speak at once, of ``max_positions`` prompt positions and
    frames each; ``max_waiting`` more wait up to ``row_wait_ms``.
    ``memory_budget``: ``6GB`` or a share of the device's memory such as ``0.25``, which rows, their length, weights
    and working space keep to; empty: on a GPU most of what is free, on a CPU as much as ``max_rows`` may take (8 rows
    at most there). ``graphs``: steps are recorded as CUDA graphs on a GPU.
    ``same_alone_and_together``: a row's codes and samples do not depend on the rows beside it, at some speed.
    ``stuck_after_s``: a turn of the step loop that takes longer makes the engine unhealthy.
    """

    checkpoint: str = ""
    device: str = "cpu"
    precision: Precision = "auto"
    decoder_device: str = ""
    threads: int = 0
    offline: bool = False
    max_rows: int = 8
    max_positions: int = 2_048
    memory_budget: str = ""
    graphs: bool = True
    max_waiting: int = 64
    row_wait_ms: float = 2_000.0
    layout: LayoutChoice = "auto"
    same_alone_and_together: bool = True
    stuck_after_s: float = 120.0
    chunk_ramp_frames: tuple[int, ...] = (1, 2, 4, 8, 16, 25)
    max_lead_frames: int = 25
    decode_frames_per_turn: int = 50

    def __post_init__(self) -> None:
        if self.precision not in get_args(Precision) or self.layout not in get_args(LayoutChoice):
            raise ValueError(f"precision is one of {get_args(Precision)}, layout of {get_args(LayoutChoice)}")
        if self.max_rows < 1 or self.max_positions < 64 or self.threads < 0:
            raise ValueError("max_rows must be at least 1, max_positions 64, threads not negative")
        if self.row_wait_ms < 0 or self.stuck_after_s <= 0:
            raise ValueError("row_wait_ms must not be negative, stuck_after_s positive")
        self.limits()

    def limits(self) -> Limits:
        """The scheduler's share of these settings."""
        waiting = self.max_waiting if self.row_wait_ms > 0 else 0
        return Limits(
            max_waiting=waiting,
            max_lead_frames=self.max_lead_frames,
            chunk_ramp=tuple(self.chunk_ramp_frames),
            decode_frames_per_turn=self.decode_frames_per_turn,
        )

    @staticmethod
    def of(values: Mapping[str, Any]) -> Qwen3TtsSettings:
        """From JSON; raises ``ValueError`` for unknown names and senseless values."""
        known = {one.name for one in fields(Qwen3TtsSettings)}
        if unknown := set(values) - known:
            raise ValueError(f"unknown settings: {', '.join(sorted(unknown))}")
        ramp = values.get("chunk_ramp_frames")
        return Qwen3TtsSettings(**{**values, **({"chunk_ramp_frames": tuple(ramp)} if ramp is not None else {})})


@dataclass(frozen=True)
class Loaded:
    """A checkpoint in memory; ``encoder`` where it can clone."""

    model: Model
    stages: Stages
    deterministic: bool = True
    encoder: VoiceEncoder | None = None


class Qwen3TtsEngine:
    """See ``sidecar.ports.Engine``.

    ``load`` is called in the step loop's thread at ``start``. ``trace`` hears of every call to a stage.
    """

    def __init__(
        self, settings: Qwen3TtsSettings, load: Callable[[], Loaded] | None = None, *, trace: Trace | None = None
    ) -> None:
        self._settings = settings
        self._given_load = load
        self._runtime = Runtime(self._load, settings.limits(), trace=trace)
        self._loaded: Loaded | None = None
        self._traits: EngineTraits | None = None
        self._state: Literal["new", "starting", "running", "closed"] = "new"
        self._speaking: set[RowSpeaking] = set()
        self._detector = Languages()
        self._encoding = EncoderThread()

    def _load(self) -> Stages:
        if self._given_load is not None:
            self._loaded = self._given_load()
        else:
            from adapters.engines.qwen3_tts.loading import load  # torch: seconds

            self._loaded = load(self._settings)
        self._detector.load()
        return self._loaded.stages

    @property
    def traits(self) -> EngineTraits:
        """What the checkpoint can do; raises ``EngineLost`` before ``start``."""
        if self._traits is None:
            raise EngineLost("The speech engine is not running.")
        return self._traits

    async def start(self) -> None:
        """Load the checkpoint. Raises ``EngineFault`` that says what is wrong with it; ``EngineLost`` once closed."""
        if self._state == "closed":
            raise EngineLost("The speech engine was stopped.")
        if self._state != "new":
            return
        self._state = "starting"
        try:
            await asyncio.wrap_future(self._runtime.start())
        except ConfigError as error:
            await self.close()
            raise EngineFault("; ".join(error.problems)) from error
        except BaseException as error:
            await self.close()
            if isinstance(error, Fault) or not isinstance(error, Exception):
                raise
            _log.exception("the checkpoint could not be loaded")
            raise EngineFault(f"The checkpoint could not be loaded ({type(error).__name__}).") from error
        if self._loaded is None or self._runtime.lost is not None:
            raise EngineLost("The speech engine was stopped.")
        talker = self._loaded.stages.talker
        self._traits = traits_of(self._loaded.model, rows=talker.max_rows, deterministic=self._loaded.deterministic)
        self._state = "running"

    async def open(self, utterance: Utterance) -> RowSpeaking:
        """Begin to speak; see ``Engine.open``. The row of a live text is held from now on."""
        model = self._model()
        if not model.decodes and utterance.output != "codes":
            raise UnsupportedByEngine(
                "This server makes codec tokens and no sound: ask for output_mode 'codec_tokens' on the WebSocket.",
                param="output_mode",
            )
        prompt = prompt_of(model, utterance, layout=self._settings.layout)
        text = TextCount(utterance)
        tokens = model.tokens.live() if prompt.layout == "streaming" else None
        speaking = RowSpeaking(spoken_language(model, utterance, self._detector), prompt, text, tokens)
        await self._speak(utterance, prompt, speaking)
        if utterance.live:
            speaking.read(utterance.text)
        elif tokens is not None:  # only for where they end
            tokens.feed(utterance.text)
            tokens.finish()
        return speaking

    async def encode_voice(self, pcm: Pcm, transcript: str | None) -> SpeakerAnchor:
        """See ``Engine.encode_voice``; computed in a thread of its own, beside the step loop."""
        self._model()
        encoder = self._loaded.encoder if self._loaded is not None else None
        if encoder is None:
            raise UnsupportedByEngine("This checkpoint cannot clone voices.", param="ref_audio")
        return await self._encoding.encode(encoder, pcm, transcript)

    async def health(self) -> EngineHealth:
        """Not ok while loading, after ``close``, when the loop failed, or when one turn takes far too long."""
        reason = self._runtime.lost or ""
        if not reason and self._runtime.busy_s() > self._settings.stuck_after_s:
            reason = "The speech engine is stuck in a computation."
        return EngineHealth(not reason, reason, self._runtime.active)

    async def close(self) -> None:
        """End every utterance with ``EngineLost``; wait for the step at work. Idempotent."""
        self._state = "closed"
        for speaking in list(self._speaking):
            speaking.lose()
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def ended() -> None:
            loop.call_soon_threadsafe(done.set)

        self._runtime.close(ended)
        await done.wait()
        self._runtime.join()
        await self._encoding.close()

    def _model(self) -> Model:
        if self._state != "running" or self._loaded is None:
            raise EngineLost("The speech engine is not running.")
        return self._loaded.model

    async def _speak(self, utterance: Utterance, prompt: Prompt, speaking: RowSpeaking) -> RowSpeaking:
        ask = Ask(prompt, utterance.max_frames, utterance.first_chunk_frames, utterance.output)
        speaking.attach(self._runtime.submit(ask, speaking.sink))
        try:
            await self._placed(speaking)
        except BaseException:
            speaking.cancel()
            raise
        if self._state != "running":  # after the row was given
            speaking.cancel()
            raise EngineLost("The speech engine was stopped.")
        self._speaking.add(speaking)
        speaking.on_end = self._speaking.discard
        return speaking

    async def _placed(self, speaking: RowSpeaking) -> None:
        """Wait for the row; a turn of the loop that takes long is no reason to refuse while a row is free."""
        wait_ms = self._settings.row_wait_ms
        while not speaking.placed.done():
            # Without a queue a request that is not refused has a row already.
            await asyncio.wait({speaking.placed}, timeout=wait_ms / 1e3 if wait_ms > 0 else None)
            if not speaking.placed.done() and self._runtime.active >= self.traits.max_rows:
                raise EngineOverloaded("The speech engine is busy; try again shortly.", retry_after_s=1.0)
        speaking.placed.result()


def make(settings: Mapping[str, Any]) -> Qwen3TtsEngine:
    """The engine for settings in JSON: the factory of a host process. Raises ``ValueError``."""
    return Qwen3TtsEngine(Qwen3TtsSettings.of(settings))
