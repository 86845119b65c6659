"""What names mean before anything stored is looked at."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from sidecar.faults import UnknownVoice
from sidecar.ports import EngineTraits, EngineVoice
from sidecar.voicebook import MAX_NAMES_TOLD, VoiceBook


def book(
    aliases: Mapping[str, str] | None = None, default: str | None = None, own: tuple[str, ...] = ("alto", "bass")
) -> VoiceBook:
    traits = EngineTraits(
        name="toy",
        voices=tuple(EngineVoice(name, ("en",), f"voice {name}") for name in own),
        default_voice=own[0] if own else "",
        languages=("en",),
        max_rows=1,
        deterministic=True,
        more_voices="More by buying them.",
    )
    return VoiceBook(traits, aliases or {}, default)


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("alto", "alto"),
        (" ALTO ", "alto"),
        ("alto+bass", "alto+bass"),
        ("Alto:0.3+bass:0.7", "alto:0.3+bass:0.7"),
        ("alto+nobody", None),
        ("nova", None),
        ("default", None),
        ("", None),
        ("+", None),
    ],
)
def test_own_voices(name: str, own: str | None) -> None:
    assert book({"nova": "bass"}).own(name) == own


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("nova", "bass"),
        ("NOVA", "bass"),
        ("far", "bass"),
        ("stored", "anna"),
        ("default", "alto"),
        ("plain", "alto"),
        ("alto", None),
        ("anna", None),
        ("round", "round"),
    ],
)
def test_aliases_are_followed_to_their_end(name: str, target: str | None) -> None:
    aliases = {"nova": "Bass", "far": "nova", "stored": "anna", "plain": "default", "round": "about", "about": "round"}
    assert book(aliases).target(name) == target


def test_the_default_may_be_an_alias_a_stored_voice_or_nothing() -> None:
    assert book({"nova": "bass"}, "nova").resolve(None) == "bass"
    assert book(default="anna").target("default") == "anna"
    assert book(own=()).target("default") == ""
    with pytest.raises(UnknownVoice, match=r"brings none.*More by buying"):
        book(own=()).resolve(None)


def test_names_nobody_may_store_under() -> None:
    names = book({"nova": "bass"})
    assert [name for name in ("alto", "Default", "alto+bass", "nova", "anna") if names.reserved(name)] == [
        "alto",
        "Default",
        "alto+bass",
    ]


def test_an_unknown_voice_lists_the_others_within_bounds() -> None:
    fault = book({"nova": "bass"}).unknown("x" * 500, [f"v{n:03}" for n in range(500)], "voice")
    assert fault.param == "voice"
    assert fault.message.count(",") == MAX_NAMES_TOLD
    assert "x" * 65 not in fault.message
    assert "alto, bass, default, nova, v000" in fault.message


def test_pickers_see_what_each_name_means() -> None:
    shown = {entry["id"]: entry["name"] for entry in book({"nova": "bass"}).describe()}
    assert shown == {"alto": "voice alto", "bass": "voice bass", "default": "default: alto", "nova": "nova: bass"}


OPENAI = {"alloy": "default", "nova": "default"}


def test_names_that_lead_nowhere_are_not_listed() -> None:
    none = book(OPENAI, own=())
    assert none.names() == []
    assert none.describe(["anna"]) == []
    assert none.unknown("alloy", (), "voice").message.startswith(
        "There is no voice 'alloy'. There is none yet. The engine clones voices"
    )
    assert "voices.default" not in none.unknown("alloy", (), "voice").message
    assert book({"round": "about", "about": "round", "mixed": "alto+bass"}).names() == [
        "alto",
        "bass",
        "default",
        "mixed",
    ]


def test_stored_voices_that_nothing_leads_to_may_be_made_the_default() -> None:
    fault = book(OPENAI, own=()).unknown("alloy", ["berta", "anna"], "voice")
    assert "Voices: anna, berta. " in fault.message
    assert "(SIDECAR_VOICES__DEFAULT=anna)" in fault.message


def test_aliases_of_stored_voices_are_listed_while_these_are_there() -> None:
    named = book({**OPENAI, "clara": "gone"}, "anna", own=())
    assert named.names() == []
    assert [entry["name"] for entry in named.describe(["anna"])] == ["alloy: anna", "default: anna", "nova: anna"]
    message = named.unknown("clara", ["anna"], "voice").message
    assert "Voices: alloy, anna, default, nova." in message
    assert "SIDECAR_VOICES__DEFAULT" not in message
