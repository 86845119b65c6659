"""How far stage 0 in bfloat16 and int8 departs from float32, on the checkpoint of ``benchmarks.runtime`` or a real one.

    python -m benchmarks.precision [--precision bfloat16 int8] [--frames 12] [--checkpoint FOLDER]

Both are fed the same prompt and, frame by frame, the codes that float32 finds best: every logit compared follows the
same history. Printed for the talker and the code predictor: how often the best code is the same, the logits' relative
error (norm of the difference to the norm), and the mean Kullback-Leibler divergence of the distributions at
temperature 0.9. Random weights have flatter distributions than real ones, so their best codes change more easily.

Where int8 has kernels of its own, two more lines compare them with PyTorch's: products are equal, what is between them
rounds differently, and now and then an activation is rounded to the neighbouring level.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from adapters.engines.qwen3_tts.checkpoint import open_checkpoint
from adapters.engines.qwen3_tts.linear import Place, Precision
from adapters.engines.qwen3_tts.stage0 import Stage0
from adapters.engines.qwen3_tts.stages import Prompt
from adapters.engines.qwen3_tts.talker import KvCache
from adapters.engines.qwen3_tts.tokenizer import TextTokenizer
from benchmarks.runtime import CACHE, TEXT_IDS, made

TEMPERATURE = 0.9

Logits = list[list[torch.Tensor]]
"""Of every frame, of every codebook."""


class Forced:
    """One stage 0 that follows given codes and keeps the logits it would have drawn from."""

    def __init__(self, stage: Stage0, prompt: Prompt) -> None:
        self.stage = stage
        config, place = stage.config, stage.place
        self._cache = KvCache(config.talker, 1, stage.max_positions, place)
        x = torch.cat((stage.prompts.head(prompt), stage.prompts.rest(prompt)[0]))
        self._position = len(x)
        self.hidden = stage.talker.prefill(self._cache, 0, 0, x)

    def frame(self, codes: torch.Tensor | None) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """One frame along ``codes (16,)``, or along the best ones; returns them and the logits of every codebook."""
        talker = self.stage.talker
        logits = [talker.logits(self.hidden)]
        logits[0][:, self.stage.config.codes :] = -torch.inf  # no control ids
        first = logits[0].argmax(-1) if codes is None else codes[:1]

        def pick(found: torch.Tensor, group: int) -> torch.Tensor:
            logits.append(found)
            return found.argmax(-1) if codes is None else codes[group : group + 1]

        frame, total = self.stage.predictor.frame(self.hidden, first, talker.codes(first), pick)
        x = total + self.stage.prompts.tts_pad
        self.hidden = talker.step_rows(self._cache, [0], [self._position], x)
        self._position += 1
        return frame[0], logits


def compared(exact: list[torch.Tensor], rough: list[torch.Tensor]) -> str:
    """Agreement, relative error and divergence of logits ``(1, ids)`` in pairs."""
    a, b = torch.cat(exact), torch.cat(rough)
    a, b = a[:, a[0].isfinite()], b[:, a[0].isfinite()]
    p, q = (a / TEMPERATURE).log_softmax(-1), (b / TEMPERATURE).log_softmax(-1)
    same = (a.argmax(-1) == b.argmax(-1)).float().mean()
    divergence = (p.exp() * (p - q)).sum(-1).mean()
    return f"best code the same {same:6.1%}, error {(a - b).norm() / a.norm():.4f}, divergence {divergence:.5f} nats"


def show(name: str, exact: Logits, rough: Logits) -> None:
    """Two lines: the talker's logits, and the predictor's."""
    print(f"{name:9} talker     {compared([one[0] for one in exact], [one[0] for one in rough])}")
    print(f"{name:9} predictor  {compared(*([one for frame in side for one in frame[1:]] for side in (exact, rough)))}")


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--precision", nargs="*", default=["bfloat16", "int8"], choices=["bfloat16", "int8"])
    parser.add_argument("--frames", type=int, default=12)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--checkpoint", type=Path, help="a CustomVoice folder; default: the random one")
    parser.add_argument("--cache", type=Path, default=CACHE)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    checkpoint = open_checkpoint(options.checkpoint or made(options.cache))
    speaker = next(iter(checkpoint.talker.speakers))
    prompt = Prompt(TEXT_IDS[:40], language="english", speaker=speaker, layout="whole")
    role = TextTokenizer.load(checkpoint.folder, checkpoint.talker).role_ids

    def forced(precision: Precision, own_kernels: bool = True) -> Forced:
        place = Place(torch.device("cpu"), precision, own_kernels)
        return Forced(Stage0(checkpoint.talker, checkpoint.weights, role, place=place, positions=512), prompt)

    exact = forced("float32")
    found = [exact.frame(None) for _ in range(options.frames)]
    logits = [one for _, one in found]
    for precision in options.precision:
        rough = forced(precision)
        theirs = [rough.frame(codes)[1] for codes, _ in found]
        show(precision, logits, theirs)
        if rough.stage.place.kernels is not None:
            other = forced(precision, own_kernels=False)
            show("kernels", [other.frame(codes)[1] for codes, _ in found], theirs)


if __name__ == "__main__":
    main()
