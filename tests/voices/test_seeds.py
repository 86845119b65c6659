"""Seeds: fixed for ever, different everywhere."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voices.seeds import new_dialog_seed, segment_seed

INT64 = st.integers(-(2**63), 2**63 - 1)
INDEX = st.integers(0, 2**63 - 1)

VECTORS = [
    (0, 0, 0, 8_219_574_751_868_318_045),
    (0, 0, 1, 615_596_866_810_732_611),
    (0, 1, 0, 1_333_247_075_062_861_689),
    (1, 0, 0, 373_235_995_870_442_340),
    (-1, 0, 0, 9_021_788_937_027_322_833),
    (42, 7, 3, 5_951_301_019_628_502_605),
    (9_223_372_036_854_775_807, 9_223_372_036_854_775_807, 9_223_372_036_854_775_807, 3_219_903_028_916_774_797),
    (-9_223_372_036_854_775_808, 0, 1_099_511_627_776, 200_796_162_634_091_056),
]


@pytest.mark.parametrize(("dialog_seed", "reply_index", "segment_index", "seed"), VECTORS)
def test_vectors(dialog_seed: int, reply_index: int, segment_index: int, seed: int) -> None:
    assert segment_seed(dialog_seed, reply_index, segment_index) == seed


def test_the_page_shows_the_vectors() -> None:
    page = (Path(__file__).parents[2] / "docs" / "voices.md").read_text()
    shown = re.findall(r"^\| (-?\d+) \| (\d+) \| (\d+) \| (\d+) \|$", page, re.M)
    assert [tuple(map(int, row)) for row in shown] == VECTORS


@given(INT64, INDEX, INDEX)
def test_any_position_gives_63_bits_again_and_again(dialog_seed: int, reply: int, segment: int) -> None:
    seed = segment_seed(dialog_seed, reply, segment)
    assert 0 <= seed < 2**63
    assert seed == segment_seed(dialog_seed, reply, segment)


@given(st.tuples(INT64, INDEX, INDEX), st.tuples(INT64, INDEX, INDEX))
def test_other_positions_give_other_seeds(one: tuple[int, int, int], two: tuple[int, int, int]) -> None:
    assert (segment_seed(*one) == segment_seed(*two)) == (one == two)


def test_no_collision_in_100_000() -> None:
    seeds = {
        segment_seed(dialog, reply, segment) for dialog in range(10) for reply in range(100) for segment in range(100)
    }
    assert len(seeds) == 100_000


def test_every_bit_is_a_fair_coin() -> None:
    draws = 20_000
    seeds = [segment_seed(42, 0, index) for index in range(draws)]
    for bit in range(63):
        ones = sum(seed >> bit & 1 for seed in seeds)
        # Six standard deviations.
        assert abs(ones - draws / 2) < 6 * (draws / 4) ** 0.5


def test_neighbours_differ_in_half_their_bits() -> None:
    distances = [(segment_seed(7, 3, index) ^ segment_seed(7, 3, index + 1)).bit_count() for index in range(2_000)]
    assert sum(distances) / len(distances) == pytest.approx(31.5, abs=0.6)


@pytest.mark.parametrize(
    "position", [(2**63, 0, 0), (-(2**63) - 1, 0, 0), (0, -1, 0), (0, 0, -1), (0, 2**63, 0), (0, 0, 2**63)]
)
def test_out_of_range_is_refused(position: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError):
        segment_seed(*position)


def test_only_integers_are_taken() -> None:
    with pytest.raises(TypeError):
        segment_seed(0, 1.0, 0)  # type: ignore[arg-type]


def test_dialog_seeds_are_63_bits_and_never_alike() -> None:
    seeds = [new_dialog_seed() for _ in range(1_000)]
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert len(set(seeds)) == 1_000
    assert max(seeds) > 2**62
