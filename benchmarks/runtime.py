"""What stage 0 costs: frames a second of a full-size 0.6B checkpoint with random weights, beside the reference's loop.

    python -m benchmarks.runtime [--precision float32 bfloat16 int8] [--batch 1 8] [--frames 6] [--rounds 5]
                                 [--threads 1] [--reference float32 bfloat16] [--json FILE]

The checkpoint is written once (2.7 GB, a minute) to ``--cache``. Each measurement runs in a process of its own, so
that its peak memory is its own. A frame is a talker step and fifteen predictor passes for every row; figures are
medians of rounds of ``--frames`` steps. CPU time is what the process used, and neighbours on the machine disturb it
less than wall time. Real time is 12.5 frames a second for each row.

The bound beside each figure is the time to read the weights of one step once, at the rate at which the same number of
threads reads memory just before. It counts weights alone: a product whose operands stay in the cache can beat it.

With the environment variable ``REFERENCE_PYTHON`` (an interpreter that has the package ``qwen-tts``) the reference's
own loop is measured between ours, on the same weights, one stream; ratios are to its figure.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import torch

from adapters.engines.host import HUGE_PAGES
from adapters.engines.qwen3_tts.checkpoint import open_checkpoint
from adapters.engines.qwen3_tts.config import TalkerConfig
from adapters.engines.qwen3_tts.engine import Qwen3TtsSettings
from adapters.engines.qwen3_tts.linear import PRECISIONS, Precision
from adapters.engines.qwen3_tts.loading import load
from adapters.engines.qwen3_tts.stages import CODEBOOKS, FRAME_SAMPLES, Prompt, Sampling
from benchmarks.figures import Neighbours, machine, median

BYTES: dict[Precision, int] = {"float32": 4, "bfloat16": 2, "int8": 1}
CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "sidecar" / "benchmarks"
NEEDED_BYTES = 4_000_000_000
WARM_UP = 2
TEXT_IDS = tuple(range(10, 200))
"""Long enough that every measured step feeds text, as live speech does."""


def made(cache: Path, size: str = "0.6b") -> Path:
    """The folder of a random checkpoint of this size; written on first use, complete or not at all."""
    from tests.adapters.engines.qwen3_tts import tiny

    folder = cache / f"{size}-custom_voice-0"
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    if size != "tiny" and shutil.disk_usage(cache).free < NEEDED_BYTES:
        raise SystemExit(f"{cache} has no room for the checkpoint ({NEEDED_BYTES / 1e9:.0f} GB): name another --cache")
    print(f"writing a random {size} checkpoint to {cache}", file=sys.stderr)
    part = folder.with_suffix(f".{os.getpid()}")
    try:
        tiny.write(part, size=size, kind="custom_voice")
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


def weights_per_step(config: TalkerConfig) -> int:
    """Values of all matrices that one step multiplies with; those of a predictor's pass count fifteen times."""

    def layers(part: Any) -> int:
        attention = part.hidden * part.head_dim * (2 * part.heads + 2 * part.kv_heads)
        return int(part.layers * (attention + 3 * part.hidden * part.intermediate))

    width, inner, text = config.talker.hidden, config.predictor.hidden, config.text_hidden
    narrow = inner * width if inner != width else 0
    predictor = layers(config.predictor) + inner * config.codes + narrow
    return layers(config.talker) + config.codec_vocab * width + text * (text + width) + (CODEBOOKS - 1) * predictor


def read_rate(threads: int) -> float:
    """Bytes a second that matrix times vector reads from memory: the best of some passes over 512 MB."""
    torch.set_num_threads(threads)
    matrix, vector = torch.ones(32_768, 4_096), torch.ones(4_096)
    best = float("inf")
    for _ in range(6):
        began = time.perf_counter()
        torch.mv(matrix, vector)
        best = min(best, time.perf_counter() - began)
    return matrix.numel() * 4 / best


def measured(folder: Path, precision: Precision, batch: int, frames: int, rounds: int, threads: int) -> dict[str, Any]:
    """Load everything, admit ``batch`` rows, step them, decode one frame; figures per step of all rows."""
    settings = Qwen3TtsSettings(
        checkpoint=str(folder), precision=precision, threads=threads, max_rows=batch, same_alone_and_together=False
    )
    began, used = time.perf_counter(), time.process_time()
    stages = load(settings).stages
    load_s, load_cpu_s = time.perf_counter() - began, time.process_time() - used
    talker, rows = stages.talker, list(range(batch))

    def prompt(seed: int) -> Prompt:
        sampling = Sampling(seed=seed, min_frames=10_000)
        return Prompt(TEXT_IDS, speaker="ryan", language="english", sampling=sampling)

    talker.admit(0, prompt(0))
    talker.release(0)
    first = time.process_time()
    talker.admit(0, prompt(0))
    admit_ms = (time.process_time() - first) * 1e3
    frame = talker.step([0])[0].frame
    assert frame is not None
    samples = stages.decoder.decode([(stages.first_state(prompt(0)), frame[None])])[0]
    first_audio_ms = (time.process_time() - first) * 1e3
    assert len(samples) == FRAME_SAMPLES
    for row in rows[1:]:
        talker.admit(row, prompt(row))
    for _ in range(WARM_UP):
        talker.step(rows)
    wall, cpu = [], []
    for _ in range(rounds):
        began, used = time.perf_counter(), time.process_time()
        for _ in range(frames):
            talker.step(rows)
        wall.append((time.perf_counter() - began) / frames * 1e3)
        cpu.append((time.process_time() - used) / frames * 1e3)
    return {
        "wall_ms": wall,
        "cpu_ms": cpu,
        "load_s": load_s,
        "load_cpu_s": load_cpu_s,
        "admit_ms": admit_ms,
        "first_audio_ms": first_audio_ms,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
    }


def child(arguments: Sequence[str], python: str | None = None) -> Any:
    """What a process of its own printed as its last line."""
    command = [python, *arguments] if python else [sys.executable, "-m", "benchmarks.runtime", *arguments]
    environment = {**os.environ} if python else {**HUGE_PAGES, **os.environ}  # as the server's own child process
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return json.loads(done.stdout.strip().splitlines()[-1])


def report(name: str, batch: int, found: dict[str, Any], bound_ms: float, reference: float | None) -> str:
    """One line of the table: milliseconds of a step, frames a second of all rows, ratios."""
    cpu, wall = median(found["cpu_ms"]), median(found["wall_ms"])
    ratio = "" if reference is None else f"{batch / cpu / reference:5.2f}x"
    return (
        f"{name:22} {batch:5} {cpu:9.1f} {wall:9.1f} {1e3 * batch / cpu:9.2f} {bound_ms:9.1f} {cpu / bound_ms:6.2f} "
        f"{ratio:>6} {found['load_s']:7.1f} {found['admit_ms']:8.0f} {found['peak_mb']:8.0f}"
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--precision", nargs="*", default=list(PRECISIONS), choices=PRECISIONS)
    parser.add_argument("--batch", nargs="*", type=int, default=[1, 8])
    parser.add_argument("--frames", type=int, default=6, help="steps of a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--reference", nargs="*", default=["float32"], choices=["float32", "bfloat16"])
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--json", type=Path, help="where to keep all figures")
    parser.add_argument("--only", help=argparse.SUPPRESS)  # what a process of its own measures
    return parser.parse_args()


def main() -> None:
    options = arguments()
    threads, frames, rounds = options.threads, options.frames, options.rounds
    if options.only == "rate":
        print(json.dumps(read_rate(threads)))
        return
    folder = made(options.cache)
    if options.only:
        precision = cast(Precision, options.only)
        print(json.dumps(measured(folder, precision, options.batch[0], frames, rounds, threads)))
        return
    config = open_checkpoint(folder, weights=False).talker
    values = weights_per_step(config)
    python = os.environ.get("REFERENCE_PYTHON")
    count = [f"--frames={frames}", f"--rounds={rounds}", f"--threads={threads}", f"--cache={options.cache}"]
    kept: list[dict[str, Any]] = []
    references: dict[str, float] = {}
    print(f"{machine()}; {threads} thread(s), {values / 1e6:.0f} M weights a step; torch {torch.__version__}")
    print(
        f"{'':22} {'rows':>5} {'CPU ms':>9} {'wall ms':>9} {'frames/s':>9} {'bound ms':>9} {'x':>6} "
        f"{'ratio':>6} {'load s':>7} {'admit ms':>8} {'peak MB':>8}"
    )
    neighbours, began = Neighbours(), time.perf_counter()

    def measure(name: str, precision: Precision, batch: int, run: Sequence[str], interpreter: str | None) -> None:
        rate = child(["--only=rate", f"--threads={threads}"])
        found = child(run, interpreter)
        bound_ms = values * BYTES[precision] / rate * 1e3
        if interpreter:
            references[precision] = 1 / median(found["cpu_ms"])
        # The reference has no int8: the bar there is its float32.
        reference = references.get(precision, references.get("float32"))
        print(report(name, batch, found, bound_ms, reference), flush=True)
        kept.append({"name": name, "rows": batch, "read_bytes_per_s": rate, "bound_ms": bound_ms, **found})

    if python:
        script = str(Path(__file__).with_name("runtime_reference.py"))
        for precision in options.reference:
            run = [script, str(folder), precision, str(frames), str(rounds), str(threads)]
            measure(f"reference {precision}", precision, 1, run, python)
    for precision in options.precision:
        for batch in options.batch:
            measure(precision, precision, batch, [f"--only={precision}", f"--batch={batch}", *count], None)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    others = neighbours.cores_used(used.ru_utime + used.ru_stime, time.perf_counter() - began)
    print(f"ratio: frames a second of CPU to the reference's single stream; neighbours kept {others:.1f} cores busy")
    if options.json:
        options.json.write_text(json.dumps({"machine": machine(), "figures": kept}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
