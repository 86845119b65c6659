import pytest

from segmenter import SegmentKind, SegmentOptions
from tests.segmenter.helpers import CLAUSES, SENTENCES, run, spoken


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "When the rain had stopped, we went out; it was warm: like May.",
            ["When the rain had stopped,", "we went out;", "it was warm:", "like May."],
        ),
        ("My friend from school — the tall one — rang.", ["My friend from school —", "the tall one —", "rang."]),
        ("Yes, of course. No.", ["Yes, of course.", "No."]),
        ("It weighs about 1,000,500 grams at 10:45 sharp.", ["It weighs about 1,000,500 grams at 10:45 sharp."]),
        ("They were born on July 4, 2026 in a barn.", ["They were born on July 4, 2026 in a barn."]),
        ("We all went to Paris, France by train.", ["We all went to Paris, France by train."]),
        ("Take a soft cloth, e.g., cotton or so.", ["Take a soft cloth,", "e.g., cotton or so."]),
        ("The function f(alpha, beta, gamma) works.", ["The function f(alpha, beta, gamma) works."]),
        ('She wrote "come soon, or never" to him.', ['She wrote "come soon, or never" to him.']),
        ('She whispered, "I will be there," and left.', ["She whispered,", '"I will be there,"', "and left."]),
        ("See https://a.example/a,b;c:d now please.", ["See now please."]),
        ("Quand il a plu, nous sommes sortis ; bien.", ["Quand il a plu,", "nous sommes sortis ;", "bien."]),
        ("一共是1,000元左右，不算贵。", ["一共是1,000元左右，", "不算贵。"]),
        ("苹果、香蕉和梨都可以。", ["苹果、香蕉和梨都可以。"]),
        ("عندما توقف المطر أخيرا، خرجنا.", ["عندما توقف المطر أخيرا،", "خرجنا."]),
    ],
)
def test_clause_granularity(text: str, expected: list[str]) -> None:
    assert spoken(text, CLAUSES) == expected


def test_only_the_first_spoken_segment_may_end_at_a_clause() -> None:
    text = "<think>Hm, let me think about it, well.</think>If you want to know, ask me. If you do not ask, fine."
    segments = [segment for segment in run(text, SegmentOptions()) if segment.spoken]
    assert [segment.spoken for segment in segments] == [
        "If you want to know,",
        "ask me.",
        "If you do not ask, fine.",
    ]
    assert (segments[0].kind, segments[0].pause_after_ms) == (SegmentKind.CLAUSE, 0)


def test_granularity_none_cuts_at_the_layout_only() -> None:
    options = SegmentOptions(granularity="none")
    assert spoken("One. Two, three; four! Five.\n\nSix. Seven.", options) == [
        "One. Two, three; four! Five.",
        "Six. Seven.",
    ]


def test_length_limit_prefers_sentence_then_clause_then_blank() -> None:
    options = SegmentOptions(granularity="none", max_chars=40)
    assert spoken("It was late in May. Nobody came to see us there", options)[0] == "It was late in May."
    options = SegmentOptions(first_by_clause=False, max_chars=40)
    assert spoken("one two three four five, six seven eight nine ten", options) == [
        "one two three four five,",
        "six seven eight nine ten",
    ]
    assert spoken("aaaa " * 12, options) == ["aaaa aaaa aaaa aaaa aaaa aaaa aaaa aaaa", "aaaa aaaa aaaa aaaa"]
    assert [len(part) for part in spoken("x" * 100, options)] == [40, 40, 20]
    assert [len(part) for part in spoken("河" * 100, options)] == [40, 40, 20]


def test_length_limit_does_not_tear_marks_from_letters() -> None:
    options = SegmentOptions(max_chars=40)
    parts = spoken("a" * 39 + "e\u0301" + "b" * 20, options)
    assert not any(part.startswith("\u0301") for part in parts)


def test_a_limited_segment_keeps_its_text() -> None:
    text = "one more word and " * 60
    parts = spoken(text, SENTENCES)
    assert max(map(len, parts)) <= 300
    assert " ".join(parts) == text.strip()
