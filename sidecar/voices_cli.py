"""``sidecar voices``: stored voices of a running server, or of this machine's own store.

Without an address a server with the given configuration is started for the command alone, so that there is one way in.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
import httpx2

from sidecar.config import Config
from sidecar.faults import ConfigError, Fault
from sidecar.http.app import create_app
from sidecar.server import BackgroundServer
from sidecar.telemetry import configure_logging
from sidecar.wiring import build

VOICES = "/v1/audio/voices"
VECTORS = "/api/voice-vectors"
TIMEOUT_S = 600.0
MAX_FILE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Place:
    """Where the voices are: a server's ``url`` with the key to it, or (no URL) the store of ``config``."""

    config: Config
    url: str | None = None
    api_key: str | None = None


@dataclass(frozen=True, slots=True)
class NewVoice:
    """What ``add`` is told. ``file`` is a recording, or a ``.json`` list of numbers."""

    name: str
    file: Path
    consent: str
    ref_text: str = ""
    description: str = ""
    language: str = ""
    seed: int | None = None
    audition: int = 0


class Refused(Fault):
    """The server said no; its own words."""


# ---------------------------------------------------------------- commands
async def list_voices(place: Place, as_json: bool) -> None:
    """Print the stored voices, a line each, or as JSON."""
    async with _client(place) as http:
        cards = (await _asked(http, "GET", VECTORS)).json()["vectors"]
    if as_json:
        click.echo(json.dumps(cards, ensure_ascii=False, indent=2))
        return
    for card in cards:
        kind = "reference" if card["in_context"] else card["embedding_source"]
        facts = [f"{card['name']:<24}", f"{card['language'] or '-':<3}", f"{kind:<9}", f"{card['dim'] or '-':>5}"]
        click.echo("  ".join([*facts, card["description"].partition("\n")[0]]).rstrip())
    if not cards:
        click.echo("no stored voices", err=True)


async def add_voice(place: Place, voice: NewVoice) -> None:
    """Store a voice from a file, with the audition of its seeds if that was asked for."""
    data = _read(voice.file)
    form = {
        "name": voice.name,
        "consent": voice.consent,
        "ref_text": voice.ref_text,
        "speaker_description": voice.description,
        "language": voice.language,
        "seed": "" if voice.seed is None else str(voice.seed),
        "audition": str(voice.audition) if voice.audition else "",
    }
    form = {key: value for key, value in form.items() if value}
    files: dict[str, Any] = {}
    if voice.file.suffix.lower() == ".json":
        form["speaker_embedding"] = data.decode("utf-8", "replace")
    else:
        files["audio_sample"] = (voice.file.name, data, "application/octet-stream")
    async with _client(place) as http:
        answer = await _asked(http, "POST", VOICES, data=form, files=files or None)
    if not voice.audition:
        _tell_stored(answer.json())
        return
    for block in answer.text.split("\n\n"):
        lines = [line.removeprefix("data: ") for line in block.splitlines() if line.startswith("data: ")]
        if lines:
            _tell_audition(json.loads(lines[0]))


async def delete_voices(place: Place, names: tuple[str, ...]) -> None:
    """Delete voices; the first that is not there ends it."""
    async with _client(place) as http:
        for name in names:
            await _asked(http, "DELETE", f"{VOICES}/{quote(name, safe='')}")
            click.echo(f"deleted {name}")


async def export_voices(place: Place, output: Path, names: tuple[str, ...]) -> None:
    """Write all voices, or those named, into one ``.safetensors`` file."""
    if not output.resolve().parent.is_dir() or output.is_dir():
        raise ConfigError([f"{output}: there is no such folder, or it is a folder itself"])
    async with _client(place) as http:
        answer = await _asked(http, "GET", f"{VECTORS}/export", params=[("name", name) for name in names])
    output.write_bytes(answer.content)
    click.echo(f"wrote {output} ({len(answer.content)} bytes)")
    if (left_out := answer.headers.get("x-sidecar-left-out", "0")) != "0":
        click.echo(f"left out, because they are damaged: {left_out}", err=True)


async def import_voices(place: Place, file: Path, replacing: bool, consent: str) -> None:
    """Store the voices of a file. Exits with 1 if one of them was refused."""
    params = {"replace": "true" if replacing else "false", "consent": consent}
    async with _client(place) as http:
        answer = await _asked(http, "POST", f"{VECTORS}/import", content=_read(file), params=params)
    report = answer.json()
    for name in report["imported"]:
        click.echo(f"imported {name}")
    for one in report["refused"]:
        click.echo(f"refused {one['name']}: {one['reason']}", err=True)
    if report["refused"]:
        sys.exit(1)


# ---------------------------------------------------------------- the way in
@asynccontextmanager
async def _client(place: Place) -> AsyncIterator[httpx2.AsyncClient]:
    if place.url is not None:
        headers = {"authorization": f"Bearer {place.api_key}"} if place.api_key else {}
        async with httpx2.AsyncClient(base_url=_base(place.url), headers=headers, timeout=TIMEOUT_S) as http:
            yield http
        return
    config = _own(place.config)
    configure_logging(config.server.log_level, config.server.log_texts)
    service = build(config)
    await service.start()
    try:
        async with (
            BackgroundServer(create_app(service), config.server) as server,
            httpx2.AsyncClient(base_url=server.url, timeout=TIMEOUT_S) as http,
        ):
            yield http
    finally:
        await service.close()


def _own(config: Config) -> Config:
    """For this process alone: on a free port of this machine, without keys, warm-up and chatter, but with its store."""
    return replace(
        config,
        server=replace(config.server, host="127.0.0.1", port=0, log_level="error", insecure=False),
        auth=replace(config.auth, api_keys=()),
        engine=replace(config.engine, warm_up=False),
        store=replace(config.store, required=True),
    )


def _base(url: str) -> str:
    """The server's root, also of an address that ends with ``/v1``."""
    return url.rstrip("/").removesuffix("/v1")


async def _asked(http: httpx2.AsyncClient, method: str, path: str, **how: Any) -> httpx2.Response:
    """An answer that is good. Raises ``Refused``."""
    try:
        answer = await http.request(method, path, **how)
    except httpx2.HTTPError as error:
        raise Refused(f"The server cannot be reached ({type(error).__name__}).") from None
    if answer.status_code < 400:
        return answer
    try:
        message = str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        message = f"The server answered with status {answer.status_code}."
    raise Refused(message)


def _read(file: Path) -> bytes:
    try:
        if file.stat().st_size > MAX_FILE_BYTES:
            raise ConfigError([f"{file}: larger than {MAX_FILE_BYTES >> 20} MiB"])
        return file.read_bytes()
    except OSError as error:
        raise ConfigError([f"{file}: {error.strerror}"]) from None


def _tell_stored(body: dict[str, Any]) -> None:
    click.echo(f"stored {body['name']}")
    for note in body["notes"]:
        click.echo(f"note: {note}", err=True)


def _tell_audition(event: dict[str, Any]) -> None:
    kind = event["type"]
    if kind == "voice.stored":
        _tell_stored(event)
    elif kind == "voice.audition.progress":
        worst = "failed" if event["worst"] is None else f"worst {event['worst']:.3f}  mean {event['mean']:.3f}"
        click.echo(f"seed {event['done']}/{event['total']}  {worst}  {event['seed']}")
    elif kind == "voice.audition.done":
        click.echo(f"keeps seed {event['seed']}")
    else:
        raise Refused(str(event["error"]["message"]))
