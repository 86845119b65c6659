"""The reference package's own loop, for ``benchmarks.runtime``; runs under that package's interpreter.

    python benchmarks/runtime_reference.py CHECKPOINT float32|bfloat16 FRAMES ROUNDS THREADS

Prints one JSON line. Only ``qwen_tts`` and torch are imported. What is timed is the span from one talker head to the
next: the code predictor's fifteen codes and the talker's step, as in a step of ours.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import sys
import time
from typing import Any

TEXT = "It was a bright cold day in April, and the clocks were striking thirteen. " * 6


def main() -> None:
    folder, precision = sys.argv[1:3]
    frames, rounds, threads = (int(one) for one in sys.argv[3:6])
    os.environ["HF_HUB_OFFLINE"] = "1"  # the checkpoint is a folder
    import torch
    from qwen_tts import Qwen3TTSModel

    torch.set_num_threads(threads)
    began, used = time.perf_counter(), time.process_time()
    tts: Any = Qwen3TTSModel.from_pretrained(folder, dtype=getattr(torch, precision), attn_implementation="sdpa")
    load_s, load_cpu_s = time.perf_counter() - began, time.process_time() - used
    heads: list[tuple[float, float]] = []
    tts.model.talker.codec_head.register_forward_hook(
        lambda *_: heads.append((time.perf_counter(), time.process_time()))
    )
    wall: list[float] = []
    cpu: list[float] = []
    prefill: list[float] = []
    seed = 0
    with torch.inference_mode():
        while len(cpu) < frames * rounds:  # random weights may end a speech early: speak until there is enough
            torch.manual_seed(seed)
            seed += 1
            heads.clear()
            began = time.process_time()
            tts.generate_custom_voice(TEXT, speaker="Ryan", language="English", max_new_tokens=frames * rounds + 3)
            prefill.append(heads[0][1] - began)
            spans = list(itertools.pairwise(heads[1:]))  # the first step warms up
            wall += [(after[0] - before[0]) * 1e3 for before, after in spans]
            cpu += [(after[1] - before[1]) * 1e3 for before, after in spans]
    print(
        json.dumps(
            {
                "wall_ms": [sum(wall[at : at + frames]) / frames for at in range(0, frames * rounds, frames)],
                "cpu_ms": [sum(cpu[at : at + frames]) / frames for at in range(0, frames * rounds, frames)],
                "load_s": load_s,
                "load_cpu_s": load_cpu_s,
                "admit_ms": min(prefill) * 1e3,
                "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
            }
        )
    )


if __name__ == "__main__":
    main()
