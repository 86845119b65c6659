"""Writes checkpoints in the released layout with seeded random weights: small ones for tests, full ones to measure.

A tensor's values depend on the seed and its name alone. The reference package loads these folders without a missing or
an unexpected key; the goldens beside this file were made with ``size`` tiny and tiny17, seed 0. The vocabulary is a
cut of Qwen's (Apache-2.0): 256 bytes and the merges of ``goldens/merges.txt``.
"""

from __future__ import annotations

import json
from math import sqrt
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from tests.adapters.engines.qwen3_tts.tiny_codec import codec_config, codec_tensors, speaker_encoder_tensors
from tests.adapters.engines.qwen3_tts.tiny_maker import Maker

MERGES = Path(__file__).parent / "goldens" / "merges.txt"

LANGUAGES = {
    "chinese": 2055,
    "english": 2050,
    "german": 2053,
    "italian": 2070,
    "portuguese": 2071,
    "spanish": 2054,
    "japanese": 2058,
    "korean": 2064,
    "french": 2061,
    "russian": 2069,
}
DIALECTS = {"beijing_dialect": 2074, "sichuan_dialect": 2062}
SPEAKERS = {
    "serena": 3066,
    "vivian": 3065,
    "uncle_fu": 3010,
    "ryan": 3061,
    "aiden": 2861,
    "ono_anna": 2873,
    "sohee": 2864,
    "eric": 2875,
    "dylan": 2878,
}
SPEAKS_DIALECT = {"eric": "sichuan_dialect", "dylan": "beijing_dialect"}
CONTROL = {
    "codec_bos_id": 2149,
    "codec_eos_token_id": 2150,
    "codec_pad_id": 2148,
    "codec_think_id": 2154,
    "codec_nothink_id": 2155,
    "codec_think_bos_id": 2156,
    "codec_think_eos_id": 2157,
}


def _marks(family: str, *names: str) -> list[str]:
    return [f"<|{family}_{name}|>" for name in names]


SPECIALS = [
    "<|endoftext|>",
    *_marks("im", "start", "end"),
    *_marks("object_ref", "start", "end"),
    *_marks("box", "start", "end"),
    *_marks("quad", "start", "end"),
    *_marks("vision", "start", "end", "pad"),
    *("<|image_pad|>", "<|video_pad|>", "<tool_call>", "</tool_call>"),
    *_marks("fim", "prefix", "middle", "suffix", "pad"),
    *("<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>", "<think>", "</think>"),
    *_marks("audio", "start", "end"),
    *("<tts_pad>", "<tts_text_bos>", "<tts_text_eod>", "<tts_text_bos_single>", "<|audio_pad|>"),
]

_SMALL: dict[str, Any] = {
    "label": "0b6",
    "text": 80,
    "codes": 128,
    "talker": {"hidden": 64, "inter": 112, "layers": 3, "heads": 4, "kv": 2, "dim": 32, "mrope": [8, 4, 4]},
    "predictor": {"hidden": 64, "inter": 96, "layers": 2, "heads": 4, "kv": 2, "dim": 16},
    "speaker": {
        "enc_channels": [16, 16, 16, 16, 48],
        "enc_attention_channels": 8,
        "enc_se_channels": 8,
    },
    "speaker_width": 64,
}
_FULL: dict[str, Any] = {
    "label": "0b6",
    "text": 2048,
    "codes": 2048,
    "talker": {"hidden": 1024, "inter": 3072, "layers": 28, "heads": 16, "kv": 8, "dim": 128, "mrope": [24, 20, 20]},
    "predictor": {"hidden": 1024, "inter": 3072, "layers": 5, "heads": 16, "kv": 8, "dim": 128},
    "speaker": {},
    "speaker_width": 1024,
}
SIZES: dict[str, dict[str, Any]] = {
    "tiny": _SMALL,
    "tiny17": {**_SMALL, "label": "1b7", "predictor": {**_SMALL["predictor"], "hidden": 48}},
    "0.6b": _FULL,
    "1.7b": {
        **_FULL,
        "label": "1b7",
        "talker": {**_FULL["talker"], "hidden": 2048, "inter": 6144},
        "speaker_width": 2048,
    },
}
# Widths that fill a CPU's vectors, as the released ones do.
for _name in ("tiny", "tiny17"):
    SIZES[_name.replace("tiny", "even")] = {
        **SIZES[_name],
        "text": 96,
        "talker": {**SIZES[_name]["talker"], "inter": 128},
        "predictor": {**SIZES[_name]["predictor"], "hidden": 32 if _name == "tiny17" else 64},
    }
SMALL = [name for name in SIZES if name.startswith(("tiny", "even"))]


def vocabulary() -> tuple[dict[str, int], str]:
    """The cut vocabulary and the text of its merges: bytes first, in the order of their stand-in characters."""
    text = MERGES.read_text(encoding="utf-8")
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    tokens = [chr(byte) for byte in plain] + [chr(256 + at) for at in range(len(others))]
    tokens += ["".join(line.split(" ")) for line in text.split("\n") if line]
    return {token: at for at, token in enumerate(tokens)}, text


def root_config(size: str, kind: str) -> dict[str, Any]:
    """``config.json``."""
    shape, words = SIZES[size], vocabulary()[0]
    codes, first_special, custom = shape["codes"], len(words), kind == "custom_voice"

    def shifted(ids: dict[str, int]) -> dict[str, int]:
        return {name: one - 2048 + codes for name, one in ids.items()}

    def common(part: dict[str, Any], positions: int) -> dict[str, Any]:
        return {
            "attention_bias": False,
            "attention_dropout": 0,
            "head_dim": part["dim"],
            "hidden_act": "silu",
            "hidden_size": part["hidden"],
            "initializer_range": 0.02,
            "intermediate_size": part["inter"],
            "max_position_embeddings": positions,
            "num_attention_heads": part["heads"],
            "num_code_groups": 16,
            "num_hidden_layers": part["layers"],
            "num_key_value_heads": part["kv"],
            "rms_norm_eps": 1e-6,
            "rope_theta": 1_000_000,
            "sliding_window": None,
            "use_cache": True,
            "use_sliding_window": False,
        }

    predictor = {
        **common(shape["predictor"], 65_536),
        "model_type": "qwen3_tts_talker_code_predictor",
        "rope_scaling": None,
        "vocab_size": codes,
        "layer_types": ["full_attention"] * shape["predictor"]["layers"],
        "max_window_layers": 28,
        "tie_word_embeddings": False,
    }
    talker = {
        **common(shape["talker"], 32_768),
        "model_type": "qwen3_tts_talker",
        "code_predictor_config": predictor,
        "position_id_per_seconds": 13,
        "codec_language_id": shifted({**LANGUAGES, **DIALECTS} if custom else LANGUAGES),
        "spk_id": shifted(SPEAKERS) if custom else {},
        "spk_is_dialect": {name: SPEAKS_DIALECT.get(name, False) for name in SPEAKERS} if custom else {},
        "rope_scaling": {
            "interleaved": True,
            "mrope_section": shape["talker"]["mrope"],
            "rope_type": "default",
            "type": "default",
        },
        "text_hidden_size": shape["text"],
        "text_vocab_size": first_special + 40 if size in SMALL else 151_936,
        "vocab_size": codes + 1024,
        **shifted(CONTROL),
    }
    config: dict[str, Any] = {
        "architectures": ["Qwen3TTSForConditionalGeneration"],
        "model_type": "qwen3_tts",
        "assistant_token_id": words["assistant"],
        "im_start_token_id": first_special + 1,
        "im_end_token_id": first_special + 2,
        **{f"tts_{name}_token_id": first_special + 28 + at for at, name in enumerate(("pad", "bos", "eos"))},
        "tokenizer_type": "qwen3_tts_tokenizer_12hz",
        "tts_model_size": shape["label"],
        "tts_model_type": kind,
        "talker_config": talker,
        "transformers_version": "4.57.3",
    }
    if kind == "base":
        config["speaker_encoder_config"] = {
            "enc_dim": shape["speaker_width"],
            "sample_rate": 24_000,
            **shape["speaker"],
        }
    return config


def _layers(make: Maker, prefix: str, part: dict[str, Any]) -> None:
    width, dim, gain = part["hidden"], part["dim"], 2 / sqrt(2 * part["layers"])
    for at in range(part["layers"]):
        name = f"{prefix}.layers.{at}"
        make.norm(f"{name}.input_layernorm", width)
        make.norm(f"{name}.post_attention_layernorm", width)
        make.linear(f"{name}.self_attn.q_proj", part["heads"] * dim, width)
        make.linear(f"{name}.self_attn.k_proj", part["kv"] * dim, width)
        make.linear(f"{name}.self_attn.v_proj", part["kv"] * dim, width)
        make.linear(f"{name}.self_attn.o_proj", width, part["heads"] * dim, gain)
        make.norm(f"{name}.self_attn.q_norm", dim, 1.3)
        make.norm(f"{name}.self_attn.k_norm", dim, 1.3)
        make.linear(f"{name}.mlp.gate_proj", part["inter"], width)
        make.linear(f"{name}.mlp.up_proj", part["inter"], width)
        make.linear(f"{name}.mlp.down_proj", width, part["inter"], gain)
    make.norm(f"{prefix}.norm", width)


def _stage0(make: Maker, size: str, config: dict[str, Any], eos_gain: float) -> None:
    shape, talker = SIZES[size], config["talker_config"]
    width, text, codes, inner = shape["talker"]["hidden"], shape["text"], shape["codes"], shape["predictor"]["hidden"]
    make.normal("talker.model.text_embedding.weight", (talker["text_vocab_size"], text), 1.0)
    make.normal("talker.model.codec_embedding.weight", (talker["vocab_size"], width), 0.35)
    _layers(make, "talker.model", shape["talker"])
    make.linear("talker.text_projection.linear_fc1", text, text, bias=True)
    make.linear("talker.text_projection.linear_fc2", width, text, bias=True)
    name = "talker.codec_head.weight"
    head = torch.empty(talker["vocab_size"], width).normal_(0, 1.5 / sqrt(width), generator=make.generator(name))
    head[talker["codec_eos_token_id"]] *= eos_gain  # so that greedy speech ends after some dozen frames
    make.put(name, head)
    prefix = "talker.code_predictor"
    for group in range(15):
        make.normal(f"{prefix}.model.codec_embedding.{group}.weight", (codes, width), 0.25)
        make.linear(f"{prefix}.lm_head.{group}", codes, inner, 1.5)
    _layers(make, f"{prefix}.model", shape["predictor"])
    if inner != width:
        make.linear(f"{prefix}.small_to_mtp_projection", inner, width, bias=True)


def _dump(path: Path, body: object) -> None:
    path.write_text(json.dumps(body, indent=2, ensure_ascii=False), encoding="utf-8")


def write(
    folder: Path,
    *,
    size: str = "tiny",
    kind: str = "base",
    seed: int = 0,
    dtype: torch.dtype = torch.bfloat16,
    eos_gain: float | None = None,
) -> Path:
    """Write a checkpoint folder (tiny: 2.9 MB, a tenth of a second) and return it. ``dtype`` is stage 0's."""
    small = size in SMALL
    (folder / "speech_tokenizer").mkdir(parents=True, exist_ok=True)
    words, merges = vocabulary()
    (folder / "vocab.json").write_text(json.dumps(words, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")
    (folder / "merges.txt").write_text(merges, encoding="utf-8")
    added = {
        str(len(words) + at): {
            "content": token,
            "lstrip": False,
            "normalized": False,
            "rstrip": False,
            "single_word": False,
            "special": "tool_" not in token
            and "think" not in token
            and not token.startswith(("<|fim", "<|repo", "<|file")),
        }
        for at, token in enumerate(SPECIALS)
    }
    _dump(
        folder / "tokenizer_config.json",
        {
            "add_bos_token": False,
            "add_prefix_space": False,
            "added_tokens_decoder": added,
            "bos_token": None,
            "clean_up_tokenization_spaces": False,
            "eos_token": "<|im_end|>",
            "errors": "replace",
            "model_max_length": 131_072,
            "pad_token": "<|endoftext|>",
            "split_special_tokens": False,
            "tokenizer_class": "Qwen2Tokenizer",
            "processor_class": "Qwen3TTSProcessor",
            "unk_token": None,
            "additional_special_tokens": [one["content"] for one in added.values() if one["special"]][1:],
        },
    )
    config = root_config(size, kind)
    _dump(folder / "config.json", config)
    sampling = {"temperature": 0.9, "top_k": 50, "top_p": 1.0}
    _dump(
        folder / "generation_config.json",
        {
            "do_sample": True,
            "repetition_penalty": 1.05,
            "subtalker_dosample": True,
            "max_new_tokens": 8192,
            **sampling,
            **{f"subtalker_{name}": value for name, value in sampling.items()},
        },
    )
    _dump(
        folder / "preprocessor_config.json",
        {
            "padding_side": "left",
            "padding_value": 0.0,
            "processor_class": "Qwen3TTSProcessor",
            "return_attention_mask": True,
        },
    )
    make = Maker(seed, dtype)
    _stage0(make, size, config, eos_gain if eos_gain is not None else 1.6 if small else 2.0)
    if "speaker_encoder_config" in config:
        speaker_encoder_tensors(make, config["speaker_encoder_config"])
    save_file(make.tensors, folder / "model.safetensors", metadata={"format": "pt"})
    codec = codec_config(small=small)
    _dump(folder / "speech_tokenizer" / "config.json", codec)
    _dump(
        folder / "speech_tokenizer" / "preprocessor_config.json",
        {
            "feature_extractor_type": "EncodecFeatureExtractor",
            "feature_size": 1,
            "sampling_rate": 24_000,
            "chunk_length_s": None,
            "overlap": None,
            "padding_side": "right",
            "padding_value": 0.0,
            "return_attention_mask": True,
        },
    )
    _dump(folder / "speech_tokenizer" / "configuration.json", {"framework": "pytorch", "task": "feature-extraction"})
    make = Maker(seed, torch.float32)
    codec_tensors(make, codec)
    save_file(make.tensors, folder / "speech_tokenizer" / "model.safetensors", metadata={"format": "pt"})
    return folder
