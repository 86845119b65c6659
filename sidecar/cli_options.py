"""What the commands share: their configuration, and the flags of those that speak."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from sidecar.config import CONFIG_VARIABLE, Config, load

ENGINES = ("auto", "builtin", "omni", "qwen3_tts", "tone")


def configured(file: str | None, flags: Mapping[str, object | None], environ: Mapping[str, str] = os.environ) -> Config:
    """The configuration of this process."""
    return load(Path(file) if file else None, environ, {k: v for k, v in flags.items() if v is not None})


def engine_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The flags that every speaking command shares."""
    for option in (
        click.option("--config", "file", envvar=CONFIG_VARIABLE, metavar="FILE", help="TOML file with settings."),
        click.option("--checkpoint", metavar="PATH", help="Qwen3-TTS checkpoint (folder or hub id)."),
        click.option("--engine", type=click.Choice(ENGINES), help="Which engine speaks."),
    ):
        command = option(command)
    return command
