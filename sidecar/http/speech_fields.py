"""The fields of a speech request (REST body and WebSocket ``session.config``), their types and their rules.

Contract: vLLM-Omni 0.30's Qwen3-TTS endpoints; OpenAI's own rules apply where the model is one of OpenAI's names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import UNSET, Meta, UnsetType

from sidecar.faults import BadRequest, UnsupportedByEngine, UnsupportedLanguage
from sidecar.http.wire import field_fault
from sidecar.ports import Draws, EngineTraits, Utterance
from sidecar.voice_choice import ChosenVoice, VoiceChooser
from voices.anchor import SpeakerAnchor
from voices.seeds import new_dialog_seed, segment_seed

MAX_FRAMES = 4_096
SAMPLE_RATES_HZ = (8_000, 24_000)
MAX_EMBEDDING = 8_192
LARGEST_VALUE = 1e30  # of an embedding's: float32 holds it with room to compute

TaskType = Literal["CustomVoice", "VoiceDesign", "Base"]
Format = Literal["wav", "pcm", "flac", "mp3", "opus", "aac"]
RefAudio = str | list[str] | None
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Speed = Annotated[float, Meta(ge=0.25, le=4.0)]

VOICE_FIELDS = ("voice", "speaker", "task_type", "ref_audio", "ref_text", "x_vector_only_mode", "speaker_embedding")
"""What a request says of its voice."""

LANGUAGES = {
    "chinese": "zh",
    "english": "en",
    "japanese": "ja",
    "korean": "ko",
    "german": "de",
    "french": "fr",
    "russian": "ru",
    "portuguese": "pt",
    "spanish": "es",
    "italian": "it",
}
"""Names of the model's ten languages -> ISO 639-1."""


class VoiceId(msgspec.Struct):
    """OpenAI's object form of a voice."""

    id: str


class SpokenFields(msgspec.Struct, kw_only=True):
    """What REST and WebSocket share."""

    model: str | None = None
    voice: str | VoiceId | None = None
    speaker: str | VoiceId | None = None
    task_type: TaskType | None = None
    language: str | None = None
    instructions: str | None = None
    speed: Speed | None = None
    initial_codec_chunk_frames: Annotated[int, Meta(ge=0)] | None = None
    non_streaming_mode: bool | None = None
    ref_text: str | None = None
    x_vector_only_mode: bool | None = None
    speaker_embedding: list[Any] | None = None
    seed: Int64 | None = None
    word_timestamps: bool = False

    @property
    def voice_name(self) -> str | None:
        """The voice asked for, from whichever member and form."""
        voice = self.voice if self.voice is not None else self.speaker
        return voice.id if isinstance(voice, VoiceId) else voice

    @property
    def draws(self) -> Draws | None:
        """How codes are to be drawn. Raises ``BadRequest``."""
        return None


class SpeechReference(msgspec.Struct):
    """A reference in another form: ``audio_path`` stands for ``ref_audio``, ``text`` for ``ref_text``."""

    audio_path: str
    text: str | None = None


class SpeechBody(SpokenFields, kw_only=True):
    """POST /v1/audio/speech. Unknown members are ignored, and so are those that are for other models.

    Those are the last three.
    """

    input: str
    response_format: Format | UnsetType = UNSET
    sample_rate: Annotated[int, Meta(gt=0)] | None = None
    stream: bool = False
    stream_format: Literal["sse", "audio"] | None = None
    ref_audio: RefAudio = None
    max_new_tokens: Annotated[int, Meta(ge=1, le=MAX_FRAMES)] | None = None
    extra_params: dict[str, Any] | None = None
    references: list[SpeechReference] | None = None
    ref_audio_2: RefAudio = None
    ambient_sound: str | None = None
    duration_seconds: float | None = None
    clean_text: bool | None = None

    @property
    def draws(self) -> Draws | None:
        """What ``extra_params`` say of it; nothing else in there has an effect. Raises ``BadRequest``."""
        return _draws(self.extra_params or {})


class SessionConfig(SpokenFields, kw_only=True):
    """WebSocket ``session.config``. Unknown members are ignored."""

    response_format: Format = "wav"
    ref_audio: str | None = None
    max_new_tokens: Annotated[int, Meta(ge=1)] | None = None
    stream_audio: bool = False
    split_granularity: Literal["none", "sentence", "clause"] = "none"
    split_rules: Literal["vllm", "sidecar"] | None = None
    output_mode: Literal["pcm", "codec_tokens"] = "pcm"
    mode: Literal["segment", "live"] = "segment"


def _draws(params: Mapping[str, Any]) -> Draws | None:
    """``temperature``, ``top_p`` and ``top_k`` (0 or -1: all). Raises ``BadRequest``."""
    asked: dict[str, Any] = {}
    for name, least, most in (("temperature", 0, 10), ("top_p", 0, 1), ("top_k", -1, 2**31)):
        value = params.get(name)
        if value is None:
            continue
        number = isinstance(value, int if name == "top_k" else int | float) and not isinstance(value, bool)
        if not number or not least <= value <= most or (name == "top_p" and value == 0):
            param = f"extra_params.{name}"
            raise BadRequest(f"{param} must be a number from {least} to {most}.", param=param)
        asked[name] = max(0, value)
    return Draws(**asked) if asked else None


def convert_body(value: Mapping[str, Any], prefix: str = "body") -> SpeechBody:
    """Raises ``BadRequest`` naming the field, behind ``prefix`` and a dot."""
    try:
        return msgspec.convert(value, SpeechBody)
    except msgspec.ValidationError as error:
        raise field_fault(error, prefix) from None
    except UnicodeEncodeError:
        raise BadRequest("The request holds text that is not valid Unicode.") from None


def convert_config(value: Mapping[str, Any]) -> SessionConfig:
    """Types and the rules that are checked at config time. Raises ``BadRequest``."""
    try:
        config = msgspec.convert(value, SessionConfig)
    except msgspec.ValidationError as error:
        raise field_fault(error, "session.config") from None
    except UnicodeEncodeError:
        raise BadRequest("The message holds text that is not valid Unicode.") from None
    if config.stream_audio and config.response_format != "pcm":
        raise BadRequest("stream_audio needs response_format 'pcm'.", param="response_format")
    if config.stream_audio and (config.speed or 1.0) != 1.0:
        raise BadRequest("stream_audio needs speed 1.0.", param="speed")
    if config.output_mode == "codec_tokens" and not (config.stream_audio and config.response_format == "pcm"):
        raise BadRequest("output_mode 'codec_tokens' needs stream_audio and pcm.", param="output_mode")
    if config.mode == "live" and not (config.stream_audio and config.output_mode == "pcm"):
        raise BadRequest("mode 'live' needs stream_audio and output_mode 'pcm'.", param="mode")
    if config.mode == "live" and config.word_timestamps:
        raise BadRequest("mode 'live' has no word_timestamps.", param="word_timestamps")
    if config.output_mode == "codec_tokens" and config.word_timestamps:
        raise BadRequest("output_mode 'codec_tokens' has no word_timestamps.", param="word_timestamps")
    if config.speaker_embedding is not None and _count(config.speaker_embedding) > MAX_EMBEDDING:
        raise BadRequest(f"speaker_embedding has more than {MAX_EMBEDDING} elements.", param="speaker_embedding")
    return config


@dataclass(frozen=True, slots=True)
class SpeechRules:
    """What this server allows a speech request. First ``check``, then ``choose``, then ``utterance``."""

    traits: EngineTraits
    chooser: VoiceChooser
    max_input_chars: int
    max_instructions_chars: int

    def check(self, fields: SpokenFields, text: str, ref_audio: RefAudio, max_frames: int | None) -> None:
        """All that can be told without knowing the voice. Raises ``BadRequest`` and its kinds."""
        self._check_task(fields, ref_audio)
        if not text.strip():
            raise BadRequest("Input text cannot be empty.", param="input")
        if len(text) > self.max_input_chars:
            raise BadRequest(f"The input is longer than {self.max_input_chars} characters.", param="input")
        if max_frames is not None and max_frames > MAX_FRAMES:
            raise BadRequest(f"max_new_tokens is at most {MAX_FRAMES}.", param="max_new_tokens")
        if len(fields.instructions or "") > self.max_instructions_chars:
            raise BadRequest(
                f"instructions are longer than {self.max_instructions_chars} characters.", param="instructions"
            )
        iso_language(fields.language)

    async def choose(self, fields: SpokenFields, ref_audio: RefAudio, tenant: str) -> ChosenVoice:
        """The voice of a checked request: its vector, its recording, or the one it names, in this order.

        Raises what ``VoiceChooser`` raises, ``BadRequest`` where the fields do not go with the voice.
        """
        if fields.speaker_embedding is not None:
            return ChosenVoice("", vector_anchor(fields.speaker_embedding, self.traits.clone_widths))
        vector_only = bool(fields.x_vector_only_mode)
        if ref_audio is not None:
            source = ref_audio[0] if isinstance(ref_audio, list) else ref_audio
            return await self.chooser.recorded(tenant, source, None if vector_only else fields.ref_text)
        chosen = await self.chooser.named(tenant, fields.voice_name, vector_only=vector_only, said=fields.ref_text)
        if chosen.anchor is None:
            self._check_able(fields.task_type or self.traits.tasks[0])
            if fields.ref_text is not None:
                raise BadRequest("ref_text needs ref_audio or a stored voice.", param="ref_audio")
            if fields.x_vector_only_mode is not None:
                raise BadRequest("x_vector_only_mode needs task_type 'Base'.", param="x_vector_only_mode")
            if fields.task_type == "Base":
                raise BadRequest(
                    "task_type 'Base' needs ref_audio, a speaker_embedding or a stored voice.", param="task_type"
                )
        return chosen

    def utterance(
        self,
        fields: SpokenFields,
        text: str,
        chosen: ChosenVoice,
        max_frames: int | None,
        place: tuple[int, int] = (0, 0),
    ) -> Utterance:
        """The utterance for one unit of a checked text, at ``place`` (reply, segment) of its dialog.

        Without a seed in the request a stored voice has the one derived from its own; others get a new one.
        """
        seed = fields.seed
        if seed is None:
            seed = new_dialog_seed() if chosen.seed is None else segment_seed(chosen.seed, *place)
        return Utterance(
            text=text,
            voice=chosen.voice,
            seed=seed,
            language=iso_language(fields.language) or chosen.language or None,
            instructions=fields.instructions or "",
            max_frames=max_frames,
            first_chunk_frames=fields.initial_codec_chunk_frames or None,
            anchor=chosen.anchor,
            whole_text=fields.non_streaming_mode,
            draws=fields.draws,
        )

    def _may_be_stored(self, fields: SpokenFields) -> bool:
        """The voice may be a stored one, for which the task is Base, whatever the request says."""
        name = (fields.voice_name or "").strip().lower()
        return bool(self.traits.clone_widths and name) and name not in {voice.name for voice in self.traits.voices}

    def _check_able(self, task: str) -> None:
        if task in self.traits.tasks or (task == "Base" and self.traits.clone_widths):
            return
        raise UnsupportedByEngine(
            f"The engine '{self.traits.name}' does not support task_type='{task}', only {self.traits.tasks[0]}.",
            param="task_type",
        )

    def _check_task(self, fields: SpokenFields, ref_audio: RefAudio) -> None:
        """The rules that tie cloning fields to the task type."""
        cloning = ref_audio is not None or fields.ref_text is not None or fields.speaker_embedding is not None
        own = self.traits.tasks[0]
        task = fields.task_type or ("Base" if cloning else own)
        if fields.speaker_embedding is not None:
            vector_anchor(fields.speaker_embedding, self.traits.clone_widths)
            if ref_audio is not None:
                raise BadRequest("speaker_embedding and ref_audio exclude each other.", param="speaker_embedding")
        if task != "Base" and cloning:
            raise BadRequest(f"Reference fields need task_type 'Base', not '{task}'.", param="task_type")
        if task == "VoiceDesign" and not fields.instructions:
            raise BadRequest("VoiceDesign needs instructions.", param="instructions")
        if not (task != "Base" and self._may_be_stored(fields)):
            self._check_able(task)
        if ref_audio is not None and not (fields.ref_text or "").strip() and not fields.x_vector_only_mode:
            raise BadRequest("ref_audio needs ref_text, or x_vector_only_mode.", param="ref_text")


def iso_language(name: str | None) -> str | None:
    """A language by its English name (any case) or ISO code; None for Auto. Raises ``UnsupportedLanguage``."""
    if name is None or name.strip().lower() in ("", "auto"):
        return None
    key = name.strip().lower()
    if key in LANGUAGES:
        return LANGUAGES[key]
    code = key.replace("_", "-").split("-")[0]
    if len(code) == 2 and code.isascii() and code.isalpha():
        return code
    raise UnsupportedLanguage(
        f"Unknown language '{name[:40]}'; known are Auto, {', '.join(n.title() for n in LANGUAGES)} and ISO codes.",
        param="language",
    )


def _count(vector: list[Any]) -> int:
    return sum(len(x) if isinstance(x, list) else 1 for x in vector)


def _flat(vector: list[Any]) -> list[Any]:
    """The numbers of an embedding, which may come as a list within a list."""
    return vector[0] if len(vector) == 1 and isinstance(vector[0], list) else vector


def vector_anchor(given: Any, widths: tuple[int, ...], param: str = "speaker_embedding") -> SpeakerAnchor:
    """The anchor of an embedding as JSON has it, of one of ``widths`` (none: of any). Raises ``BadRequest``."""
    vector = _flat(given) if isinstance(given, list) else []
    numbers = [x for x in vector if isinstance(x, int | float) and not isinstance(x, bool)]
    if not vector or len(numbers) != len(vector) or not all(abs(number) < LARGEST_VALUE for number in numbers):
        raise BadRequest(f"{param} must be a list of finite numbers.", param=param)
    if len(vector) > MAX_EMBEDDING:
        raise BadRequest(f"{param} has more than {MAX_EMBEDDING} elements.", param=param)
    if widths and len(vector) not in widths:
        expected = " or ".join(map(str, widths))
        raise BadRequest(f"{param} has {len(vector)} elements; {expected} are needed.", param=param)
    try:
        return SpeakerAnchor(np.array(numbers, np.float32))
    except ValueError as error:
        raise BadRequest(f"{param}: {error}.", param=param) from None
