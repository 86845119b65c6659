"""Puts the parts together: the only place that names concrete adapters."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adapters.audio.clips import Clips
from adapters.audio.encode import PyAvCodec
from adapters.audio.fetch import PublicFetcher
from adapters.engines.builtin import BuiltinEngine, BuiltinSettings
from adapters.engines.host import HostedEngine
from adapters.engines.qwen3_tts import hub
from adapters.engines.tone import ToneEngine, ToneSettings
from adapters.llm.openai_chat import OpenAiChat, OpenAiChatSettings
from adapters.llm.scripted import ScriptedLanguageModel, ScriptedSettings
from adapters.stores.local import LocalStore
from sidecar.clock import SystemClock
from sidecar.codec_wire import CodecFormat, CodecReader
from sidecar.config import Config
from sidecar.config_load import DATA_VARIABLE
from sidecar.faults import ConfigError, EngineFault
from sidecar.gate import Gate
from sidecar.http.service import Service
from sidecar.memory import DialogMemory
from sidecar.ports import AudioCodec, ClipReader, Clock, Engine, LanguageModel, Store
from sidecar.redaction import redact_url
from sidecar.telemetry import Metrics
from sidecar.voice_library import LibraryLimits, VoiceLibrary

if TYPE_CHECKING:
    from adapters.engines.omni import CodesHere
    from adapters.engines.qwen3_tts.codes_decoder import CodesDecoder

log = logging.getLogger(__name__)


def build(config: Config) -> Service:
    """The service for a configuration. Raises ``ConfigError`` for what only the parts can tell."""
    clock = SystemClock()
    engine = make_engine(config, clock)
    store = make_store(config, clock)
    return Service(
        config=config,
        engine=engine,
        llm=make_llm(config, clock),
        store=store,
        codec=make_codec(),
        clock=clock,
        metrics=Metrics(),
        gate=Gate([key.reveal() for key in config.auth.api_keys]),
        memory=DialogMemory(store, clock, int(config.chat.dialog_ttl_s)),
        library=VoiceLibrary(store, clock, LibraryLimits(max_voices=config.voices.max_stored)),
        clips=make_clips(config),
        spare_store=LocalStore(None),
    )


def make_codec() -> AudioCodec:
    """The audio formats."""
    return PyAvCodec()


def make_clips(config: Config) -> ClipReader:
    """What reads recordings of voices."""
    return Clips(fetcher=PublicFetcher() if config.voices.fetch_recordings else None)


def make_engine(config: Config, clock: Clock) -> Engine:
    """The speech engine that the configuration names."""
    engine = config.engine
    kind, why = chosen_engine(config)
    log.info("engine", extra={"engine": kind, "because": why})
    if kind == "qwen3_tts":
        return _qwen3_tts(config, clock)
    if kind == "omni":
        return _omni(config, clock)
    if kind == "tone":
        return ToneEngine(
            ToneSettings(
                realtime_factor=engine.tone_realtime_factor,
                first_chunk_delay_ms=engine.tone_first_chunk_delay_ms,
                max_rows=engine.max_rows,
                row_wait_ms=engine.row_wait_ms,
                fault=engine.tone_fault,
                fault_every=engine.tone_fault_every,
            ),
            clock,
        )
    return BuiltinEngine(
        BuiltinSettings(threads=engine.threads, max_rows=engine.max_rows, row_wait_ms=engine.row_wait_ms)
    )


def chosen_engine(config: Config) -> tuple[str, str]:
    """The kind of engine, and why that one. Raises ``ConfigError`` for a checkpoint that nothing would read."""
    engine = config.engine
    if engine.kind in ("qwen3_tts", "omni"):
        return engine.kind, "engine.kind asks for it"
    if engine.kind != "auto":
        if engine.checkpoint is not None:
            raise ConfigError([f"engine.checkpoint: the engine '{engine.kind}' reads none; leave one of them out"])
        return engine.kind, "engine.kind asks for it"
    if engine.urls:
        return "omni", "engine.urls is set"
    if engine.checkpoint is not None:
        return "qwen3_tts", "engine.checkpoint is set"
    if (found := pulled_checkpoint()) is not None:
        return "qwen3_tts", f"the checkpoint {found.name} was pulled"
    return "builtin", "no checkpoint is set or was pulled"


def _qwen3_tts(config: Config, clock: Clock) -> Engine:
    """The embedded runtime in a process of its own: its computing and its crashes stay there."""
    engine = config.engine
    checkpoint = engine.checkpoint or pulled_checkpoint()
    if checkpoint is None:
        raise ConfigError(["engine.checkpoint: needed (a folder or hub id), or run `sidecar pull 0.6b` first"])
    settings = {
        "checkpoint": str(checkpoint),
        "device": engine.device,
        "decoder_device": engine.decoder_device or "",
        "precision": engine.precision,
        "threads": engine.threads,
        "memory_budget": engine.memory_budget or "",
        "max_rows": engine.max_rows,
        "max_positions": engine.max_positions,
        "row_wait_ms": float(engine.row_wait_ms),
    }
    return HostedEngine("adapters.engines.qwen3_tts.engine:make", settings, clock)


def _omni(config: Config, clock: Clock) -> Engine:
    """Speech servers elsewhere; with a checkpoint, their codec tokens are decoded here."""
    # Loaded here: its HTTP and WebSocket libraries are of no use to the other engines.
    from adapters.engines.omni import OmniEngine, OmniSettings

    engine = config.engine
    codes = _codes_here(engine.checkpoint, engine.threads) if engine.checkpoint is not None else None
    try:
        settings = OmniSettings(
            urls=engine.urls,
            key=engine.server_key.reveal() if engine.server_key is not None else None,
            model=engine.server_model,
            voices=engine.server_voices,
            deterministic=engine.deterministic,
            codes=codes,
            max_rows=engine.max_rows,
            row_wait_ms=engine.row_wait_ms,
            server_wait_s=engine.server_wait_s,
            # Shorter than the patience of whoever listens: another server may still be asked.
            answer_timeout_s=engine.chunk_timeout_s / 2,
            silent_after_s=engine.chunk_timeout_s / 3,
        )
    except ValueError as wrong:
        raise ConfigError([f"engine.urls: {wrong}"]) from None
    return OmniEngine(settings, clock)


def _codes_here(checkpoint: str, threads: int) -> CodesHere:
    """The decoder of a checkpoint for codec tokens that come over the speech socket."""
    from adapters.engines.omni import CodesHere

    decoder = make_codes_decoder(checkpoint, threads)

    def bracket(message: Mapping[str, Any]) -> CodecReader:
        format = CodecFormat.of(message)
        # The same decoder refuses codes that it has not; of another one only the size tells.
        if format.codebook_size != decoder.codebook_size and format.decoder_id != decoder.decoder_id:
            raise EngineFault("The speech server's codec tokens are for another decoder than engine.checkpoint's.")
        return CodecReader(format)

    return CodesHere(decoder, bracket)


def pulled_checkpoint() -> Path | None:
    """The checkpoint that ``sidecar pull`` fetched last, if any."""
    folders = [file.parent for file in (data_folder() / "checkpoints").glob("*/config.json")]
    return max(folders, key=lambda folder: (folder / "config.json").stat().st_mtime, default=None)


def why_not_fetched(error: BaseException) -> str:
    """Why the model hub gave nothing, in words; an exception's type where there is no other reason."""
    return hub.why_not_fetched(error)


@dataclass(frozen=True, slots=True)
class EngineHere:
    """One engine on this machine, or a part of it. ``ready``: it could speak now; ``detail`` says why, or why not."""

    name: str
    ready: bool
    detail: str


def engines_here(config: Config) -> list[EngineHere]:
    """Every engine there is, with what it needs; nothing is started. Takes seconds: libraries are loaded."""
    engine = config.engine
    builtin = BuiltinEngine(BuiltinSettings()).traits
    servers = ", ".join(map(redact_url, engine.urls)) or "no servers: engine.urls names them"
    return [
        EngineHere("builtin", True, f"{', '.join(builtin.languages)}. {builtin.more_voices}".rstrip()),
        *_qwen3_tts_here(engine.checkpoint or pulled_checkpoint(), engine.device),
        EngineHere("omni", bool(engine.urls), servers),
        EngineHere("tone", True, "tones in place of speech, for tests and load"),
    ]


def _qwen3_tts_here(checkpoint: str | Path | None, device: str) -> list[EngineHere]:
    try:
        # Loaded here: a server with another engine has no use for this one's libraries.
        from adapters.engines.qwen3_tts.here import found_checkpoint, found_here
    except (ImportError, OSError) as error:
        return [EngineHere("qwen3_tts", False, f"its libraries cannot be loaded ({type(error).__name__})")]
    parts = found_here(device)
    if checkpoint is None:
        ready, detail = False, "no checkpoint: `sidecar pull 0.6b`, or --checkpoint FOLDER"
    else:
        found = found_checkpoint(checkpoint)
        ready, detail = found.here and parts[0].here, found.detail
    return [
        EngineHere("qwen3_tts", ready, detail),
        *(EngineHere(f"qwen3_tts {part.what}", part.here, part.detail) for part in parts),
    ]


def make_codes_decoder(checkpoint: str | Path, threads: int = 0) -> CodesDecoder:
    """The codec's decoder alone, for codes that were drawn elsewhere; ``threads`` 0 leaves their number to torch.

    Raises ``ConfigError`` for a checkpoint without one.
    """
    from adapters.engines.qwen3_tts.codes_decoder import CodesDecoder

    return CodesDecoder.load(checkpoint, threads=threads or None)


def make_llm(config: Config, clock: Clock) -> LanguageModel:
    """The language model that the configuration names."""
    llm = config.llm
    if llm.kind == "scripted" or (llm.kind == "auto" and llm.url is None):
        return ScriptedLanguageModel(
            ScriptedSettings(tokens_per_s=llm.scripted_tokens_per_s, first_token_ms=llm.scripted_first_token_ms),
            clock,
        )
    if llm.url is None:
        raise ConfigError(["llm.url: needed for llm.kind 'openai' (such as http://127.0.0.1:8000/v1)"])
    return OpenAiChat(
        OpenAiChatSettings(
            base_url=llm.url,
            api_key=llm.api_key.reveal() if llm.api_key is not None else None,
            forward_authorization=llm.forward_client_key,
            first_token_timeout_s=llm.first_token_timeout_s,
            idle_timeout_s=llm.idle_timeout_s,
            connect_timeout_s=llm.connect_timeout_s,
        )
    )


def make_store(config: Config, clock: Clock, *, must_answer: bool = False) -> Store:
    """The store that the configuration names. ``must_answer``: do not start without it, whatever is configured."""
    scheme, _, rest = config.store.url.reveal().partition(":")
    if scheme == "memory":
        return LocalStore(None)
    if scheme == "local":
        path = Path(rest).expanduser() if rest else data_folder() / "sidecar.db"
        if rest and not path.parent.is_dir():
            raise ConfigError([f"store.url: the folder of {rest} does not exist"])
        return LocalStore(path)
    # Loaded here: the library takes as long as much of the rest, and most servers run without it.
    from adapters.stores.redis_url import SCHEMES, parse_redis_url

    if scheme in SCHEMES:
        try:
            from adapters.stores.redis_store import RedisStore
        except ModuleNotFoundError:
            raise ConfigError(["store.url: the package for this store is missing: pip install redis"]) from None
        try:
            address = parse_redis_url(config.store.url.reveal())
        except ValueError as wrong:
            raise ConfigError([f"store.url: {wrong}"]) from None
        return RedisStore(
            address,
            clock,
            prefix=config.store.prefix,
            timeout_s=config.store.timeout_ms / 1_000,
            must_answer=must_answer or config.store.required,
        )
    kinds = "local:, local:/path/file.db, memory:, " + ", ".join(f"{known}://" for known in SCHEMES)
    raise ConfigError([f"store.url: unknown kind of store '{scheme}' ({kinds})"])


def data_folder() -> Path:
    """Where this user's data lie: ``SIDECAR_DATA_DIR``, else the platform's usual place."""
    if named := os.environ.get(DATA_VARIABLE):
        return Path(named)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "sidecar"
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "sidecar"
