import pytest

from segmenter import SegmentKind
from tests.segmenter.helpers import SENTENCES, run, spoken


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# Plan\n## Day one ##\nWe start. We end.", ["Plan", "Day one", "We start.", "We end."]),
        ("Title\n=====\nText", ["Title", "Text"]),
        (
            "You need:\n- salt\n- two eggs\n* **Oil**: hot\n+ [ ] tea\n+ [x] ice",
            ["You need:", "salt", "two eggs", "Oil: hot", "tea", "ice"],
        ),
        ("• one\n– two\n  - deep\n    - deeper", ["one", "two", "deep", "deeper"]),
        ("材料：\n・卵\n・牛乳", ["材料：", "卵", "牛乳"]),
        ("1. Mix. Stir well.\n2) Bake.\n10. Eat", ["1. Mix.", "Stir well.", "2) Bake.", "10. Eat"]),
        ("> First said\n> second said\n\nEnd", ["First said", "second said", "End"]),
        ("The wide\nriver runs.\nHere it\nbends", ["The wide river runs.", "Here it bends"]),
        ("Born in\n1984. In Oslo.", ["Born in 1984.", "In Oslo."]),
        ("Roses bloom\nViolets too", ["Roses bloom", "Violets too"]),
        ("One para\n\nanother para", ["One para", "another para"]),
        ("One.\r\nTwo.\r\n\r\nThree.", ["One.", "Two.", "Three."]),
        ("#1 is a tag. -5 is cold.", ["#1 is a tag.", "-5 is cold."]),
    ],
)
def test_lines(text: str, expected: list[str]) -> None:
    assert spoken(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Run:\n```sh\nls. Now.\n```\nDone.", ["Run:", "Done."]),
        ("Run:\n~~~\na\n```\nb\n~~~\nDone.", ["Run:", "Done."]),
        ("Run:\n```\nnever closed. At all.", ["Run:"]),
        ("````\n```\ninner\n```\n````\nDone.", ["Done."]),
        ("```markdown\n```js\nx\n```\n```\nDone.", ["Done."]),
        ("1. Make it:\n   ```yaml\n   a: 1\n   ```\n2. Use it.", ["1. Make it:", "2. Use it."]),
        ("Like so:\n\n    x = 1. Yes\n    y = 2\n\nDone.", ["Like so:", "Done."]),
        ("```code``` is inline.", ["code is inline."]),
        ("Data:\n| a | b |\n|---|---|\n| 1 | 2 |\nDone.", ["Data:", "Done."]),
        ("One\n\n---\n\n* * *\n___\nTwo", ["One", "Two"]),
        ("True.[^1]\n\n[^1]: A note. Long.\n[ref]: https://a.example\nEnd.", ["True.", "End."]),
    ],
)
def test_code_tables_and_rules(text: str, expected: list[str]) -> None:
    assert spoken(text) == expected


def test_kinds_and_pauses() -> None:
    segments = run(["# Top\nHello. There.\n\n- item\n> said\n```\nx\n```\n"], SENTENCES)
    told = [(segment.kind, segment.spoken, segment.pause_after_ms) for segment in segments]
    assert told == [
        (SegmentKind.HEADING, "Top", 400),
        (SegmentKind.SENTENCE, "Hello.", 150),
        (SegmentKind.SENTENCE, "There.", 400),
        (SegmentKind.LIST_ITEM, "item", 250),
        (SegmentKind.QUOTE, "said", 250),
        (SegmentKind.CODE, "", 0),
        (SegmentKind.SILENT, "", 0),
    ]
