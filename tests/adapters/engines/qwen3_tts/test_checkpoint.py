"""Checkpoints that load, and everything that is refused with the file's name."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from adapters.engines.qwen3_tts.checkpoint import Checkpoint, open_checkpoint, resolve, stage0_shapes
from adapters.engines.qwen3_tts.config import talker_config
from sidecar.faults import ConfigError, EngineFault
from tests.adapters.engines.qwen3_tts import tiny
from tests.adapters.engines.qwen3_tts.loaded import checkpoint


@pytest.mark.parametrize("size", ["tiny", "tiny17"])
@pytest.mark.parametrize("kind", ["base", "custom_voice", "voice_design"])
def test_every_kind_loads(size: str, kind: str) -> None:
    opened = checkpoint(size, kind)
    assert (opened.talker.kind, opened.talker.size) == (kind, {"tiny": "0b6", "tiny17": "1b7"}[size])
    assert (opened.speaker_encoder is not None) == (kind == "base")
    assert opened.generation["top_k"] == 50
    assert opened.talker.takes_instructions == (kind == "voice_design" or (size, kind) == ("tiny17", "custom_voice"))
    names = [name for name in opened.weights.names() if name.startswith("talker.")]
    assert sorted(stage0_shapes(opened.talker)) == names


@pytest.mark.parametrize(("size", "tensors", "values"), [("0.6b", 402, 905_788_672), ("1.7b", 404, 1_916_676_352)])
def test_released_sizes(size: str, tensors: int, values: int) -> None:
    shapes = stage0_shapes(talker_config(tiny.root_config(size, "custom_voice")))
    assert len(shapes) == tensors
    assert sum(torch.Size(shape).numel() for shape in shapes.values()) == values


Change = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c.update(model_type="llama"), "model_type must be 'qwen3_tts', not 'llama'"),
        (lambda c: c.pop("tokenizer_type"), "tokenizer_type is missing"),
        (lambda c: c.update(tts_model_type="singer"), "tts_model_type must be 'base' or 'custom_voice'"),
        (lambda c: c.update(tts_model_size="7b"), "tts_model_size"),
        (lambda c: c.pop("talker_config"), "talker_config is missing"),
        (lambda c: c.update(talker_config=3), "talker_config must be an object"),
        (lambda c: c["talker_config"].update(hidden_size="wide"), "hidden_size must be an integer"),
        (lambda c: c["talker_config"].update(hidden_size=True), "hidden_size must be an integer"),
        (lambda c: c["talker_config"].pop("head_dim"), "head_dim is missing"),
        (lambda c: c["talker_config"].update(head_dim=33), "head_dim must be even"),
        (lambda c: c["talker_config"].update(num_key_value_heads=3), "num_key_value_heads must divide"),
        (lambda c: c["talker_config"].update(rms_norm_eps=0), "rms_norm_eps must be a positive number"),
        (lambda c: c["talker_config"].update(hidden_act="gelu"), "hidden_act must be 'silu'"),
        (lambda c: c["talker_config"].update(attention_bias=True), "attention_bias must be False"),
        (lambda c: c["talker_config"].update(use_sliding_window=True), "use_sliding_window"),
        (lambda c: c["talker_config"].update(num_code_groups=8), "num_code_groups must be 16"),
        (lambda c: c["talker_config"].update(vocab_size=2000), "1024 more than the predictor's"),
        (lambda c: c["talker_config"].update(codec_eos_token_id=5), "codec_eos_token_id must be an integer from 128"),
        (lambda c: c["talker_config"]["rope_scaling"].update(rope_type="yarn"), "rope_type must be 'default'"),
        (lambda c: c["talker_config"]["rope_scaling"].update(mrope_section=[1]), "mrope_section must sum to half"),
        (lambda c: c["talker_config"]["codec_language_id"].update(english=9), "codec_language_id.english"),
        (lambda c: c["talker_config"].update(spk_id={}), "names no speaker"),
        (lambda c: c["talker_config"].update(spk_is_dialect={"x": "y"}), "spk_is_dialect.x is no speaker"),
        (lambda c: c["talker_config"].update(spk_is_dialect={"eric": "y"}), "must be false or a key of"),
        (lambda c: c["talker_config"]["code_predictor_config"].pop("vocab_size"), "vocab_size is missing"),
        (lambda c: c["talker_config"]["code_predictor_config"].update(rope_scaling={}), "rope_scaling must be None"),
        (lambda c: c.update(tts_eos_token_id=10**6), "tts_eos_token_id must be an integer from 0"),
    ],
)
def test_wrong_fields_are_named(change: Change, words: str) -> None:
    config = json.loads(json.dumps(tiny.root_config("tiny", "custom_voice")))
    change(config)
    with pytest.raises(ConfigError, match=r"config\.json") as caught:
        talker_config(config)
    assert any(words in problem for problem in caught.value.problems), caught.value.problems


def test_every_problem_is_listed(tmp_path: Path) -> None:
    folder = tiny.write(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    config["talker_config"].update(hidden_act="gelu", rms_norm_eps=-1)
    (folder / "config.json").write_text(json.dumps(config))
    codec = json.loads((folder / "speech_tokenizer" / "config.json").read_text())
    codec["output_sample_rate"] = 16_000
    (folder / "speech_tokenizer" / "config.json").write_text(json.dumps(codec))
    (folder / "merges.txt").unlink()
    with pytest.raises(ConfigError) as caught:
        open_checkpoint(folder)
    text = "; ".join(caught.value.problems)
    for words in ("hidden_act", "rms_norm_eps", "output_sample_rate", "merges.txt is missing"):
        assert words in text
    assert str(tmp_path.parent) not in text


def _tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


HEAD = "talker.codec_head.weight"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.pop(HEAD), f"tensor {HEAD} is missing"),
        (lambda t: t.update({HEAD: t[HEAD][:, :32].contiguous()}), r"has shape \(1152, 32\), expected \(1152, 64\)"),
        (lambda t: t.update({HEAD: t[HEAD].to(torch.int32)}), "has dtype torch.int32"),
        (lambda t: t.clear(), "more tensors of"),
    ],
)
def test_wrong_tensors_are_named_with_their_file(
    tmp_path: Path, change: Callable[[dict[str, torch.Tensor]], object], words: str
) -> None:
    folder = tiny.write(tmp_path)
    _tensors(folder, change)
    with pytest.raises(ConfigError, match=words) as caught:
        open_checkpoint(folder)
    assert all("model.safetensors" in problem for problem in caught.value.problems)


@pytest.mark.parametrize("name", ["model.safetensors", "speech_tokenizer/model.safetensors"])
@pytest.mark.parametrize("damage", ["truncated", "corrupt", "missing", "pickle"])
def test_damaged_weight_files_are_refused(tmp_path: Path, name: str, damage: str) -> None:
    path = tiny.write(tmp_path) / name
    whole = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        pieces = {"truncated": whole[:-1000], "corrupt": b"\xff" * 100 + whole[100:], "pickle": b"\x80\x04K\x01."}
        path.write_bytes(pieces[damage])
    with pytest.raises(ConfigError, match=r"model\.safetensors cannot be read"):
        open_checkpoint(tmp_path)


def test_parts_that_do_not_fit_each_other(tmp_path: Path) -> None:
    folder = tiny.write(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    config["speaker_encoder_config"]["enc_dim"] = 32
    (folder / "config.json").write_text(json.dumps(config))
    codec = json.loads((folder / "speech_tokenizer" / "config.json").read_text())
    codec["decoder_config"]["codebook_size"] = 64
    (folder / "speech_tokenizer" / "config.json").write_text(json.dumps(codec))
    with pytest.raises(ConfigError) as caught:
        open_checkpoint(folder)
    assert any("enc_dim is 32" in problem for problem in caught.value.problems)
    assert any("codebook_size is 64" in problem for problem in caught.value.problems)


def test_tensors_are_read_when_asked_for() -> None:
    opened = checkpoint()
    fresh = Checkpoint(opened.folder, opened.talker, opened.codec, opened.speaker_encoder, {})
    assert "weights" not in vars(fresh)
    assert fresh.weights.get(HEAD, (1152, 64)).dtype == torch.bfloat16
    with pytest.raises(EngineFault, match=r"model\.safetensors: tensor nothing is missing"):
        fresh.weights.get("nothing")


# ------------------------------------------------------------------ hub ids
class _Hub(types.ModuleType):
    """What is used of huggingface_hub."""

    def __init__(self, cached: Path | None, online: Path | None, *, offline: bool = False) -> None:
        super().__init__("huggingface_hub")
        self.cached, self.online, self.calls = cached, online, list[dict[str, Any]]()
        self.constants = types.SimpleNamespace(HF_HUB_OFFLINE=offline)

    def snapshot_download(self, name: str, **options: Any) -> str:
        self.calls.append({"name": name, **options})
        found = self.cached if options.get("local_files_only") else self.online
        if found is None:
            raise OSError("nothing")
        return str(found)


def test_hub_ids(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hub = _Hub(None, tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    assert resolve("someone/model") == tmp_path
    assert [call.get("local_files_only", False) for call in hub.calls] == [True, False]
    assert all(not pattern.endswith((".py", ".bin")) for pattern in hub.calls[1]["allow_patterns"])
    assert resolve(tmp_path) == tmp_path
    monkeypatch.setitem(sys.modules, "huggingface_hub", _Hub(tmp_path, None))
    assert resolve("someone/model", offline=True) == tmp_path
    for hub, offline in ((_Hub(None, tmp_path), True), (_Hub(None, tmp_path, offline=True), False)):
        monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
        with pytest.raises(ConfigError, match="not in the local hub cache"):
            resolve("someone/model", offline=offline)
    monkeypatch.setitem(sys.modules, "huggingface_hub", _Hub(None, None))
    with pytest.raises(ConfigError, match="download failed: OSError"):
        resolve("someone/model")


@pytest.mark.parametrize("name", ["nowhere", "a/b/c", "../x", "/no/such"])
def test_what_is_neither_a_folder_nor_an_id(name: str) -> None:
    with pytest.raises(ConfigError, match="no such folder"):
        resolve(name)


def test_hub_ids_need_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ConfigError, match="huggingface_hub"):
        resolve("someone/model")
