import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmenter import ReasoningFilter

_PIECES = st.sampled_from(
    [
        "<",
        "<th",
        "ink>",
        "<think>",
        "</think>",
        "</Think>",
        "<thinking>",
        "</thinking>",
        "<reasoning>",
        "</reasoning>",
        "/",
        ">",
        " ",
        "\n",
        "a",
        "b c",
        "`",
        "<b>",
    ]
)


def _filtered(parts: list[str], starts_in_think: bool = False) -> str:
    hidden = ReasoningFilter(starts_in_think)
    return "".join(hidden.feed(part) for part in parts) + hidden.flush()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>x</think>\n\nHi", "Hi"),
        ("<THINK>x</Think> Hi", "Hi"),
        ("<thinking>a</think>b</thinking>c", "c"),
        ("Hi <think>x</think> there", "Hi  there"),
        ("<think>never closed", ""),
        ("Fine. <reasoning>cut", "Fine. "),
        ("a < b, 2 <3", "a < b, 2 <3"),
        ("x <thin air> y", "x <thin air> y"),
        ("x <thin", "x <thin"),
        ("stray</think> close", "stray close"),
        ("The `<think>` tag", "The `<think>` tag"),
        ("<think>a</think><think>b</think> c", "c"),
        ("", ""),
    ],
)
def test_blocks_are_hidden(text: str, expected: str) -> None:
    assert _filtered([text]) == expected
    assert _filtered(list(text)) == expected


def test_the_prompt_opened_the_block() -> None:
    assert _filtered(["plan", "</thi", "nk>\n", "Hi"], starts_in_think=True) == "Hi"
    assert _filtered(["plan"], starts_in_think=True) == ""


def test_only_a_partial_tag_is_held_back() -> None:
    hidden = ReasoningFilter()
    assert hidden.feed("abc <") == "abc "
    assert hidden.feed("b") == "<b"
    assert hidden.feed(" <thinkin") == " "
    assert hidden.feed("s") == "<thinkins"


@given(st.lists(_PIECES, max_size=12), st.booleans(), st.data())
def test_any_cut_gives_the_same(pieces: list[str], starts_in_think: bool, data: st.DataObject) -> None:
    text = "".join(pieces)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    parts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert _filtered(parts, starts_in_think) == _filtered([text], starts_in_think)


@given(st.text(st.characters(exclude_characters="<"), max_size=60))
def test_text_without_tags_is_untouched(text: str) -> None:
    assert _filtered([text]) == text
