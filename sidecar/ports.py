"""What the sidecar needs from outside: five small ports.

Each port has one contract test suite under ``tests/contract`` that every adapter passes, and at least one
implementation that ships. Adapters raise only ``sidecar.faults``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from voices.anchor import SpeakerAnchor
from voices.carry import Carry

Pcm = NDArray[np.float32]
"""Mono samples in [-1, 1], shape ``(samples,)`` float32."""

SAMPLE_RATE_HZ = 24_000
"""Every engine delivers this rate."""

FRAME_SAMPLES = 1_920
"""Samples of one codec frame (80 ms): the unit in which output is counted."""

Codes = NDArray[np.int16]
"""Codec frames, shape ``(frames, 16)`` int16."""

Output = Literal["pcm", "codes", "both"]
"""What an engine gives of an utterance."""

MAX_UNREAD_CHARS = 16_384
"""Characters of a live text that may wait for the engine to read them."""

MAX_LIVE_CHARS = 262_144
"""Characters of a whole live text."""

MAX_CLIP_S = 60.0
"""The longest recording of a voice that is encoded."""


# ---------------------------------------------------------------- Engine
@dataclass(frozen=True, slots=True)
class EngineVoice:
    """A voice that the engine brings along. ``name`` is lower case; ``languages`` are ISO 639-1 codes."""

    name: str
    languages: tuple[str, ...]
    description: str = ""


@dataclass(frozen=True, slots=True)
class EngineTraits:
    """What an engine can do. The sidecar asks these, never the engine's class.

    ``clone_widths``: widths of the speaker embeddings it takes as an anchor (none: no anchors); ``anchor_codes``: an
    anchor's reference codes have an effect too. ``live_text``: takes texts that are still coming. ``codes_out``: gives
    the codec frames beside or instead of samples. ``carry``: what was said before shapes what is said now.
    ``tasks``, as Qwen3-TTS names them: ``CustomVoice`` (voices of its own), ``Base`` (clones), ``VoiceDesign``.
    """

    name: str
    voices: tuple[EngineVoice, ...]
    default_voice: str
    languages: tuple[str, ...]
    max_rows: int
    deterministic: bool
    clone_widths: tuple[int, ...] = ()
    live_text: bool = False
    codes_out: bool = False
    carry: bool = False
    instructions: bool = False
    tasks: tuple[str, ...] = ("CustomVoice",)
    more_voices: str = ""
    """A sentence on how to get more voices, for error messages."""
    anchor_codes: bool = False
    pcm_out: bool = True
    """False where no decoder was loaded: only codec frames can be asked for."""
    codec_id: str = ""
    """Names the weights of the decoder that its codec frames are for: equal ids, equal sound."""
    encodes: bool = True
    """Where it takes anchors: makes them of recordings too."""


@dataclass(frozen=True, slots=True)
class Draws:
    """How an engine that samples is to draw; None: as it would by itself. ``temperature`` 0 takes the most likely."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None


@dataclass(frozen=True, slots=True)
class Utterance:
    """What an engine is asked to say.

    ``voice`` is one of the engine's voices; ``anchor`` takes its place, its embedding in one of ``clone_widths`` (its
    codes are left out by engines without ``anchor_codes``). ``carry`` is what the voice has said just before: context
    that is not heard again (left out by engines without the trait). ``language`` is an ISO 639-1 code, or None to
    detect it from the text. ``max_frames`` caps the audio length (frames of 80 ms). ``output``: samples, codec frames
    or both. ``live``: ``text``, perhaps empty, is only the beginning; ``Speaking.append`` and ``finish`` follow.
    ``whole_text``: the engine reads the text before it speaks (True) or along with it, None as it prefers; ``draws``
    and ``whole_text`` are left out by engines that have no such choice.

    Same utterance, same engine build: same codes, and same samples (up to float rounding, about 1e-5, where a decoder
    groups its frames by the time they are there), however the text of a live one arrives. A live text may sound unlike
    the same text given whole.
    """

    text: str
    voice: str
    seed: int
    language: str | None = None
    instructions: str = ""
    max_frames: int | None = None
    first_chunk_frames: int | None = None
    anchor: SpeakerAnchor | None = None
    carry: Carry | None = None
    output: Output = "pcm"
    live: bool = False
    whole_text: bool | None = None
    draws: Draws | None = None


@dataclass(frozen=True, slots=True)
class AudioChunk:
    """What leaves the engine: ``pcm`` at 24 kHz, whose first sample has index ``first_sample``.

    ``codes (frames, 16)`` are there if asked for; where only they are, ``pcm`` is empty and ``first_sample`` counts
    1,920 samples for each frame all the same. ``text_chars``: characters of the utterance's text that the engine had
    taken in when the chunk's last frame was made. Nothing of the text behind them can have sounded by then, which
    gives word times a bound; never falls from chunk to chunk. None where the engine cannot tell.
    """

    pcm: Pcm
    first_sample: int
    codes: Codes | None = None
    text_chars: int | None = None

    @property
    def samples(self) -> int:
        """Samples that the chunk stands for, in ``pcm`` or as codes."""
        return len(self.pcm) or (0 if self.codes is None else len(self.codes) * FRAME_SAMPLES)


class Speaking(Protocol):
    """One utterance being spoken. Holds an engine row until its chunks end or it is cancelled."""

    @property
    def language(self) -> str:
        """The language (ISO 639-1) it is spoken in, detected if none was given."""

    @property
    def text_tokens(self) -> int:
        """Number of text tokens the engine counts for this utterance; of a live one, those known so far."""

    def append(self, text: str) -> None:
        """More of a live text. Never waits; without effect once the utterance is over.

        Raises ``TooLarge``, taking nothing, when more than ``MAX_UNREAD_CHARS`` would wait to be read or the text
        become longer than ``MAX_LIVE_CHARS``; ``RuntimeError`` when the utterance is not live or finished.
        """

    def finish(self) -> None:
        """The live text is complete. Never waits, idempotent. Raises ``RuntimeError`` when it is not live."""

    def chunks(self) -> AsyncIterator[AudioChunk]:
        """Yield chunks in order, without gaps; to be iterated once. At least one non-empty chunk or a fault.

        Raises ``EngineFault``; ``BadRequest`` when a live text ends with nothing to say, ``TooLarge``, after all its
        chunks, when it has outgrown what the engine can say in one utterance. A reader that does not ask for the next
        chunk pauses the row.
        """

    def cancel(self) -> None:
        """Free the row within one chunk; ``chunks`` ends without a fault. Idempotent, never waits."""


@dataclass(frozen=True, slots=True)
class EngineHealth:
    """``ok`` is False with a short safe ``reason`` when nothing can be spoken."""

    ok: bool
    reason: str = ""
    active_rows: int = 0


class Engine(Protocol):
    """A speech engine: text in, 24 kHz PCM out."""

    @property
    def traits(self) -> EngineTraits:
        """Fixed after ``start``."""

    async def start(self) -> None:
        """Load what is needed; raises ``EngineFault`` with a way out when that cannot be done."""

    async def open(self, utterance: Utterance) -> Speaking:
        """Begin to speak. Waits (bounded) for a free row.

        Raises ``UnknownVoice``, ``UnsupportedLanguage``, ``UnsupportedByEngine`` (a trait is missing), ``BadRequest``
        (an anchor or carry of the wrong form, a text that cannot be said), ``TooLarge`` (a live text that begins with
        more than may wait), ``EngineOverloaded``, ``EngineLost``, ``EngineFault``.
        """

    async def encode_voice(self, pcm: Pcm, transcript: str | None) -> SpeakerAnchor:
        """The speaker of a recording at 24 kHz, of a width this engine takes; speech goes on meanwhile.

        With a ``transcript`` that is not blank, and the trait ``anchor_codes``, also the recording's codes. The same
        recording gives the same anchor. Raises ``BadRequest`` with ``param`` ``ref_audio`` (samples that are no sound,
        too short, longer than ``MAX_CLIP_S``, or than anchors hold codes for) or ``ref_text`` (too long),
        ``UnsupportedByEngine`` when the engine takes no anchors, ``EngineOverloaded``, ``EngineLost``, ``EngineFault``.
        """

    async def health(self) -> EngineHealth:
        """Cheap; never raises."""

    async def close(self) -> None:
        """Free everything. Utterances still speaking end with ``EngineLost``. Idempotent."""


# ---------------------------------------------------------------- LanguageModel
@dataclass(frozen=True, slots=True)
class ChatOpened:
    """First event of a chat stream: what the upstream says of the whole answer."""

    id: str
    model: str
    created: int
    system_fingerprint: str | None = None


@dataclass(frozen=True, slots=True)
class ChatDelta:
    """One piece of one choice.

    ``text`` is to be shown and spoken, ``refusal`` likewise. ``other`` holds the members of the delta that pass
    through to the client untouched and are never spoken (``reasoning_content``, ``tool_calls``, ...).
    """

    choice: int = 0
    text: str = ""
    refusal: str = ""
    other: Mapping[str, Any] = field(default_factory=dict)
    finish_reason: str | None = None
    logprobs: Any = None


@dataclass(frozen=True, slots=True)
class ChatUsage:
    """The upstream's usage object (``prompt_tokens``, ``completion_tokens``, details)."""

    body: Mapping[str, Any]


ChatEvent = ChatOpened | ChatDelta | ChatUsage


class ChatStream(Protocol):
    """An answer being written. ``ChatOpened`` comes first; the stream ends when the upstream finished.

    Iteration raises ``UpstreamBroken`` (cut, unreadable, an error event) or ``UpstreamTimeout`` after everything
    that arrived before has been yielded.
    """

    headers: Mapping[str, str]

    def __aiter__(self) -> AsyncIterator[ChatEvent]: ...

    async def aclose(self) -> None:
        """Stop the upstream at once (closes the connection). Idempotent."""


class RawAnswer(Protocol):
    """An upstream's answer passed through byte for byte, whatever its status."""

    status: int
    headers: Mapping[str, str]

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    async def aclose(self) -> None:
        """Stop reading and close the connection. Idempotent."""


class LanguageModel(Protocol):
    """An OpenAI-compatible language model."""

    async def stream(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> ChatStream:
        """POST /chat/completions with ``stream: true``; returns once the upstream's status is known to be good.

        ``body`` carries no ``audio`` or ``modalities`` any more. ``headers`` are the few request headers that may
        travel on. Raises ``UpstreamRefused``, ``UpstreamUnreachable``, ``UpstreamTimeout``.
        """

    async def forward(self, path: str, body: bytes | None, headers: Mapping[str, str]) -> RawAnswer:
        """Pass a request through: POST ``body`` to ``path`` (such as ``/chat/completions``), or GET if None.

        Raises ``UpstreamUnreachable``, ``UpstreamTimeout``; an error status is an answer, not a fault.
        """

    async def models(self) -> Sequence[Mapping[str, Any]]:
        """The upstream's model cards; raises ``UpstreamFault``."""

    async def close(self) -> None:
        """Close pooled connections. Idempotent."""


# ---------------------------------------------------------------- Store
@dataclass(frozen=True, slots=True)
class Stored:
    """A value with the version that ``swap`` compares (1 for the first write of a key, then counting up)."""

    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Invalidation:
    """Somebody changed or deleted this key."""

    tenant: str
    kind: str
    key: str


class Store(Protocol):
    """Small records, each under (tenant, kind, key); there is no call without a tenant.

    Every method raises ``StoreUnavailable`` when the store does not answer. Times to live count by the store's
    own clock; an expired record is absent. A record that was damaged in the store reads, and is listed, with an empty
    value, and with version 0 if its version is damaged too; it can be deleted, put, and swapped for that version.
    """

    @property
    def answers(self) -> bool:
        """False while it is known to be away, not open or closed. Cheap; never raises."""

    async def start(self) -> None:
        """Open or connect."""

    async def get(self, tenant: str, kind: str, key: str) -> Stored | None:
        """The record, or None."""

    async def put(self, tenant: str, kind: str, key: str, value: bytes, ttl_s: float | None = None) -> int:
        """Write unconditionally; returns the new version.

        0 from a store that is away and keeps the write, to make it as soon as it is back.
        """

    async def swap(
        self, tenant: str, kind: str, key: str, value: bytes, expected: int | None, ttl_s: float | None = None
    ) -> int:
        """Write only if the version is still ``expected`` (None: the key is absent); else raises ``Conflict``."""

    async def delete(self, tenant: str, kind: str, key: str) -> bool:
        """True if there was something to delete."""

    async def keys(self, tenant: str, kind: str) -> Sequence[str]:
        """All living keys, sorted."""

    async def heads(self, tenant: str, kind: str, head_bytes: int) -> Sequence[tuple[str, Stored]]:
        """All living records with their keys, sorted by key; each value is cut to its first ``head_bytes``."""

    def changes(self) -> AsyncIterator[Invalidation]:
        """Puts, swaps and deletes from now on (bounded: a reader that lags loses the oldest)."""

    async def close(self) -> None:
        """Idempotent."""


# ---------------------------------------------------------------- AudioCodec
class AudioEncoder(Protocol):
    """One audio file or stream being encoded. Not thread-safe."""

    @property
    def media_type(self) -> str:
        """Such as ``audio/mpeg``."""

    def feed(self, pcm: Pcm) -> bytes:
        """Encode more samples; returns the bytes that are ready (perhaps none)."""

    def finish(self) -> bytes:
        """The rest of the file. Nothing may be fed afterwards."""


class AudioCodec(Protocol):
    """Makes encoders; knows the formats wav, pcm, mp3, opus (in Ogg), flac, aac (ADTS)."""

    formats: tuple[str, ...]

    def start(
        self, format: str, *, rate_hz: int = SAMPLE_RATE_HZ, streaming: bool = False, speed: float = 1.0
    ) -> AudioEncoder:
        """An encoder fed with 24 kHz samples that writes ``rate_hz``, stretched in time by ``1 / speed``.

        ``streaming``: every byte can be sent when it is ready; a WAV then has 0xFFFFFFFF for its sizes. Otherwise
        the bytes together are a complete file with true sizes. Raises ``UnsupportedFormat``.
        """


# ---------------------------------------------------------------- ClipReader
class ClipReader(Protocol):
    """Recordings of voices as users send them: files of any usual format, or words that say where one is."""

    async def read(self, data: bytes, param: str) -> Pcm:
        """A file as 24 kHz mono. Raises ``TooLarge``, ``BadRequest`` (with ``param``), ``TooBusy``."""

    async def load(self, source: str, param: str) -> Pcm:
        """The same from a data URL, bare base64, or (where allowed) an https URL.

        Raises what ``read`` raises; ``BadRequest`` for other schemes and for what cannot be fetched.
        """


# ---------------------------------------------------------------- Clock
class Clock(Protocol):
    """Time, so that tests can own it."""

    def now_ms(self) -> float:
        """Monotonic milliseconds."""

    def unix_s(self) -> float:
        """Wall-clock seconds since 1970."""

    async def sleep(self, ms: float) -> None:
        """Sleep that long."""
