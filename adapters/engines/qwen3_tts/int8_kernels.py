"""A whole transformer's step as machine code: what int8 computes between Python's calls.

A lone row's step is 420 products and thousands of operations on a few kilobytes, which cost PyTorch more to start than
to do. Here all layers are one function. Every number of a token is made by the same operations in the same order,
whatever tokens, threads or pieces of the prompt are computed beside it, so its bits cannot depend on them.

Several threads call ``transformer`` at once, each as another part of the same work, and wait for each other where one
reads what another wrote.
"""

from __future__ import annotations

import functools
import math
import os
from contextlib import ExitStack
from typing import Any

from llvmlite import ir

from adapters.engines.qwen3_tts.config import TransformerConfig
from adapters.engines.qwen3_tts.int8_ir import F32, I32, I64, Code, Compiled, Num, declare, vector
from adapters.engines.qwen3_tts.int8_tiles import GROUP, LANES, SHARED, emit_products, way

PATIENCE = 300
"""Looks at a barrier before a waiting thread offers its core to others."""

PLAN = (
    "parts", "sync", "layers", "n", "x", "rows", "positions", "out",
    "qkv_w", "qkv_scale", "qkv_offset", "out_w", "out_scale", "out_offset",
    "up_w", "up_scale", "up_offset", "down_w", "down_scale", "down_offset",
    "input_norms", "output_norms", "head_norms", "final_norm", "cos", "sin",
    "k", "v", "layer_stride", "row_stride", "head_stride",
    "qkv", "context", "added", "gate_up", "active",
)  # fmt: skip
"""What ``transformer`` reads, one int64 each: counts, addresses, and the caches' strides in bytes.

``sync`` is an int64 that is zero when the parts begin. ``x (n, hidden)`` float32 is overwritten, ``out (n, hidden)``
gets the final-norm states; ``rows`` and ``positions (n,)`` int64 say where a token's keys and values are kept, and a
token sees its row's up to its own. Weights are stacked over the layers as ``product`` reads them. The last five are
scratch for ``n`` tokens: the outputs of the products, ``context (n, heads * head_dim)``, ``active (n, intermediate)``.
"""

OWN = ("narrow", "broad", "inner", "x_scale", "normed", "turned", "scores")
"""Scratch of one part: bytes for ``n`` rows of hidden, of heads and of intermediate, ``n`` steps, a float row of hidden
and of a head, and a float for every position, rounded up to sixteen."""


def fits(config: TransformerConfig) -> bool:
    """True for sizes that the kernels can compute: those that fill the vectors."""
    widths = (config.hidden, config.intermediate, config.heads * config.head_dim, config.kv_heads * config.head_dim)
    return all(width % LANES == 0 for width in widths) and config.head_dim % 16 == 0 and config.head_dim <= 256


@functools.cache
def products() -> Compiled:
    """``linear`` and ``pack_*`` of ``int8_tiles``. Raises ``RuntimeError`` on a CPU that has no way to multiply."""
    chosen = way()
    if chosen is None:
        raise RuntimeError("this CPU lacks the instructions of the int8 kernels")
    module = ir.Module("products")
    emit_products(module, chosen)
    found = Compiled(module)
    for name in SHARED:
        found.share(name)
    return found


def compiled(config: TransformerConfig) -> Compiled:
    """``transformer(plan, own, part)`` for these sizes; layers may be any."""
    c = config
    return _compiled(c.hidden, c.intermediate, c.heads, c.kv_heads, c.head_dim, c.eps)


@functools.lru_cache(maxsize=8)
def _compiled(hidden: int, middle: int, heads: int, kv_heads: int, dim: int, eps: float) -> Compiled:
    products()
    module = ir.Module("transformer")
    for name, parameters in SHARED.items():
        declare(module, name, parameters)
    _norm(module, "norm", hidden, eps)
    _norm(module, "norm_head", dim, eps)
    _add(module, hidden)
    _activate(module, middle)
    _turn(module, dim)
    _attend(module, dim)
    _heads(module, heads, kv_heads, dim)
    _meet(module)
    _transformer(module, hidden, middle, heads, kv_heads, dim)
    return Compiled(module)


def _floats(lanes: int) -> Any:
    return vector(F32, lanes)


def _norm(module: Any, name: str, width: int, eps: float) -> None:
    """Root mean square norm of ``x (width,)`` times ``weight``."""
    code = Code(module, name, ("x", "weight", "out"))
    x, weight, out = code.parameters
    total = code.variable(code.constant(_floats(LANES), 0.0))
    with code.loop(0, code.integer(width), LANES) as i:
        one = code.load(x + i * 4, _floats(LANES))
        total.set(code.of_lanes("fma", one, one, total.get()))
    mean = code.fold(total.get(), "add") / float(width)
    root = code.of_lanes("sqrt", mean + eps)
    inverse = code.spread(code.constant(F32, 1.0) / root, LANES)
    with code.loop(0, code.integer(width), LANES) as i:
        normed = code.load(x + i * 4, _floats(LANES)) * inverse
        code.store(out + i * 4, normed * code.load(weight + i * 4, _floats(LANES)))
    code.done()


def _add(module: Any, hidden: int) -> None:
    """``x (n, hidden) += more`` in the columns ``first..last-1``, multiples of sixteen."""
    code = Code(module, "add", ("x", "more", "n", "first", "last"))
    x, more, n, first, last = code.parameters
    with code.loop(0, n) as row, code.loop(first, last, LANES) as i:
        at = (row * hidden + i) * 4
        code.store(x + at, code.load(x + at, _floats(LANES)) + code.load(more + at, _floats(LANES)))
    code.done()


def exponential(code: Code, x: Num) -> Num:
    """e to the x for a vector, within two units in the last place; x is limited to -87..88."""
    lanes = x.lanes
    x = code.of_lanes("minnum", code.of_lanes("maxnum", x, x.like(-87.0)), x.like(88.0))
    whole = code.of_lanes("rint", x * 1.4426950408889634)
    r = x - whole * 0.693359375 - whole * -2.12194440e-4
    # The polynomial of Cephes' expf (S. Moshier).
    p = r.like(1.9875691500e-4)
    for factor in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        p = code.of_lanes("fma", p, r, r.like(factor))
    p = code.of_lanes("fma", p, r * r, r) + 1.0
    power = (whole.cast("fptosi", vector(I32, lanes)) + 127) << 23
    return p * power.cast("bitcast", _floats(lanes))


def _activate(module: Any, middle: int) -> None:
    """SwiGLU of ``gate_up (n, 2 * middle)`` in the columns ``first..last-1`` of ``out (n, middle)``."""
    code = Code(module, "activate", ("gate_up", "n", "first", "last", "out"))
    gate_up, n, first, last, out = code.parameters
    with code.loop(0, n) as row, code.loop(first, last, LANES) as i:
        at = gate_up + (row * (2 * middle) + i) * 4
        gate, up = (code.load(at + shift, _floats(LANES)) for shift in (0, 4 * middle))
        swish = gate / (exponential(code, gate * -1.0) + 1.0)
        code.store(out + (row * middle + i) * 4, swish * up)
    code.done()


def _turn(module: Any, dim: int) -> None:
    """Norm and rope of one head ``x (dim,)``; ``cos`` and ``sin`` are the position's, ``normed`` is scratch."""
    code = Code(module, "turn", ("x", "weight", "cos", "sin", "normed", "out"))
    x, weight, cos, sin, normed, out = code.parameters
    code.call("norm_head", x, weight, normed)
    lanes, half = min(LANES, dim // 2), dim // 2
    for i in range(0, dim, lanes):
        one, other, c, s = (
            code.load(base + 4 * at, _floats(lanes))
            for base, at in ((normed, i), (normed, (i + half) % dim), (cos, i), (sin, i))
        )
        code.store(out + 4 * i, one * c + other * s)
    code.done()


def _attend(module: Any, dim: int) -> None:
    """Softmax attention of one head ``q (dim,)`` over ``count`` keys and values ``(count, dim)``."""
    code = Code(module, "attend", ("q", "keys", "values", "count", "scores", "out"))
    q, keys, values, count, scores, out = code.parameters
    spans = range(0, dim, LANES)
    query = [code.load(q + 4 * i, _floats(LANES)) * (1 / math.sqrt(dim)) for i in spans]
    most = code.variable(code.constant(F32, -math.inf))
    with code.loop(0, count) as key:
        total = code.constant(_floats(LANES), 0.0)
        for i, part in zip(spans, query, strict=True):
            total = code.of_lanes("fma", part, code.load(keys + (key * dim + i) * 4, _floats(LANES)), total)
        score = code.fold(total, "add")
        code.store(scores + key * 4, score)
        most.set(code.of_lanes("maxnum", most.get(), score))
    with code.loop(count, (count + (LANES - 1)) // LANES * LANES) as beyond:
        code.store(scores + beyond * 4, code.constant(F32, -math.inf))
    sums = code.variable(code.constant(_floats(LANES), 0.0))
    with code.loop(0, count, LANES) as key:
        weights = exponential(code, code.load(scores + key * 4, _floats(LANES)) - code.spread(most.get(), LANES))
        code.store(scores + key * 4, weights)
        sums.set(sums.get() + weights)
    mixed = [code.variable(code.constant(_floats(LANES), 0.0)) for _ in spans]
    with code.loop(0, count) as key:
        weight = code.spread(code.load(scores + key * 4, F32), LANES)
        for i, one in zip(spans, mixed, strict=True):
            value = code.load(values + (key * dim + i) * 4, _floats(LANES))
            one.set(code.of_lanes("fma", weight, value, one.get()))
    inverse = code.spread(code.constant(F32, 1.0) / code.fold(sums.get(), "add"), LANES)
    for i, one in zip(spans, mixed, strict=True):
        code.store(out + 4 * i, one.get() * inverse)
    code.done()


def _heads(module: Any, heads: int, kv_heads: int, dim: int) -> None:
    """Keys, values and attention of the key heads ``first..last-1`` for ``n`` tokens: ``qkv`` to ``context``."""
    names = (
        "qkv", "context", "n", "rows", "positions", "norms", "cos", "sin", "k", "v", "row_stride", "head_stride",
        "normed", "turned", "scores", "first", "last",
    )  # fmt: skip
    code = Code(module, "heads", names)
    (qkv, context, n, rows, positions, norms, cos, sin, k, v, row_stride, head_stride,
     normed, turned, scores, first, last) = code.parameters  # fmt: skip
    group, size = heads // kv_heads, 4 * dim
    with code.loop(first, last) as head:
        with code.loop(0, n) as token:
            row, position = (code.load(one + token * 8, I64, 8) for one in (rows, positions))
            place = row * row_stride + head * head_stride + position * size
            key = qkv + (token * (heads + 2 * kv_heads) + head + heads) * size
            code.call(
                "turn", key, norms + (head + heads) * size, cos + position * size, sin + position * size, normed,
                k + place,
            )  # fmt: skip
            for i in range(0, dim, LANES):
                code.store(v + place + 4 * i, code.load(key + (kv_heads * size + 4 * i), _floats(LANES)))
        with code.loop(0, n) as token:
            row, position = (code.load(one + token * 8, I64, 8) for one in (rows, positions))
            place = row * row_stride + head * head_stride
            with code.loop(head * group, head * group + group) as query:
                at = qkv + (token * (heads + 2 * kv_heads) + query) * size
                code.call(
                    "turn", at, norms + query * size, cos + position * size, sin + position * size, normed, turned
                )
                code.call(
                    "attend", turned, k + place, v + place, position + 1, scores,
                    context + (token * heads + query) * size,
                )  # fmt: skip
    code.done()


def _meet(module: Any) -> None:
    """Wait until ``sync`` has been counted up to ``target`` by all parts that come here."""
    code = Code(module, "meet", ("sync", "target"))
    sync, target = code.parameters
    builder = code.builder
    code.add_one(sync)
    looks = code.variable(code.integer(0))
    head, wait, patient, weary, done = (
        builder.append_basic_block(name) for name in ("head", "wait", "patient", "weary", "done")
    )
    builder.branch(head)
    builder.position_at_end(head)
    builder.cbranch(code.look(sync).below(target), wait, done)
    builder.position_at_end(wait)
    looks.set(looks.get() + 1)
    builder.cbranch(looks.get().below(PATIENCE), patient, weary)
    builder.position_at_end(patient)
    code.intrinsic("llvm.x86.sse2.pause", ir.VoidType())
    builder.branch(head)
    builder.position_at_end(weary)
    code.intrinsic("sched_yield" if os.name == "posix" else "SwitchToThread", I32)
    builder.branch(head)
    builder.position_at_end(done)
    code.done()


class _Layers:
    """Writes ``transformer``: the plan's fields by name, and the steps of a layer."""

    def __init__(self, module: Any) -> None:
        self.code = code = Code(module, "transformer", ("plan", "own", "part"), exported=True)
        plan, own, self.part = code.parameters
        self.at = {name: code.load(plan + 8 * i, I64, 8) for i, name in enumerate(PLAN)}
        self.at |= {name: code.load(own + 8 * i, I64, 8) for i, name in enumerate(OWN)}
        self.met = code.variable(code.integer(0))

    def share(self, count: int, step: int) -> tuple[Num, Num]:
        """This part's of ``count`` things, in whole steps but for the last."""
        steps, parts = -(-count // step), self.at["parts"]
        ends = ((self.part + one) * steps // parts * step for one in (0, 1))
        first, last = (self.code.of_lanes("smin", one, self.code.integer(count)) for one in ends)
        return first, last

    def meet(self) -> None:
        """Wait for the other parts."""
        code, parts = self.code, self.at["parts"]
        self.met.set(self.met.get() + parts)
        with code.builder.if_then(code.integer(1).below(parts)):
            code.call("meet", self.at["sync"], self.met.get())

    def quantise(self, x: str, width: int, out: str, norms: Num | None = None) -> None:
        """All rows of ``x``, through a norm or as they are, to the bytes of one part."""
        code, at = self.code, self.at
        with code.loop(0, at["n"]) as row:
            here = at[x] + row * (4 * width)
            if norms is not None:
                code.call("norm", here, norms, at["normed"])
                here = at["normed"]
            code.call("int8_quantise", here, width, at[out] + row * width, at["x_scale"] + row * 4)

    def product(self, name: str, layer: Num, x: str, inputs: int, outputs: int, to: str, span: tuple[Num, Num]) -> None:
        """The blocks ``span`` of a layer's product."""
        at = self.at
        self.code.call(
            "int8_product", at[x], at["x_scale"], at["n"], inputs, at[f"{name}_w"] + layer * (inputs * outputs),
            at[f"{name}_scale"] + layer * (4 * outputs), at[f"{name}_offset"] + layer * (4 * outputs),
            *span, at[to], 4 * outputs,
        )  # fmt: skip

    def add(self, span: tuple[Num, Num]) -> None:
        """What a product gave, to ``x``."""
        at = self.at
        self.code.call("add", at["x"], at["added"], at["n"], span[0] * LANES, span[1] * LANES)


def _transformer(module: Any, hidden: int, middle: int, heads: int, kv_heads: int, dim: int) -> None:
    """All layers and the final norm, part ``part``; see ``PLAN`` and ``OWN``."""
    layers = _Layers(module)
    code, at = layers.code, layers.at
    queries, qkv = heads * dim, (heads + 2 * kv_heads) * dim
    qkv_span, span, up_span = (layers.share(width // LANES, GROUP) for width in (qkv, hidden, middle))
    also_up = (up_span[0] + middle // LANES, up_span[1] + middle // LANES)
    head_span = layers.share(kv_heads, 1)
    with ExitStack() as stack:
        layer = stack.enter_context(code.loop(0, at["layers"]))
        layers.quantise("x", hidden, "narrow", at["input_norms"] + layer * (4 * hidden))
        layers.product("qkv", layer, "narrow", hidden, qkv, "qkv", qkv_span)
        layers.meet()
        code.call(
            "heads", at["qkv"], at["context"], at["n"], at["rows"], at["positions"],
            at["head_norms"] + layer * (4 * (heads + kv_heads) * dim), at["cos"], at["sin"],
            at["k"] + layer * at["layer_stride"], at["v"] + layer * at["layer_stride"], at["row_stride"],
            at["head_stride"], at["normed"], at["turned"], at["scores"], *head_span,
        )  # fmt: skip
        layers.meet()
        layers.quantise("context", queries, "broad")
        layers.product("out", layer, "broad", queries, hidden, "added", span)
        layers.add(span)
        layers.meet()
        layers.quantise("x", hidden, "narrow", at["output_norms"] + layer * (4 * hidden))
        for part in (up_span, also_up):
            layers.product("up", layer, "narrow", hidden, 2 * middle, "gate_up", part)
        code.call("activate", at["gate_up"], at["n"], up_span[0] * LANES, up_span[1] * LANES, at["active"])
        layers.meet()
        layers.quantise("active", middle, "inner")
        layers.product("down", layer, "inner", middle, hidden, "added", span)
        layers.add(span)
        layers.meet()
    with code.loop(*_tokens(layers)) as row:
        code.call("norm", at["x"] + row * (4 * hidden), at["final_norm"], at["out"] + row * (4 * hidden))
    code.done()


def _tokens(layers: _Layers) -> tuple[Num, Num]:
    """This part's of the tokens."""
    n, parts = layers.at["n"], layers.at["parts"]
    return n * layers.part // parts, n * (layers.part + 1) // parts
