"""Rows of stage 0: neighbours, live text, kept heads, precisions, and what is refused."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest
import torch

from adapters.engines.qwen3_tts.linear import Int8Linear, Place, int8_available, quantise
from adapters.engines.qwen3_tts.stage0 import Stage0
from adapters.engines.qwen3_tts.stages import Frame, Prompt, Reference, Sampling
from sidecar.faults import BadRequest, ConfigError
from tests.adapters.engines.qwen3_tts.loaded import checkpoint, speak, stage0, tokenizer

needs_int8 = pytest.mark.skipif(not int8_available(torch.device("cpu")), reason="no int8 kernel for this CPU")

TEXTS = (
    "Hello world, this is a small test.",
    "你好，世界。",
    "One, two, three.",
    "A longer line of text, spoken beside shorter ones to the end.",
    "Hi.",
    "Numbers: 1234 and 5678.",
    "Was it so? Yes!",
    "The last of eight.",
)
SPEAKERS = ("vivian", "Eric", "ryan", "DYLAN", "serena", "uncle_fu", "aiden", "sohee")


def _prompt(at: int, **changes: Any) -> Prompt:
    fields: dict[str, Any] = {
        "text_ids": tokenizer().body_ids(TEXTS[at]),
        "layout": "whole" if at % 3 == 2 else "streaming",
        "language": (None, "english", "chinese")[at % 3],
        "speaker": SPEAKERS[at],
        "sampling": Sampling(
            seed=at * 1000 + 7, greedy=at % 4 == 3, top_k=(50, 0, 5)[at % 3], top_p=(1.0, 0.8)[at % 2]
        ),
        **changes,
    }
    return Prompt(**fields)


def _together(stage: Stage0, prompts: dict[int, Prompt], frames: int, seed: int = 0) -> dict[int, np.ndarray]:
    """Rows that join at different steps and pause now and then."""
    chance = random.Random(seed)
    waiting, codes = list(prompts), {row: list[Frame]() for row in prompts}
    going: list[int] = []
    while waiting or going:
        if waiting and (not going or chance.random() < 0.5):
            row = waiting.pop(0)
            stage.admit(row, prompts[row])
            going.append(row)
        chosen = [row for row in going if chance.random() < 0.8] or going[:1]
        chance.shuffle(chosen)
        stepped = stage.step(chosen)
        assert [one.row for one in stepped] == chosen
        for one in stepped:
            if one.frame is not None:
                codes[one.row].append(one.frame)
            if one.frame is None or len(codes[one.row]) == frames:
                going.remove(one.row)
                stage.release(one.row)
    return {row: np.stack(found) for row, found in codes.items()}


@pytest.mark.parametrize(
    ("size", "precision"),
    [
        ("tiny", "float32"),
        ("tiny17", "float32"),
        ("tiny", "bfloat16"),
        pytest.param("even", "int8", marks=needs_int8),
        pytest.param("even17", "int8", marks=needs_int8),
    ],
)
@pytest.mark.parametrize("count", [2, 8])
def test_a_rows_codes_do_not_depend_on_its_neighbours(size: str, precision: str, count: int) -> None:
    """bfloat16 needs one batch shape at these widths; in float32 rounding is too small to show in codes."""
    options: dict[str, Any] = {"precision": precision, "fill_to": 8 if precision == "bfloat16" else 1}
    alone = stage0(size, "custom_voice", **options)
    batch = stage0(size, "custom_voice", rows=8, **options)
    rows = random.Random(count).sample(range(8), count)
    prompts = {row: _prompt(at) for at, row in enumerate(rows)}
    found = _together(batch, prompts, 6, seed=count)
    for row, prompt in prompts.items():
        np.testing.assert_array_equal(found[row], speak(alone, prompt, 6))


@pytest.mark.parametrize(
    ("size", "precision", "fill_to"),
    [
        ("tiny", "float32", 1),
        ("tiny", "float32", 5),
        ("tiny", "bfloat16", 5),
        pytest.param("even", "int8", 1, marks=needs_int8),
    ],
)
def test_hidden_states_beside_neighbours(size: str, precision: str, fill_to: int) -> None:
    """Bit for bit in batches of one shape, and with int8 always; else within rounding."""
    states = []
    for rows in ([0], [1, 2, 0, 3, 4]):
        stage = stage0(size, rows=5, fill_to=fill_to, precision=precision)
        for row in rows:
            stage.admit(row, _prompt(row))
        for _ in range(4):
            stage.step(rows)
        states.append(stage._hidden[0].clone())
    if fill_to == 5 or precision == "int8":
        assert torch.equal(*states)
    assert torch.allclose(*states, rtol=0, atol=1e-4)


def test_slots_agree_with_rows() -> None:
    rows, slots = stage0(rows=4), stage0(rows=4, slots=True)
    prompts = {row: _prompt(row) for row in range(4)}
    first, second = _together(rows, prompts, 8), _together(slots, prompts, 8)
    for row in prompts:
        np.testing.assert_array_equal(first[row], second[row])


def test_seeds_matter_and_repeat() -> None:
    stage = stage0()
    spoken = [speak(stage, _prompt(0, sampling=Sampling(seed=seed)), 6) for seed in (1, 1, 2, -1, 2**64 - 1)]
    np.testing.assert_array_equal(spoken[0], spoken[1])
    np.testing.assert_array_equal(spoken[3], spoken[4])
    assert not np.array_equal(spoken[0], spoken[2])


# ------------------------------------------------------------------ live text
def _arriving(stage: Stage0, prompt: Prompt, arrivals: list[int], frames: int) -> np.ndarray:
    """The same text in pieces: ``arrivals[i]`` ids come before attempt i, one at first."""
    ids = list(prompt.text_ids)
    stage.admit(0, Prompt(**{**_fields(prompt), "text_ids": tuple(ids[:1]), "closed": False}))
    ids, codes = ids[1:], list[Frame]()
    for arrived in itertools.chain(arrivals, itertools.repeat(1)):
        if ids:
            stage.append(0, ids[:arrived])
            ids = ids[arrived:]
        else:
            stage.close(0)
        if stage.can_step(0):
            (stepped,) = stage.step([0])
            if stepped.frame is None or len(codes) == frames:
                break
            codes.append(stepped.frame)
        else:
            with pytest.raises(ValueError, match="cannot be stepped"):
                stage.step([0])
    stage.release(0)
    return np.stack(codes)


def _fields(prompt: Prompt) -> dict[str, Any]:
    return {name: getattr(prompt, name) for name in prompt.__dataclass_fields__}


@pytest.mark.parametrize("at", [0, 1, 3])
def test_any_arrival_of_live_text_gives_the_codes_of_the_whole(at: int) -> None:
    stage, prompt = stage0(), _prompt(at, layout="streaming")
    expected = _arriving(stage, prompt, [len(prompt.text_ids)], 20)
    chance = random.Random(at)
    patterns = [[1] * 50, [0, 0, 3] * 10, [chance.randrange(4) for _ in range(60)]]
    for pattern in patterns:
        np.testing.assert_array_equal(_arriving(stage, prompt, pattern, 20), expected)
    # A text known to be complete may end before it has been fed, as in the reference. While that could be drawn it has
    # its share of the probability, so only greedy codes can be compared with it.
    greedy = _prompt(at, layout="streaming", sampling=Sampling(greedy=True))
    closed = speak(stage, greedy, 20)
    live = _arriving(stage, greedy, [1, 0, 2], 20)
    np.testing.assert_array_equal(closed, live[: len(closed)])


def test_first_frame_needs_one_id_and_the_end_waits_for_the_text() -> None:
    eager = stage0()
    logits = eager.talker.logits

    def ending(hidden: torch.Tensor) -> torch.Tensor:
        scores = logits(hidden)
        scores[:, eager.config.codec.eos] = 1e4  # a talker that wants to end at once
        return scores

    eager.talker.logits = ending  # type: ignore[method-assign]
    ids = tokenizer().body_ids(TEXTS[0])
    eager.admit(0, _prompt(0, text_ids=ids[:1], closed=False))
    assert eager.step([0])[0].frame is not None
    assert not eager.can_step(0)
    for one in ids[1:]:
        eager.append(0, [one])
        assert eager.step([0])[0].frame is not None
        assert not eager.can_step(0)
    eager.close(0)
    eager.close(0)
    assert eager.step([0])[0].frame is None
    with pytest.raises(ValueError, match="cannot be stepped"):
        eager.step([0])
    eager.release(0)
    eager.release(0)
    assert len(speak(eager, _prompt(0, sampling=Sampling(min_frames=5)))) == 5


# ------------------------------------------------------------------ kept heads
def test_a_kept_head_gives_the_same_codes() -> None:
    stage = stage0()
    first = speak(stage, _prompt(0), 8)
    kept = dict(stage._prefixes)
    assert len(kept) == 1
    other = speak(stage, _prompt(0, text_ids=tokenizer().body_ids("Something else.")), 8)
    assert dict(stage._prefixes) == kept
    np.testing.assert_array_equal(speak(stage, _prompt(0), 8), first)
    without = stage0(prefix_positions=0)
    np.testing.assert_array_equal(speak(without, _prompt(0), 8), first)
    np.testing.assert_array_equal(
        speak(without, _prompt(0, text_ids=tokenizer().body_ids("Something else.")), 8), other
    )


def test_kept_heads_are_bounded() -> None:
    stage = stage0(prefix_positions=20)
    for at in range(6):
        speak(stage, _prompt(at), 1)
        assert sum(keys.shape[2] for keys, _ in stage._prefixes.values()) <= 20
    assert stage._prefixes


# ------------------------------------------------------------------ precisions
@needs_int8
def test_int8_products_are_close_and_rows_independent() -> None:
    weight, x = torch.randn(96, 64) / 8, torch.randn(9, 64) * torch.logspace(-3, 3, 9)[:, None]
    product = Int8Linear(weight, torch.zeros(96))
    whole = product(x)
    assert torch.equal(whole, torch.cat([product(row[None]) for row in x]))
    exact = x @ weight.T
    assert ((whole - exact).norm(dim=1) < 0.02 * exact.norm(dim=1)).all()
    assert torch.equal(product(torch.zeros(1, 64)), torch.zeros(1, 96))
    levels, scale = quantise(weight)
    assert (levels.float() * scale[:, None] - weight).abs().max() <= scale.max() / 2 + 1e-6


@pytest.mark.parametrize("precision", ["bfloat16", pytest.param("int8", marks=needs_int8)])
def test_other_precisions_stay_near_float32(precision: str) -> None:
    exact, rough = stage0(), stage0(precision=precision)
    for stage in (exact, rough):
        stage.admit(0, _prompt(3))
    a, b = (stage.talker.logits(stage._hidden[:1])[0] for stage in (exact, rough))
    assert torch.corrcoef(torch.stack((a, b)))[0, 1] > 0.99
    assert len(rough.step([0])) == 1


def test_precisions_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ConfigError, match="float16"):
        Place(torch.device("cpu"), "float16")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="int8"):
        Place(torch.device("cuda"), "int8")


# ------------------------------------------------------------------ compiled
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_step_functions_compile_as_one_graph() -> None:
    """No break in the graph, so nothing in a step asks the device anything: CUDA graphs can capture it."""
    torch._dynamo.reset()

    def wrap(function: Any) -> Any:
        return torch.compile(function, fullgraph=True, backend="eager", dynamic=False)

    plain, compiled = stage0(rows=2, slots=True), stage0(rows=2, slots=True, wrap=wrap)
    prompts = {row: _prompt(row) for row in range(2)}
    expected, found = ({}, {})  # type: dict[int, np.ndarray], dict[int, np.ndarray]
    for stage, codes in ((plain, expected), (compiled, found)):
        for row, prompt in prompts.items():
            stage.admit(row, prompt)
        frames = [stage.step([0, 1]) for _ in range(3)]
        codes.update({row: np.stack([frame[row].frame for frame in frames]) for row in prompts})  # type: ignore[arg-type]
    for row in prompts:
        np.testing.assert_array_equal(found[row], expected[row])


# ------------------------------------------------------------------ refusals
def _reference(frames: int = 4) -> Reference:
    return Reference(np.zeros(64, np.float32), np.zeros((frames, 16), np.int16), (5, 6))


@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    [
        ("custom_voice", {"speaker": "nobody"}, "unknown speaker nobody; speakers: serena, vivian"),
        ("custom_voice", {"speaker": None}, "has the speakers: serena"),
        ("custom_voice", {"language": "klingon"}, "languages: auto, chinese, english"),
        ("custom_voice", {"instruct_ids": (1, 2)}, "no instructions"),
        ("custom_voice", {"text_ids": ()}, "no text"),
        ("custom_voice", {"text_ids": (10**6,)}, "outside the vocabulary"),
        ("custom_voice", {"text_ids": (5,) * 400, "layout": "whole"}, "positions"),
        ("custom_voice", {"closed": False, "layout": "whole"}, "streaming layout"),
        ("custom_voice", {"reference": _reference()}, "takes no reference"),
        ("base", {"speaker": None}, "needs reference"),
        ("base", {"speaker": "ryan", "reference": _reference()}, "has the speakers: none"),
        ("base", {"speaker": None, "reference": Reference(np.zeros(65, np.float32))}, r"expected \(64,\)"),
        (
            "base",
            {"speaker": None, "reference": Reference(np.zeros(64, np.float32), np.zeros((4, 15), np.int16), (5,))},
            r"expected \(frames, 16\)",
        ),
        (
            "base",
            {"speaker": None, "reference": Reference(np.zeros(64, np.float32), np.full((4, 16), 128, np.int16), (5,))},
            "from 0 to 127",
        ),
        (
            "base",
            {"speaker": None, "reference": Reference(np.zeros(64, np.float32), np.zeros((4, 16), np.int16))},
            "transcript",
        ),
        (
            "base",
            {"speaker": None, "reference": _reference(30), "text_ids": (5, 6), "closed": False},
            "at least 29 text ids",
        ),
    ],
)
def test_bad_prompts_are_refused_and_leave_the_row_free(kind: str, changes: dict[str, Any], words: str) -> None:
    stage = stage0("tiny", kind)
    with pytest.raises(BadRequest, match=words):
        stage.admit(0, _prompt(0, **changes))
    good = {"speaker": None, "reference": _reference()} if kind == "base" else {}
    stage.admit(0, _prompt(0, **good))
    with pytest.raises(ValueError, match="taken"):
        stage.admit(0, _prompt(0, **good))


def test_a_full_cache_ends_the_row(caplog: pytest.LogCaptureFixture) -> None:
    stage = stage0(positions=12)
    prompt = _prompt(0, sampling=Sampling(min_frames=100))
    assert len(speak(stage, prompt)) == 12 - stage.positions(prompt) + 1
    assert "12 positions" in caplog.text


def test_cache_bytes_are_known_beforehand() -> None:
    config = checkpoint("tiny", "custom_voice").talker.talker
    stage = stage0(rows=3, positions=100)
    used = sum(part.nbytes for part in (*stage._cache.k, *stage._cache.v))
    assert used == 3 * 100 * stage._cache.bytes_per_position(config, stage.place)
