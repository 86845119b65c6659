"""Draws: known answers of the generator, the distribution, the order of the processors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from adapters.engines.qwen3_tts.sampling import (
    Rules,
    choose,
    constrain,
    inverse_cdf,
    philox,
    split_seed,
    uniforms,
)

CPU = torch.device("cpu")
Row = tuple[bool, float, int, float]


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ([0] * 4, [0] * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_known_answers_of_philox(counter: list[int], key: list[int], words: str) -> None:
    found = philox(np.array(counter, dtype=np.uint64), np.array(key, dtype=np.uint64))
    assert " ".join(f"{int(word):08x}" for word in found) == words


def test_uniforms_depend_on_key_step_and_codebook_alone() -> None:
    whole = uniforms([3, 2**63, 9], [0, 5, 2**31], range(16))
    assert whole.dtype == np.float32
    assert whole.min() >= 0
    assert whole.max() < 1
    np.testing.assert_array_equal(whole[1:2, 1:], uniforms([2**63], [5], range(1, 16)))
    assert len(np.unique(whole)) == whole.size
    many = uniforms(list(range(2000)), [7] * 2000, range(4))
    assert abs(many.mean() - 0.5) < 0.01
    assert abs(np.corrcoef(many.T) - np.eye(4)).max() < 0.1


def test_one_seed_gives_two_keys() -> None:
    keys = {key for seed in range(200) for key in split_seed(seed)}
    assert len(keys) == 400
    assert split_seed(-1) == split_seed(2**64 - 1)
    assert all(0 <= key < 2**64 for key in keys)


def test_inverse_cdf_has_the_distribution_of_its_probabilities() -> None:
    p = torch.tensor([0.0, 0.1, 0.0, 0.6, 0.3, 0.0])
    u = torch.from_numpy(uniforms([1], [0], range(20_000))[0])
    drawn = inverse_cdf(p.expand(len(u), -1), u)
    shares = torch.bincount(drawn, minlength=6) / len(u)
    assert (shares - p).abs().max() < 0.01
    assert set(drawn.tolist()) == {1, 3, 4}


def test_inverse_cdf_never_leaves_what_is_possible() -> None:
    torch.manual_seed(0)
    p = torch.randn(64, 500).mul(4).softmax(-1)
    p[:, ::3] = 0
    for u in (0.0, 0.5, 1 - 2**-24):
        drawn = inverse_cdf(p, torch.full((64,), u))
        assert (p.gather(1, drawn[:, None]) > 0).all()


def _reference_order(logits: torch.Tensor, temperature: float, top_k: int, top_p: float) -> torch.Tensor:
    """Probabilities, written out one processor after the other for one row."""
    scores = logits / temperature
    if top_k:
        scores[scores < scores.topk(top_k).values[-1]] = -torch.inf
    if top_p < 1:
        ranked, order = scores.sort()
        low = order[ranked.softmax(-1).cumsum(-1) <= 1 - top_p]
        scores[low[low != order[-1]]] = -torch.inf
    return scores.softmax(-1)


RULES: list[Row] = [
    (False, 0.9, 50, 1.0),
    (False, 1.3, 5, 0.7),
    (True, 0.9, 50, 1.0),
    (False, 0.5, 0, 0.3),
    (False, 0.8, 1, 1.0),
    (False, 0.0, 50, 1.0),
    (False, 1.0, 4000, 1.0),
]


def test_each_row_draws_by_its_own_rules_whatever_stands_beside_it() -> None:
    torch.manual_seed(1)
    logits = torch.randn(len(RULES), 300) * 3
    logits[0, :60] = 2.5  # ties with the k-th
    seen: list[torch.Tensor] = []

    def draw(probabilities: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
        seen.append(probabilities)
        return inverse_cdf(probabilities, uniform)

    u = torch.rand(len(RULES))
    together = choose(logits, Rules.of(RULES, 300, CPU), u, draw)
    for row, rule in enumerate(RULES):
        alone = choose(logits[row : row + 1], Rules.of([rule], 300, CPU), u[row : row + 1], inverse_cdf)
        assert alone == together[row]
        if rule[0] or rule[1] == 0:
            assert together[row] == logits[row].argmax()
        else:
            expected = _reference_order(logits[row].clone(), rule[1], rule[2] if rule[2] < 300 else 0, rule[3])
            assert torch.equal(seen[0][row], expected)


def test_processors_of_the_talker() -> None:
    logits = torch.tensor([[2.0, -2.0, 1.0, 5.0, 9.0, 7.0]]).expand(2, -1)
    seen = torch.tensor([[True, True, False, False, True, False]]).expand(2, -1)
    scores = constrain(logits, seen, torch.tensor([[2.0], [1.0]]), 3, 4, torch.tensor([True, False]))
    inf = float("inf")
    assert scores.tolist() == [[1.0, -4.0, 1.0, -inf, 4.5, -inf], [2.0, -2.0, 1.0, -inf, -inf, -inf]]


def test_rules_leave_out_what_no_row_needs() -> None:
    def flags(*rows: Row) -> Any:
        rules = Rules.of(rows, 100, CPU)
        return rules.widest, rules.sampled, rules.nucleus

    assert flags((True, 0.9, 50, 0.5)) == (0, False, False)
    assert flags((False, 0.9, 50, 1.0), (True, 1.0, 70, 0.5)) == (50, True, False)
    assert flags((False, 0.9, 0, 0.5), (False, 1.0, 7, 1.0)) == (7, True, True)
