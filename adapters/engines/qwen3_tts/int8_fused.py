"""The int8 kernels behind PyTorch: weights packed in huge pages, products, and a transformer that is one call.

Imported only where int8 is chosen and llvmlite is installed; ``usable`` says whether the CPU has what it takes.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import mmap
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from adapters.engines.qwen3_tts.config import TransformerConfig
from adapters.engines.qwen3_tts.int8_kernels import OWN, PLAN, compiled, fits, products
from adapters.engines.qwen3_tts.int8_tiles import INPUTS_STEP, LANES, way
from adapters.engines.qwen3_tts.tensors import Tensors

_log = logging.getLogger(__name__)

Array = np.ndarray[Any, Any]

HUGE_PAGE = 1 << 21

AHEAD = 32
"""Tokens that a call computes at a time: what their scratch takes stays in the cache."""

MOST_THREADS = 8
"""More find too little of a product to do, and memory is read no faster."""

MAX_INPUTS = 60_000
"""More could overflow the sums of 32 bits."""


def usable(*configs: TransformerConfig) -> bool:
    """True on a CPU with the instructions the tiles are made of, for sizes that fill its vectors."""
    return proved() and all(fits(config) for config in configs)


@functools.cache
def proved() -> bool:
    """True when the kernels compile here, with this llvmlite, and a small product of theirs is right."""
    if way() is None:
        return False
    weight = torch.arange(32 * 48).view(32, 48).remainder(255).sub(127).float()
    weight[:, 0] = 127.0  # every step is 1
    x = torch.eye(48)[:9] * torch.arange(1.0, 10.0)[:, None]
    try:
        found = KernelLinear([weight])(x)
    except Exception as error:  # what another version of llvmlite does not have, or refuses
        _log.warning("int8 without kernels of its own: they do not compile here (%s)", type(error).__name__)
        return False
    right = torch.allclose(found, x @ weight.T, rtol=1e-5)
    if not right:
        _log.warning("int8 without kernels of its own: they compute something else here")
    return right


def takes(weight: torch.Tensor) -> bool:
    """True for a weight ``(out, in)`` whose sizes fill the vectors."""
    return weight.shape[0] % LANES == 0 and weight.shape[1] % INPUTS_STEP == 0 and weight.shape[1] <= MAX_INPUTS


def room(shape: Sequence[int], dtype: Any) -> Array:
    """Zeros at the beginning of a huge page, where the system has them; pages are taken when first written."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    memory = mmap.mmap(-1, size + HUGE_PAGE, **private)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(memory, dtype=np.uint8)
    start = -whole.ctypes.data % HUGE_PAGE
    found: Array = whole[start : start + size].view(dtype).reshape(shape)
    return found


@dataclass(frozen=True, slots=True)
class Packed:
    """A stack of matrices as ``product`` reads them: ``w (count, outputs / 16, inputs / 4, 16, 4)`` int8, ``scale``
    float32 and ``offset`` int32 ``(count, outputs)``."""

    w: Array
    scale: Array
    offset: Array

    @staticmethod
    def empty(count: int, outputs: int, inputs: int) -> Packed:
        """Room for ``count`` matrices."""
        w = room((count, outputs // LANES, inputs // 4, LANES, 4), np.int8)
        return Packed(w, np.zeros((count, outputs), np.float32), np.zeros((count, outputs), np.int32))

    def fill(self, index: int, weights: Sequence[torch.Tensor]) -> None:
        """Quantise ``weights (out, in)``, stacked over their outputs, into a matrix."""
        at = 0
        for weight in weights:
            weight = weight.contiguous() if weight.dtype is torch.bfloat16 else weight.float().contiguous()
            rows, inputs = weight.shape
            name = "pack_bfloat16" if weight.dtype is torch.bfloat16 else "pack_float32"
            levels = np.zeros(inputs, np.int8)
            _function(products().address(name), 7)(
                weight.data_ptr(), rows, inputs, levels.ctypes.data, self.w[index, at // LANES :].ctypes.data,
                self.scale[index, at:].ctypes.data, self.offset[index, at:].ctypes.data,
            )  # fmt: skip
            at += rows


def _function(address: int, parameters: int) -> Callable[..., None]:
    """A kernel of so many int64; Python's other threads run while it does."""
    return ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * parameters)(address)


class KernelLinear:
    """One product: ``Int8Linear``'s numbers, faster."""

    def __init__(self, weights: Sequence[torch.Tensor], bias: torch.Tensor | None = None) -> None:
        self._outputs, self._inputs = sum(weight.shape[0] for weight in weights), weights[0].shape[1]
        self._packed = Packed.empty(1, self._outputs, self._inputs)
        self._packed.fill(0, weights)
        self._linear = _function(products().address("linear"), 10)
        self.bias = None if bias is None else bias.float()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """``x (..., in)`` float32 to ``(..., out)`` float32."""
        rows = x.reshape(-1, self._inputs).contiguous()
        n, packed = rows.shape[0], self._packed
        out = torch.empty(n, self._outputs)
        bytes_, x_scale = np.empty((n, self._inputs), np.uint8), np.empty(n, np.float32)
        self._linear(
            rows.data_ptr(), n, self._inputs, bytes_.ctypes.data, x_scale.ctypes.data, packed.w.ctypes.data,
            packed.scale.ctypes.data, packed.offset.ctypes.data, self._outputs // LANES, out.data_ptr(),
        )  # fmt: skip
        if self.bias is not None:
            out = out.add_(self.bias)
        return out.view(*x.shape[:-1], self._outputs)


class Team:
    """Threads that compute parts of the same function at once; they sleep between calls. Thread-safe."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        # Parts wait for each other: those of two calls must not share out the threads.
        self._one_call = threading.Lock()
        self._pool = ThreadPoolExecutor(threads - 1, thread_name_prefix="int8") if threads > 1 else None

    def run(self, work: Callable[[int], None]) -> None:
        """Call ``work(part)`` for every part, and wait until all have returned."""
        if self._pool is None:
            work(0)
            return
        with self._one_call:
            others = [self._pool.submit(work, part) for part in range(1, self.threads)]
            work(0)
            for other in others:
                other.result()


@functools.cache
def team(threads: int) -> Team:
    """The team of so many, eight at most; talker and predictor are never computed at once and share it."""
    return Team(min(threads, MOST_THREADS))


class FusedTransformer:
    """All layers and the final norm in one call, for any tokens of any rows. Not thread-safe."""

    def __init__(
        self, config: TransformerConfig, weights: Tensors, prefix: str, tables: tuple[torch.Tensor, ...], team: Team
    ) -> None:
        """``tables``: cosine and signed sine, ``(positions, head_dim)`` float32 each. Raises ``EngineFault``."""
        self.config = config
        self._team = team
        self._positions = tables[0].shape[0]
        self._code = compiled(config)  # kept, as the function lives in it
        self._run = _function(self._code.address("transformer"), 3)
        kept = self._load(weights, prefix) | {"cos": tables[0].numpy(), "sin": tables[1].numpy()} | self._shared()
        self._kept = kept  # the plan holds addresses only
        self._plan = {name: array.ctypes.data for name, array in kept.items()}
        self._plan |= {"parts": team.threads, "layers": config.layers}
        self._own = [self._scratch() for _ in range(team.threads)]
        self._own_plans = [np.array([own[name].ctypes.data for name in OWN], np.int64) for own in self._own]

    def _load(self, weights: Tensors, prefix: str) -> dict[str, Array]:
        """The weights' part of the plan."""
        c = self.config
        queries, keys = c.heads * c.head_dim, c.kv_heads * c.head_dim
        packed = {
            "qkv": Packed.empty(c.layers, queries + 2 * keys, c.hidden),
            "out": Packed.empty(c.layers, c.hidden, queries),
            "up": Packed.empty(c.layers, 2 * c.intermediate, c.hidden),
            "down": Packed.empty(c.layers, c.hidden, c.intermediate),
        }
        norms = {name: np.empty((c.layers, c.hidden), np.float32) for name in ("input_norms", "output_norms")}
        norms["head_norms"] = np.empty((c.layers, c.heads + c.kv_heads, c.head_dim), np.float32)
        for layer in range(c.layers):

            def get(part: str, *shape: int, layer: int = layer) -> torch.Tensor:
                return weights.get(f"{prefix}.layers.{layer}.{part}.weight", shape)

            norms["input_norms"][layer] = get("input_layernorm", c.hidden).float()
            norms["output_norms"][layer] = get("post_attention_layernorm", c.hidden).float()
            norms["head_norms"][layer, : c.heads] = get("self_attn.q_norm", c.head_dim).float()
            norms["head_norms"][layer, c.heads :] = get("self_attn.k_norm", c.head_dim).float()
            attention = (("q", queries), ("k", keys), ("v", keys))
            packed["qkv"].fill(layer, [get(f"self_attn.{name}_proj", rows, c.hidden) for name, rows in attention])
            packed["out"].fill(layer, [get("self_attn.o_proj", c.hidden, queries)])
            packed["up"].fill(layer, [get(f"mlp.{name}_proj", c.intermediate, c.hidden) for name in ("gate", "up")])
            packed["down"].fill(layer, [get("mlp.down_proj", c.hidden, c.intermediate)])
        norms["final_norm"] = weights.get(f"{prefix}.norm.weight", (c.hidden,)).float().numpy().copy()
        for name, one in packed.items():
            norms |= {f"{name}_w": one.w, f"{name}_scale": one.scale, f"{name}_offset": one.offset}
        return norms

    def _shared(self) -> dict[str, Array]:
        """Scratch of all parts."""
        c = self.config
        widths = {
            "qkv": (c.heads + 2 * c.kv_heads) * c.head_dim,
            "context": c.heads * c.head_dim,
            "added": c.hidden,
            "gate_up": 2 * c.intermediate,
            "active": c.intermediate,
        }
        scratch: dict[str, Array] = {name: np.zeros((AHEAD, width), np.float32) for name, width in widths.items()}
        return scratch | {"sync": np.zeros(1, np.int64)}

    def _scratch(self) -> dict[str, Array]:
        """Scratch of one part."""
        c = self.config
        widths = {"narrow": c.hidden, "broad": c.heads * c.head_dim, "inner": c.intermediate}
        rows: dict[str, Array] = {name: np.zeros((AHEAD, width), np.uint8) for name, width in widths.items()}
        floats = {
            "x_scale": AHEAD,
            "normed": max(c.hidden, c.head_dim),
            "turned": c.head_dim,
            "scores": self._positions + LANES,
        }
        return rows | {name: np.zeros(width, np.float32) for name, width in floats.items()}

    def __call__(
        self, x: torch.Tensor, rows: Sequence[int], positions: Sequence[int], k: torch.Tensor, v: torch.Tensor
    ) -> torch.Tensor:
        """``x (n, hidden)`` float32, each at a position of a row, to the final-norm states ``(n, hidden)``.

        ``k``, ``v (layers, rows, kv_heads, positions, head_dim)`` float32 hold what was before and get what is new. A
        token sees all positions of its row up to its own; tokens of one row stand in ascending order. Raises
        ``ValueError`` for a row or position that does not exist.
        """
        tokens, out = x.detach().clone().contiguous(), torch.empty(x.shape)
        places = np.array([rows, positions], np.int64)
        limits = np.array([[k.shape[1]], [min(k.shape[3], self._positions)]])
        if tokens.dtype is not torch.float32 or (places < 0).any() or (places >= limits).any():
            raise ValueError("a row or position is outside the cache, or the states are not float32")
        plan = self._plan | {
            "k": k.data_ptr(),
            "v": v.data_ptr(),
            **{f"{name}_stride": 4 * k.stride(at) for at, name in enumerate(("layer", "row", "head"))},
        }
        for start in range(0, len(tokens), AHEAD):
            part = tokens[start : start + AHEAD]
            plan |= {
                "n": len(part),
                "x": part.data_ptr(),
                "out": out[start:].data_ptr(),
                "rows": places[0, start:].ctypes.data,
                "positions": places[1, start:].ctypes.data,
            }
            self._compute(np.array([plan[name] for name in PLAN], np.int64))
        return out

    def _compute(self, plan: Array) -> None:
        self._kept["sync"][0] = 0

        def work(part: int) -> None:
            self._run(plan.ctypes.data, self._own_plans[part].ctypes.data, part)

        self._team.run(work)
