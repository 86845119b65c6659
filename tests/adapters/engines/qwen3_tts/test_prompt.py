"""Text ids: the split rule, special strings as plain text, frames, and ids of text that is still arriving."""

from __future__ import annotations

import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from adapters.engines.qwen3_tts.tokenizer import TextTokenizer
from sidecar.faults import ConfigError
from tests.adapters.engines.qwen3_tts import tiny
from tests.adapters.engines.qwen3_tts.loaded import checkpoint, tokenizer

TOKENIZER = tokenizer()

# What the split rule and normalisation look at: contractions, runs of white space and line breaks, marks that combine,
# jamo, digits, punctuation, several scripts, halves of special strings.
PIECES = [
    *("'s", "'S", "'", "r", "e", "'ll", "L", "don't", "ſ", " ", "  ", "\n", "\r\n", "\t", "\u3000", "\u00a0", "\u2028"),
    *("e\u0301", "\u0301", "\u0323", "a", "A", "iPhone", " YouTube", "Å", "\u212b", "ä", "ﬁ", "\u0344", "\u0958"),
    *("ᄀ", "ᅡ", "ᆨ", "가", "각", "你好", "，", "。", "日本", "か\u3099", "ไทย", "हिन्दी", "\u0bc6\u0bbe"),
    *("1", "23", "٣", ".", "...", "!", "?!", "-", "=", "\u0338", "#", "##", "<|im_end|>", "<|", "|>", "<tts_pad>"),
    *("🙂", "👩‍👩‍👧", "\u200d", "\ufe0f", "hello", " world"),
]
texts = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=4)), max_size=24)


@settings(max_examples=400, deadline=None)
@given(texts)
@example(["!\n", "  ", "\n", "x"])
@example(["\n", " ", "\n", "  a"])
@example([" ", "x", "\n", " ", "\u0301", "y"])
@example(["'", "l", "l", "'r", "x"])
@example(["ᄀ", "ᅡ", "ᆨ", "a"])
def test_ids_of_arriving_text_are_those_of_the_whole(pieces: list[str]) -> None:
    live, found = TOKENIZER.live(), list[int]()
    for piece in pieces:
        found += live.feed(piece)
    found += live.finish()
    assert tuple(found) == TOKENIZER.body_ids("".join(pieces))
    assert len(live.ends) == len(found)
    assert live.ends == sorted(live.ends)
    assert all(0 <= end <= len("".join(pieces)) for end in live.ends)


@settings(max_examples=200, deadline=None)
@given(texts)
def test_ends_do_not_depend_on_how_the_text_arrives(pieces: list[str]) -> None:
    whole, live = TOKENIZER.live(), TOKENIZER.live()
    whole.feed("".join(pieces))
    whole.finish()
    for piece in pieces:
        live.feed(piece)
    live.finish()
    assert live.ends == whole.ends


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("hello world.", [5, 11, 12]),
        (" cafe\u0301, na", [6, 7, 10]),
        ("\n\n  hi", [3, 6]),
        ("\U0001f642", [1]),
    ],
)
def test_ends_are_characters_of_the_text_as_it_came(text: str, ends: list[int]) -> None:
    live = TOKENIZER.live()
    live.feed(text)
    live.finish()
    assert sorted(set(live.ends) & set(ends)) == ends
    assert live.ends[-1] == ends[-1] == len(text)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=40), st.text(max_size=40))
def test_ids_once_given_are_final(text: str, more: str) -> None:
    given_early = tuple(TOKENIZER.live().feed(text))
    for following in ("", more, "\n", "\u0301x", "s"):
        assert TOKENIZER.body_ids(text + following)[: len(given_early)] == given_early


def test_a_word_is_given_once_the_next_has_begun() -> None:
    live = TOKENIZER.live()
    assert live.feed("hello") == []
    assert tuple(live.feed(" world")) == TOKENIZER.plain_ids("hello")
    assert live.feed("s") == []
    assert tuple(live.feed(". ")) == TOKENIZER.plain_ids(" worlds")
    assert tuple(live.finish()) == TOKENIZER.plain_ids(". ")


def test_every_character_that_combines_backwards_waits() -> None:
    """All second halves of canonical compositions, marks that are reordered, conjoining jamo."""
    joining = {chr(code) for code in (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))}
    for code in range(sys.maxunicode + 1):
        char = chr(code)
        parts = unicodedata.decomposition(char).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            joining.add(chr(int(parts[1], 16)))
        if unicodedata.combining(char):
            joining.add(char)
    assert len(joining) > 900
    for char in joining:
        live = TOKENIZER.live()
        assert live.feed("b" + char) == []
        assert live._raw == "b" + char


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        (" iPhone and YouTube", [" iPhone", " and", " YouTube"]),
        ("JavaScript, GitHub", ["JavaScript", ",", " GitHub"]),
        ("don't we'll I'M", ["don", "'t", " we", "'ll", " I", "'M"]),
        ("a1234", ["a", "1", "2", "3", "4"]),
        ("a  b\n\n c", ["a", " ", " b", "\n\n", " c"]),
    ],
)
def test_the_split_rule_is_the_one_of_training(text: str, pieces: list[str]) -> None:
    """In particular words with inner capitals stay whole."""
    ends = [end for _, end in TOKENIZER.pretokens(text)]
    assert [text[a:b] for a, b in zip([0, *ends], ends, strict=False)] == pieces


@pytest.mark.parametrize("special", tiny.SPECIALS)
def test_special_strings_in_a_text_are_plain_characters(special: str) -> None:
    reserved = min(checkpoint().talker.text.im_start, len(tiny.vocabulary()[0]))
    for ids in (
        TOKENIZER.body_ids(f"a {special}b{special}"),
        TOKENIZER.reference_ids(special),
        TOKENIZER.instruct_ids(special)[1:-2],
        (*(live := TOKENIZER.live()).feed(special), *live.finish()),
    ):
        assert ids
        assert all(one < reserved for one in ids)


def test_frames() -> None:
    ids = checkpoint().talker.text
    assert TOKENIZER.role_ids == (ids.im_start, ids.assistant, *TOKENIZER.plain_ids("\n"))
    assert TOKENIZER.instruct_ids("") == ()
    assert TOKENIZER.instruct_ids("Hi") == (
        ids.im_start,
        *TOKENIZER.plain_ids("user\nHi"),
        ids.im_end,
        *TOKENIZER.plain_ids("\n"),
    )


def test_text_is_normalised_and_made_well_formed() -> None:
    assert TOKENIZER.body_ids("cafe\u0301") == TOKENIZER.body_ids("café")
    assert TOKENIZER.body_ids("a\ud83d\ude42") == TOKENIZER.body_ids("a🙂")
    assert TOKENIZER.body_ids("a\ud800") == TOKENIZER.body_ids("a\ufffd")


def test_leading_line_breaks_belong_to_the_frame() -> None:
    assert TOKENIZER.body_ids(" \r\n\n  hello") == TOKENIZER.body_ids("  hello")
    assert TOKENIZER.body_ids("\n\n") == ()


def test_merges_of_number_signs_are_no_comments(tmp_path: Path) -> None:
    words, merges = tiny.vocabulary()
    assert "\n# #\n" in merges
    assert TOKENIZER.body_ids("##") == (words["##"],)
    folder = tiny.write(tmp_path)
    (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}", encoding="utf-8")
    assert TextTokenizer.load(folder, checkpoint().talker).body_ids("##") == (words["##"],)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("vocab.json", "{", "vocab.json cannot be read"),
        ("vocab.json", '{"a": 99999999}', "vocab.json must map"),
        ("merges.txt", "a b c\n", "two parts"),
        ("merges.txt", "zzz qqq\n", "do not belong together"),
        ("merges.txt", "\n", "'assistant'"),
    ],
)
def test_bad_vocabularies_are_refused(tmp_path: Path, name: str, content: str, words: str) -> None:
    folder = tiny.write(tmp_path)
    (folder / name).write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=words):
        TextTokenizer.load(folder, checkpoint().talker)
