"""The command line: serve, demo, say, pull, relay, replay, edge, doctor."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from sidecar import __version__
from sidecar.cli_options import configured, engine_options
from sidecar.cli_voices import voices
from sidecar.config import CONFIG_VARIABLE, explain
from sidecar.faults import ConfigError, Fault


def main() -> None:
    """Entry point of the ``sidecar`` command: every error is one clear line, configuration errors exit with 78."""
    try:
        commands(standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except ConfigError as error:
        for problem in error.problems:
            click.echo(f"sidecar: {problem}", err=True)
        sys.exit(error.exit_code)
    except Fault as fault:
        click.echo(f"sidecar: {fault.message}", err=True)
        sys.exit(1)
    except BrokenPipeError:
        sys.exit(141)


@click.group()
@click.version_option(__version__, prog_name="sidecar")
def commands() -> None:
    """Gives any LLM server a voice: tokens in, speech out while the sentence is still being written."""


@commands.command()
@click.option("--host", help="Address to listen on (default 127.0.0.1).")
@click.option("--port", type=int, help="Port to listen on; 0 picks a free one (default 8800).")
@engine_options
@click.option("--llm-url", metavar="URL", help="OpenAI-compatible server, such as http://127.0.0.1:8000/v1.")
@click.option("--llm-api-key", metavar="KEY", help="Its API key (better: SIDECAR_LLM__API_KEY).")
@click.option("--api-key", "api_keys", metavar="KEY", multiple=True, help="Key that clients must send; repeatable.")
@click.option("--store", metavar="URL", help="local:, local:/path/file.db, memory: or redis://host.")
@click.option("--insecure", is_flag=True, default=None, help="Listen beyond loopback without API keys.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]))
@click.option("--help-config", is_flag=True, help="List every setting and exit.")
def serve(
    host: str | None,
    port: int | None,
    engine: str | None,
    checkpoint: str | None,
    llm_url: str | None,
    llm_api_key: str | None,
    api_keys: tuple[str, ...],
    store: str | None,
    insecure: bool | None,
    log_level: str | None,
    file: str | None,
    help_config: bool,
) -> None:
    """Run the server: OpenAI's chat and speech endpoints, vLLM-Omni's speech socket."""
    if help_config:
        _print_settings()
        return
    config = configured(
        file,
        {
            "server.host": host,
            "server.port": port,
            "server.insecure": insecure,
            "server.log_level": log_level,
            "engine.kind": engine,
            "engine.checkpoint": checkpoint,
            "llm.url": llm_url,
            "llm.api_key": llm_api_key,
            "auth.api_keys": api_keys or None,
            "store.url": store,
        },
    )
    from sidecar.serve import serve_until_stopped

    asyncio.run(serve_until_stopped(config))


def _print_settings() -> None:
    click.echo(f"# Settings: a TOML file (--config or {CONFIG_VARIABLE}), SIDECAR_SECTION__KEY, or a flag.")
    for one in explain():
        click.echo(f"{one.name} = {json.dumps(one.default)}  # {one.type}. {one.doc}")


@commands.command()
@engine_options
@click.option("-o", "--output", default="demo.wav", show_default=True, help="Where the speech goes.")
@click.option("--model", default="scripted", show_default=True, help="Model to ask (scripted-de speaks German).")
@click.option("--prompt", default="What does Sidecar do?", show_default=True)
@click.option("--llm-url", metavar="URL", help="Ask this OpenAI-compatible server instead of the scripted model.")
@click.option("--live", is_flag=True, help="Speak from the first word on, on engines that can.")
def demo(
    engine: str | None,
    checkpoint: str | None,
    file: str | None,
    output: str,
    model: str,
    prompt: str,
    llm_url: str | None,
    live: bool,
) -> None:
    """Start the server, ask a language model through the OpenAI SDK, and hear it answer while it writes."""
    config = configured(
        file,
        {
            "server.port": 0,
            "server.log_level": "error",
            "engine.kind": engine,
            "engine.checkpoint": checkpoint,
            "llm.url": llm_url,
            "chat.mode": "live" if live else None,
            "store.url": "memory:",
        },
    )
    from sidecar.demo import run_demo

    asyncio.run(run_demo(config, model, prompt, Path(output)))


@commands.command()
@click.argument("text", required=False)
@engine_options
@click.option("-o", "--output", default="say.wav", show_default=True, help="File to write; '-' is standard output.")
@click.option("--format", "format", help="wav, mp3, opus, flac, aac or pcm (default: by the file's ending).")
@click.option("--voice", help="Voice to speak with.")
@click.option("--language", help="ISO code or English name; default: found out from the text.")
@click.option("--seed", type=click.IntRange(0), help="Same seed, same speech.")
def say(
    text: str | None,
    engine: str | None,
    checkpoint: str | None,
    file: str | None,
    output: str,
    format: str | None,
    voice: str | None,
    language: str | None,
    seed: int | None,
) -> None:
    """Speak TEXT, or standard input as it is written: `ollama run llama3 ... | sidecar say -`."""
    config = configured(file, {"engine.kind": engine, "engine.checkpoint": checkpoint})
    if text is None and sys.stdin.isatty():
        raise click.UsageError("Give a text, or pipe one in: echo Hello | sidecar say")
    from sidecar.say import SayOptions, say_text

    options = SayOptions(output, format, voice, language, seed)
    asyncio.run(say_text(config, None if text in (None, "-") else text, options))


@commands.group()
def drift() -> None:
    """How steady a voice is: fit the meters to it, report on a dialog."""


def drift_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What both drift commands take."""
    for option in (
        click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Same seed, same speech."),
        click.option("--language", help="ISO code or English name; default: found out from the text."),
        click.option("--voice", help="Voice to speak with."),
        click.argument("source", required=False, type=click.Path(exists=True, path_type=Path)),
    ):
        command = option(command)
    return engine_options(command)


@drift.command("calibrate")
@drift_options
@click.option("-o", "--output", type=click.Path(path_type=Path), default="drift.json", show_default=True)
@click.option("--segments", type=click.IntRange(40, 2_000), default=150, show_default=True, help="How much to speak.")
def drift_calibrate(
    source: Path | None,
    voice: str | None,
    language: str | None,
    seed: int,
    engine: str | None,
    checkpoint: str | None,
    file: str | None,
    output: Path,
    segments: int,
) -> None:
    """Fit the meters to a voice: speak, or take clean recordings from SOURCE (NAME.wav + NAME.txt, or a text)."""
    config = configured(file, {"engine.kind": engine, "engine.checkpoint": checkpoint})
    from sidecar.drift_cli import DriftOptions, run_calibrate

    click.echo(asyncio.run(run_calibrate(config, DriftOptions(source, voice, language, seed), output, segments)))


@drift.command("report")
@drift_options
@click.option("-o", "--output", type=click.Path(path_type=Path), default="drift.html", show_default=True)
@click.option("--limits", type=click.Path(exists=True, path_type=Path), help="What `drift calibrate` wrote.")
def drift_report(
    source: Path | None,
    voice: str | None,
    language: str | None,
    seed: int,
    engine: str | None,
    checkpoint: str | None,
    file: str | None,
    output: Path,
    limits: Path | None,
) -> None:
    """Judge a dialog: one that is spoken now, or SOURCE (NAME.wav + NAME.txt, or a text). Writes .html or .json."""
    config = configured(file, {"engine.kind": engine, "engine.checkpoint": checkpoint})
    from sidecar.drift_cli import DriftOptions, run_report

    click.echo(asyncio.run(run_report(config, DriftOptions(source, voice, language, seed), output, limits)))


@commands.command()
@click.argument("checkpoint")
def pull(checkpoint: str) -> None:
    """Fetch a Qwen3-TTS CHECKPOINT: 0.6b, 1.7b, 0.6b-base, 1.7b-base, 1.7b-design, or a hub id."""
    from sidecar.pull import pull_checkpoint

    click.echo(f"fetched {pull_checkpoint(checkpoint)}; `sidecar serve` speaks with it from now on")


@commands.command()
@click.option("--config", "file", envvar=CONFIG_VARIABLE, metavar="FILE", help="TOML file with settings.")
def doctor(file: str | None) -> None:
    """What is installed, which engines can run, and why the others cannot."""
    from sidecar.doctor import run_doctor

    if not asyncio.run(run_doctor(lambda: configured(file, {}))):
        sys.exit(1)


@commands.command()
@click.option(
    "--listen", default="127.0.0.1:8094", show_default=True, metavar="HOST:PORT", help="Where clients connect."
)
@click.option("--to", required=True, metavar="URL", help="The server, such as ws://127.0.0.1:8800.")
@click.option("--record", type=click.Path(path_type=Path), metavar="FILE", help="Keep the sockets' messages in FILE.")
@click.option("--frames", is_flag=True, help="Record the sound itself, not only its length and digest.")
@click.option("--mask-text", is_flag=True, help="Record x for every letter and 0 for every digit of a text.")
@click.option("--max-record-mb", type=click.IntRange(1, 4096), default=256, show_default=True)
@click.option("--show-text", is_flag=True, help="Show what is said; without it only its length.")
def relay(
    listen: str, to: str, record: Path | None, frames: bool, mask_text: bool, max_record_mb: int, show_text: bool
) -> None:
    """Stand between clients and a speech server, and show what they say to each other."""
    from sidecar.relay.commands import RelayOptions, run_relay
    from sidecar.relay.recording import RecordingOptions

    recording = RecordingOptions(frames, mask_text, max_record_mb * 1024 * 1024)
    asyncio.run(run_relay(RelayOptions(listen, to, record, show_text, recording)))


@commands.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--to", required=True, metavar="URL", help="The server, such as ws://127.0.0.1:8800.")
@click.option(
    "--speed", type=click.FloatRange(0), default=1.0, show_default=True, help="2: twice as fast; 0: no pauses."
)
@click.option("--connection", type=int, metavar="N", help="Only this socket of the recording.")
@click.option("--set", "members", multiple=True, metavar="NAME=JSON", help="Replace a member of session.config.")
@click.option(
    "--patience", type=click.FloatRange(0), default=30.0, show_default=True, help="Seconds to wait for an answer."
)
@click.option("--api-key", envvar="SPEECH_API_KEY", metavar="KEY", help="Sent as a bearer token (or SPEECH_API_KEY).")
def replay(
    file: Path,
    to: str,
    speed: float,
    connection: int | None,
    members: tuple[str, ...],
    patience: float,
    api_key: str | None,
) -> None:
    """Play the clients of a recording against a server; exit with 1 if it answers with other events."""
    from sidecar.relay.commands import ReplayCommand, run_replay
    from sidecar.relay.replay import ReplayOptions

    options = ReplayOptions(speed, patience, api_key)
    if not asyncio.run(run_replay(ReplayCommand(file, to, connection, members, options))):
        sys.exit(1)


@commands.command()
@click.option("--url", required=True, metavar="URL", help="The server, such as ws://127.0.0.1:8800.")
@click.option("--checkpoint", required=True, metavar="PATH", help="The server's checkpoint, or its speech tokenizer.")
@click.option("--text", help="What to say; default: standard input as it is written.")
@click.option("--wav", type=click.Path(path_type=Path), metavar="FILE", help="Write the speech to FILE.")
@click.option("--play", is_flag=True, help="Play it while it comes.")
@click.option("--prebuffer-ms", type=click.IntRange(0, 10_000), default=200, show_default=True)
@click.option("--parity", is_flag=True, help="Compare with the server's own samples; exit with 1 if they differ.")
@click.option("--voice", help="Voice to speak with.")
@click.option("--language", help="Language as the server names it.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Same seed, same speech.")
@click.option("--split", type=click.Choice(["none", "sentence", "clause"]), default="sentence", show_default=True)
@click.option(
    "--threads", type=click.IntRange(0, 256), default=0, show_default=True, help="0: as many as there are cores."
)
@click.option("--api-key", envvar="SPEECH_API_KEY", metavar="KEY", help="Sent as a bearer token (or SPEECH_API_KEY).")
def edge(
    url: str,
    checkpoint: str,
    text: str | None,
    wav: Path | None,
    play: bool,
    prebuffer_ms: int,
    parity: bool,
    voice: str | None,
    language: str | None,
    seed: int,
    split: str,
    threads: int,
    api_key: str | None,
) -> None:
    """Hear a server's codec tokens: decode them here, write or play the speech, say how fast and how exact."""
    if text is None and (parity or sys.stdin.isatty()):
        raise click.UsageError("Give --text, or (without --parity) pipe one in.")
    from sidecar.edge.client import EdgeRequest
    from sidecar.edge.commands import EdgeOptions, run_edge
    from sidecar.say import standard_input

    config = {"voice": voice, "language": language, "split_granularity": split}
    request = EdgeRequest(seed, {name: value for name, value in config.items() if value is not None})
    options = EdgeOptions(url, checkpoint, request, wav, play, prebuffer_ms, parity, threads, api_key)
    if not asyncio.run(run_edge(options, standard_input() if text is None else text, click.echo)):
        sys.exit(1)


commands.add_command(voices)


if __name__ == "__main__":
    main()
