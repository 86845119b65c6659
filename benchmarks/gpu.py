"""One short script for a machine with a GPU (under 8 minutes): equality, time to first audio, frames a second.

    python -m benchmarks.gpu [--device cuda:0] [--size 0.6b] [--batch 1 8 32] [--frames 40] [--cache DIR] [--json FILE]

- *equality*: greedy codes in float32 on the device against the CPU's, also with CUDA graphs; Code2Wav's samples.
- *first audio*: prefill, one frame, one decode call, bfloat16, from asking to samples on the host; median of 20.
- *frames a second*: all rows together in bfloat16, with and without CUDA graphs, and with decoding.

``--device cpu --size tiny`` runs all of it anywhere, to prove the script. Weights are random in the released shapes;
speed does not depend on them. Exit status 1 when codes differ.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from adapters.engines.qwen3_tts.checkpoint import Checkpoint, open_checkpoint
from adapters.engines.qwen3_tts.code2wav import Code2Wav
from adapters.engines.qwen3_tts.graphs import graphs_for
from adapters.engines.qwen3_tts.linear import Precision
from adapters.engines.qwen3_tts.stage0 import Stage0
from adapters.engines.qwen3_tts.stages import Frames, Prompt, Sampling
from adapters.engines.qwen3_tts.tokenizer import TextTokenizer
from benchmarks.figures import median
from benchmarks.runtime import CACHE, made

TEXT = tuple(range(10, 200))
REAL_TIME = 12.5
WAVE_TOLERANCE = 1e-4


class Bench:
    """A checkpoint and the stages made of it."""

    def __init__(self, folder: Path, device: str) -> None:
        self.checkpoint: Checkpoint = open_checkpoint(folder)
        self.roles = TextTokenizer.load(self.checkpoint.folder, self.checkpoint.talker).role_ids
        self.device = torch.device(device)
        self.speaker = next(iter(self.checkpoint.talker.speakers))

    def talker(self, precision: Precision, rows: int, *, graphs: bool, device: str | None = None) -> Stage0:
        """Stage 0 in slots, as it runs on a GPU."""
        place = torch.device(device) if device else self.device
        wrap = graphs_for(place) if graphs else None
        return Stage0.load(
            self.checkpoint,
            self.roles,
            device=str(place),
            precision=precision,
            rows=rows,
            positions=768,
            slots=True,
            wrap=wrap,
        )

    def decoder(self, device: str | None = None) -> Code2Wav:
        """Stage 1 in float32."""
        return Code2Wav(self.checkpoint.codec.decoder, self.checkpoint.codec_weights, device=device or str(self.device))

    def prompt(self, seed: int, *, greedy: bool = False) -> Prompt:
        """Random text that no row ends before."""
        ids = tuple(one % self.checkpoint.talker.text_vocab for one in TEXT)
        return Prompt(ids, speaker=self.speaker, sampling=Sampling(seed=seed, greedy=greedy, min_frames=10_000))

    def codes(self, talker: Stage0, frames: int) -> Frames:
        """Greedy frames of one row."""
        talker.admit(0, self.prompt(0, greedy=True))
        steps = [talker.step([0])[0].frame for _ in range(frames)]
        talker.release(0)
        return np.stack([frame for frame in steps if frame is not None])

    def wait(self) -> None:
        """Until the device has done what it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def timed(bench: Bench, call: Callable[[], Any]) -> float:
    """Milliseconds of one call, the device's work included."""
    bench.wait()
    began = time.perf_counter()
    call()
    bench.wait()
    return (time.perf_counter() - began) * 1e3


def equality(bench: Bench, frames: int) -> dict[str, Any]:
    """Greedy codes and samples of the device against those of the CPU."""
    expected = bench.codes(bench.talker("float32", 1, graphs=False, device="cpu"), frames)
    found: dict[str, Any] = {"frames": len(expected)}
    for name, graphs in (("plain", False), ("graphs", True)):
        codes = bench.codes(bench.talker("float32", 1, graphs=graphs), frames)
        found[name] = int((codes == expected).all(1).cumprod().sum())
    ours, theirs = bench.decoder(), bench.decoder("cpu")
    mine = ours.decode([(ours.new_state(), expected)])[0]
    found["wave_max_abs"] = float(np.abs(mine - theirs.decode([(theirs.new_state(), expected)])[0]).max())
    return found


def _step_into(talker: Stage0, frames: list[Any]) -> None:
    frames.append(talker.step([0])[0].frame)


def first_audio(bench: Bench, rounds: int, *, graphs: bool) -> dict[str, float]:
    """Milliseconds from asking to the first 80 ms of sound, and its parts."""
    talker, decoder = bench.talker("bfloat16", 1, graphs=graphs), bench.decoder()
    parts: dict[str, list[float]] = {"prefill": [], "frame": [], "decode": [], "total": []}
    for at in range(rounds + 2):
        state, prompt = decoder.new_state(), bench.prompt(at)
        spent = [timed(bench, partial(talker.admit, 0, prompt))]
        frames: list[Any] = []
        spent.append(timed(bench, partial(_step_into, talker, frames)))
        spent.append(timed(bench, partial(decoder.decode, [(state, np.stack(frames))])))
        talker.release(0)
        if at >= 2:  # the first ones record graphs and choose kernels
            for name, ms in zip(parts, [*spent, sum(spent)], strict=True):
                parts[name].append(ms)
    return {name: median(values) for name, values in parts.items()}


def throughput(bench: Bench, rows: int, frames: int, *, graphs: bool, decode: bool) -> float:
    """Frames a second of all rows together, bfloat16."""
    talker = bench.talker("bfloat16", rows, graphs=graphs)
    decoder = bench.decoder() if decode else None
    states = [decoder.new_state() for _ in range(rows)] if decoder is not None else []
    for row in range(rows):
        talker.admit(row, bench.prompt(row))
    every = list(range(rows))
    for _ in range(3):
        talker.step(every)

    def run() -> None:
        kept: list[list[Any]] = [[] for _ in every]
        for at in range(frames):
            for one in talker.step(every):
                kept[one.row].append(one.frame)
            if decoder is not None and (at + 1) % 25 == 0:
                decoder.decode([(states[row], np.stack(kept[row])) for row in every])
                kept = [[] for _ in every]

    return rows * frames / (timed(bench, run) / 1e3)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; 1 when codes or samples differ from the CPU's."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--size", default="0.6b", choices=["tiny", "0.6b"])
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 8, 32])
    parser.add_argument("--frames", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args(argv)
    bench = Bench(made(asked.cache, asked.size), asked.device)
    name = torch.cuda.get_device_name(bench.device) if bench.device.type == "cuda" else "CPU"
    print(f"{name}, PyTorch {torch.__version__}, {asked.size} with random weights")
    same = equality(bench, min(asked.frames, 24))
    print(f"equality: {same['plain']} of {same['frames']} frames, {same['graphs']} with graphs; ", end="")
    print(f"samples apart by {same['wave_max_abs']:.1e}", flush=True)
    results: dict[str, Any] = {"device": name, "equality": same, "first_audio_ms": {}, "frames_per_s": []}
    for graphs in (False, True):
        spent = first_audio(bench, asked.rounds, graphs=graphs)
        results["first_audio_ms"]["graphs" if graphs else "plain"] = spent
        words = ", ".join(f"{part} {ms:.1f}" for part, ms in spent.items())
        print(f"first audio {'with' if graphs else 'without'} graphs, ms: {words}", flush=True)
    print("rows  graphs  decode  frames/s  x real time of each row")
    for rows in asked.batch:
        for graphs, decode in ((False, False), (True, False), (True, True)):
            rate = throughput(bench, rows, asked.frames, graphs=graphs, decode=decode)
            results["frames_per_s"].append({"rows": rows, "graphs": graphs, "decode": decode, "rate": rate})
            yes = ("no", "yes")
            print(f"{rows:4}  {yes[graphs]:6}  {yes[decode]:6}  {rate:8.1f}  {rate / rows / REAL_TIME:.2f}", flush=True)
    if asked.json is not None:
        asked.json.write_text(json.dumps(results, indent=2))
    failed = min(same["plain"], same["graphs"]) < same["frames"] or same["wave_max_abs"] > WAVE_TOLERANCE
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
