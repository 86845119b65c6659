"""What the reference package says and how it sounds, for ``benchmarks.parity``; runs under that package's interpreter.

    python benchmarks/parity_reference.py CHECKPOINT float32|bfloat16 MAX_NEW THREADS OUT.npz CASES.json

Only ``qwen_tts``, torch and numpy are imported. Greedy, so that nothing depends on random numbers.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np


def main() -> None:
    folder, precision, max_new, threads, out, cases = sys.argv[1:7]
    os.environ["HF_HUB_OFFLINE"] = "1"  # the checkpoint is a folder
    import torch
    from qwen_tts import Qwen3TTSModel

    torch.set_num_threads(int(threads))
    tts: Any = Qwen3TTSModel.from_pretrained(folder, dtype=getattr(torch, precision), attn_implementation="sdpa")
    kept: dict[str, np.ndarray] = {}
    spoken: dict[str, Any] = {}
    generate = tts.model.generate

    def listened(*args: Any, **kw: Any) -> Any:
        codes, hidden = generate(*args, **kw)
        spoken["codes"] = codes[0].cpu().numpy()
        return codes, hidden

    tts.model.generate = listened
    logits: list[np.ndarray] = []
    tts.model.talker.codec_head.register_forward_hook(
        lambda module, given, output: logits.append(output[0, -1].float().numpy())
    )
    greedy = {"do_sample": False, "subtalker_dosample": False, "temperature": 1.0, "subtalker_temperature": 1.0}
    for name, case in json.loads(Path(cases).read_text()).items():
        logits.clear()
        began = time.perf_counter()
        audio, _ = tts.generate_custom_voice(
            case["text"],
            speaker=case["speaker"],
            language=case["language"],
            non_streaming_mode=case["whole"],
            max_new_tokens=int(max_new),
            **greedy,
        )
        print(f"reference {precision} {name}: {time.perf_counter() - began:.0f} s", file=sys.stderr)
        kept[f"{name}.codes"], kept[f"{name}.wav"] = spoken["codes"], audio[0]
        kept[f"{name}.logits"] = np.stack(logits)
    np.savez(out, **kept)


if __name__ == "__main__":
    main()
