"""What a request may say of how it is read and drawn, and what becomes of it in the prompt."""

from __future__ import annotations

import pytest

from adapters.engines.host_wire import utterance_from_json, utterance_to_json
from adapters.engines.qwen3_tts.stages import Sampling
from adapters.engines.qwen3_tts.utterances import LayoutChoice, LiveTokens, Model, prompt_of
from sidecar.ports import Draws, Utterance


class Letters:
    """One id for each character."""

    def body_ids(self, text: str) -> tuple[int, ...]:
        return tuple(map(ord, text))

    reference_ids = instruct_ids = body_ids

    def live(self) -> LiveTokens:
        raise AssertionError("no text here is read while it comes")


MODEL = Model("m", "custom_voice", ("english",), ("anna",), True, 64, Letters())


@pytest.mark.parametrize(
    ("draws", "expected"),
    [
        (None, Sampling(seed=7)),
        (Draws(), Sampling(seed=7)),
        (Draws(temperature=0), Sampling(seed=7, temperature=0)),
        (Draws(0.5, 0.8, 20), Sampling(seed=7, temperature=0.5, top_p=0.8, top_k=20)),
        (Draws(top_k=0), Sampling(seed=7, top_k=0)),
    ],
)
def test_what_is_not_asked_for_stays_as_it_is(draws: Draws | None, expected: Sampling) -> None:
    asked = Utterance("Hi.", "anna", 7, draws=draws)
    assert prompt_of(MODEL, asked).sampling == expected
    assert utterance_from_json(utterance_to_json(asked)) == asked, "it reaches an engine in a process of its own"


@pytest.mark.parametrize(
    ("whole_text", "setting", "layout"),
    [
        (None, "auto", "whole"),
        (None, "streaming", "streaming"),
        (True, "streaming", "whole"),
        (False, "auto", "streaming"),
        (False, "whole", "streaming"),
    ],
)
def test_the_request_goes_before_the_setting(
    whole_text: bool | None, setting: LayoutChoice, layout: LayoutChoice
) -> None:
    asked = Utterance("Hi.", "anna", 7, whole_text=whole_text)
    assert prompt_of(MODEL, asked, layout=setting).layout == layout
    live = Utterance("Hi.", "anna", 7, whole_text=whole_text, live=True)
    assert prompt_of(MODEL, live, layout=setting).layout == "streaming"
