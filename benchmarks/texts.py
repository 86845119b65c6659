"""What the scripted model says in measurements: plain prose with the things that segmenters stumble over."""

from __future__ import annotations

PROSE = (
    "The harbor lies in a wide bay, and the town climbs the hill behind it. Ferries leave at 7.30 in the morning, "
    "return at noon, and leave again when the tide allows it. Dr. Meyer, who runs the small museum, opens it at ten; "
    "she will show you the charts from 1884 if you ask. There are two ways up to the lighthouse: the steps, which are "
    "steep, and the road, which takes about 25 minutes. Bring water. On clear days you can see the islands, roughly "
    "40 kilometers away, and sometimes whales. Most visitors stay for one night, but the second day is the better "
    "one! Is there a market? Yes, on Saturdays, with fish, bread, and very good cheese. "
)


def prose(chars: int) -> str:
    """Running text of at least ``chars`` characters that ends with a sentence."""
    sentences = [sentence + "." for sentence in PROSE.replace("! ", "!. ").split(". ") if sentence.strip()]
    text = ""
    turn = 0
    while len(text) < chars:
        text += sentences[turn % len(sentences)].replace("!.", "!").strip() + " "
        turn += 1
    return text.strip()
