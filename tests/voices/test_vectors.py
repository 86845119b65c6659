"""Mixing and comparing embeddings."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.voices.records import embedding
from voices.vectors import MAX_MIXED, cosine, mixed, nearest


@given(st.lists(st.tuples(st.integers(1, 99), st.floats(0.1, 10)), min_size=1, max_size=5), st.floats(0.01, 100))
def test_only_the_ratio_of_weights_counts_and_the_length_is_the_mean(
    parts: list[tuple[int, float]], scale: float
) -> None:
    vectors = [embedding(64, seed) * np.float32(1 + n) for n, (seed, _) in enumerate(parts)]
    weights = [weight for _, weight in parts]
    mixture = mixed(vectors, weights)
    assert mixture.dtype == np.float32
    assert np.linalg.norm(mixture) == pytest.approx(np.mean([np.linalg.norm(v) for v in vectors]), rel=1e-5)
    np.testing.assert_allclose(mixture, mixed(vectors, [scale * w for w in weights]), rtol=1e-4, atol=1e-5)


def test_one_alone_is_itself_and_a_minus_turns_away() -> None:
    a, b = embedding(64, 1), embedding(64, 2)
    np.testing.assert_allclose(mixed([a], [0.3]), a, rtol=1e-6)
    assert cosine(mixed([a, b], [1, -1]), b) < cosine(a, b)


@pytest.mark.parametrize(
    ("count", "weights"),
    [
        (0, []),
        (2, [1.0]),
        (2, [0.0, 0.0]),
        (1, [float("nan")]),
        (1, [float("inf")]),
        (MAX_MIXED + 1, [1.0] * (MAX_MIXED + 1)),
    ],
)
def test_what_is_no_mixture(count: int, weights: list[float]) -> None:
    with pytest.raises(ValueError, match="mixture"):
        mixed([embedding(64, seed + 1) for seed in range(count)], weights)


def test_opposites_cancel_and_widths_must_agree() -> None:
    a = embedding(64)
    with pytest.raises(ValueError, match="cancel"):
        mixed([a, a], [1, -1])
    with pytest.raises(ValueError, match="width"):
        mixed([a, embedding(32)], [1, 1])


def test_the_nearest_come_first_and_other_widths_not_at_all() -> None:
    wanted = embedding(64, 1)
    known = [(f"v{seed}", embedding(64, seed)) for seed in range(1, 20)] + [("wide", embedding(128))]
    known.append(("again", wanted * np.float32(3)))
    found = nearest(wanted, known, 5)
    assert [name for name, _ in found[:2]] == ["again", "v1"]
    assert found[0][1] == pytest.approx(1)
    assert [c for _, c in found] == sorted((c for _, c in found), reverse=True)
    assert len(found) == 5
