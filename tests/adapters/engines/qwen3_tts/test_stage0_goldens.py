"""Stage 0 against the reference package: prompts, logits and codes of every kind of checkpoint and layout."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from adapters.engines.qwen3_tts.stage0 import Stage0
from tests.adapters.engines.qwen3_tts.loaded import (
    GOLDENS,
    cases,
    checkpoint,
    golden,
    prompt_of,
    speak,
    stage0,
    tokenizer,
)


def _name(case: dict[str, Any]) -> str:
    marks = (case.get(key) for key in ("clone", "speaker", "language", "layout", "seed"))
    return f"{case['checkpoint']}-" + "-".join(str(mark) for mark in marks if mark is not None)


every_case = pytest.mark.parametrize("case", cases(), ids=_name)


def _multinomial(probabilities: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """The reference's source of chance: the global generator, drawn from in its order."""
    return torch.multinomial(probabilities, 1)[:, 0]


def _stage(case: dict[str, Any], **options: Any) -> Stage0:
    return stage0(case["size"], case["kind"], draw=_multinomial, **options)


@every_case
def test_text_ids(case: dict[str, Any]) -> None:
    tok, prompt = tokenizer(case["size"], case["kind"]), prompt_of(case)
    ids = golden(case, "ids")
    assert ids is not None
    assert tuple(ids[:3]) == tok.role_ids
    assert tuple(ids[3:-5]) == prompt.text_ids
    more = golden(case, "more_ids")
    if more is not None and prompt.instruct_ids:
        assert tuple(more) == prompt.instruct_ids
    elif more is not None:
        assert prompt.reference is not None
        assert tuple(more[3:-2]) == prompt.reference.text_ids


@every_case
def test_prompt_embeddings(case: dict[str, Any]) -> None:
    stage, prompt = _stage(case), prompt_of(case)
    with torch.inference_mode():
        layout = stage.prompts.build(prompt)
        # Where nothing trails the reference has one row of padding.
        trailing = stage.talker.text(torch.tensor(layout.trailing or (stage.config.text.tts_pad,)))
    assert stage.positions(prompt) == len(layout.prefill)
    np.testing.assert_allclose(layout.prefill.numpy(), golden(case, "prompt"), rtol=0, atol=1e-5)
    np.testing.assert_allclose(trailing.numpy(), golden(case, "trailing"), rtol=0, atol=1e-5)


@every_case
@pytest.mark.parametrize("slots", [False, True], ids=["rows", "slots"])
def test_codes_and_logits(case: dict[str, Any], slots: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = _stage(case, slots=slots)
    seen: list[torch.Tensor] = []
    logits = stage.talker.logits

    def kept(hidden: torch.Tensor) -> torch.Tensor:
        seen.append(logits(hidden))
        return seen[-1]

    monkeypatch.setattr(stage.talker, "logits", kept)
    torch.manual_seed(case.get("seed", 0))
    np.testing.assert_array_equal(speak(stage, prompt_of(case)), golden(case, "codes"))
    expected = golden(case, "logits")
    assert expected is not None
    found = torch.cat(seen)[: len(expected)].numpy()
    np.testing.assert_allclose(found, expected[: len(found)], rtol=0, atol=1e-4)


def test_goldens_cover_every_kind_and_width() -> None:
    assert {case["checkpoint"] for case in cases()} == {
        f"{size}-{kind}" for size in ("tiny", "tiny17") for kind in ("base", "custom_voice", "voice_design")
    }


def test_dialect_speaker_turns_auto_and_chinese_into_the_dialect() -> None:
    config = checkpoint("tiny", "custom_voice").talker
    sichuan = config.languages["sichuan_dialect"]
    assert config.language_id(None, "Eric") == sichuan
    assert config.language_id("Chinese", "ERIC") == sichuan
    assert config.language_id("english", "eric") == config.languages["english"]
    assert config.language_id(None, "vivian") is None
    assert "sichuan_dialect" not in config.offered_languages


@pytest.mark.skipif("REFERENCE_PYTHON" not in os.environ, reason="REFERENCE_PYTHON names no python with qwen-tts")
@pytest.mark.timeout(900)
def test_goldens_made_anew_are_equal(tmp_path: Path) -> None:
    root = Path(__file__).parents[4]
    subprocess.run(
        [
            os.environ["REFERENCE_PYTHON"],
            "-m",
            "tests.adapters.engines.qwen3_tts.goldens.make_stage0",
            str(tmp_path / "new.npz"),
        ],
        check=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": f"{root}:{os.environ.get('PYTHONPATH', '')}"},
    )
    with np.load(tmp_path / "new.npz") as new, np.load(GOLDENS) as old:
        assert json.loads(str(new["cases"])) == json.loads(str(old["cases"]))
        for name in old.files:
            if name.endswith("codes"):
                np.testing.assert_array_equal(new[name], old[name])
            elif name != "cases":
                np.testing.assert_allclose(new[name], old[name], rtol=0, atol=1e-4)
