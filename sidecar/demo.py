"""``sidecar demo``: the whole path on one machine, through the real server and the real OpenAI SDK."""

from __future__ import annotations

import base64
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import click
import numpy as np
import openai
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionAudioParam

from sidecar.config import Config
from sidecar.faults import ConfigError, EngineFault, UpstreamFault
from sidecar.http.app import create_app
from sidecar.ports import SAMPLE_RATE_HZ, Pcm
from sidecar.server import BackgroundServer
from sidecar.telemetry import configure_logging
from sidecar.wiring import build, make_codec

NO_KEY = "demo"  # the server has no keys, but the SDK insists on one


async def run_demo(config: Config, model: str, prompt: str, output: Path) -> None:
    """Serve, ask, listen, print what happened when, and write ``output``. Raises ``Fault`` where it cannot.

    ``chat.mode`` says how it is spoken.
    """
    configure_logging(config.server.log_level, config.server.log_texts)
    _check_writable(output)
    service = build(config)
    key = config.auth.api_keys[0].reveal().rpartition(":")[2] if config.auth.api_keys else NO_KEY
    await service.start()
    try:
        async with BackgroundServer(create_app(service), config.server) as server:
            await service.until_ready()
            click.echo(f"sidecar demo   {server.url}/v1   engine {service.engine.traits.name}   model {model}")
            async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0) as client:
                try:
                    heard = await _ask(client, model, prompt)
                except openai.APIError as error:
                    raise UpstreamFault(f"The demo's request failed: {error.message}") from None
    finally:
        await service.close()
    encoder = make_codec().start("wav")
    output.write_bytes(encoder.feed(_samples(bytes(heard.pcm16))) + encoder.finish())
    click.echo(f"wrote {output} ({heard.duration_s:.1f} s of speech)")


def _check_writable(output: Path) -> None:
    if not output.resolve().parent.is_dir() or output.is_dir():
        raise ConfigError([f"--output {output}: there is no such folder, or it is a folder itself"])


def _samples(pcm16: bytes) -> Pcm:
    return (np.frombuffer(pcm16, "<i2") / 32768).astype(np.float32)


@dataclass(slots=True)
class _Listener:
    """Notes what arrives when, and prints it."""

    started_s: float = field(default_factory=time.monotonic)
    first_token_s: float | None = None
    first_audio_s: float | None = None
    last_audio_s: float = 0.0
    pcm16: bytearray = field(default_factory=bytearray)
    transcript: str = ""
    marks: dict[int, dict[str, Any]] = field(default_factory=dict)

    @property
    def duration_s(self) -> float:
        return len(self.pcm16) / 2 / SAMPLE_RATE_HZ

    def hear(self, choice: dict[str, Any]) -> None:
        """One choice of one chunk."""
        audio = choice["delta"].get("audio") or {}
        if words := audio.get("transcript"):
            self.transcript += words
            if self.first_token_s is None:
                self.first_token_s = self._now_s()
                self._print("first token", words.strip())
        if data := audio.get("data"):
            self.pcm16 += base64.b64decode(data)
            self.last_audio_s = self._now_s()
            if self.first_audio_s is None:
                self.first_audio_s = self.last_audio_s
                since_ms = (self.first_audio_s - (self.first_token_s or 0.0)) * 1000
                self._print("first audio", f"{since_ms:.0f} ms after the first token")
        if mark := choice.get("segment"):
            self._segment(mark)

    def _segment(self, mark: dict[str, Any]) -> None:
        if mark["type"] == "started":
            self.marks[mark["index"]] = mark
            return
        start = self.marks[mark["index"]]
        text = mark.get("spoken") or start["spoken"]  # in live mode it had only begun to be written
        seconds = mark["duration_ms"] / 1000
        self._print(
            f"segment {mark['index']}",
            f"{seconds:5.2f} s  seed {start['seed']:<19}  {start['language']} {start['voice']}  {text!r}",
        )

    def finished(self) -> None:
        """The closing figures."""
        if self.first_token_s is None or not self.pcm16:
            raise EngineFault("The model's answer had nothing to speak.")
        took_s = self.last_audio_s - self.first_token_s
        self._print("last audio", f"{self.duration_s:.2f} s of speech in {took_s:.2f} s from the first token:")
        factor = took_s / self.duration_s
        click.echo(f"{'':10}real-time factor {factor:.2f} (the model's own pace included; below 1 never runs dry)")

    def _now_s(self) -> float:
        return time.monotonic() - self.started_s

    def _print(self, what: str, detail: str) -> None:
        click.echo(f"{self._now_s():7.2f} s  {what:<12} {detail}")


async def _ask(client: AsyncOpenAI, model: str, prompt: str) -> _Listener:
    listener = _Listener()
    # ``audio.segments`` is an extension of ours, hence beside the SDK's own types.
    audio = cast(ChatCompletionAudioParam, {"voice": "alloy", "format": "pcm16", "segments": True})
    stream = await client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": prompt}],
        modalities=["text", "audio"],
        audio=audio,
        stream=True,
    )
    click.echo(f"{'':10}mode {stream.response.headers.get('x-sidecar-mode', 'unknown')}")
    async for chunk in stream:
        for choice in cast(list[dict[str, Any]], chunk.to_dict()["choices"]):
            listener.hear(choice)
    listener.finished()
    return listener
