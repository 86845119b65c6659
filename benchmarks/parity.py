"""Equality with the reference package at full size: codes and waveform of the 0.6B shape with random weights.

    REFERENCE_PYTHON=/path/to/venv/bin/python python -m benchmarks.parity [--precision float32 bfloat16]
                                              [--max-new 16] [--device cpu] [--cache DIR] [--json FILE]

Greedy in both. Ours runs in the precision and on the device asked for; the reference always on the CPU. In bfloat16
nothing promises equal codes (the order of sums decides between near ties of random weights), so the number of equal
frames before the first difference is shown, and how far the first logits of both lie from the reference's float32 ones
(root mean square): a wrong cast would put ours further away than theirs. Exit status 1 when float32 differs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray

from adapters.engines.qwen3_tts.__main__ import arguments, speak
from adapters.engines.qwen3_tts.talker import Talker
from benchmarks.runtime import CACHE, made

CASES: dict[str, dict[str, Any]] = {
    "english": {"text": "It was a bright cold day in April.", "language": "English", "speaker": "Ryan", "whole": False},
    "whole": {"text": "The clocks were striking thirteen.", "language": "English", "speaker": "Aiden", "whole": True},
    "chinese": {"text": "你好，世界。今天天气很好。", "language": "Chinese", "speaker": "Vivian", "whole": False},
    "auto": {"text": "Uno, due, tre: si parte!", "language": "Auto", "speaker": "Serena", "whole": False},
}
WAVE_TOLERANCE = 1e-4


def reference(folder: Path, precision: str, max_new: int, threads: int) -> dict[str, NDArray[Any]]:
    """Codes, waveforms and logits of every case, by the reference."""
    with tempfile.TemporaryDirectory() as place:
        out, cases = Path(place) / "out.npz", Path(place) / "cases.json"
        cases.write_text(json.dumps(CASES))
        script = Path(__file__).with_name("parity_reference.py")
        command = [os.environ["REFERENCE_PYTHON"], str(script), str(folder), precision, str(max_new), str(threads)]
        subprocess.run([*command, str(out), str(cases)], check=True)
        with np.load(out) as kept:
            return dict(kept)


def ours(folder: Path, case: dict[str, Any], precision: str, max_new: int, device: str) -> tuple[Any, NDArray[Any]]:
    """One case by this runtime, through the same command that users run; the result and the first logits."""
    line = [str(folder), "--text", case["text"], "--language", case["language"], "--speaker", case["speaker"]]
    line += ["--greedy", "--max-new", str(max_new), "--dtype", precision, "--device", device, "--chunk-frames", "5"]
    if case["whole"]:
        line.append("--whole-text")
    first: list[NDArray[Any]] = []
    logits = Talker.logits

    def listened(self: Talker, hidden: torch.Tensor) -> torch.Tensor:
        out = logits(self, hidden)
        if not first:
            first.append(out[0].cpu().numpy().copy())
        return out

    with mock.patch.object(Talker, "logits", listened):
        return speak(arguments().parse_args(line)), first[0]


def equal_frames(a: NDArray[Any], b: NDArray[Any]) -> int:
    """Leading frames in which all 16 codes agree."""
    n = min(len(a), len(b))
    differs = np.nonzero((a[:n] != b[:n]).any(1))[0]
    return int(differs[0]) if len(differs) else n


def rms(x: NDArray[Any]) -> float:
    """Root mean square."""
    return float(np.sqrt(np.square(x.astype(np.float64)).mean()))


def main(argv: Sequence[str] | None = None) -> int:
    """Compare every case and print one line each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.parity", description=__doc__)
    parser.add_argument("--precision", nargs="+", default=["float32"], choices=["float32", "bfloat16"])
    parser.add_argument("--max-new", type=int, default=16)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args(argv)
    if "REFERENCE_PYTHON" not in os.environ:
        parser.error("REFERENCE_PYTHON must name an interpreter that has the package qwen-tts")
    torch.set_num_threads(asked.threads)
    folder, rows, failed = made(asked.cache), [], False
    exact: dict[str, NDArray[Any]] = {}
    for precision in dict.fromkeys(["float32", *asked.precision]):
        theirs = reference(folder, precision, asked.max_new, asked.threads)
        for name, case in CASES.items():
            result, logits = ours(folder, case, precision, asked.max_new, asked.device)
            if precision == "float32":
                exact[name] = theirs[f"{name}.logits"][0]
            off = [rms(one - exact[name]) for one in (theirs[f"{name}.logits"][0], logits)]
            codes, wave = theirs[f"{name}.codes"], theirs[f"{name}.wav"]
            same = equal_frames(codes, result.codes)
            frames = max(len(codes), len(result.codes))
            n = same * 1_920
            apart = float(np.abs(wave[:n] - result.pcm[:n]).max()) if n else float("nan")
            row = {
                "precision": precision,
                "case": name,
                "frames": frames,
                "equal": same,
                "wave_max_abs": apart,
                "logits": off,
            }
            rows.append(row)
            failed |= precision == "float32" and (same != frames or not apart <= WAVE_TOLERANCE)
            print(f"{precision:9} {name:9} frames {frames:3}  equal {same:3}  waveform max abs {apart:.1e}", end="")
            print(f"  first logits off float32 by {off[0]:.4f} (theirs), {off[1]:.4f} (ours)", flush=True)
    if asked.json is not None:
        asked.json.write_text(json.dumps(rows, indent=2))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
