"""The int8 kernels: exact products, float parts as PyTorch's, bits that depend on nothing but a token's own past."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.engines.qwen3_tts import layers, linear
from adapters.engines.qwen3_tts.linear import Int8Linear, Place, kernels, quantise
from adapters.engines.qwen3_tts.stage0 import Stage0
from adapters.engines.qwen3_tts.stages import Prompt
from tests.adapters.engines.qwen3_tts.loaded import checkpoint, speak, tokenizer

if kernels() is None:
    pytest.skip("the kernels need llvmlite and a CPU with byte products", allow_module_level=True)

from llvmlite import ir  # type: ignore[import-untyped]

from adapters.engines.qwen3_tts import int8_fused, int8_ir, int8_kernels, int8_tiles

CPU = Place(torch.device("cpu"), "int8")
THEIRS = Place(torch.device("cpu"), "int8", own_kernels=False)


def _normal(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# ------------------------------------------------------------------ products
sizes = st.integers(1, 40).map(lambda n: n * 16)


@given(rows=st.integers(1, 21), outputs=sizes, inputs=sizes, seed=st.integers(0, 2**20), stored=st.booleans())
@settings(max_examples=60, deadline=None)
def test_products_are_exact_sums(rows: int, outputs: int, inputs: int, seed: int, stored: bool) -> None:
    """Equal bit for bit to the definition: whole levels, exact sums, then the two scales."""
    weight = _normal(seed, outputs, inputs) * torch.logspace(-4, 4, outputs)[:, None]
    if stored:
        weight = weight.bfloat16()
    x = _normal(seed + 1, rows, inputs) * torch.logspace(-6, 6, rows)[:, None]
    levels, scale = quantise(weight)
    steps = (x.abs().amax(1, keepdim=True) / 127).numpy()
    whole = np.rint(x.numpy() / steps + np.float32(128)).astype(np.int64) - 128
    expected = (whole @ levels.numpy().T.astype(np.int64)).astype(np.float32) * scale.numpy() * steps
    np.testing.assert_array_equal(int8_fused.KernelLinear([weight])(x).numpy(), expected)


@pytest.mark.skipif(not linear._fbgemm_available(), reason="this PyTorch has no FBGEMM")
@pytest.mark.parametrize("rows", [1, 2, 3, 7, 8, 9, 40])
def test_products_equal_those_of_pytorch(rows: int) -> None:
    weight, bias, x = _normal(1, 96, 1024).bfloat16(), _normal(2, 96), _normal(3, rows, 1024)
    x[0] *= 1e-20
    x[-1, 5] = 1e6
    ours, theirs = int8_fused.KernelLinear([weight[:32], weight[32:]], bias), Int8Linear(weight, bias)
    assert torch.equal(ours(x), theirs(x))
    assert torch.equal(ours(x.view(rows, 1, -1)), theirs(x).view(rows, 1, -1))
    assert torch.equal(ours(torch.zeros(1, 1024)), bias[None])


def test_what_is_not_finite_shows() -> None:
    weight, x = _normal(1, 32, 64), _normal(2, 3, 64)
    good = int8_fused.KernelLinear([weight])(x)
    x[1, 3] = float("nan")
    found = int8_fused.KernelLinear([weight])(x)
    assert found[1].isnan().all()
    assert torch.equal(found[[0, 2]], good[[0, 2]])
    weight[7, 7] = float("inf")
    assert not int8_fused.KernelLinear([weight])(x)[:, 7].isfinite().any()


def test_sizes_that_do_not_fill_the_vectors_are_left_to_pytorch() -> None:
    assert isinstance(CPU.linear(torch.ones(24, 64)), Int8Linear)
    assert isinstance(CPU.linear(torch.ones(32, 24)), Int8Linear)
    assert isinstance(CPU.linear(torch.ones(32, 48)), int8_fused.KernelLinear)


@pytest.mark.parametrize("name", int8_tiles.WAYS)
def test_every_kind_of_cpu_sums_exactly(name: str) -> None:
    """The extremes too: rows and weights of nothing but the largest levels."""
    way = int8_tiles.WAYS[name]
    features = int8_ir.host_features()
    if not all(features.get(one) for one in way.needs if one != "avxvnni"):
        pytest.skip(f"not a CPU for {name}")
    module = ir.Module(name)
    int8_tiles.emit_products(module, way)
    code = int8_ir.Compiled(module)
    rows, outputs, inputs = 11, 144, 208
    weight, x = _normal(1, outputs, inputs), _normal(2, rows, inputs)
    x[3], x[4], weight[5], weight[6] = 1, -1, 1, -1
    w, levels = np.zeros((outputs // 16 + 1) * 16 * inputs, np.int8), np.zeros(inputs, np.int8)
    w = w[-w.ctypes.data % 64 :]
    scale, offset = np.zeros(outputs, np.float32), np.zeros(outputs, np.int32)
    bytes_, steps, out = np.zeros((rows, inputs), np.uint8), np.zeros(rows, np.float32), torch.zeros(rows, outputs)
    int8_fused._function(code.address("pack_float32"), 7)(
        weight.data_ptr(), outputs, inputs, levels.ctypes.data, w.ctypes.data, scale.ctypes.data, offset.ctypes.data
    )
    int8_fused._function(code.address("linear"), 10)(
        x.data_ptr(), rows, inputs, bytes_.ctypes.data, steps.ctypes.data, w.ctypes.data, scale.ctypes.data,
        offset.ctypes.data, outputs // 16, out.data_ptr(),
    )  # fmt: skip
    whole, step = quantise(weight)
    assert bytes_.max() == way.offset + way.levels
    sums = (bytes_.astype(np.int64) - way.offset) @ whole.numpy().T.astype(np.int64)
    np.testing.assert_array_equal(out.numpy(), sums.astype(np.float32) * step.numpy() * steps[:, None])


# ------------------------------------------------------------------ the float parts
def _called(name: str, emit: Any, *arguments: torch.Tensor | int) -> None:
    """Compile what ``emit`` writes into a module and call one of its functions."""
    module = ir.Module("test")
    emit(module)
    module.get_global(name).linkage = "external"
    code = int8_ir.Compiled(module)
    values = [one if isinstance(one, int) else one.data_ptr() for one in arguments]
    int8_fused._function(code.address(name), len(values))(*values)


def test_exponential_is_within_two_units_in_the_last_place() -> None:
    x = torch.cat((torch.linspace(-87, 88, 1 << 16), torch.tensor([0.0, -0.0, *[1e-30] * 14])))
    out = torch.empty_like(x)

    def emit(module: Any) -> None:
        code = int8_ir.Code(module, "apply", ("x", "n", "out"))
        source, n, target = code.parameters
        with code.loop(0, n, 16) as i:
            value = code.load(source + i * 4, int8_ir.vector(int8_ir.F32, 16))
            code.store(target + i * 4, int8_kernels.exponential(code, value))
        code.done()

    _called("apply", emit, x, len(x), out)
    exact = x.double().exp()
    unit = torch.from_numpy(np.spacing(exact.float().numpy())).double()
    assert ((out.double() - exact).abs() <= 2 * unit).all()


@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 200])
@pytest.mark.parametrize("dim", [16, 64, 128])
def test_attention_is_pytorchs(count: int, dim: int) -> None:
    q, keys, values = _normal(1, dim) * 3, _normal(2, count, dim), _normal(3, count, dim)
    out, scores = torch.empty(dim), torch.empty(count + 16)
    _called("attend", lambda module: int8_kernels._attend(module, dim), q, keys, values, count, scores, out)
    expected = F.scaled_dot_product_attention(q[None, None], keys[None], values[None])[0, 0]
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dim", [16, 32, 128])
def test_norm_and_rope_are_pytorchs(dim: int) -> None:
    x, weight, angle = _normal(1, dim) * 5, _normal(2, dim), _normal(3, dim // 2).repeat(2)
    cos, sin = angle.cos(), torch.cat((-angle[: dim // 2].sin(), angle[dim // 2 :].sin()))
    out, normed = torch.empty(dim), torch.empty(dim)

    def emit(module: Any) -> None:
        int8_kernels._norm(module, "norm_head", dim, 1e-6)
        int8_kernels._turn(module, dim)

    _called("turn", emit, x, weight, cos, sin, normed, out)
    expected = layers.rms_norm(x, weight, 1e-6)
    torch.testing.assert_close(normed, expected, rtol=1e-6, atol=1e-6)
    turned = layers.rotate(expected[None, None, None], (cos[None, None, None], sin[None, None, None]))
    torch.testing.assert_close(out, turned.flatten(), rtol=1e-5, atol=1e-6)


def test_swiglu_is_pytorchs() -> None:
    gate_up = _normal(1, 3, 96) * 20
    out = torch.empty(3, 48)
    _called("activate", lambda module: int8_kernels._activate(module, 48), gate_up, 3, 0, 48, out)
    gate, up = gate_up.chunk(2, -1)
    torch.testing.assert_close(out, F.silu(gate) * up, rtol=2e-6, atol=1e-30)


# ------------------------------------------------------------------ the transformer
POSITIONS, ROWS = 96, 4
TINY = checkpoint("tiny").talker.talker


def _transformer(team: int = 1) -> Any:
    rope = layers.Rope(TINY, POSITIONS, CPU)
    weights = checkpoint("tiny").weights
    return int8_fused.FusedTransformer(TINY, weights, "talker.model", (rope.cos, rope.sin), int8_fused.Team(team))


@pytest.fixture(scope="module")
def fused() -> Any:
    return _transformer()


class _Cache:
    def __init__(self) -> None:
        self.k = torch.zeros(TINY.layers, ROWS, TINY.kv_heads, POSITIONS, TINY.head_dim)
        self.v = torch.zeros_like(self.k)

    def run(self, fused: Any, x: torch.Tensor, rows: Sequence[int], positions: Sequence[int]) -> torch.Tensor:
        found: torch.Tensor = fused(x, rows, positions, self.k, self.v)
        return found


@given(cuts=st.sets(st.integers(1, 79), max_size=12))
@settings(max_examples=25, deadline=None)
def test_a_prompt_may_be_cut_anywhere(fused: Any, cuts: set[int]) -> None:
    x, whole, parts = _normal(5, 80, TINY.hidden), _Cache(), _Cache()
    expected = whole.run(fused, x, [1] * 80, range(80))
    spans = itertools.pairwise([0, *sorted(cuts), 80])
    found = torch.cat([parts.run(fused, x[a:b], [1] * (b - a), range(a, b)) for a, b in spans])
    assert torch.equal(found, expected)
    assert torch.equal(parts.k, whole.k)
    assert torch.equal(parts.v, whole.v)


@given(lengths=st.lists(st.integers(1, 30), min_size=2, max_size=ROWS), seed=st.integers(0, 2**20))
@settings(max_examples=25, deadline=None)
def test_rows_do_not_see_each_other(fused: Any, lengths: list[int], seed: int) -> None:
    """Tokens of several rows in one call, in any mixture, equal to each row alone."""
    x = [_normal(seed + row, length, TINY.hidden) for row, length in enumerate(lengths)]
    order = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(lengths)), lengths))
    positions = [int((order[:at] == row).sum()) for at, row in enumerate(order)]
    mixed = torch.stack([x[row][position] for row, position in zip(order, positions, strict=True)])
    together = _Cache().run(fused, mixed, order.tolist(), positions)
    for row, tokens in enumerate(x):
        alone = _Cache().run(fused, tokens, [row] * len(tokens), range(len(tokens)))
        assert torch.equal(together[order == row], alone)


@pytest.mark.parametrize("threads", [2, 3, 5])
def test_threads_share_the_work_without_a_trace(fused: Any, threads: int) -> None:
    team, x = _transformer(threads), _normal(7, 40, TINY.hidden)
    one, many = _Cache(), _Cache()
    for _ in range(5):
        assert torch.equal(one.run(fused, x, [2] * 40, range(40)), many.run(team, x, [2] * 40, range(40)))
    assert torch.equal(one.k, many.k)
    assert torch.equal(one.run(fused, x[:1], [2], [40]), many.run(team, x[:1], [2], [40]))


def test_two_callers_of_one_team_do_not_block_each_other() -> None:
    rope, weights, team = layers.Rope(TINY, POSITIONS, CPU), checkpoint("tiny").weights, int8_fused.Team(3)
    pair = [int8_fused.FusedTransformer(TINY, weights, "talker.model", (rope.cos, rope.sin), team) for _ in range(2)]
    x = _normal(7, 20, TINY.hidden)

    def speak_often(one: Any) -> torch.Tensor:
        return [_Cache().run(one, x, [0] * 20, range(20)) for _ in range(20)][-1]

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(speak_often, pair)
    assert torch.equal(first, second)


def test_the_fused_form_is_the_layered_one(fused: Any) -> None:
    """Within what a level that rounds the other way costs: the products are equal, norms and sums round differently."""
    layered = layers.Transformer(TINY, checkpoint("tiny").weights, "talker.model", THEIRS)
    x = _normal(9, 30, TINY.hidden)

    def attend(layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return layers.attend_causally(q, k.transpose(1, 2), v.transpose(1, 2))

    expected = layered(x[None], layers.Rope(TINY, POSITIONS, CPU).span(0, 30), attend)[0]
    found = _Cache().run(fused, x, [0] * 30, range(30))
    assert (found - expected).norm() < 0.01 * expected.norm()


@pytest.mark.parametrize(
    ("rows", "positions"), [([ROWS], [0]), ([-1], [0]), ([0], [POSITIONS]), ([0], [-1])]
)  # fmt: skip
def test_places_outside_the_cache_are_refused(fused: Any, rows: list[int], positions: list[int]) -> None:
    with pytest.raises(ValueError, match="outside the cache"):
        _Cache().run(fused, torch.zeros(1, TINY.hidden), rows, positions)


def test_other_types_are_refused(fused: Any) -> None:
    with pytest.raises(ValueError, match="not float32"):
        _Cache().run(fused, torch.zeros(1, TINY.hidden, dtype=torch.float64), [0], [0])


# ------------------------------------------------------------------ stage 0 with and without
def test_without_kernels_pytorch_speaks_nearly_the_same() -> None:
    opened, prompt = checkpoint("even", "custom_voice"), Prompt(tokenizer().body_ids("A line."), speaker="ryan")
    ours, theirs = (
        Stage0(opened.talker, opened.weights, tokenizer().role_ids, positions=256, place=place)
        for place in (CPU, THEIRS)
    )
    assert isinstance(theirs.talker._layers, layers.Transformer)
    assert isinstance(ours.talker._layers, int8_fused.FusedTransformer)
    for stage in (ours, theirs):
        stage.admit(0, prompt)
    a, b = ours._hidden[0], theirs._hidden[0]
    assert (a - b).norm() < 0.01 * b.norm()
    for stage in (ours, theirs):
        stage.release(0)
        assert len(speak(stage, prompt, 4)) == 4


def test_a_missing_llvmlite_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr("importlib.import_module", absent)
    linear.kernels.cache_clear()
    try:
        assert linear.kernels() is None
        assert isinstance(CPU.linear(torch.ones(32, 32)), Int8Linear)
    finally:
        linear.kernels.cache_clear()


@pytest.mark.parametrize("fails", [True, False])
def test_kernels_that_fail_their_proof_are_not_used(
    fails: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def wrong(weights: Sequence[torch.Tensor]) -> Any:
        if fails:
            raise AttributeError("create_pass_builder")
        return lambda x: torch.zeros(len(x), len(weights[0]))

    assert int8_fused.proved()
    monkeypatch.setattr(int8_fused, "KernelLinear", wrong)
    int8_fused.proved.cache_clear()
    try:
        assert not int8_fused.usable()
        assert "int8 without kernels of its own" in caplog.text
    finally:
        int8_fused.proved.cache_clear()
