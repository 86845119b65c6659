import pytest
from hypothesis import given
from hypothesis import strategies as st

from segmenter import UnitSplitter

_PIECES = st.sampled_from(
    [
        "Dr",
        "e.g",
        "etc",
        "no",
        "J",
        "3",
        "14",
        ".",
        "...",
        "!",
        "?",
        ",",
        ";",
        "。",
        "，",
        "…",
        "।",
        '"',
        ")",
        "”",
        " ",
        "\n",
        "hello",
        "你好",
    ]
)


def _units(parts: list[str], granularity: str = "sentence") -> list[str]:
    splitter = UnitSplitter(granularity)
    return [unit for part in parts for unit in splitter.feed(part)] + splitter.flush()


@pytest.mark.parametrize(
    ("granularity", "text", "expected"),
    [
        ("none", " One. Two! ", ["One. Two!"]),
        ("none", " \n ", []),
        ("sentence", "One. Two, three! Four", ["One.", "Two, three!", "Four"]),
        ("sentence", "The train leaves at 3.15 p.m. today. Ok.", ["The train leaves at 3.15 p.m. today.", "Ok."]),
        ("sentence", "He said no. Then he left.", ["He said no. Then he left."]),
        ("sentence", "Dr. Who met J. Doe. Yes.", ["Dr. Who met J. Doe.", "Yes."]),
        ("sentence", 'Really?! "Hello." Wait... Go', ["Really?!", '"Hello."', "Wait...", "Go"]),
        ("sentence", "See example.com for 1,000.5 things. One.Two", ["See example.com for 1,000.5 things.", "One.Two"]),
        ("sentence", "你好。再见！好吗？是…对", ["你好。", "再见！", "好吗？", "是…", "对"]),
        ("sentence", "हाँ। ठीक॥ هل؟ نعم", ["हाँ।", "ठीक॥", "هل؟", "نعم"]),
        ("sentence", "A list:\n- one\n- two", ["A list:\n- one\n- two"]),
        ("sentence", "... Go", ["...", "Go"]),
        ("sentence", "etc.. Now", ["etc.. Now"]),
        ("clause", "One, two; three: four. Five", ["One,", "two;", "three: four.", "Five"]),
        ("clause", "1,000 or more，对；是、好", ["1,000 or more，", "对；", "是、好"]),
    ],
)
def test_units(granularity: str, text: str, expected: list[str]) -> None:
    assert _units([text], granularity) == expected
    assert _units(list(text), granularity) == expected


def test_a_mark_at_the_end_waits() -> None:
    splitter = UnitSplitter("sentence")
    assert splitter.feed("你好。") == []
    assert splitter.feed("Ok.") == ["你好。"]
    assert splitter.feed(" ") == ["Ok."]
    assert splitter.flush() == []


def test_a_flush_starts_afresh() -> None:
    splitter = UnitSplitter("clause")
    splitter.feed("One.")
    assert splitter.flush() == ["One."]
    assert splitter.feed(" Two. x") == ["Two."]


def test_granularity_is_checked() -> None:
    with pytest.raises(ValueError, match="granularity"):
        UnitSplitter("word")


@given(st.lists(_PIECES, max_size=16), st.sampled_from(["none", "sentence", "clause"]), st.data())
def test_any_cut_gives_the_same_units(pieces: list[str], granularity: str, data: st.DataObject) -> None:
    text = "".join(pieces)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    parts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    units = _units(parts, granularity)
    assert units == _units([text], granularity)
    assert "".join("".join(units).split()) == "".join(text.split())
    assert all(unit and unit == unit.strip() for unit in units)
