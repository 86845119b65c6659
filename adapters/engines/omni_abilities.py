"""What a speech server can do, read from the answers to harmless questions. No socket."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from sidecar.faults import UnsupportedLanguage
from sidecar.ports import EngineTraits, EngineVoice, Utterance
from voices.anchor import EMBEDDING_WIDTHS, MAX_WIDTH

DEFAULT_VOICE = "default"
"""Whichever voice a server speaks with when none is named."""

TASKS = ("CustomVoice", "Base", "VoiceDesign")

LANGUAGES = {
    "zh": "Chinese",
    "en": "English",
    "ja": "Japanese",
    "ko": "Korean",
    "de": "German",
    "fr": "French",
    "ru": "Russian",
    "pt": "Portuguese",
    "es": "Spanish",
    "it": "Italian",
}
"""The languages of Qwen3-TTS by ISO 639-1, under the names that its servers take."""

_MAX_VOICES = 10_000
_MAX_NAME_CHARS = 256
_ISO = re.compile(r"[a-z]{2}")
_TOKEN = re.compile(r"[\w.:/ -]{1,128}")
_SIZES = {"0.6b": (EMBEDDING_WIDTHS[0],), "1.7b": (EMBEDDING_WIDTHS[1],)}


@dataclass(frozen=True, slots=True)
class Abilities:
    """One server. ``kind``: another sidecar, vLLM-Omni, or any other server with a speech endpoint.

    ``voices`` are lower case. ``clone_widths`` are the widths of speaker embeddings it takes. ``sockets``: it has the
    speech WebSocket; ``cancels``: and knows ``input.cancel`` there. ``codes_out``: codec tokens, made for ``codec_id``;
    without ``pcm_out`` nothing else.
    """

    kind: Literal["sidecar", "omni", "plain"] = "plain"
    voices: tuple[str, ...] = ()
    languages: tuple[str, ...] = tuple(LANGUAGES)
    tasks: tuple[str, ...] = ("CustomVoice",)
    clone_widths: tuple[int, ...] = ()
    deterministic: bool = False
    instructions: bool = True
    codes_out: bool = False
    pcm_out: bool = True
    codec_id: str = ""
    sockets: bool = False
    cancels: bool = False

    @property
    def takes_default(self) -> bool:
        """False for a server that speaks with vectors and stored voices only."""
        return self.kind == "plain" or "CustomVoice" in self.tasks or "VoiceDesign" in self.tasks

    @property
    def designs(self) -> bool:
        """True for a server whose voices are made of instructions only."""
        return self.kind != "plain" and "VoiceDesign" in self.tasks and "CustomVoice" not in self.tasks

    def can_speak(self, utterance: Utterance) -> bool:
        """True if it has the voice and the language of an utterance."""
        if utterance.anchor is not None:
            fits = utterance.anchor.width in self.clone_widths
        else:
            fits = utterance.voice in self.voices or (utterance.voice == DEFAULT_VOICE and self.takes_default)
        return fits and (utterance.language is None or utterance.language in self.languages or self.kind == "plain")

    def language_name(self, language: str | None) -> str | None:
        """A language (ISO 639-1) as this server wants to be told it; None for none.

        Raises ``UnsupportedLanguage``.
        """
        if language is None:
            return None
        if language in LANGUAGES:
            return LANGUAGES[language]
        if self.kind == "sidecar":
            return language
        if self.kind == "plain":
            return None
        raise UnsupportedLanguage(
            f"The speech server does not speak '{language[:20]}'; languages: {', '.join(self.languages)}.",
            param="language",
        )


# ---------------------------------------------------------------- reading answers
def voice_names(listing: object) -> tuple[str, ...]:
    """The names in ``GET /v1/audio/voices``, lower case, sorted, without ``default``; those of objects too."""
    found = listing.get("voices", listing.get("data")) if isinstance(listing, Mapping) else listing
    return _names(found)


def stored_names(listing: object) -> tuple[str, ...]:
    """The names of the voices there that users have stored."""
    return _names(listing.get("uploaded_voices") if isinstance(listing, Mapping) else None)


def _names(found: object) -> tuple[str, ...]:
    if not isinstance(found, list):
        return ()
    names = set()
    for entry in found[:_MAX_VOICES]:
        named = entry.get("id", entry.get("name")) if isinstance(entry, Mapping) else entry
        if isinstance(named, str) and 0 < len(named) <= _MAX_NAME_CHARS and named.isprintable():
            names.add(named.strip().lower())
    return tuple(sorted(names - {DEFAULT_VOICE, ""}))


def is_omni(listing: object) -> bool:
    """True if a list of voices is of vLLM-Omni's form."""
    return isinstance(listing, Mapping) and isinstance(listing.get("uploaded_voices"), list)


def listed_widths(listing: object) -> tuple[int, ...]:
    """Widths of the speaker embeddings that users have stored there."""
    uploaded = listing.get("uploaded_voices") if isinstance(listing, Mapping) else None
    found = {
        entry["embedding_dim"]
        for entry in (uploaded if isinstance(uploaded, list) else ())[:_MAX_VOICES]
        if isinstance(entry, Mapping) and _is_width(entry.get("embedding_dim"))
    }
    return tuple(sorted(found))


def model_ids(listing: object) -> tuple[str, ...]:
    """The ids in ``GET /v1/models``."""
    cards = listing.get("data") if isinstance(listing, Mapping) else None
    found = (card.get("id") for card in (cards if isinstance(cards, list) else ())[:1_000] if isinstance(card, Mapping))
    return tuple(name for name in found if isinstance(name, str) and len(name) <= _MAX_NAME_CHARS)


def widths_named(ids: Iterable[str]) -> tuple[int, ...]:
    """Widths of the embeddings that models of these names take; those of all released ones if no name tells."""
    found = {width for name in ids for size, widths in _SIZES.items() if size in name.lower() for width in widths}
    return tuple(sorted(found)) or EMBEDDING_WIDTHS


def refuses_task(status: int, answer: object) -> bool:
    """True if the answer to a blank text with a ``task_type`` says that the checkpoint does not have this task."""
    error = answer.get("error") if isinstance(answer, Mapping) else None
    if status != 400 or not isinstance(error, Mapping):
        return False
    return "task_type" in str(error.get("message")) or error.get("param") == "task_type"


def told_by_sidecar(told: object, voices: tuple[str, ...], stored: tuple[str, ...] = ()) -> Abilities | None:
    """The abilities that a sidecar tells of its engine in ``GET /v1/audio/models``; None if it tells none.

    ``voices`` are all that it lists, ``stored`` those of its users.
    """
    engine = told.get("engine") if isinstance(told, Mapping) else None
    if not isinstance(engine, Mapping):
        return None
    languages = tuple(code for code in _strings(engine.get("languages")) if _ISO.fullmatch(code))
    widths = engine.get("clone_widths")
    codec_id = engine.get("codec_id")
    tasks = tuple(task for task in _strings(engine.get("tasks")) if task in TASKS) or ("CustomVoice",)
    if tasks == ("Base",):  # its list has aliases too, that mean nobody
        voices = tuple(sorted({*stored, *_names(engine.get("voices"))}))
    return Abilities(
        kind="sidecar",
        voices=voices,
        languages=languages or tuple(LANGUAGES),
        tasks=tasks,
        clone_widths=tuple(sorted({w for w in widths if _is_width(w)})) if isinstance(widths, list) else (),
        deterministic=engine.get("deterministic") is True,
        instructions=engine.get("instructions") is True,
        codes_out=engine.get("codes_out") is True,
        pcm_out=engine.get("pcm_out") is not False,
        codec_id=codec_id if isinstance(codec_id, str) and _TOKEN.fullmatch(codec_id) else "",
    )


def _strings(value: object) -> list[str]:
    return [item for item in value[:1_000] if isinstance(item, str)] if isinstance(value, list) else []


def _is_width(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MAX_WIDTH


# ---------------------------------------------------------------- all servers together
def traits_of(servers: list[Abilities], max_rows: int, deterministic: bool | None) -> EngineTraits:
    """What the servers can do together: each utterance goes to one that can speak it.

    ``deterministic`` None: if every server says so of itself.
    """
    languages = tuple(sorted({code for one in servers for code in one.languages}))
    voices = []
    if any(one.takes_default for one in servers):
        voices.append(EngineVoice(DEFAULT_VOICE, languages, "the speech server's own choice"))
    for name in sorted({name for one in servers for name in one.voices}):
        spoken = {code for one in servers if name in one.voices for code in one.languages}
        voices.append(EngineVoice(name, tuple(sorted(spoken))))
    tasks = tuple(task for task in TASKS if any(task in one.tasks for one in servers))
    return EngineTraits(
        name="omni",
        voices=tuple(voices),
        default_voice=voices[0].name if voices else "",
        languages=languages,
        max_rows=max_rows,
        deterministic=all(one.deterministic for one in servers) if deterministic is None else deterministic,
        clone_widths=tuple(sorted({width for one in servers for width in one.clone_widths})),
        instructions=any(one.instructions for one in servers),
        tasks=tasks,
        more_voices="Voices are those of the speech servers.",
        encodes=False,
    )
