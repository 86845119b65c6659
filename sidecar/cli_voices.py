"""The commands under ``sidecar voices``."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from sidecar.cli_options import configured, engine_options


@click.group()
def voices() -> None:
    """Stored voices: of a running server (--url), else of this machine's store."""


def voices_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Where the voices are."""
    for option in (
        click.option("--store", metavar="URL", help="Without --url: local:, memory: or redis://..."),
        click.option("--api-key", envvar="SPEECH_API_KEY", metavar="KEY", help="Key for --url (or SPEECH_API_KEY)."),
        click.option("--url", envvar="SPEECH_URL", metavar="URL", help="Running server, as http://127.0.0.1:8800."),
    ):
        command = option(command)

    @functools.wraps(command)
    def placed(
        url: str | None,
        api_key: str | None,
        store: str | None,
        engine: str | None,
        checkpoint: str | None,
        file: str | None,
        **rest: Any,
    ) -> Any:
        from sidecar.voices_cli import Place

        flags = {"engine.kind": engine, "engine.checkpoint": checkpoint, "store.url": store}
        return command(Place(configured(file, flags), url, api_key), **rest)

    return engine_options(placed)


@voices.command("list")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@voices_options
def voices_list(place: Any, as_json: bool) -> None:
    """The stored voices."""
    from sidecar.voices_cli import list_voices

    asyncio.run(list_voices(place, as_json))


@voices.command("add")
@click.argument("name")
@click.argument("recording", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--consent", required=True, metavar="ID", help="Under which the speaker agreed.")
@click.option("--ref-text", default="", help="What is said in it, word for word.")
@click.option("--description", default="")
@click.option("--language", default="", help="ISO code or English name.")
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), help="Dialog seed of requests that bring none.")
@click.option("--audition", type=click.IntRange(2, 16), help="Try so many seeds and keep the best.")
@voices_options
def voices_add(
    place: Any,
    name: str,
    recording: Path,
    consent: str,
    ref_text: str,
    description: str,
    language: str,
    seed: int | None,
    audition: int | None,
) -> None:
    """Store NAME from a RECORDING, or from a .json list of numbers."""
    from sidecar.voices_cli import NewVoice, add_voice

    voice = NewVoice(name, recording, consent, ref_text, description, language, seed, audition or 0)
    asyncio.run(add_voice(place, voice))


@voices.command("delete")
@click.argument("names", nargs=-1, required=True)
@voices_options
def voices_delete(place: Any, names: tuple[str, ...]) -> None:
    """Delete NAMES and what hangs on them."""
    from sidecar.voices_cli import delete_voices

    asyncio.run(delete_voices(place, names))


@voices.command("export")
@click.argument("output", type=click.Path(path_type=Path))
@click.argument("names", nargs=-1)
@voices_options
def voices_export(place: Any, output: Path, names: tuple[str, ...]) -> None:
    """Write all voices, or NAMES, to OUTPUT (.safetensors)."""
    from sidecar.voices_cli import export_voices

    asyncio.run(export_voices(place, output, names))


@voices.command("import")
@click.argument("source", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--replace", "replacing", is_flag=True, help="Also voices whose names are taken.")
@click.option("--consent", default="", metavar="ID", help="For voices that bring no consent id.")
@voices_options
def voices_import(place: Any, source: Path, replacing: bool, consent: str) -> None:
    """Store the voices of SOURCE, a .safetensors file."""
    from sidecar.voices_cli import import_voices

    asyncio.run(import_voices(place, source, replacing, consent))
