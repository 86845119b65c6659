import pytest

from segmenter import SegmentKind, SegmentOptions, speakable
from tests.segmenter.helpers import run, spoken

WORDS_STAY = [
    ("A **bold** and *thin* ***both*** word.", ["A bold and thin both word."]),
    ("__Strong__ and _soft_ words.", ["Strong and soft words."]),
    ("A ~~struck~~ word.", ["A struck word."]),
    ("Call `run_it` with ``a`b``.", ["Call run_it with a`b."]),
    ("**Stop!** Go on.", ["Stop!", "Go on."]),
    ("又快了**25%**左右。", ["又快了25%左右。"]),
    ("See [the page](https://a.example/x_(y)). Bye.", ["See the page.", "Bye."]),
    ("Look: ![a red fox](fox.png) there.", ["Look: a red fox there."]),
    ("See [**this** page](#top) now.", ["See this page now."]),
    ("Press <kbd>Esc</kbd> or H<sub>2</sub>O &amp; tea&nbsp;bags.", ["Press Esc or H2O & tea bags."]),
    ("One<br>Two<br/>Three", ["One", "Two", "Three"]),
    (r"A \*star\* and 1\. here.", ["A *star* and 1. here."]),
]

DROPPED = [
    ("Good 👍🏽 job 👨‍👩‍👧! Bye 🏳️‍🌈 1️⃣", ["Good job!", "Bye"]),
    ("Read https://a.example/v1.2/x?y=1#z, then go.", ["Read, then go."]),
    ("It is (https://a.example/x) here.", ["It is here."]),
    ("See www.a.example. Then <https://b.example> too.", ["See.", "Then too."]),
    ("Cats purr.[1] Dogs bark [2, 3]. Why [4–6]?", ["Cats purr.", "Dogs bark.", "Why?"]),
    ("It grew 【4†source】. Fine[^2].", ["It grew.", "Fine."]),
    ("So $a^2 + b^2$ holds. And \\(x = 1\\) too.", ["So holds.", "And too."]),
    ("Here: $$E = mc^2$$ is it.", ["Here: is it."]),
    ("Yes <!-- hidden. Really --> indeed.", ["Yes indeed."]),
    ("It is \ue200cite\ue202turn0search1\ue201 so.", ["It is so."]),
    ("See this, www.a.example, here. And $x$, $y$,, z.", ["See this, here.", "And,, z."]),
]

KEPT = [
    "Mail a.b-c@x.example or visit x.example today.",
    "Open report.final.pdf and /etc/app.conf now.",
    "Use a[0] and snake_case_name and 2*3 and 2 * 3.",
    "It holds that 5 > 3 and 2 < 4 and a <b.",
    "Pay $5 or $1,299.99 for it.",
    "It is 20 °C, 50% off, © 2024, ½ cup, → here.",
    "Take C:\\data\\a.txt along.",
    "Lee (2019) and Ito [2011] agree.",
    "Call f(x) and f() twice.",
    "A [sic] and 【注意】 stay.",
    "A pipe | is handy.",
    "Use Vec<String> and x<y here.",
    "The key is B♭ or F♯ here.",
    "It`s odd.",
]


@pytest.mark.parametrize(("text", "expected"), WORDS_STAY + DROPPED)
def test_markup_goes(text: str, expected: list[str]) -> None:
    assert spoken(text) == expected


@pytest.mark.parametrize("text", KEPT)
def test_ordinary_text_stays(text: str) -> None:
    assert spoken(text) == [text]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>\nHm. Well.\n</think>\n\nIt is blue.", ["It is blue."]),
        ("<THINKING>Plan.</thinking>Hi.", ["Hi."]),
        ("Fine. <reasoning>cut off here. And", ["Fine."]),
        ("<details><summary>More</summary>Long.</details>\nShort.", ["Short."]),
        ("<details>a<details>b</details>c</details>Short.", ["Short."]),
        ("<table><tr><td>1</td></tr></table>\nDone.", ["Done."]),
        ("<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hello.", ["Hello."]),
        ("Area:\n\n$$\nA = x.\n$$\n\nGood.", ["Area:", "Good."]),
        ("So \\[c = 5.\\] Done.", ["So", "Done."]),
        ("\\begin{align}\na &= b\n\\end{align}\nDone.", ["Done."]),
    ],
)
def test_blocks_that_are_never_spoken(text: str, expected: list[str]) -> None:
    assert spoken(text) == expected


def test_reasoning_that_the_prompt_opened() -> None:
    options = SegmentOptions(starts_in_think=True)
    assert spoken("Let me see. Ok.\n</think>\n\nBlue. Sure.", options) == ["Blue.", "Sure."]


def test_a_mistaken_opener_costs_only_its_limit() -> None:
    filler = "word " * 200
    for opener in ("[", '<a href="', "$x + ", "\\(", "【4†", "&am"):
        assert "word" in spoken(opener + filler)[0]


def test_what_is_not_spoken_is_silent() -> None:
    for text in ("...", "🙂", "---\n\n***\n", "**", "\n \n", "| a | b |\n"):
        segments = run([text])
        assert [segment.spoken for segment in segments] == [""] * len(segments)
        assert {segment.kind for segment in segments} == {SegmentKind.SILENT}


def test_speakable_cleans_a_whole_text() -> None:
    assert (
        speakable("# Hi\n\nThe **cat** 🐈 sat.[1] See [it](x).\n```\ncode\n```\n- a  b")
        == "Hi The cat sat. See it. a b"
    )
    assert speakable("") == ""
    long = "word " * 1000
    assert speakable(long) == long.strip()
