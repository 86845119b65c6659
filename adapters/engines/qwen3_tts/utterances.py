"""From what the sidecar asks for to what stage 0 lays out: voices, languages, instructions, layouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from adapters.engines.anchors import checked_embedding
from adapters.engines.builtin.languages import Languages
from adapters.engines.qwen3_tts.stages import Prompt, Reference, Said, Sampling
from sidecar.faults import BadRequest, UnknownVoice, UnsupportedByEngine, UnsupportedLanguage
from sidecar.ports import Draws, EngineTraits, EngineVoice, Utterance
from voices.carry import Carry

ISO = {
    "chinese": "zh", "english": "en", "french": "fr", "german": "de", "italian": "it", "japanese": "ja",
    "korean": "ko", "portuguese": "pt", "russian": "ru", "spanish": "es",
}  # fmt: skip
"""The models' languages by their ISO 639-1 codes."""

DESIGNED = "designed"
"""The one voice of a voice design checkpoint: that which the instructions describe."""

Kind = Literal["base", "custom_voice", "voice_design"]
LayoutChoice = Literal["auto", "streaming", "whole"]


class LiveTokens(Protocol):
    """Ids of one text that arrives in pieces. ``ends``: for each given so far, characters up to its end in the text."""

    ends: list[int]

    def feed(self, text: str) -> Sequence[int]:
        """More text; the ids that have become final."""

    def finish(self) -> Sequence[int]:
        """No more text; the ids that are left."""


class Tokens(Protocol):
    """Text to ids."""

    def body_ids(self, text: str) -> tuple[int, ...]:
        """Ids of a text to speak."""

    def reference_ids(self, text: str) -> tuple[int, ...]:
        """Ids of what was said before the text."""

    def instruct_ids(self, text: str) -> tuple[int, ...]:
        """Ids of an instruction with its frame; none for an empty one."""

    def live(self) -> LiveTokens:
        """For one text that arrives in pieces."""


@dataclass(frozen=True)
class Model:
    """What a loaded checkpoint can say, and how its texts become ids.

    ``languages`` are its names for them (``english``); ``speakers`` lower case; ``dialects`` the dialect of those
    speakers that have one. ``references`` are the voices of a Base checkpoint, which brings none of its own; ``width``
    is that of its speaker embeddings; ``codec_id`` names the weights of its codec; ``decodes``: its
    decoder is loaded too.
    """

    name: str
    kind: Kind
    languages: tuple[str, ...]
    speakers: tuple[str, ...]
    takes_instructions: bool
    width: int
    tokens: Tokens
    dialects: Mapping[str, str] = field(default_factory=dict)
    references: Mapping[str, Reference] = field(default_factory=dict)
    codec_id: str = ""
    decodes: bool = True

    @property
    def voices(self) -> tuple[str, ...]:
        """Names a request may use."""
        if self.kind == "voice_design":
            return (DESIGNED,)
        return self.speakers if self.kind == "custom_voice" else tuple(self.references)

    @property
    def iso_languages(self) -> tuple[str, ...]:
        """The languages that have an ISO code, by it."""
        return tuple(sorted(ISO[name] for name in self.languages if name in ISO))


def traits_of(model: Model, *, rows: int, deterministic: bool) -> EngineTraits:
    """What the engine can do with this checkpoint."""
    languages = model.iso_languages
    voices = tuple(EngineVoice(name, languages, _description(model, name)) for name in model.voices)
    return EngineTraits(
        name="qwen3-tts",
        voices=voices,
        default_voice=voices[0].name if voices else "",
        languages=languages,
        max_rows=rows,
        deterministic=deterministic,
        clone_widths=(model.width,) if model.kind == "base" else (),
        anchor_codes=model.kind == "base",
        live_text=True,
        codes_out=True,
        carry=True,
        codec_id=model.codec_id,
        pcm_out=model.decodes,
        instructions=model.takes_instructions,
        tasks=({"base": "Base", "custom_voice": "CustomVoice", "voice_design": "VoiceDesign"}[model.kind],),
    )


def _description(model: Model, voice: str) -> str:
    if model.kind == "voice_design":
        return "the voice that the instructions describe"
    dialect = model.dialects.get(voice)
    return f"{model.name}, speaks {dialect.replace('_', ' ')}" if dialect else model.name


def prompt_of(model: Model, utterance: Utterance, *, layout: LayoutChoice = "auto") -> Prompt:
    """The prompt of an utterance; without text ids when it is live, they come from the tokens' ``live`` then.

    ``layout`` auto: the reference's defaults (clones stream their text, the others know it whole). What the utterance
    asks for goes before it; live text always streams. Instructions for a checkpoint that takes none are left out, as
    the reference does. Raises ``UnknownVoice``, ``UnsupportedLanguage``, ``UnsupportedByEngine``, ``BadRequest``, each
    with what is possible.
    """
    voice, live = utterance.voice.lower(), utterance.live
    reference = _reference(model, utterance)
    language = _language(model, utterance.language)
    if not live and not utterance.text.strip():
        raise BadRequest("There is no text to speak.", param="input")
    if utterance.whole_text is not None:
        layout = "whole" if utterance.whole_text else "streaming"
    if layout == "auto":
        layout = "streaming" if model.kind == "base" else "whole"
    return Prompt(
        text_ids=() if live else model.tokens.body_ids(utterance.text),
        closed=not live,
        layout="streaming" if live else layout,
        language=language,
        speaker=voice if model.kind == "custom_voice" else None,
        instruct_ids=model.tokens.instruct_ids(utterance.instructions) if model.takes_instructions else (),
        reference=reference,
        carry=_carry(model, utterance.carry),
        live=live,
        sampling=_sampling(utterance),
    )


def _reference(model: Model, utterance: Utterance) -> Reference | None:
    """The voice of an utterance, where it is not a speaker of the checkpoint's."""
    anchor = utterance.anchor
    if anchor is None:
        if utterance.voice.lower() not in model.voices:
            raise UnknownVoice(_no_voice(model), param="voice")
        return model.references[utterance.voice.lower()] if model.kind == "base" else None
    if model.kind != "base":
        raise UnsupportedByEngine(
            f"This checkpoint ({model.kind}) cannot clone voices; there are: {', '.join(model.voices)}.", param="voice"
        )
    embedding = checked_embedding(anchor, (model.width,))
    if anchor.codes is None:
        return Reference(embedding)
    if not anchor.transcript.strip():
        raise BadRequest("The voice's reference codes need their transcript.", param="voice")
    return Reference(embedding, anchor.codes, model.tokens.reference_ids(anchor.transcript))


def _sampling(utterance: Utterance) -> Sampling:
    """The checkpoint's way of drawing, with what the utterance wants otherwise of the talker."""
    draws = utterance.draws or Draws()
    asked = {name: value for name in ("temperature", "top_p", "top_k") if (value := getattr(draws, name)) is not None}
    return Sampling(seed=utterance.seed, **asked)


def _carry(model: Model, carry: Carry | None) -> Said | None:
    if carry is None:
        return None
    if not carry.text.strip():
        raise BadRequest("The carry's codes need their text.", param="carry")
    return Said(carry.codes, model.tokens.reference_ids(carry.text))


def spoken_language(model: Model, utterance: Utterance, detector: Languages) -> str:
    """ISO code of what is spoken: as asked, else the text's, as far as the model has it."""
    if utterance.language is not None:
        return utterance.language.lower().partition("-")[0]
    offered = model.iso_languages
    guess = detector.guess(utterance.text, frozenset(offered))
    if guess is not None and guess.language in offered:
        return guess.language
    return "en" if "en" in offered or not offered else offered[0]


def _language(model: Model, asked: str | None) -> str | None:
    """The model's name of a language; None lets the model find out."""
    if asked is None:
        return None
    code = asked.lower().partition("-")[0]
    for name in model.languages:
        if ISO.get(name) == code:
            return name
    raise UnsupportedLanguage(
        f"This checkpoint does not speak '{asked[:20]}'; languages: {', '.join(model.iso_languages)}.",
        param="language",
    )


def _no_voice(model: Model) -> str:
    if model.voices:
        return f"Unknown voice; there are: {', '.join(model.voices)}."
    return "This checkpoint clones voices and brings none: it needs a reference recording or a speaker embedding."
