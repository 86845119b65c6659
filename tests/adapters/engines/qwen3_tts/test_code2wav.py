"""Stage 1: equal to the reference, in any pieces, in any company."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from adapters.engines.qwen3_tts.code2wav import Code2Wav, DecoderState, reference_cut
from adapters.engines.qwen3_tts.code2wav_layers import CausalConv, Layout, Placement
from adapters.engines.qwen3_tts.codec_config import codec_config
from adapters.engines.qwen3_tts.stages import Frames
from adapters.engines.qwen3_tts.tensors import TensorFile
from sidecar.faults import EngineFault
from tests.adapters.engines.qwen3_tts.codec_tiny import CODEC, DECODER, codec_weights, write_codec

GOLDEN = np.load(Path(__file__).parent / "goldens_codec" / "codec.npz")
CODES: Frames = GOLDEN["codes"]
CONFIG = codec_config(CODEC).decoder
TOLERANCE = 1e-5
SAMPLES = 1_920


class Shapes:
    """Tensors without values, of any shape."""

    def names(self) -> tuple[str, ...]:
        return ()

    def get(self, name: str, shape: tuple[int, ...] | None = None) -> torch.Tensor:
        assert shape is not None, name
        return torch.empty(shape, device="meta")


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def decoder() -> Code2Wav:
    return Code2Wav(CONFIG, codec_weights())


@pytest.fixture(scope="module")
def one_pass(decoder: Code2Wav) -> np.ndarray:
    return decoder.decode([(decoder.new_state(), CODES)])[0]


def at(decoder: Code2Wav, frames: int) -> DecoderState:
    """A state that has decoded the first ``frames``."""
    state = decoder.new_state()
    decoder.decode([(state, CODES[:frames])])
    return state


def apart(first: np.ndarray, second: np.ndarray) -> float:
    assert first.shape == second.shape
    return float(np.abs(first - second).max())


# ---------------------------------------------------------------- the reference
def test_one_pass_is_the_references(one_pass: np.ndarray) -> None:
    assert one_pass.dtype == np.float32
    assert apart(one_pass[: len(GOLDEN["start"])], GOLDEN["start"]) < TOLERANCE
    assert apart(one_pass[-len(GOLDEN["end"]) :], GOLDEN["end"]) < TOLERANCE


@pytest.mark.parametrize("piece", [1, 3, 7, 25, 0])
def test_any_pieces_give_what_one_pass_gives(decoder: Code2Wav, one_pass: np.ndarray, piece: int) -> None:
    draws, state, parts, start = np.random.default_rng(3), decoder.new_state(), [], 0
    end = len(CODES) if piece != 1 else 90
    while start < end:
        frames = piece or int(draws.integers(1, 41))
        parts.append(decoder.decode([(state, CODES[start : start + frames])])[0])
        assert parts[-1].shape == (len(CODES[start : start + frames]) * SAMPLES,)
        start += frames
    made = np.concatenate(parts)
    assert apart(made, one_pass[: len(made)]) < TOLERANCE
    assert apart(made[: len(GOLDEN["start"])], GOLDEN["start"]) < TOLERANCE
    assert state.frames == int(state.position) == start if start <= len(CODES) else True


def test_the_chunk_ramp_gives_what_one_pass_gives(decoder: Code2Wav, one_pass: np.ndarray) -> None:
    state, parts, start = decoder.new_state(), [], 0
    for frames in (1, 2, 4, 8, 16, 25, 25):
        parts.append(decoder.decode([(state, CODES[start : start + frames])])[0])
        start += frames
    assert apart(np.concatenate(parts), one_pass[: start * SAMPLES]) < TOLERANCE


# ---------------------------------------------------------------- several streams
def test_streams_of_any_age_are_decoded_together(decoder: Code2Wav, one_pass: np.ndarray) -> None:
    ages, frames = (0, 3, 6, 7, 8, 40, 100), (4, 4, 4, 4, 4, 4, 2)
    states = [at(decoder, age) for age in ages]
    made = decoder.decode([(s, CODES[a : a + n]) for s, a, n in zip(states, ages, frames, strict=True)])
    for sound, state, age, count in zip(made, states, ages, frames, strict=True):
        assert apart(sound, one_pass[age * SAMPLES : (age + count) * SAMPLES]) < TOLERANCE
        assert state.frames == int(state.position) == age + count
    again = decoder.decode([(s, CODES[s.frames : s.frames + 3]) for s in reversed(states)])
    for sound, age, count in zip(reversed(again), ages, frames, strict=True):
        assert apart(sound, one_pass[(age + count) * SAMPLES : (age + count + 3) * SAMPLES]) < TOLERANCE


def test_eight_streams_equal_eight_single_runs(decoder: Code2Wav) -> None:
    draws = np.random.default_rng(8)
    codes = [draws.integers(0, CONFIG.codebook_size, (30, 16)).astype(np.int16) for _ in range(8)]
    alone = [decoder.decode([(decoder.new_state(), one)])[0] for one in codes]
    states = [decoder.new_state() for _ in codes]
    first = decoder.decode([(state, one[:13]) for state, one in zip(states, codes, strict=True)])
    rest = decoder.decode([(state, one[13:]) for state, one in zip(states, codes, strict=True)])
    for single, *parts in zip(alone, first, rest, strict=True):
        assert apart(np.concatenate(parts), single) < TOLERANCE


def test_an_empty_piece_gives_nothing_and_changes_nothing(decoder: Code2Wav) -> None:
    state = at(decoder, 5)
    before = state.clone()
    assert [len(one) for one in decoder.decode([(state, CODES[:0]), (decoder.new_state(), CODES[:1])])] == [0, SAMPLES]
    assert torch.equal(state.buffer, before.buffer)
    assert state.frames == 5
    assert decoder.decode([]) == []


# ---------------------------------------------------------------- references
@pytest.mark.parametrize("frames", [1, 3, 9, 10, 11, 32, 33, 77])
def test_a_reference_passed_by_is_a_reference_decoded(decoder: Code2Wav, one_pass: np.ndarray, frames: int) -> None:
    state = decoder.new_state()
    decoder.listen(state, CODES[:frames])
    assert state.frames == int(state.position) == frames
    wanted = at(decoder, frames)
    torch.testing.assert_close(state.buffer, wanted.buffer, atol=TOLERANCE, rtol=1e-4)
    sound = decoder.decode([(state, CODES[frames : frames + 12])])[0]
    assert apart(sound, one_pass[frames * SAMPLES : (frames + 12) * SAMPLES]) < TOLERANCE


def test_passing_by_works_in_pieces_and_on_copies(decoder: Code2Wav, one_pass: np.ndarray) -> None:
    state = decoder.new_state()
    for start, end in ((0, 0), (0, 15), (15, 18), (18, 50)):
        decoder.listen(state, CODES[start:end])
    kept = state.clone()
    for _ in range(2):
        sound = decoder.decode([(kept.clone(), CODES[50:53])])[0]
        assert apart(sound, one_pass[50 * SAMPLES : 53 * SAMPLES]) < TOLERANCE
    assert torch.equal(kept.buffer, state.buffer)


def test_the_references_cut_is_right_or_a_sample_short() -> None:
    off = {reference_cut(r, n) - r * SAMPLES: (r, n) for r in range(1, 120) for n in range(1, 120)}
    assert set(off) == {0, -1}
    assert reference_cut(0, 0) == 0


# ---------------------------------------------------------------- what is refused
@pytest.mark.parametrize(
    "codes",
    [
        np.zeros((2, 15), np.int16),
        np.zeros(16, np.int16),
        np.zeros((2, 16), np.float32),
        np.full((1, 16), -1, np.int16),
        np.full((1, 16), CONFIG.codebook_size, np.int16),
    ],
)
def test_bad_codes_are_refused_before_any_state_moves(decoder: Code2Wav, codes: Any) -> None:
    good, bad = decoder.new_state(), decoder.new_state()
    with pytest.raises(EngineFault, match="codes must"):
        decoder.decode([(good, CODES[:2]), (bad, codes)])
    with pytest.raises(EngineFault, match="codes must"):
        decoder.listen(good, codes)
    assert good.frames == bad.frames == 0
    assert not good.buffer.any()


def test_a_state_comes_once(decoder: Code2Wav) -> None:
    state = decoder.new_state()
    with pytest.raises(EngineFault, match="only once"):
        decoder.decode([(state, CODES[:1]), (state, CODES[1:2])])


def test_a_missing_or_misshapen_tensor_is_named(tmp_path: Path) -> None:
    path = write_codec(tmp_path) / "model.safetensors"
    file = TensorFile(path)
    assert len(Code2Wav(CONFIG, file).decode([])) == 0
    with pytest.raises(EngineFault, match=r"speech_tokenizer/model\.safetensors: tensor nothing is missing"):
        file.get("nothing")
    wrong = codec_config({**CODEC, "decoder_config": {**DECODER, "latent_dim": 64}}).decoder
    with pytest.raises(EngineFault, match=r"speech_tokenizer/model\.safetensors: tensor decoder.* has shape"):
        Code2Wav(wrong, file)


@pytest.mark.parametrize("keep", [0, 4, 1_000, 100_000])
def test_a_truncated_file_is_refused(tmp_path: Path, keep: int) -> None:
    path = write_codec(tmp_path) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(EngineFault, match=r"speech_tokenizer/model\.safetensors cannot be read"):
        TensorFile(path)


# ---------------------------------------------------------------- size, types, devices
def test_the_state_of_the_released_size_is_small_and_does_not_grow(decoder: Code2Wav) -> None:
    real = codec_config(
        {
            **CODEC,
            "decoder_config": {
                **DECODER,
                "codebook_dim": 512,
                "codebook_size": 2048,
                "decoder_dim": 1536,
                "head_dim": 64,
                "hidden_size": 512,
                "intermediate_size": 1024,
                "latent_dim": 1024,
                "num_attention_heads": 16,
                "num_key_value_heads": 16,
                "num_hidden_layers": 8,
                "sliding_window": 72,
            },
        }
    ).decoder
    full = Code2Wav(real, Shapes(), device="meta")
    assert 4.6e6 < full.state_size * 4 < 5.3e6
    assert full.conv_reach_frames == 10
    assert at(decoder, 1).nbytes == at(decoder, 300).nbytes == decoder.new_state().nbytes


def test_the_computation_depends_on_no_values() -> None:
    """A device without values cannot be asked for any: nothing waits, so the functions can be captured."""
    shapes = Code2Wav(CONFIG, Shapes(), device="meta")
    for streams in (1, 3):
        buffers = torch.empty(streams, shapes.state_size, device="meta")
        codes = torch.empty(streams, 5, 16, dtype=torch.int64, device="meta")
        made = shapes.forward(codes, buffers, torch.empty(streams, dtype=torch.int64, device="meta"))
        assert made.shape == (streams, 5 * SAMPLES)


@pytest.mark.parametrize("streams", [1, 2])
def test_the_computation_is_one_graph(streams: int) -> None:
    small = Code2Wav(replace(CONFIG, layers=1), codec_weights())  # tracing takes seconds
    wanted = small.decode([(small.new_state(), CODES[:8])])[0]
    compiled = torch.compile(small.forward, fullgraph=True, backend="eager", dynamic=False)
    buffers = torch.zeros(streams, small.state_size)
    codes = torch.from_numpy(CODES[:8].astype(np.int64))[None].expand(streams, -1, -1)
    with torch.no_grad():
        first = compiled(codes[:, :4], buffers, torch.zeros(streams, dtype=torch.int64))
        second = compiled(codes[:, 4:], buffers, torch.full((streams,), 4))
    for sound in torch.cat((first, second), 1).numpy():
        assert apart(sound, wanted) < TOLERANCE


def test_bfloat16_is_close_and_streams(one_pass: np.ndarray) -> None:
    half = Code2Wav(CONFIG, codec_weights(), dtype=torch.bfloat16, threads=1)
    state = half.new_state()
    parts = [half.decode([(state, CODES[start : start + 10])])[0] for start in range(0, 40, 10)]
    twins = [half.new_state(), half.new_state()]
    both = half.decode([(twin, CODES[:40]) for twin in twins])
    level = float(np.sqrt(np.mean(one_pass[: 40 * SAMPLES] ** 2)))
    for made in (np.concatenate(parts), *both):
        error = float(np.sqrt(np.mean((made - one_pass[: 40 * SAMPLES]) ** 2)))
        assert error < 0.05 * level
        assert made.dtype == np.float32


def test_threads_are_set_when_asked() -> None:
    before = torch.get_num_threads()
    try:
        two = Code2Wav(CONFIG, codec_weights(), threads=2)
        two.decode([(two.new_state(), CODES[:1])])
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("kernel", "dilation"), [(1, 1), (2, 1), (3, 2), (7, 9)])
@pytest.mark.parametrize("channels", [8, 160])
@pytest.mark.parametrize("streams", [1, 2])
def test_convolutions_wide_and_narrow(kernel: int, dilation: int, channels: int, streams: int) -> None:
    """Every way of computing one is torch's own convolution with zeros on the left."""
    draws = torch.Generator().manual_seed(1)
    weight = torch.randn(12, channels, kernel, generator=draws) / channels
    bias = torch.randn(12, generator=draws)
    layout = Layout()
    conv = CausalConv(weight, bias, Placement(torch.device("cpu"), torch.float32), layout, dilation=dilation)
    buffers = torch.zeros(streams, layout.size)
    x = torch.randn(streams, 21, channels, generator=draws)
    made = torch.cat([conv.feed(buffers, part) for part in (x[:, :1], x[:, 1:9], x[:, 9:])], 1)
    padded = torch.nn.functional.pad(x.transpose(1, 2), ((kernel - 1) * dilation, 0))
    wanted = torch.nn.functional.conv1d(padded, weight, bias, dilation=dilation).transpose(1, 2)
    torch.testing.assert_close(made, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("stride", "taps"), [(2, 1), (5, 2), (3, 3)])
def test_a_transposed_convolution_is_a_convolution(stride: int, taps: int) -> None:
    draws = torch.Generator().manual_seed(2)
    weight, bias = torch.randn(6, 4, stride * taps, generator=draws), torch.randn(4, generator=draws)
    layout = Layout()
    conv = CausalConv(
        *CausalConv.transposed(weight, bias, stride), Placement(torch.device("cpu"), torch.float32), layout
    )
    buffers = torch.zeros(1, layout.size)
    x = torch.randn(1, 9, 6, generator=draws)
    made = torch.cat([conv.feed(buffers, part) for part in (x[:, :2], x[:, 2:])], 1).view(1, -1, 4)
    wanted = torch.nn.functional.conv_transpose1d(x.transpose(1, 2), weight, bias, stride=stride)
    torch.testing.assert_close(made, wanted[:, :, : 9 * stride].transpose(1, 2), atol=1e-5, rtol=1e-5)
