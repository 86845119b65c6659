"""Neutral English sentences to calibrate a voice with: thousands of them from a few lists, the same for the same seed.

They vary in length, sounds and kind (statements, questions, a list now and then) as answers of an assistant do.
"""

from __future__ import annotations

import random

_PLACES = (
    "the old harbor", "a small museum", "the railway station", "the botanical garden", "our second office",
    "the northern shore", "that mountain village", "the city library", "the market square", "an empty warehouse",
    "the concert hall", "a quiet valley", "the ferry terminal", "the research center", "the upper road",
)  # fmt: skip
_PEOPLE = (
    "the engineer", "my neighbor", "a young doctor", "the committee", "the new teacher", "your sister",
    "the pilot", "an experienced guide", "the owner of the shop", "the whole family", "a visitor from Norway",
    "the orchestra", "the kitchen team", "every passenger", "the gardener",
)  # fmt: skip
_DEEDS = (
    "walked slowly towards", "could not find", "wrote a long letter about", "has finally opened", "looked carefully at",
    "was thinking about", "painted a picture of", "drove past", "decided to visit", "knows very little about",
    "took the children to", "spent the afternoon in", "asked three questions about", "will return to",
    "should pay more attention to",
)  # fmt: skip
_TIMES = (
    "in the early morning", "after a short break", "before the rain began", "at the end of the week",
    "during the summer months", "just before midnight", "as soon as possible", "on the first day of spring",
    "without saying a word", "for the second time", "while the others were asleep", "in spite of the cold wind",
)  # fmt: skip
_FACTS = (
    "Fresh bread smells best when it has just left the oven.",
    "Water boils faster on the coast than high up in the mountains.",
    "Most of these books were printed more than a hundred years ago.",
    "A good map shows the paths as well as the roads.",
    "Honey keeps for years if the jar is closed properly.",
    "The shortest way is not always the quickest one.",
    "Please turn the page and read the second paragraph again.",
    "Copper, zinc and silver were found in the hills nearby.",
    "Birds use the stars and the sun to find their way south.",
    "You can change the settings at any time and start over.",
    "The bridge was closed for repairs, so we took the boat.",
    "Glass is made from sand, ash and a great deal of heat.",
)
_OPENINGS = (
    "As far as I know, ",
    "Later that year, ",
    "Of course, ",
    "In other words, ",
    "Yes, ",
    "However, ",
    "",
    "",
    "",
)


def sentence(random_source: random.Random) -> str:
    """One sentence of 5 to 25 words."""
    kind = random_source.random()
    if kind < 0.15:
        return random_source.choice(_FACTS)
    who, deed, where = (random_source.choice(words) for words in (_PEOPLE, _DEEDS, _PLACES))
    if kind < 0.25:
        return f"Did you know that {who} {deed} {where}?"
    text = f"{who} {deed} {where}"
    if random_source.random() < 0.6:
        text += f" {random_source.choice(_TIMES)}"
    if random_source.random() < 0.25:
        text += f", and {random_source.choice(_PEOPLE)} {random_source.choice(_DEEDS)} {random_source.choice(_PLACES)}"
    text = random_source.choice(_OPENINGS) + text
    return text[0].upper() + text[1:] + "."


def dialog(seed: int, segments: int) -> list[str]:
    """``segments`` sentences; the same ones for the same seed."""
    random_source = random.Random(seed)
    return [sentence(random_source) for _ in range(segments)]
