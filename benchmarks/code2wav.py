"""What stage 1 costs: CPU time per frame of a full-size codec with random weights, streaming against one pass.

    python -m benchmarks.code2wav [--dtype float32|bfloat16] [--threads 1] [--frames 100] [--streams 1] [--reference]

Real time is 80 ms a frame. CPU time is what the process used, so neighbours on the machine disturb it little; every
figure is the least of several rounds that take turns. ``--reference`` runs the decoder of the reference package
``qwen-tts`` on the same weights beside ours (start it with that package's interpreter) and prints the greatest
difference of the samples.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from adapters.engines.qwen3_tts.code2wav import Code2Wav
from adapters.engines.qwen3_tts.codec_config import DecoderConfig

REAL = DecoderConfig(
    codebook_size=2048,
    codebook_dim=512,
    latent_dim=1024,
    hidden_size=512,
    intermediate_size=1024,
    layers=8,
    heads=16,
    kv_heads=16,
    head_dim=64,
    rope_theta=10_000.0,
    sliding_window=72,
    rms_norm_eps=1e-5,
    decoder_dim=1536,
    upsample_rates=(8, 5, 4, 3),
    upsampling_ratios=(2, 2),
)
PIECES = (1, 2, 4, 8, 25)


class RandomTensors:
    """Seeded weights of any shape that is asked for; the same name always has the same values."""

    def names(self) -> tuple[str, ...]:
        return ()

    def get(self, name: str, shape: tuple[int, ...] | None = None) -> torch.Tensor:
        if shape is None:
            raise ValueError(name)
        generator = torch.Generator().manual_seed(sum(name.encode()) * 257 + len(name))
        if name.endswith("cluster_usage"):
            return torch.ones(shape)
        if name.endswith(("norm.weight", "layernorm.weight")):
            return torch.ones(shape)
        if len(shape) == 1:
            return torch.empty(shape).normal_(0.0, 0.1, generator=generator)
        return torch.empty(shape).normal_(0.0, 0.6 / math.sqrt(math.prod(shape[1:])), generator=generator)


def reference_decoder(weights: RandomTensors, dtype: torch.dtype) -> Callable[[np.ndarray], np.ndarray]:
    """The reference package's one-pass decode with these weights."""
    from qwen_tts.core.tokenizer_12hz import configuration_qwen3_tts_tokenizer_v2 as configuration
    from qwen_tts.core.tokenizer_12hz import modeling_qwen3_tts_tokenizer_v2 as modeling

    config = configuration.Qwen3TTSTokenizerV2DecoderConfig(
        codebook_dim=512, codebook_size=2048, latent_dim=1024, hidden_size=512, intermediate_size=1024, head_dim=64
    )
    config._attn_implementation = "sdpa"
    model: Any = modeling.Qwen3TTSTokenizerV2Decoder(config).eval()
    state = {name: weights.get(f"decoder.{name}", tuple(value.shape)) for name, value in model.state_dict().items()}
    model.load_state_dict(state)
    model = model.to(dtype)

    def decode(codes: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return model(torch.from_numpy(codes.T[None].astype(np.int64)))[0, 0].float().numpy()

    return decode


def cpu_ms(run: Callable[[], object]) -> float:
    """CPU milliseconds of one run."""
    start = time.process_time()
    run()
    return (time.process_time() - start) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--frames", type=int, default=100)
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--reference", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.set_grad_enabled(False)
    dtype, frames, streams = getattr(torch, options.dtype), options.frames, options.streams
    weights = RandomTensors()
    ours = Code2Wav(REAL, weights, dtype=dtype, threads=options.threads)
    codes = np.random.default_rng(1).integers(0, 2048, (frames, 16)).astype(np.int16)
    reference = reference_decoder(weights, dtype) if options.reference else None
    print(
        f"{options.dtype}, {options.threads} thread(s), {frames} frames, state {ours.new_state().nbytes / 1e6:.2f} MB"
    )

    def stream(piece: int) -> None:
        for start in range(0, frames, piece):
            ours.decode([(state, codes[start : start + piece]) for state in states])

    ours.decode([(ours.new_state(), codes[:4])])
    best: dict[str, float] = {}

    def note(name: str, run: Callable[[], object], count: int) -> None:
        best[name] = min(best.get(name, math.inf), cpu_ms(run) / count)

    for _ in range(options.rounds):
        if reference is not None:
            note("reference, one pass", lambda: reference(codes), frames)
        note("one pass", lambda: ours.decode([(ours.new_state(), codes)]), frames)
        note("passing a reference by", lambda: ours.listen(ours.new_state(), codes), frames)
        for piece in PIECES:
            states = [ours.new_state() for _ in range(streams)]
            for state in states:
                ours.listen(state, np.resize(codes, (80, 16)))  # steady state: every window is full
            note(f"{streams} stream(s), {piece} frame(s) a call", lambda piece=piece: stream(piece), frames * streams)
    for name, value in best.items():
        print(f"{name:36} {value:7.2f} ms a frame   {value / best['one pass']:5.2f} of one pass")
    if reference is not None:
        sound, wanted = ours.decode([(ours.new_state(), codes)])[0], reference(codes)
        print(f"greatest difference {np.abs(sound - wanted).max():.2e}, level {np.sqrt(np.mean(wanted**2)):.3f}")


if __name__ == "__main__":
    main()
