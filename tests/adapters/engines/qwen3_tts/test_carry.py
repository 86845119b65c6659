"""What was said before: a row that is given it goes on exactly as the row that said it would have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from adapters.engines.qwen3_tts.code2wav import Code2Wav
from adapters.engines.qwen3_tts.decoding import Stages
from adapters.engines.qwen3_tts.stages import Frame, Prompt, Reference, Said, Sampling
from sidecar.faults import BadRequest
from sidecar.ports import FRAME_SAMPLES
from tests.adapters.engines.qwen3_tts.loaded import checkpoint, speak, stage0, tokenizer

BEFORE, AFTER = "So it was said.", " And this, which is longer, is what comes after it."
# Random weights may end a speech at any moment, and differently from one machine to the next: none ends here.
GREEDY = Sampling(greedy=True, repetition_penalty=1.0, min_frames=40)
CHANCE = np.random.default_rng(3)
HEARD = CHANCE.integers(0, 128, (6, 16)).astype(np.int16)
ANCHOR = Reference(CHANCE.normal(size=64).astype(np.float32), HEARD, (40, 41, 42, 43))
VOICES: dict[str, tuple[str, dict[str, Any]]] = {
    "speaker": ("custom_voice", {"speaker": "ryan"}),
    "designed": ("voice_design", {"instruct_ids": (1, 2, 3)}),
    "embedding": ("base", {"reference": Reference(ANCHOR.embedding)}),
    "in-context": ("base", {"reference": ANCHOR}),
}


def prompt(**changes: Any) -> Prompt:
    return replace(Prompt(tokenizer().body_ids(AFTER), language="english", sampling=GREEDY), **changes)


@pytest.mark.parametrize("layout", ["streaming", "whole"])
@pytest.mark.parametrize("voice", VOICES)
@pytest.mark.parametrize("frames", [1, 9])
def test_a_row_goes_on_as_the_one_that_said_it(voice: str, layout: str, frames: int) -> None:
    kind, fields = VOICES[voice]
    stage = stage0("tiny", kind)
    before, after = tokenizer().body_ids(BEFORE), tokenizer().body_ids(AFTER)
    whole = speak(stage, prompt(text_ids=before + after, layout=layout, **fields), 20)
    assert len(whole) > frames + 4
    going_on = prompt(layout=layout, carry=Said(whole[:frames], before), **fields)
    assert np.array_equal(speak(stage, going_on, 20 - frames), whole[frames:])
    assert not np.array_equal(speak(stage, replace(going_on, carry=None), 20 - frames), whole[frames:])


@pytest.mark.parametrize("voice", VOICES)
def test_its_sound_goes_on_too_and_is_not_given_again(voice: str) -> None:
    kind, fields = VOICES[voice]
    opened = checkpoint("tiny", kind)
    decoder = Code2Wav(opened.codec.decoder, opened.codec_weights)
    stages = Stages(stage0("tiny", kind), decoder)
    codes = CHANCE.integers(0, 128, (12, 16)).astype(np.int16)
    going_on = prompt(carry=Said(codes[:8], (1, 2)), **fields)
    heard_before = codes[:0] if voice != "in-context" else HEARD
    (at_once,) = decoder.decode([(decoder.new_state(), np.concatenate((heard_before, codes)))])
    for _ in range(2):
        (pcm,) = decoder.decode([(stages.first_state(going_on), codes[8:])])
        assert len(pcm) == 4 * FRAME_SAMPLES
        assert np.abs(pcm - at_once[-4 * FRAME_SAMPLES :]).max() <= 1e-5


def test_prefills_have_the_length_that_was_told() -> None:
    for voice, (kind, fields) in VOICES.items():
        stage = stage0("tiny", kind)
        for layout in ("streaming", "whole"):
            for carry in (None, Said(HEARD[:2], (1, 2, 3)), Said(HEARD, (1,))):
                asked = prompt(layout=layout, carry=carry, **fields)
                built = stage.prompts.build(asked)
                assert len(built.prefill) == stage.positions(asked), (voice, layout)


def test_ids_fed_count_the_text_alone() -> None:
    plain = prompt()
    assert [plain.ids_fed(frames) for frames in (1, 2, 30)] == [1, 2, 30]
    carried = replace(plain, carry=Said(np.zeros((5, 16), np.int16), (1, 2)))
    assert (carried.ids_fed(1), carried.ids_to_begin) == (4, 4)
    talkative = replace(plain, carry=Said(np.zeros((2, 16), np.int16), (1, 2, 3, 4)))
    assert [talkative.ids_fed(frames) for frames in (1, 2, 3)] == [0, 0, 1]
    assert talkative.ids_to_begin == 1
    both = replace(carried, reference=ANCHOR)
    assert both.ids_fed(1) == 1 + 6 + 5 - 4 - 2
    assert both.spoken is not None
    assert both.spoken.text_ids == (40, 41, 42, 43, 1, 2)


@pytest.mark.parametrize(
    ("carry", "words"),
    [
        (Said(np.zeros((4, 15), np.int16), (1,)), "expected \\(frames, 16\\)"),
        (Said(np.zeros((0, 16), np.int16), (1,)), "expected \\(frames, 16\\)"),
        (Said(np.full((4, 16), 128, np.int16), (1,)), "from 0 to 127"),
        (Said(np.zeros((4, 16), np.int16), ()), "transcript"),
    ],
)
def test_a_carry_that_cannot_be_is_refused(carry: Said, words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        stage0("tiny", "custom_voice").positions(prompt(speaker="ryan", carry=carry))


def test_a_row_that_is_live_ends_with_its_text_even_if_all_of_it_was_there() -> None:
    """Known at once, in pieces or late: the codes are the same, the end included."""
    stage = stage0("tiny", "custom_voice")
    ids = tokenizer().body_ids(AFTER)
    for seed in range(6):
        asked = prompt(speaker="ryan", live=True, sampling=Sampling(seed=seed))
        at_once = speak(stage, asked, 60)
        stage.admit(0, replace(asked, text_ids=ids[:1], closed=False))
        frames: list[Frame] = []
        for one in (*ids[1:], None):
            if one is None:
                stage.close(0)
            else:
                stage.append(0, [one])
            while stage.can_step(0) and len(frames) < 60:
                (stepped,) = stage.step([0])
                if stepped.frame is None:
                    break
                frames.append(stepped.frame)
        stage.release(0)
        assert len(frames) >= min(60, len(ids))
        assert np.array_equal(np.stack(frames), at_once)
