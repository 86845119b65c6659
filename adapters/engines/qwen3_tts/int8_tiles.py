"""Products of int8 weights with rows of bytes, at the rate at which a core reads memory.

A tile multiplies a few rows of unsigned bytes with a few blocks of sixteen outputs. A block's weights lie in memory as
they are read, so that a product reads as many plain streams as its tile has blocks: eight streams reach the rate at
which one core can read memory at all, one stream two thirds of it (measured, AVX-512). A row's sums are exact and
scaled by themselves: its bits do not depend on the rows and blocks beside it.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from adapters.engines.qwen3_tts.int8_ir import F32, I8, I16, I32, Code, Num, host_features, vector

LANES = 16
"""Outputs of a block: the 32-bit lanes of a vector."""

QUAD = 4
"""Inputs whose products one lane adds at a time."""

INPUTS_STEP = 16
"""Inputs come in multiples of this: they fill the vectors in which they are made bytes."""

GROUP = 8
"""Blocks whose weights are read together, for all rows, before the next."""

LEVELS = 127
"""Levels of a weight to each side of zero."""

_LEAST = struct.unpack("<i", struct.pack("<f", 1e-30))[0]
"""The bits of the least magnitude that counts; a NaN's are above all, so that it stays one."""

_INTS, _FLOATS = vector(I32, LANES), vector(F32, LANES)
_BYTES = 64


@dataclass(frozen=True, slots=True)
class Way:
    """How a kind of CPU multiplies bytes.

    ``levels`` of an activation to each side of zero, ``offset`` makes them unsigned bytes. ``tiles``: rows of a tile,
    and its blocks, as many as the registers hold sums for.
    """

    needs: tuple[str, ...]
    levels: int
    offset: int
    tiles: Mapping[int, int]
    multiply_add: Callable[[Code, Num, Num, Num], Num]


def _vnni_512(code: Code, total: Num, unsigned: Num, signed: Num) -> Num:
    """VPDPBUSD: each lane adds four products; it wraps and does not saturate."""
    return code.intrinsic("llvm.x86.avx512.vpdpbusd.512", _INTS, total, unsigned, signed)


def _vnni_256(code: Code, total: Num, unsigned: Num, signed: Num) -> Num:
    """The same in two halves."""
    half = vector(I32, LANES // 2)
    parts = zip(*(code.halves(one) for one in (total, unsigned, signed)), strict=True)
    return code.joined(*(code.intrinsic("llvm.x86.avx512.vpdpbusd.256", half, *part) for part in parts))


def _avx2(code: Code, total: Num, unsigned: Num, signed: Num) -> Num:
    """VPMADDUBSW and VPMADDWD. The first saturates at 16 bits, which bytes up to 127 do not reach."""
    ints, shorts, bytes_ = vector(I32, LANES // 2), vector(I16, LANES), vector(I8, 2 * LANES)
    sums = []
    for one, other in zip(code.halves(unsigned), code.halves(signed), strict=True):
        pairs = code.intrinsic(
            "llvm.x86.avx2.pmadd.ub.sw", shorts, one.cast("bitcast", bytes_), other.cast("bitcast", bytes_)
        )
        sums.append(code.intrinsic("llvm.x86.avx2.pmadd.wd", ints, pairs, code.constant(shorts, 1)))
    return total + code.joined(*sums)


WAYS = {
    "avx512": Way(("avx512f", "avx512bw", "avx512vl", "avx512vnni"), 127, 128, {1: 8, 2: 8, 4: 4, 8: 2}, _vnni_512),
    "avxvnni": Way(("avx2", "fma", "avxvnni"), 127, 128, {1: 4, 2: 2, 4: 1}, _vnni_256),
    "avx2": Way(("avx2", "fma"), 63, 64, {1: 4, 2: 2, 4: 1}, _avx2),
}
"""The best first."""


@functools.cache
def way() -> Way | None:
    """This CPU's; None where it has no instructions for it."""
    features = host_features()
    return next((one for one in WAYS.values() if all(features.get(name, False) for name in one.needs)), None)


SHARED = {"int8_quantise": 4, "int8_product": 11}
"""Functions that other modules call, and how many parameters they have."""


def emit_products(module: Any, way: Way) -> None:
    """Write ``int8_quantise``, ``int8_product``, ``linear`` and ``pack_*`` into a module."""
    _quantise(module, way)
    for rows, blocks in way.tiles.items():
        for width in sorted({1, blocks}):
            _tile(module, way, rows, width)
    _product(module, way)
    _linear(module)
    _pack(module, way)


def _tile(module: Any, way: Way, rows: int, blocks: int) -> None:
    """``rows`` rows times ``blocks`` blocks; the sums, scaled, go to ``out``."""
    names = ("w", "x", "inputs", "scale", "offset", "x_scale", "out", "out_stride")
    code = Code(module, f"tile_{rows}_{blocks}", names)
    w, x, inputs, scale, offset, x_scale, out, out_stride = code.parameters
    sums = [[code.variable(code.constant(_INTS, 0)) for _ in range(blocks)] for _ in range(rows)]
    # Not unrolled: that makes no product faster (measured) and every start slower.
    with code.loop(0, inputs, QUAD) as at:
        bytes_ = [code.spread(code.load(x + inputs * row + at, I32), LANES) for row in range(rows)]
        for block in range(blocks):
            weights = code.load(w + inputs * (LANES * block) + at * LANES, _INTS, _BYTES)
            for row in range(rows):
                total = sums[row][block]
                total.set(way.multiply_add(code, total.get(), bytes_[row], weights))
    for block in range(blocks):
        step = code.load(scale + _BYTES * block, _FLOATS)
        extra = code.load(offset + _BYTES * block, _INTS)
        for row in range(rows):
            exact = (sums[row][block].get() - extra).cast("sitofp", _FLOATS)
            mine = code.spread(code.load(x_scale + 4 * row, F32), LANES)
            code.store(out + out_stride * row + _BYTES * block, exact * step * mine)
    code.done()


def _product(module: Any, way: Way) -> None:
    """Blocks ``first..last-1`` of the outputs of ``n`` rows.

    ``x (n, inputs)`` bytes with ``x_scale (n,)``; ``w (blocks, inputs / 4, 16, 4)`` int8, ``scale`` float32 and
    ``offset`` int32 ``(16 * blocks,)``, what the bytes' offset adds to the sums; ``out (n, 16 * blocks)`` float32,
    rows ``out_stride`` bytes apart.
    """
    names = ("x", "x_scale", "n", "inputs", "w", "scale", "offset", "first", "last", "out", "out_stride")
    code = Code(module, "int8_product", names, exported=True)
    x, x_scale, n, inputs, w, scale, offset, first, last, out, out_stride = code.parameters

    def rows_from(block: Num, count: Num, widest: int) -> None:
        """All rows times ``count`` blocks, in tiles of up to ``widest``."""
        row = code.variable(code.integer(0))
        for rows, blocks in sorted(way.tiles.items(), reverse=True):
            width = min(blocks, widest)
            with code.loop(row.get(), n - (rows - 1), rows) as at:
                with code.loop(block, block + count, width) as here:
                    code.call(
                        f"tile_{rows}_{width}", w + here * inputs * LANES, x + at * inputs, inputs,
                        scale + here * _BYTES, offset + here * _BYTES, x_scale + at * 4,
                        out + at * out_stride + here * _BYTES, out_stride,
                    )  # fmt: skip
                row.set(at + rows)

    whole = first + (last - first) // GROUP * GROUP
    with code.loop(first, whole, GROUP) as block:
        rows_from(block, code.integer(GROUP), GROUP)
    with code.loop(whole, last) as block:
        rows_from(block, code.integer(1), 1)
    code.done()


def magnitude(code: Code, value: Num) -> Num:
    """The bits of a float without its sign: they are ordered as the magnitudes are."""
    kind = I32 if value.lanes == 1 else vector(I32, value.lanes)
    return value.cast("bitcast", kind) & 0x7FFFFFFF


def step_of(code: Code, width: Num, levels: int, load: Callable[[Num], Num]) -> Num:
    """One level of ``width`` values, the largest magnitude at ``levels``; ``load`` reads sixteen values at an index."""
    most = code.variable(code.constant(_INTS, _LEAST))
    with code.loop(0, width, LANES) as i:
        most.set(code.of_lanes("smax", most.get(), magnitude(code, load(i))))
    return code.fold(most.get(), "smax").cast("bitcast", F32) / float(levels)


def _quantise(module: Any, way: Way) -> None:
    """``x (width,)`` float32 to bytes about the offset at ``out`` and its step at ``scale``."""
    code = Code(module, "int8_quantise", ("x", "width", "out", "scale"), exported=True)
    x, width, out, scale = code.parameters

    def load(i: Num) -> Num:
        return code.load(x + i * 4, _FLOATS)

    step = step_of(code, width, way.levels, load)
    code.store(scale, step)
    steps = code.spread(step, LANES)
    with code.loop(0, width, LANES) as i:
        # The offset is added before rounding, as FBGEMM does.
        level = code.of_lanes("rint", load(i) / steps + float(way.offset))
        code.store(out + i, level.cast("fptosi", _INTS).cast("trunc", vector(I8, LANES)), 1)
    code.done()


def _linear(module: Any) -> None:
    """Quantise ``x (n, inputs)`` into ``bytes`` and ``x_scale``, and multiply with all blocks of ``w``."""
    names = ("x", "n", "inputs", "bytes", "x_scale", "w", "scale", "offset", "blocks", "out")
    code = Code(module, "linear", names, exported=True)
    x, n, inputs, bytes_, x_scale, w, scale, offset, blocks, out = code.parameters
    with code.loop(0, n) as row:
        code.call("int8_quantise", x + row * inputs * 4, inputs, bytes_ + row * inputs, x_scale + row * 4)
    code.call("int8_product", bytes_, x_scale, n, inputs, w, scale, offset, 0, blocks, out, blocks * _BYTES)
    code.done()


def _pack(module: Any, way: Way) -> None:
    """Quantise ``rows (a multiple of 16)`` of a weight ``(rows, inputs)``, one step a row, into the blocks of ``w``.

    ``levels (inputs,)`` int8 is scratch. One function for each type of weight.
    """
    for name in ("float32", "bfloat16"):
        code = Code(
            module, f"pack_{name}", ("weight", "rows", "inputs", "levels", "w", "scale", "offset"), exported=True
        )
        weight, rows, inputs, levels, w, scale, offset = code.parameters
        with code.loop(0, rows) as row:
            _pack_row(code, way, name, weight, row, inputs, levels, (scale, offset))
            block = row // LANES
            place = w + block * LANES * inputs + (row - block * LANES) * QUAD
            with code.loop(0, inputs, QUAD) as i:
                code.store(place + i * LANES, code.load(levels + i, I32))
        code.done()


def _pack_row(
    code: Code, way: Way, kind: str, weight: Num, row: Num, inputs: Num, levels: Num, places: tuple[Num, Num]
) -> None:
    """One row's levels, its step and its offset."""
    scale, offset = places

    def load(i: Num) -> Num:
        if kind == "float32":
            return code.load(weight + (row * inputs + i) * 4, _FLOATS)
        upper = code.load(weight + (row * inputs + i) * 2, vector(I16, LANES), 2)
        return (upper.cast("zext", _INTS) << 16).cast("bitcast", _FLOATS)

    step = step_of(code, inputs, LEVELS, load)
    total = code.variable(code.constant(_INTS, 0))
    steps = code.spread(step, LANES)
    with code.loop(0, inputs, LANES) as i:
        level = code.of_lanes("rint", load(i) / steps).cast("fptosi", _INTS)
        total.set(total.get() + level)
        code.store(levels + i, level.cast("trunc", vector(I8, LANES)), 1)
    code.store(scale + row * 4, step)
    code.store(offset + row * 4, code.fold(total.get(), "add") * way.offset)
