"""Where the speech socket cuts a text: vLLM-Omni's rules and the sidecar's own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.e2e.conftest import Running, running
from tests.e2e.speech_tools import overheard
from tests.e2e.ws_client import STREAMED, SpeechSocket, opened

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def talker() -> AsyncIterator[Running]:
    async with running() as server:
        yield server


BOTH: list[tuple[str, list[str]]] = [
    ("It rains. It pours! Does it stop?", ["It rains.", "It pours!", "Does it stop?"]),
    ("It rains.It pours.", ["It rains.It pours."]),
    ("See example.com for more. Then come back.", ["See example.com for more.", "Then come back."]),
    ("Pi is 3.14 or so. Good.", ["Pi is 3.14 or so.", "Good."]),
    ("Dr. Brown met Mrs. Gray vs. nobody. They left.", ["Dr. Brown met Mrs. Gray vs. nobody.", "They left."]),
    ("Take e.g. tea at 3 p.m. or later. Fine.", ["Take e.g. tea at 3 p.m. or later.", "Fine."]),
    ("DR. WHO came. Who?", ["DR. WHO came.", "Who?"]),
    ("J. S. Bach wrote it. Listen.", ["J. S. Bach wrote it.", "Listen."]),
    ("Go to plan B. Then rest.", ["Go to plan B. Then rest."]),
    ("He said no. Then he left.", ["He said no. Then he left."]),
    ("Wait... What?! Oh.", ["Wait...", "What?!", "Oh."]),
    ('"Stop." she cried. (Really?) Yes.', ['"Stop."', "she cried.", "(Really?)", "Yes."]),
    ("Line one\nline two: still | one – unit", ["Line one\nline two: still | one – unit"]),
    ("First.\n\nSecond.", ["First.", "Second."]),
    ("你好。世界！再见", ["你好。", "世界！", "再见"]),
    ("「你好。」他说。", ["「你好。」", "他说。"]),
    ("等等……好。", ["等等……", "好。"]),
    ("नमस्ते। आप कैसे हैं॥ ठीक", ["नमस्ते।", "आप कैसे हैं॥", "ठीक"]),
    ("كيف حالك؟بخير", ["كيف حالك؟", "بخير"]),
    ("No mark at all", ["No mark at all"]),
    ("...", ["..."]),
    ("A! B! C!", ["A!", "B!", "C!"]),
    ("   \n ", []),
    ("Gap.     Gap.", ["Gap.", "Gap."]),
]

ONLY_SENTENCES: list[tuple[str, list[str]]] = [
    ("One, two; three. Four, five.", ["One, two; three.", "Four, five."]),
    ("好，我们走；快点。再见", ["好，我们走；快点。", "再见"]),
]

ONLY_CLAUSES: list[tuple[str, list[str]]] = [
    ("One, two; three. Four", ["One,", "two;", "three.", "Four"]),
    ("好，我们走；快点。再见", ["好，", "我们走；", "快点。", "再见"]),
    ("About 1,000 of them, maybe 2,000.5, came.", ["About 1,000 of them,", "maybe 2,000.5,", "came."]),
    ("نعم، ربما؛ لا", ["نعم،", "ربما؛", "لا"]),
    ("Well, no,thanks", ["Well,", "no,thanks"]),
    ("顿号、不断：也不断", ["顿号、不断：也不断"]),
]

CASES = [
    *(("none", text, [text.strip()]) for text, _ in BOTH[:2]),
    *(("sentence", text, units) for text, units in BOTH + ONLY_SENTENCES),
    *(("clause", text, units) for text, units in ONLY_CLAUSES),
]


async def units_of(client: SpeechSocket, *pieces: str) -> list[str]:
    heard = await client.spoken(*pieces)
    assert [unit.start["sentence_index"] for unit in heard.units] == list(range(len(heard.units)))
    assert heard.done["total_sentences"] == len(heard.units)
    return heard.texts


@pytest.mark.parametrize(("granularity", "text", "units"), CASES)
async def test_units(talker: Running, granularity: str, text: str, units: list[str]) -> None:
    """They do not depend on how the text was cut into messages."""
    async with opened(talker, {**STREAMED, "split_granularity": granularity}) as client:
        assert await units_of(client, text) == units
        assert await units_of(client, *text) == units


@pytest.mark.parametrize(
    ("before", "after", "first"),
    [
        ("Done.", " Next", "Done."),
        ("Done.", "\nNext", "Done."),
        ("你好。", "世", "你好。"),
        ('She said "Yes."', " And", 'She said "Yes."'),
    ],
)
async def test_a_mark_at_the_end_waits_for_what_follows(talker: Running, before: str, after: str, first: str) -> None:
    async with opened(talker, {**STREAMED, "split_granularity": "sentence"}) as client:
        await client.text(before)
        await client.silent()
        assert (await talker.service.engine.health()).active_rows == 0
        await client.text(after)
        assert (await client.unit()).text == first
        await client.send("input.done")
        assert (await client.utterance()).texts == [after.strip()]


async def test_a_number_across_messages_is_not_cut(talker: Running) -> None:
    async with opened(talker, {**STREAMED, "split_granularity": "clause"}) as client:
        assert await units_of(client, "It costs 3.", "14 or 1,", "000, say") == ["It costs 3.14 or 1,000,", "say"]


# ---------------------------------------------------------------- the sidecar's own rules
MARKDOWN = (
    "## Plan\n\n1. **Boil** the water.\n2. See [the guide](https://example.org/tea_guide).\n\n"
    "Dr. Gray agrees: it works!"
)


async def test_markdown_is_said_as_words(talker: Running) -> None:
    config = {**STREAMED, "split_granularity": "sentence", "split_rules": "sidecar"}
    with overheard(talker) as asked:
        async with opened(talker, config) as client:
            whole = await units_of(client, MARKDOWN)
            letters = await units_of(client, *MARKDOWN)
    assert whole == letters, "however it is cut"
    assert len(whole) > 2
    position = 0
    for text in whole:
        position = MARKDOWN.index(text, position) + len(text)
    said = [utterance.text for utterance in asked]
    assert said[: len(whole)] == said[len(whole) :]
    assert not set("*#[]") & set("".join(said))
    assert "Boil the water" in " ".join(said)
    assert "example.org" not in " ".join(said)
    assert any("Dr. Gray agrees" in text for text in whole), "abbreviations are its business too"


async def test_what_is_not_said_is_no_unit(talker: Running) -> None:
    config = {**STREAMED, "split_granularity": "sentence", "split_rules": "sidecar"}
    async with opened(talker, config) as client:
        heard = await client.spoken("---\n\n![](https://example.org/picture.png)\n\n***\n")
        assert heard.units == []
        assert heard.done["total_sentences"] == 0


async def test_the_rules_can_be_the_servers_default(talker: Running) -> None:
    async with running(stream__split_rules="sidecar") as own:
        with overheard(own) as asked:
            async with opened(own, {"split_granularity": "sentence"}) as client:
                assert await units_of(client, "This is **bold**.") == ["This is **bold**."]
                await client.configure(split_rules="vllm")
                assert await units_of(client, "This is **bold**.") == ["This is **bold**."]
    assert [utterance.text for utterance in asked] == ["This is bold.", "This is **bold**."]


async def test_none_is_one_unit_by_both_rules(talker: Running) -> None:
    text = "One. Two. Three, **four**."
    with overheard(talker) as asked:
        async with opened(talker, {"split_rules": "sidecar"}) as client:
            await client.text(text)
            await client.silent()
            assert await units_of(client) == [text]
    assert [utterance.text for utterance in asked] == ["One. Two. Three, four."]
