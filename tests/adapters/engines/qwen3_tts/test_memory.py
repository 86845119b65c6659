"""What loading leaves in memory, and that both int8 kernels say the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from adapters.engines.qwen3_tts import linear
from adapters.engines.qwen3_tts.config import TransformerConfig
from adapters.engines.qwen3_tts.linear import Int8Linear, Place, int8_available
from adapters.engines.qwen3_tts.talker import KvCache
from tests.adapters.engines.qwen3_tts.loaded import checkpoint


def _anonymous_kb() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon")).split()[1])


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_cache_rows_cost_nothing_before_they_are_used(precision: linear.Precision) -> None:
    config: TransformerConfig = checkpoint().talker.talker
    place = Place(torch.device("cpu"), precision)
    positions = 400_000_000 // KvCache.bytes_per_position(config, place)
    before = _anonymous_kb()
    cache = KvCache(config, 1, positions, place)
    assert cache.k[0].dtype == place.dtype
    assert not cache.v[-1][0, -1, -1].any()
    assert _anonymous_kb() - before < 50_000


@pytest.mark.skipif(not int8_available(torch.device("cpu")), reason="no int8 kernel for this CPU")
def test_both_int8_kernels_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(1)
    weight, x = torch.randn(96, 64, generator=generator), torch.randn(5, 64, generator=generator)
    found = []
    for available in (True, False):
        monkeypatch.setattr(linear, "_fbgemm_available", lambda available=available: available)
        found.append(Int8Linear(weight)(x))
    torch.testing.assert_close(*found, rtol=0, atol=0.15)
    assert (found[0] - found[1]).norm() < 2e-3 * found[0].norm()
