"""The talker's and the code predictor's shapes and ids, read from a checkpoint's ``config.json``, field by field.

Sizes are read, never assumed: the same code runs the released 0.6B and 1.7B and small test checkpoints. What the code
does not implement (another activation, biases, sliding windows, scaled rope) is refused instead of ignored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from adapters.engines.qwen3_tts.stages import CODEBOOKS
from sidecar.faults import ConfigError

Kind = Literal["base", "custom_voice", "voice_design"]
Size = Literal["0b6", "1b7"]

KINDS: tuple[Kind, ...] = ("base", "custom_voice", "voice_design")
SIZES: tuple[Size, ...] = ("0b6", "1b7")
MODEL_TYPE = "qwen3_tts"
TOKENIZER_TYPE = "qwen3_tts_tokenizer_12hz"

CONTROL_IDS = 1024
"""The last ids of the talker's codec vocabulary are control ids, languages and speakers; they never become sound."""

_MAX = 1 << 24
_MISSING = object()


@dataclass(frozen=True, slots=True)
class TransformerConfig:
    """One decoder-only transformer: grouped-query attention with per-head norms of q and k, SwiGLU, rope."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    rope_theta: float
    max_positions: int


@dataclass(frozen=True, slots=True)
class CodecIds:
    """Control ids in the talker's codec vocabulary."""

    pad: int
    bos: int
    eos: int
    think: int
    nothink: int
    think_bos: int
    think_eos: int


@dataclass(frozen=True, slots=True)
class TextIds:
    """Ids in the text vocabulary that frame a prompt."""

    im_start: int
    im_end: int
    assistant: int
    tts_pad: int
    tts_bos: int
    tts_eos: int


@dataclass(frozen=True, slots=True)
class TalkerConfig:
    """Stage 0 of one checkpoint.

    ``codes`` is the size of every codebook the predictor draws from and of the part of ``codec_vocab`` that the
    talker may draw. ``languages`` maps lower-case names to codec ids, dialects included. ``speakers`` maps lower-case
    names to codec ids, ``dialects`` those of them that speak a dialect to its name.
    """

    kind: Kind
    size: Size
    talker: TransformerConfig
    predictor: TransformerConfig
    text_vocab: int
    text_hidden: int
    codec_vocab: int
    codes: int
    codec: CodecIds
    text: TextIds
    languages: Mapping[str, int]
    speakers: Mapping[str, int]
    dialects: Mapping[str, str]

    @property
    def offered_languages(self) -> tuple[str, ...]:
        """What a request may name besides auto: the languages without the dialects."""
        return tuple(name for name in self.languages if "dialect" not in name)

    @property
    def takes_instructions(self) -> bool:
        """Voice design always, custom voices in the large size; the small one drops them, clones have none."""
        return self.kind == "voice_design" or (self.kind == "custom_voice" and self.size != "0b6")

    def language_id(self, language: str | None, speaker: str | None) -> int | None:
        """The codec id that the prompt names, None for auto.

        A speaker of a dialect turns Chinese, and a language left open, into that dialect. Raises ``KeyError``.
        """
        dialect = self.dialects.get(speaker.lower()) if speaker is not None else None
        if dialect is not None and (language is None or language.lower() in ("auto", "chinese")):
            return self.languages[dialect]
        if language is None or language.lower() == "auto":
            return None
        return self.languages[language.lower()]


class Fields:
    """Members of one JSON object. Every wrong one is noted in ``problems`` and replaced by something harmless."""

    def __init__(self, where: str, body: Mapping[str, Any], problems: list[str]) -> None:
        self.where = where
        self.body = body
        self.problems = problems

    def wrong(self, name: str, what: str) -> None:
        """Note a problem of one member."""
        self.problems.append(f"{self.where}: {name} {what}")

    def part(self, name: str) -> Fields:
        """The object under ``name``."""
        value = self.body.get(name)
        if not isinstance(value, Mapping):
            self.wrong(name, "is missing" if value is None else "must be an object")
            return Fields(f"{self.where}: {name}", {}, [])  # one problem is enough
        return Fields(f"{self.where}: {name}", value, self.problems)

    def integer(self, name: str, low: int = 1, below: int = _MAX) -> int:
        """An integer in ``low <= value < below``."""
        value = self.body.get(name, _MISSING)
        if value is _MISSING:
            self.wrong(name, "is missing")
        elif isinstance(value, bool) or not isinstance(value, int) or not low <= value < below:
            self.wrong(name, f"must be an integer from {low} to {below - 1}, not {value!r}")
        else:
            return value
        return low

    def number(self, name: str) -> float:
        """A positive finite number."""
        value = self.body.get(name, _MISSING)
        if value is _MISSING:
            self.wrong(name, "is missing")
        elif isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            self.wrong(name, f"must be a positive number, not {value!r}")
        else:
            return float(value)
        return 1.0

    def one_of(self, name: str, *allowed: Any, default: Any = _MISSING) -> Any:
        """A value out of a list; ``default`` stands for a missing member."""
        value = self.body.get(name, default)
        if value is _MISSING:
            self.wrong(name, "is missing")
        elif value not in allowed:
            self.wrong(name, f"must be {' or '.join(repr(one) for one in allowed)}, not {value!r}")
        else:
            return value
        return allowed[0]

    def ids(self, name: str, low: int, below: int) -> dict[str, int]:
        """An object of names (made lower-case) to ids in ``low <= id < below``."""
        value = self.body.get(name)
        if not isinstance(value, Mapping):
            self.wrong(name, "is missing" if value is None else "must be an object")
            return {}
        found: dict[str, int] = {}
        for key, one in value.items():
            if isinstance(one, bool) or not isinstance(one, int) or not low <= one < below:
                self.wrong(f"{name}.{key}", f"must be an integer from {low} to {below - 1}, not {one!r}")
            else:
                found[key.lower()] = one
        return found


def talker_config(body: Mapping[str, Any], *, where: str = "config.json") -> TalkerConfig:
    """Validate the parsed root ``config.json``. Raises ``ConfigError`` with every problem found."""
    problems: list[str] = []
    config = _root(Fields(where, body, problems))
    if problems:
        raise ConfigError(problems)
    return config


def _root(root: Fields) -> TalkerConfig:
    root.one_of("model_type", MODEL_TYPE)
    root.one_of("tokenizer_type", TOKENIZER_TYPE)
    kind = cast("Kind", root.one_of("tts_model_type", *KINDS))
    size = cast("Size", root.one_of("tts_model_size", *SIZES))
    talker = root.part("talker_config")
    predictor = talker.part("code_predictor_config")
    text_vocab = talker.integer("text_vocab_size")
    codec_vocab = talker.integer("vocab_size", CONTROL_IDS + 1)
    codes = predictor.integer("vocab_size")
    for part in (talker, predictor):
        part.one_of("num_code_groups", CODEBOOKS)
    if codec_vocab - CONTROL_IDS != codes:
        talker.wrong("vocab_size", f"must be {CONTROL_IDS} more than the predictor's, not {codec_vocab} and {codes}")

    def control(name: str) -> int:
        return talker.integer(name, codes, max(codec_vocab, codes + 1))

    def text_id(name: str) -> int:
        return root.integer(name, 0, text_vocab)

    languages = talker.ids("codec_language_id", codes, codec_vocab)
    speakers = talker.ids("spk_id", codes, codec_vocab)
    if kind == "custom_voice" and not speakers:
        talker.wrong("spk_id", "names no speaker, but the checkpoint is of the kind custom_voice")
    config = TalkerConfig(
        kind=kind,
        size=size,
        talker=_transformer(talker),
        predictor=_transformer(predictor),
        text_vocab=text_vocab,
        text_hidden=talker.integer("text_hidden_size"),
        codec_vocab=codec_vocab,
        codes=codes,
        codec=CodecIds(
            pad=control("codec_pad_id"),
            bos=control("codec_bos_id"),
            eos=control("codec_eos_token_id"),
            think=control("codec_think_id"),
            nothink=control("codec_nothink_id"),
            think_bos=control("codec_think_bos_id"),
            think_eos=control("codec_think_eos_id"),
        ),
        text=TextIds(
            im_start=text_id("im_start_token_id"),
            im_end=text_id("im_end_token_id"),
            assistant=text_id("assistant_token_id"),
            tts_pad=text_id("tts_pad_token_id"),
            tts_bos=text_id("tts_bos_token_id"),
            tts_eos=text_id("tts_eos_token_id"),
        ),
        languages=languages,
        speakers=speakers,
        dialects=_dialects(talker, speakers, languages),
    )
    scaling = talker.body.get("rope_scaling")
    if scaling is not None:
        _rope_scaling(talker.part("rope_scaling"), config.talker.head_dim)
    predictor.one_of("rope_scaling", None, default=None)
    return config


def _transformer(fields: Fields) -> TransformerConfig:
    fields.one_of("hidden_act", "silu")
    fields.one_of("attention_bias", False, default=False)
    fields.one_of("use_sliding_window", False, default=False)
    config = TransformerConfig(
        hidden=fields.integer("hidden_size"),
        intermediate=fields.integer("intermediate_size"),
        layers=fields.integer("num_hidden_layers"),
        heads=fields.integer("num_attention_heads"),
        kv_heads=fields.integer("num_key_value_heads"),
        head_dim=fields.integer("head_dim", 2),
        eps=fields.number("rms_norm_eps"),
        rope_theta=fields.number("rope_theta"),
        max_positions=fields.integer("max_position_embeddings"),
    )
    if config.heads % config.kv_heads:
        fields.wrong("num_key_value_heads", f"must divide num_attention_heads ({config.heads})")
    if config.head_dim % 2:
        fields.wrong("head_dim", "must be even")
    return config


def _rope_scaling(fields: Fields, head_dim: int) -> None:
    """Three equal position rows make multimodal rope plain rope, whatever the sections are; nothing else is scaled."""
    fields.one_of("rope_type", "default", default="default")
    fields.one_of("type", "default", default="default")
    sections = fields.body.get("mrope_section")
    if sections is not None and (
        not isinstance(sections, list)
        or not all(isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in sections)
        or 2 * sum(sections) != head_dim
    ):
        fields.wrong("mrope_section", f"must sum to half of head_dim ({head_dim}), not {sections!r}")


def _dialects(fields: Fields, speakers: Mapping[str, int], languages: Mapping[str, int]) -> dict[str, str]:
    value = fields.body.get("spk_is_dialect", {})
    if not isinstance(value, Mapping):
        fields.wrong("spk_is_dialect", "must be an object")
        return {}
    found: dict[str, str] = {}
    for key, dialect in value.items():
        if dialect is False:
            continue
        if key.lower() not in speakers:
            fields.wrong(f"spk_is_dialect.{key}", "is no speaker of spk_id")
        elif not isinstance(dialect, str) or dialect.lower() not in languages:
            fields.wrong(f"spk_is_dialect.{key}", f"must be false or a key of codec_language_id, not {dialect!r}")
        else:
            found[key.lower()] = dialect.lower()
    return found
