"""Fetching checkpoints, with a hub that is not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

from sidecar.faults import ConfigError
from sidecar.pull import PATTERNS, SHORT_NAMES, pull_checkpoint
from sidecar.wiring import chosen_engine, pulled_checkpoint
from tests.e2e.conftest import config_with


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIDECAR_DATA_DIR", str(tmp_path))
    return tmp_path


def hub(monkeypatch: pytest.MonkeyPatch, *files: str) -> list[Any]:
    asked: list[Any] = []

    def fetch(repo: str, *, allow_patterns: list[str], local_dir: Path) -> None:
        asked.append((repo, tuple(allow_patterns)))
        local_dir.mkdir(parents=True, exist_ok=True)
        for name in files:
            (local_dir / name).write_text("{}")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    return asked


def test_the_checkpoint_pulled_last_is_the_one_that_speaks(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = hub(monkeypatch, "config.json")
    assert chosen_engine(config_with(engine__kind="auto"))[0] == "builtin"
    first = pull_checkpoint("0.6B")
    assert asked == [(SHORT_NAMES["0.6b"], PATTERNS)]
    assert pulled_checkpoint() == first
    assert first.is_relative_to(data)
    second = pull_checkpoint("someone/something")
    assert pulled_checkpoint() == second
    pull_checkpoint("0.6b")
    assert pulled_checkpoint() == first
    kind, why = chosen_engine(config_with(engine__kind="auto"))
    assert kind == "qwen3_tts"
    assert first.name in why


def test_a_checkpoint_that_is_named_wins_and_one_that_nobody_reads_is_an_error() -> None:
    assert chosen_engine(config_with(engine__kind="auto", engine__checkpoint="x/y"))[0] == "qwen3_tts"
    assert chosen_engine(config_with(engine__kind="builtin"))[0] == "builtin"
    with pytest.raises(ConfigError, match="reads none"):
        chosen_engine(config_with(engine__kind="builtin", engine__checkpoint="x/y"))


@pytest.mark.parametrize("name", ["", "0.7b", "a/b/c", "../x"])
def test_what_is_no_name_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = hub(monkeypatch)
    with pytest.raises(ConfigError):
        pull_checkpoint(name)
    assert asked == []


def test_a_repository_without_a_configuration_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    hub(monkeypatch, "model.safetensors")
    with pytest.raises(ConfigError, match="no Qwen3-TTS checkpoint"):
        pull_checkpoint("owner/other")


def test_a_hub_that_cannot_be_reached_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise OSError("no route to host\nwith a traceback")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(ConfigError, match=r"could not be fetched: OSError: no route to host$"):
        pull_checkpoint("1.7b")
