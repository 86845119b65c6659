"""Makes stage0.npz: what the reference package (qwen-tts 0.1.1, transformers 4.57.3) gives on tiny checkpoints.

Run in an environment that has it: ``python -m tests.adapters.engines.qwen3_tts.goldens.make_stage0 OUT.npz``.
Keys are ``checkpoint/case/array``: codes int16 (frames, 16), prompt and trailing float32, logits float32 (the first
``LOGITS`` steps), ids; for clones also embedding and ref_codes. ``cases`` holds their descriptions as JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.adapters.engines.qwen3_tts import tiny

MAX_NEW = 40
LOGITS = 3
SEED = 7
INSTRUCTION = "Speak slowly, in a calm and warm voice."
TRANSCRIPT = "This is what the speaker said."
ENGLISH = "Hello world, this is a small test."
CHINESE = "你好，世界。"
COUNT = "One, two, three."
# Temperature 1 does nothing, and keeps the library from warning at every call.
GREEDY = {"do_sample": False, "subtalker_dosample": False, "temperature": 1.0, "subtalker_temperature": 1.0}

BASE = [
    {"text": CHINESE, "language": "chinese", "clone": "icl", "layout": "streaming"},
    {"text": ENGLISH, "language": "english", "clone": "icl", "layout": "whole"},
    {"text": ENGLISH, "language": "english", "clone": "short", "layout": "streaming"},
    {"text": ENGLISH, "language": "english", "clone": "vector", "layout": "streaming"},
    {"text": COUNT, "language": None, "clone": "vector", "layout": "whole"},
    {"text": ENGLISH, "language": "english", "clone": "icl", "layout": "streaming", "seed": SEED},
]
CUSTOM = [
    {"text": CHINESE, "language": "chinese", "speaker": "Vivian", "layout": "streaming"},
    {"text": CHINESE, "language": "chinese", "speaker": "Eric", "layout": "whole"},
    {"text": COUNT, "language": None, "speaker": "Eric", "layout": "streaming"},
    {"text": COUNT, "language": None, "speaker": "Vivian", "layout": "streaming"},
    {"text": ENGLISH, "language": "english", "speaker": "Ryan", "layout": "streaming", "seed": SEED},
    {"text": ENGLISH, "language": "english", "speaker": "Ryan", "layout": "whole", "seed": SEED},
]
INSTRUCTED = [
    {"text": ENGLISH, "language": "english", "speaker": "Ryan", "instruct": INSTRUCTION, "layout": "streaming"},
]
DESIGN = [
    {"text": CHINESE, "language": "chinese", "instruct": INSTRUCTION, "layout": "streaming"},
    {"text": COUNT, "language": None, "instruct": INSTRUCTION, "layout": "whole"},
    {"text": ENGLISH, "language": "english", "instruct": "", "layout": "streaming"},
    {"text": ENGLISH, "language": "english", "instruct": INSTRUCTION, "layout": "streaming", "seed": SEED},
]
CASES: dict[tuple[str, str], list[dict[str, Any]]] = {
    ("tiny", "base"): BASE,
    ("tiny17", "base"): BASE,
    ("tiny", "custom_voice"): CUSTOM,
    ("tiny17", "custom_voice"): CUSTOM + INSTRUCTED,
    ("tiny", "voice_design"): DESIGN,
    ("tiny17", "voice_design"): DESIGN,
}


def recording(seconds: float, seed: int) -> np.ndarray:
    """A voice-like sound at 24 kHz."""
    random = np.random.default_rng(seed)
    time = np.arange(int(24_000 * seconds)) / 24_000
    phase = 2 * np.pi * np.cumsum(140 + 30 * np.sin(2 * np.pi * 1.7 * time)) / 24_000
    sound = sum(np.sin(k * phase + random.uniform(0, 6)) / k for k in range(1, 12))
    sound = sound * (0.5 + 0.5 * np.sin(2 * np.pi * 3.1 * time) ** 2)
    return (0.25 * sound / np.abs(sound).max() + 0.01 * random.standard_normal(len(time))).astype(np.float32)


class Tap:
    """Keeps what goes into the talker's generation and what its head gives."""

    def __init__(self, tts: Any) -> None:
        self.seen: dict[str, Any] = {}
        self.logits: list[torch.Tensor] = []
        self.ids: list[np.ndarray] = []
        generate, whole, tokenize = tts.model.talker.generate, tts.model.generate, tts._tokenize_texts

        def talk(*args: Any, **kw: Any) -> Any:
            self.seen["prompt"] = kw["inputs_embeds"][0].float().numpy()
            self.seen["trailing"] = kw["trailing_text_hidden"][0].float().numpy()
            return generate(*args, **kw)

        def run(*args: Any, **kw: Any) -> Any:
            codes, hidden = whole(*args, **kw)
            self.seen["codes"] = codes[0].numpy().astype(np.int16)
            return codes, hidden

        def ids(texts: Any) -> Any:
            found = tokenize(texts)
            self.ids.append(found[0].numpy().reshape(-1).astype(np.int32))
            return found

        tts.model.talker.generate, tts.model.generate, tts._tokenize_texts = talk, run, ids
        tts.model.talker.codec_head.register_forward_hook(
            lambda module, inputs, output: self.logits.append(output[0, -1].float())
        )

    def take(self) -> dict[str, np.ndarray]:
        taken = {**self.seen, "logits": torch.stack(self.logits[:LOGITS]).numpy(), "ids": self.ids[0]}
        if len(self.ids) > 1:
            taken["more_ids"] = self.ids[1]
        self.seen, self.logits, self.ids = {}, [], []
        return taken


def run_case(tts: Any, case: dict[str, Any], clones: dict[str, Any]) -> None:
    options = dict(GREEDY) if "seed" not in case else {}
    torch.manual_seed(case.get("seed", 0))
    common = {
        "language": (case["language"] or "auto").capitalize(),
        "non_streaming_mode": case["layout"] == "whole",
        "max_new_tokens": MAX_NEW,
        **options,
    }
    if "clone" in case:
        tts.generate_voice_clone(case["text"], voice_clone_prompt=[clones[case["clone"]]], **common)
    elif "speaker" in case:
        instruct = {"instruct": case["instruct"]} if "instruct" in case else {}
        tts.generate_custom_voice(case["text"], speaker=case["speaker"], **instruct, **common)
    else:
        tts.generate_voice_design(case["text"], instruct=case["instruct"], **common)


def main(out: str) -> None:
    from qwen_tts import Qwen3TTSModel

    torch.set_num_threads(1)
    arrays: dict[str, Any] = {}
    described = []
    with tempfile.TemporaryDirectory() as folder:
        for (size, kind), cases in CASES.items():
            name = f"{size}-{kind}"
            path = tiny.write(Path(folder) / name, size=size, kind=kind)
            tts = Qwen3TTSModel.from_pretrained(str(path), dtype=torch.float32, attn_implementation="sdpa")
            clones: dict[str, Any] = {}
            if kind == "base":
                long, short = (recording(2.3, 5), 24_000), (recording(0.9, 9), 24_000)
                clones["icl"] = tts.create_voice_clone_prompt(long, ref_text=TRANSCRIPT)[0]
                clones["short"] = tts.create_voice_clone_prompt(short, ref_text="Hi.")[0]
                clones["vector"] = tts.create_voice_clone_prompt(long, x_vector_only_mode=True)[0]
            tap = Tap(tts)
            for at, case in enumerate(cases):
                run_case(tts, case, clones)
                taken = tap.take()
                if "clone" in case:
                    clone = clones[case["clone"]]
                    taken["embedding"] = clone.ref_spk_embedding.float().numpy()
                    if clone.ref_code is not None:
                        taken["ref_codes"] = clone.ref_code.numpy().astype(np.int16)
                arrays.update({f"{name}/{at}/{key}": value for key, value in taken.items()})
                described.append({"checkpoint": name, "size": size, "kind": kind, "at": at, **case})
    np.savez_compressed(out, cases=json.dumps(described, ensure_ascii=False), **arrays)


if __name__ == "__main__":
    main(sys.argv[1])
