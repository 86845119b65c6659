"""Stage 0: rows of talker and code predictor, as the scheduler's ``Talker``.

A step of a row is: feed its last frame and the next text id to the talker, draw the next code of group 0, complete
that code's frame with the predictor. The first step of a row needs no talker pass, ``admit`` has drawn its first code;
so the first frame needs one text id, and frame s + 1 the id after that.

The end of speech cannot be drawn in a live row before tts_eos has been fed, whenever its text is closed: its codes
depend on the text, not on its arrival. A row that is not live may end earlier, as in the reference.

What is guaranteed of a row's codes, whatever rows are stepped beside it:

- Prefills run one row at a time, attention runs over a row's own keys, and draws are keyed by (seed, step, codebook).
- ``int8``: every product's sums are exact integers of the row alone, and what is between them works on rows of widths
  that fill the vectors (true of the released sizes): codes are equal bit for bit.
- ``float32`` and ``bfloat16``: bit for bit where every batch has one shape, that is with ``fill_to=max_rows`` (or
  ``slots``). At the released widths MKL and oneDNN (x86, measured) give a row the same bits in any batch of two to
  eight rows and other ones alone, so there ``fill_to=2`` does, at up to a fifth of a lone row's speed. With
  ``fill_to=1`` logits agree within rounding, and a code can differ only where two candidates, or a uniform and a
  cumulated probability, are closer than that.
- Other CPUs and GPUs: as far as their kernels do so.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from adapters.engines.qwen3_tts.checkpoint import Checkpoint
from adapters.engines.qwen3_tts.config import TalkerConfig
from adapters.engines.qwen3_tts.linear import Place, Precision
from adapters.engines.qwen3_tts.predictor import Predictor
from adapters.engines.qwen3_tts.prompt import PromptBuilder
from adapters.engines.qwen3_tts.sampling import (
    PREDICTED,
    Draw,
    Rules,
    choose,
    constrain,
    inverse_cdf,
    predictor_rule,
    split_seed,
    talker_rule,
    uniforms,
)
from adapters.engines.qwen3_tts.stages import Prompt, Sampling, Stepped
from adapters.engines.qwen3_tts.talker import KeyValues, KvCache, Talker
from adapters.engines.qwen3_tts.tensors import Tensors
from sidecar.faults import BadRequest

_log = logging.getLogger(__name__)

WINDOW_STEP = 256
"""With ``slots`` attention runs over a multiple of so many positions: few shapes to capture."""

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]


@dataclass(slots=True)
class _Row:
    """One speech. ``position`` is the next free one of its cache, ``drawn`` counts codes of group 0, ``fed`` ids."""

    sampling: Sampling
    keys: tuple[int, int]
    position: int
    trailing: list[int]
    closed: bool
    live: bool
    fed: int = 0
    drawn: int = 0
    frames: int = 0
    over: bool = False

    @property
    def may_end(self) -> bool:
        """False while the end must not be drawn: too few codes, or live text that has not been fed to its end."""
        if self.drawn < self.sampling.min_frames:
            return False
        return not self.live or (self.closed and self.fed >= len(self.trailing))


class Stage0:
    """Implements ``stages.Talker``. Not thread-safe."""

    def __init__(
        self,
        config: TalkerConfig,
        weights: Tensors,
        role_ids: Sequence[int],
        *,
        rows: int = 1,
        positions: int = 2048,
        place: Place | None = None,
        fill_to: int = 1,
        slots: bool | None = None,
        prefix_positions: int = 256,
        draw: Draw = inverse_cdf,
        wrap: Compile | None = None,
    ) -> None:
        """Load the weights and make the caches.

        ``role_ids`` are the ids of ``<|im_start|>assistant\\n``. ``fill_to``: see above. ``slots`` steps all rows at
        once in static shapes (None: where the device is not a CPU); ``wrap`` is put around the step functions, such
        as ``torch.compile``. Up to ``prefix_positions`` positions of constant heads are kept (0: none are).
        Raises ``EngineFault`` for tensors, ``ConfigError`` for a place that is missing or misfit.
        """
        self.config = config
        self.place = place or Place(torch.device("cpu"))
        self.max_rows = rows
        self.max_positions = min(positions, config.talker.max_positions)
        self._slots = self.place.device.type != "cpu" if slots is None else slots
        self._fill_to = rows if self._slots else fill_to
        self._draw = draw
        self._device = self.place.device
        with torch.inference_mode():
            self.talker = Talker(config, weights, self.place, self.max_positions)
            self.predictor = Predictor(config, weights, self.place, max(rows, self._fill_to))
            self.prompts = PromptBuilder(self.talker, self.predictor, role_ids)
            self._cache = KvCache(config.talker, rows, self.max_positions, self.place)
            # One more row than there are: what fills a batch up reads and writes there.
            width, dtype, every = config.talker.hidden, self.place.dtype, rows + 1
            self._hidden = torch.zeros(every, width, dtype=dtype, device=self._device)
            self._sum = torch.zeros(every, width, dtype=dtype, device=self._device)
            self._code = torch.zeros(every, dtype=torch.int64, device=self._device)
            self._seen = torch.zeros(every, config.codec_vocab, dtype=torch.bool, device=self._device)
        self._rows: list[_Row | None] = [None] * rows
        self._spare = _Row(Sampling(greedy=True), (0, 0), 0, [], closed=True, live=False)
        self._prefix_room = prefix_positions
        self._prefixes: OrderedDict[str, KeyValues] = OrderedDict()
        self._advance = wrap(self._talk) if wrap else self._talk
        self._complete = wrap(self._predict) if wrap else self._predict

    @staticmethod
    def load(
        checkpoint: Checkpoint,
        role_ids: Sequence[int],
        *,
        device: str = "cpu",
        precision: Precision = "float32",
        **options: Any,
    ) -> Stage0:
        """From a checkpoint; ``options`` are those of the constructor."""
        place = Place(torch.device(device), precision)
        return Stage0(checkpoint.talker, checkpoint.weights, role_ids, place=place, **options)

    # ------------------------------------------------------------------ rows
    def positions(self, prompt: Prompt) -> int:
        """Length of the prompt's prefill. Raises ``BadRequest`` for a prompt this checkpoint cannot say."""
        self.prompts.check(prompt)
        return self.prompts.positions(prompt)

    @torch.inference_mode()
    def admit(self, row: int, prompt: Prompt) -> None:
        """Prefill a free row and draw its first code. Raises ``BadRequest``; the row then stays free."""
        if self._rows[row] is not None:
            raise ValueError(f"row {row} is taken")
        length = self.positions(prompt)
        if length >= self.max_positions:
            raise BadRequest(
                f"the prompt takes {length} positions, and there is room for {self.max_positions - 1}", param="input"
            )
        rest, trailing = self.prompts.rest(prompt)
        hidden = self._prefill(row, prompt, rest)
        state = _Row(
            prompt.sampling,
            split_seed(prompt.sampling.seed),
            length,
            list(trailing),
            closed=prompt.closed,
            live=prompt.live or not prompt.closed,
        )
        self._seen[row] = False
        code = self._pick(self.talker.logits(hidden), self._seen[row : row + 1], *self._talker_draw([state]))
        self._hidden[row] = hidden[0]
        self._note_code(torch.tensor([row], device=self._device), code)
        state.drawn = 1
        self._rows[row] = state

    def can_step(self, row: int) -> bool:
        """False while the next step needs a text id that has not come. The first step needs none."""
        state = self._state(row)
        return state.frames == 0 or state.closed or state.fed < len(state.trailing)

    def append(self, row: int, text_ids: Sequence[int]) -> None:
        """More text for a row that is not closed. Raises ``BadRequest`` for ids outside the vocabulary."""
        state = self._state(row)
        if state.closed:
            raise ValueError(f"row {row} is closed")
        if any(not 0 <= one < self.config.text_vocab for one in text_ids):
            raise BadRequest("a text id is outside the vocabulary", param="text_ids")
        state.trailing.extend(text_ids)

    def close(self, row: int) -> None:
        """The row's text is complete: tts_eos follows it. Idempotent."""
        state = self._state(row)
        if not state.closed:
            state.trailing.append(self.config.text.tts_eos)
            state.closed = True

    def release(self, row: int) -> None:
        """Free a row at any time. Idempotent."""
        self._rows[row] = None

    def _state(self, row: int) -> _Row:
        state = self._rows[row]
        if state is None:
            raise ValueError(f"row {row} is free")
        return state

    def _prefill(self, row: int, prompt: Prompt, rest: torch.Tensor) -> torch.Tensor:
        """Head and rest in two passes when heads are kept, so that a kept head gives the same bits as a new one."""
        if not self._prefix_room:
            return self.talker.prefill(self._cache, row, 0, torch.cat((self.prompts.head(prompt), rest)))
        key = self.prompts.key(prompt)
        kept = self._prefixes.get(key)
        if kept is not None:
            self._prefixes.move_to_end(key)
            self._cache.copy_in(row, kept)
            return self.talker.prefill(self._cache, row, kept[0].shape[2], rest)
        head = self.prompts.head(prompt)
        self.talker.prefill(self._cache, row, 0, head)
        if len(head) <= self._prefix_room:
            self._prefixes[key] = self._cache.copy_out(row, len(head))
            while sum(one[0].shape[2] for one in self._prefixes.values()) > self._prefix_room:
                self._prefixes.popitem(last=False)
        return self.talker.prefill(self._cache, row, len(head), rest)

    # ------------------------------------------------------------------ steps
    @torch.inference_mode()
    def step(self, rows: Sequence[int]) -> list[Stepped]:
        """One frame for each of these rows, in this order; None for a row that has drawn its end and is over.

        A row whose cache is full is over too, with a warning: callers bound frames by ``max_positions``.
        """
        states = {row: self._state(row) for row in rows}
        for row, state in states.items():
            if state.over or not self.can_step(row):
                raise ValueError(f"row {row} cannot be stepped")
            if state.frames and state.position >= self.max_positions:
                _log.warning("a speech filled its %d positions and is cut", self.max_positions)
                state.over = True
        going = [row for row, state in states.items() if state.frames and not state.over]
        if going:
            self._advance_rows(going)
        speaking = [row for row in rows if not states[row].over]
        frames: dict[int, Any] = {}
        if speaking:
            index, at = self._batch(speaking)
            every = [self._rows[row] or self._spare if row < self.max_rows else self._spare for row in at]
            codes, total = self._complete(self._hidden[index], self._code[index], *self._predictor_draw(every))
            chosen = [at.index(row) for row in speaking]
            targets = torch.tensor(speaking, device=self._device)
            self._sum[targets] = total[chosen]
            host: Any = codes.cpu().numpy()  # the one place that waits for the device
            for row, place in zip(speaking, chosen, strict=True):
                ended = int(host[place, 0]) == self.config.codec.eos
                states[row].over = ended
                if not ended:
                    frames[row] = host[place].astype(np.int16)
                    states[row].frames += 1
        return [Stepped(row, frames.get(row)) for row in rows]

    def _batch(self, rows: Sequence[int]) -> tuple[torch.Tensor, list[int]]:
        """The rows computed for these: all with ``slots``, else these and the spare row as often as is to be filled."""
        at = list(range(self.max_rows)) if self._slots else [*rows, *[self.max_rows] * (self._fill_to - len(rows))]
        return torch.tensor(at, device=self._device), at

    def _advance_rows(self, going: Sequence[int]) -> None:
        """Feed these rows' frames and text to the talker, draw their next codes of group 0."""
        index, at = self._batch(going)
        pad = self.config.text.tts_pad
        for row in going:
            state = self._state(row)
            state.fed = min(state.fed + 1, len(state.trailing) + 1)
        every, ids = [], []
        for row in at:
            state = self._rows[row] or self._spare if row < self.max_rows else self._spare
            every.append(state)
            reads = row in going and state.fed <= len(state.trailing)
            ids.append(state.trailing[state.fed - 1] if reads else pad)
        text = torch.tensor(ids, device=self._device)
        where: tuple[Any, Any]
        if self._slots:
            places = [min(state.position, self.max_positions - 1) for state in every]
            window = min(-(-(max(places) + 1) // WINDOW_STEP) * WINDOW_STEP, self.max_positions)
            where = (torch.tensor(places, device=self._device), window)
        else:
            where = (going, [self._state(row).position for row in going])
        hidden, code = self._advance(
            where,
            self._sum[index],
            text if any(one != pad for one in ids) or self._slots else None,
            self._seen[index],
            *self._talker_draw(every),
        )
        chosen = [at.index(row) for row in going]
        targets = torch.tensor(list(going), device=self._device)
        self._hidden[targets] = hidden[chosen]
        self._note_code(targets, code[chosen])
        ended = code[chosen].tolist() if self._device.type == "cpu" else []
        for place, row in enumerate(going):
            state = self._state(row)
            state.position += 1
            state.drawn += 1
            # Where reading a code costs nothing the predictor is spared the frame that will not be.
            state.over = bool(ended) and ended[place] == self.config.codec.eos

    def _talk(
        self,
        where: tuple[Any, Any],
        total: torch.Tensor,
        text: torch.Tensor | None,
        seen: torch.Tensor,
        penalty: torch.Tensor,
        allow_eos: torch.Tensor,
        rules: Rules,
        uniform: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Talker pass and draw: ``total (n, hidden)``, ``text (n,)``; hidden states ``(n, hidden)``, codes ``(n,)``."""
        said = self.prompts.tts_pad
        if text is not None:
            ends = (text == self.config.text.tts_pad)[:, None]
            said = torch.where(ends, said, self.talker.text(text))
        x = total + said
        if self._slots:
            hidden = self.talker.step_slots(self._cache, *where, x)
        else:
            hidden = self.talker.step_rows(self._cache, *where, x)
        return hidden, self._pick(self.talker.logits(hidden), seen, penalty, allow_eos, rules, uniform)

    def _pick(
        self,
        logits: torch.Tensor,
        seen: torch.Tensor,
        penalty: torch.Tensor,
        allow_eos: torch.Tensor,
        rules: Rules,
        uniform: torch.Tensor,
    ) -> torch.Tensor:
        """Codes of group 0, ``(n,)``."""
        scores = constrain(logits, seen, penalty, self.config.codes, self.config.codec.eos, allow_eos)
        return choose(scores, rules, uniform, self._draw)

    def _predict(
        self, hidden: torch.Tensor, code: torch.Tensor, rules: Rules, uniform: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Frames ``(n, 16)`` and the sums of their vectors ``(n, hidden)``."""

        def pick(logits: torch.Tensor, group: int) -> torch.Tensor:
            return choose(logits, rules, uniform[:, group - 1], self._draw)

        return self.predictor.frame(hidden, code, self.talker.codes(code), pick)

    def _note_code(self, rows: torch.Tensor, codes: torch.Tensor) -> None:
        self._code[rows] = codes
        self._seen[rows, codes] = True

    def _talker_draw(self, rows: Sequence[_Row]) -> tuple[torch.Tensor, torch.Tensor, Rules, torch.Tensor]:
        """Penalty ``(n, 1)``, allow_eos ``(n,)``, rules and uniforms ``(n,)`` of the next code of group 0."""
        rules = Rules.of([talker_rule(row.sampling) for row in rows], self.config.codec_vocab, self._device)
        penalty = torch.tensor([[row.sampling.repetition_penalty] for row in rows], device=self._device)
        ends = torch.tensor([row.may_end for row in rows], device=self._device)
        drawn = uniforms([row.keys[0] for row in rows], [row.drawn for row in rows], range(1))
        return penalty, ends, rules, torch.from_numpy(drawn[:, 0]).to(self._device)

    def _predictor_draw(self, rows: Sequence[_Row]) -> tuple[Rules, torch.Tensor]:
        """Rules and uniforms ``(n, 15)`` of the frame that belongs to the code drawn last."""
        rules = Rules.of([predictor_rule(row.sampling) for row in rows], self.config.codes, self._device)
        drawn = uniforms([row.keys[1] for row in rows], [row.frames for row in rows], PREDICTED)
        return rules, torch.from_numpy(drawn).to(self._device)
