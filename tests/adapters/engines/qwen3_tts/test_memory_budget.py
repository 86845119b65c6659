"""A memory budget: how it is written, what it buys, and that what is reckoned is what is taken."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.engines.qwen3_tts import memory
from adapters.engines.qwen3_tts.code2wav import Code2Wav
from adapters.engines.qwen3_tts.linear import DenseLinear, Place
from adapters.engines.qwen3_tts.talker import KvCache
from sidecar.faults import ConfigError
from tests.adapters.engines.qwen3_tts.loaded import checkpoint, stage0

CPU = Place(torch.device("cpu"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("6GB", 6_000_000_000),
        ("6 gb", 6_000_000_000),
        ("1.5GiB", 1_610_612_736),
        ("512MB", 512_000_000),
        ("2147483648B", 2_147_483_648),
        ("0.25", 4_000_000_000),
        ("1", 16_000_000_000),
    ],
)
def test_a_budget_is_a_size_or_a_share(text: str, expected: int) -> None:
    assert memory.budget_bytes(text, 16_000_000_000) == expected


@pytest.mark.parametrize("text", ["", "much", "-1GB", "0", "1.5", "6", "6TB", "6GB or so", "1e9", "nan", "9" * 99])
def test_what_is_no_budget_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="memory_budget"):
        memory.budget_bytes(text, 16_000_000_000)


def test_a_share_of_what_is_not_known_is_refused_a_size_is_not() -> None:
    with pytest.raises(ConfigError, match="give a size"):
        memory.budget_bytes("0.5", 0)
    assert memory.budget_bytes("6GB", 0) == 6_000_000_000


def _plan(budget: int | None, rows: int = 8, positions: int = 2_048) -> memory.Plan:
    return memory.plan(checkpoint(), CPU, rows=rows, positions=positions, prefix_positions=256, budget=budget)


@settings(deadline=None)
@given(
    spare=st.integers(0, 1 << 31),
    rows=st.integers(1, 64),
    positions=st.integers(memory.LEAST_POSITIONS, 4_096),
)
def test_a_plan_keeps_within_its_budget_and_uses_it(spare: int, rows: int, positions: int) -> None:
    least = memory.fixed_bytes(checkpoint(), CPU, 256) + memory.row_bytes(checkpoint(), CPU, memory.LEAST_POSITIONS)
    plan = _plan(least + spare, rows, positions)
    assert 1 <= plan.rows <= rows
    assert min(memory.LEAST_POSITIONS, positions) <= plan.positions <= positions
    assert plan.total_bytes <= least + spare
    if plan.rows < rows:
        assert plan.total_bytes + memory.row_bytes(checkpoint(), CPU, plan.positions) > least + spare


def test_without_a_budget_everything_asked_is_given() -> None:
    plan = _plan(None, rows=5, positions=700)
    assert (plan.rows, plan.positions) == (5, 700)


def test_a_budget_below_the_weights_names_the_least_that_serves() -> None:
    with pytest.raises(ConfigError, match=r"0\.50 GB do not hold .* needs (\d+\.\d\d) GB") as refused:
        _plan(500_000_000)
    words = str(refused.value.problems)
    needed = float(words.partition("needs ")[2].partition(" GB")[0])
    assert _plan(int(needed * 1e9)).rows >= 1


def test_what_is_reckoned_covers_what_is_made() -> None:
    """Weights, cache and decoder state of a real load, byte for byte, against the plan's parts."""
    opened = checkpoint()
    talker = stage0(kind="base", rows=2, positions=256)
    tensors: dict[int, int] = {}

    def walk(thing: object, depth: int = 0) -> None:
        if isinstance(thing, torch.Tensor):
            tensors[thing.untyped_storage().data_ptr()] = thing.untyped_storage().nbytes()
        elif isinstance(thing, list | tuple) and depth < 8:
            for one in thing:
                walk(one, depth + 1)
        elif hasattr(thing, "__dict__") and depth < 8 and not isinstance(thing, type | torch.device):
            for one in vars(thing).values():
                walk(one, depth + 1)

    walk(talker.talker)
    walk(talker.predictor)
    assert isinstance(talker.talker._head, DenseLinear)
    made, reckoned = sum(tensors.values()), memory.stage0_bytes(opened, CPU)
    rope_and_scratch = 3_000_000
    assert reckoned * 0.9 <= made <= reckoned + rope_and_scratch
    cache = KvCache(opened.talker.talker, 2, 256, CPU)
    assert sum(part.nbytes for part in [*cache.k, *cache.v]) == 2 * 256 * KvCache.bytes_per_position(
        opened.talker.talker, CPU
    )
    decoder = Code2Wav(opened.codec.decoder, opened.codec_weights)
    assert decoder.new_state().nbytes <= 3 * memory.decoder_state_bytes(opened)
