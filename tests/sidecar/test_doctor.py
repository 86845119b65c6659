"""What the doctor makes of healthy machines and of others."""

from __future__ import annotations

from pathlib import Path

import pytest

from sidecar.config import Config
from sidecar.doctor import run_doctor
from sidecar.ports import EngineTraits, EngineVoice
from sidecar.warm_up import warm_up_utterance
from sidecar.wiring import engines_here
from tests.adapters.engines.qwen3_tts import tiny
from tests.e2e.conftest import config_with


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIDECAR_DATA_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def base(tmp_path: Path) -> str:
    return str(tiny.write(tmp_path / "small-base", kind="base"))


def cloning(**others: object) -> Config:
    return config_with(engine__kind="qwen3_tts", engine__max_positions=512, engine__threads=1, **others)


@pytest.mark.timeout(300)
async def test_a_checkpoint_that_brings_no_voices_is_healthy(base: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert await run_doctor(lambda: cloning(engine__checkpoint=base))
    out = capsys.readouterr().out
    assert "with a vector of nobody" in out
    assert "sidecar voices add" in out
    assert "NO" not in out


async def test_a_checkpoint_that_is_none_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not await run_doctor(lambda: cloning(engine__checkpoint=str(tmp_path)))
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("  --  qwen3_tts ") and "config.json" in line for line in lines), lines
    assert any(line.startswith("  NO  engine ") and "config.json" in line for line in lines), lines


def test_every_engine_is_named_with_what_it_lacks() -> None:
    here = {one.name: one for one in engines_here(config_with(engine__kind="auto", engine__device="cuda:99"))}
    assert [name for name in here if " " not in name] == ["builtin", "qwen3_tts", "omni", "tone"]
    assert [name for name, one in here.items() if " " not in name and one.ready] == ["builtin", "tone"]
    assert "sidecar pull" in here["qwen3_tts"].detail
    assert "engine.urls" in here["omni"].detail
    assert not here["qwen3_tts device"].ready
    assert "cuda:99" in here["qwen3_tts device"].detail


def test_what_is_there_is_told(base: str) -> None:
    servers = config_with(engine__kind="auto", engine__urls=("http://127.0.0.1:9",), engine__checkpoint=base)
    here = {one.name: one for one in engines_here(servers)}
    assert (here["qwen3_tts"].ready, here["qwen3_tts"].detail) == (True, "small-base, kind base")
    assert (here["omni"].ready, here["omni"].detail) == (True, "http://127.0.0.1:9")
    absent = engines_here(config_with(engine__kind="auto", engine__checkpoint="nobody/nothing"))[1]
    assert (absent.name, absent.ready) == ("qwen3_tts", False)
    assert "fetched when the engine starts" in absent.detail


def traits(**others: object) -> EngineTraits:
    plain = EngineTraits("toy", (), "", ("de",), 1, True)
    return EngineTraits(**{name: getattr(plain, name) for name in plain.__slots__} | others)


def test_the_first_sentence_suits_the_engine() -> None:
    assert warm_up_utterance(traits()) is None
    cloned = warm_up_utterance(traits(clone_widths=(8, 16), pcm_out=False, languages=("en",)))
    assert cloned is not None
    assert cloned.anchor is not None
    assert (cloned.anchor.width, cloned.output, cloned.language) == (8, "codes", "en")
    own = warm_up_utterance(traits(voices=(EngineVoice("alto", ("de",)),), default_voice="alto", clone_widths=(8,)))
    assert own is not None
    assert (own.voice, own.anchor, own.output, own.language) == ("alto", None, "pcm", None)
