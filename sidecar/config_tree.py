"""The settings themselves: one frozen dataclass per section, every field with its limits and a sentence of help.

Durations carry ``_s`` or ``_ms`` in their names, sizes ``_bytes`` or ``_chars``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from sidecar.redaction import Secret, SecretUrl

T = TypeVar("T")

MIB = 1 << 20
KIB = 1 << 10

OPENAI_VOICES = (
    "alloy",
    "ash",
    "ballad",
    "coral",
    "echo",
    "fable",
    "nova",
    "onyx",
    "sage",
    "shimmer",
    "verse",
    "marin",
    "cedar",
)
"""The voice names that OpenAI clients send; each is an alias here."""


def setting(default: T, doc: str, low: float | None = None, high: float | None = None) -> T:
    """A dataclass field with a default, a sentence of help, and for numbers their inclusive range.

    Typed as the default it stands for, so that the annotation of the field is checked against it.
    """
    made: Any = field(default=default, metadata={"doc": doc, "low": low, "high": high})
    return made  # type: ignore[no-any-return]


def _default_aliases() -> Mapping[str, str]:
    return MappingProxyType(dict.fromkeys(OPENAI_VOICES, "default"))


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Listening, limits of connections, logging."""

    host: str = setting("127.0.0.1", "Address to listen on.")
    port: int = setting(8800, "Port to listen on; 0 picks a free one.", 0, 65_535)
    insecure: bool = setting(False, "Allow a host other than loopback without auth.api_keys.")
    shutdown_grace_s: float = setting(30.0, "How long speaking replies may finish after SIGTERM.", 0, 3_600)
    cors_origins: tuple[str, ...] = setting((), "Origins of browser pages that may call, or *.")
    max_body_bytes: int = setting(32 * MIB, "Largest request body.", KIB, 1 << 30)
    body_timeout_s: float = setting(30.0, "How long a request body may take to arrive.", 0.1, 3_600)
    keep_alive_comment_s: float = setting(15.0, "Pause after which an event stream gets a comment.", 0.1, 3_600)
    slow_consumer_s: float = setting(10.0, "How long a client may take no audio before it is cut off.", 0.1, 3_600)
    max_replies: int = setting(256, "Replies that may speak at once.", 1, 100_000)
    queue_replies: int = setting(64, "Replies that may wait for a place.", 0, 100_000)
    queue_wait_ms: int = setting(2_000, "How long a reply may wait for a place.", 0, 600_000)
    log_level: Literal["debug", "info", "warning", "error"] = setting("info", "Least important log level shown.")
    log_texts: bool = setting(False, "Show texts and transcripts in logs, at level debug only.")


@dataclass(frozen=True, slots=True)
class AuthConfig:
    """Who may call."""

    api_keys: tuple[Secret, ...] = setting(
        (),
        "API keys, each `key` or `tenant:key` (without tenant: `local`), with extra scopes as "
        "`tenant+voices:export+admin:key`. Empty: everybody is tenant `local`.",
    )
    open_lists: bool = setting(True, "Answer the lists of voices and models without a key.")


@dataclass(frozen=True, slots=True)
class LlmConfig:
    """The language model behind the chat endpoint."""

    kind: Literal["auto", "openai", "scripted"] = setting(
        "auto", "Which language model; auto is openai if llm.url is set, else scripted."
    )
    url: str | None = setting(None, "Base URL of an OpenAI-compatible server, such as http://127.0.0.1:8000/v1.")
    api_key: Secret | None = setting(None, "Bearer key for the upstream.")  # noqa: RUF009
    forward_client_key: bool = setting(False, "Send the client's own Authorization header to the upstream.")
    first_token_timeout_s: float = setting(30.0, "How long the first token may take.", 0.1, 3_600)
    idle_timeout_s: float = setting(10.0, "How long the upstream may pause in mid-answer.", 0.1, 3_600)
    connect_timeout_s: float = setting(5.0, "How long connecting to the upstream may take.", 0.1, 600)
    starts_in_think: bool = setting(False, "Answers begin inside a <think> block whose opening tag is not sent.")
    scripted_tokens_per_s: float = setting(20.0, "Pace of the scripted model.", 0.1, 100_000)
    scripted_first_token_ms: int = setting(150, "Delay of the scripted model's first token.", 0, 600_000)


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """The speech engine."""

    kind: Literal["auto", "builtin", "omni", "qwen3_tts", "tone"] = setting(
        "auto",
        "Which engine speaks; auto is omni if engine.urls is set, else qwen3_tts if there is a checkpoint, else "
        "builtin.",
    )
    checkpoint: str | None = setting(
        None,
        "Qwen3-TTS checkpoint: a folder or hub id; unset takes what `sidecar pull` fetched last. For the engine omni: "
        "its decoder turns the servers' codec tokens into sound here.",
    )
    urls: tuple[str, ...] = setting(
        (), "Engine omni: speech servers (vLLM-Omni, other sidecars, ...), such as http://127.0.0.1:8091."
    )
    server_key: Secret | None = setting(None, "Engine omni: bearer key for the speech servers.")  # noqa: RUF009
    server_model: str | None = setting(None, "Engine omni: model that the speech servers are asked for.")
    server_voices: tuple[str, ...] = setting((), "Engine omni: voices of servers that do not list theirs.")
    server_wait_s: float = setting(15.0, "Engine omni: how long speech waits while all servers are away.", 0, 600)
    deterministic: Literal["auto", "yes", "no"] = setting(
        "auto",
        "Engine omni: whether a server says the same again for the same seed, so that another one can go on in "
        "mid-passage; auto believes what servers say of themselves, which only sidecars do.",
    )
    device: str = setting(
        "auto", "Qwen3-TTS: device of the talker, such as cpu or cuda:0; auto is a GPU if there is one."
    )
    decoder_device: str | None = setting(
        None, "Qwen3-TTS: device of the decoder; unset is that of the talker, `none` loads none (codec tokens only)."
    )
    precision: Literal["auto", "float32", "bfloat16", "int8"] = setting(
        "auto", "Qwen3-TTS: precision of the talker; auto is bfloat16 on a GPU, else float32."
    )
    memory_budget: str | None = setting(
        None,
        "Qwen3-TTS: memory it keeps to, such as 6GB or 0.25 of the device's; unset takes most of what a GPU has free.",
    )
    max_positions: int = setting(2_048, "Qwen3-TTS: prompt positions and frames of one utterance.", 64, 32_768)
    threads: int = setting(2, "CPU threads of the engine.", 1, 1_024)
    tone_realtime_factor: float = setting(
        0.0, "Tone engine: seconds of work per second of audio; 0 is as fast as it can.", 0, 100
    )
    tone_first_chunk_delay_ms: int = setting(0, "Tone engine: delay of an utterance's first chunk.", 0, 600_000)
    tone_fault: Literal["none", "open", "first_chunk", "mid", "hang", "silence", "nan", "endless"] = setting(
        "none", "Tone engine: how it fails, for tests of clients."
    )
    tone_fault_every: int = setting(1, "Tone engine: which utterances fail, every n-th.", 1, 1_000_000)
    max_rows: int = setting(64, "Utterances the engine speaks at once.", 1, 4_096)
    row_wait_ms: int = setting(2_000, "How long an utterance may wait for a row.", 0, 600_000)
    chunk_timeout_s: float = setting(
        60.0, "How long an engine may take for a chunk before it counts as lost.", 0.1, 600
    )
    warm_up: bool = setting(True, "Speak once before the server says it is ready.")


@dataclass(frozen=True, slots=True)
class VoicesConfig:
    """Names of voices, and voices that users store."""

    default: str | None = setting(
        None, "Voice of requests that name none, perhaps a stored one; unset is the engine's default."
    )
    aliases: Mapping[str, str] = field(
        default_factory=_default_aliases,
        metadata={"doc": "Other names of voices; entries are merged over the 13 names of OpenAI's voices."},
    )
    max_stored: int = setting(1_000, "Voices that a tenant may store.", 0, 100_000)
    carry: bool = setting(
        True, "A segment goes on from the last seconds of the one before, on engines that can (mood, pitch, pace)."
    )
    shape_pauses: bool = setting(
        True, "Chat replies: trim the engine's silence and make pauses by punctuation; off adds pauses to it."
    )
    target_level_db: float | None = setting(
        None, "Chat replies: speech level in dBFS that stored voices of known level are brought to, by 3 dB at most."
    )
    drift: Literal["off", "watch", "guard"] = setting(
        "watch",
        "Listen for drift of a chat's voice: report it, or speak what nobody has heard yet again (guard).",
    )
    fetch_recordings: bool = setting(False, "Fetch ref_audio from https addresses (public ones only).")
    list_as: Literal["names", "objects"] = setting(
        "names", "What `voices` holds in the list of voices: names, or objects with id and name as Open WebUI reads."
    )


@dataclass(frozen=True, slots=True)
class SpeechConfig:
    """Requests to speak a given text."""

    models: tuple[str, ...] = setting(("sidecar-tts",), "Model ids that are served, the main one first.")
    openai_models: tuple[str, ...] = setting(
        ("tts-1", "tts-1-hd", "gpt-4o-mini-tts"), "Model ids that are accepted too and select OpenAI's rules."
    )
    max_input_chars: int = setting(20_000, "Longest text of a request.", 1, 10_000_000)
    max_instructions_chars: int = setting(500, "Longest instructions of a request.", 0, 1_000_000)
    clean_text: bool = setting(False, "Speak Markdown, links and code as words instead of letter by letter.")


@dataclass(frozen=True, slots=True)
class ChatConfig:
    """Chat answers that are spoken while they are written."""

    dialog_ttl_s: float = setting(
        3_600.0, "How long a spoken answer can be referred to by its audio id.", 1, 31_536_000
    )
    mirror_content: bool = setting(False, "Send the text as content as well as as audio transcript.")
    granularity: Literal["sentence", "clause"] = setting("sentence", "Where segments end.")
    first_by_clause: bool = setting(True, "The first segment of a reply may end at a clause, to be heard sooner.")
    join_short: bool = setting(True, "Very short sentences are said with the next one, where nobody waits for them.")
    verbalise: bool = setting(False, "Numbers, dates, units and the like are said as words, in ten languages.")
    max_segment_chars: int = setting(300, "Longest segment.", 40, 4_000)
    ahead_segments: int = setting(2, "Segments the engine may work ahead of the one that sounds.", 0, 64)
    unspoken_chars: int = setting(
        2_000, "Text that may wait to be spoken before the upstream is paused.", 20, 1_000_000
    )
    max_reply_chars: int = setting(65_536, "Longest reply; what is beyond it is not spoken.", 20, 10_000_000)
    idle_flush_ms: int = setting(400, "Pause of the upstream after which a fragment is spoken.", 0, 60_000)
    mode: Literal["segment", "live"] = setting(
        "segment", "How replies are spoken: sentence by sentence, or from the first word on, on engines that can."
    )
    voice_modes: Mapping[str, str] = field(
        default_factory=dict,
        metadata={
            "doc": 'The same for single voices, such as `{ anna = "live" }`; a request\'s own wish counts first.'
        },
    )
    live_low_tokens: int = setting(8, "Live: the engine gets more text when less lies ahead of it.", 0, 1_000)
    live_high_tokens: int = setting(24, "Live: the most text that lies ahead of the engine.", 1, 4_000)
    live_roll_tokens: int = setting(240, "Live: text after which another generation takes over.", 1, 32_768)
    live_roll_s: float = setting(60.0, "Live: sound after which another generation takes over.", 1, 600)
    live_paragraph_tokens: int = setting(60, "Live: text after which one takes over at a paragraph.", 1, 32_768)
    live_settle_ms: int = setting(700, "Live: pause of the upstream that finishes a whole sentence.", 0, 60_000)
    live_stall_ms: int = setting(
        8_000, "Live: pause of the upstream after which an unfinished sentence is ended.", 0, 600_000
    )


@dataclass(frozen=True, slots=True)
class StreamConfig:
    """The WebSocket that takes text and returns audio."""

    config_timeout_s: float = setting(10.0, "How long the first session.config may take.", 0.1, 3_600)
    idle_timeout_s: float = setting(30.0, "How long an idle socket stays open.", 0.1, 86_400)
    max_config_chars: int = setting(4 * MIB, "Longest session.config message.", KIB, 1 << 28)
    max_message_chars: int = setting(128 * KIB, "Longest message of any other type.", KIB, 1 << 28)
    max_buffered_chars: int = setting(MIB, "Text of one utterance that may be buffered.", KIB, 1 << 28)
    max_queued_utterances: int = setting(256, "Utterances that may wait to be spoken.", 1, 100_000)
    max_sockets: int = setting(4_096, "Sockets that may be open at once.", 1, 1_000_000)
    split_rules: Literal["vllm", "sidecar"] = setting("vllm", "Whose rules split text into units.")


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """Where voices and dialogs are kept."""

    url: SecretUrl = setting(  # noqa: RUF009
        SecretUrl("local:"),
        "`local:` (a file in the user's data folder), `local:/path/file.db`, `memory:`, or what several instances "
        "share: `redis://[user:password@]host[:port][/database]`, also `rediss://`, `redis+sentinel://`, "
        "`redis+cluster://` and `unix://`.",
    )
    required: bool = setting(False, "Neither start nor be ready while the store does not answer.")
    prefix: str = setting("sidecar", "Redis: what every key begins with.")
    timeout_ms: int = setting(150, "Redis: how long a call may take before speech goes on without it.", 1, 60_000)


@dataclass(frozen=True, slots=True)
class Config:
    """Everything that can be set. The defaults are a working server."""

    server: ServerConfig = field(default_factory=ServerConfig)
    auth: AuthConfig = field(default_factory=AuthConfig)
    llm: LlmConfig = field(default_factory=LlmConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    voices: VoicesConfig = field(default_factory=VoicesConfig)
    speech: SpeechConfig = field(default_factory=SpeechConfig)
    chat: ChatConfig = field(default_factory=ChatConfig)
    stream: StreamConfig = field(default_factory=StreamConfig)
    store: StoreConfig = field(default_factory=StoreConfig)

    def describe(self) -> dict[str, dict[str, Any]]:
        """The resolved tree as JSON types, section by section, without secrets."""
        return {
            section.name: {
                leaf.name: jsonable(getattr(getattr(self, section.name), leaf.name))
                for leaf in fields(section.default_factory)  # type: ignore[arg-type]
            }
            for section in fields(self)
        }

    def digest(self) -> str:
        """12 hex digits over ``describe``: equal for equal settings; secrets do not count."""
        tree = json.dumps(self.describe(), sort_keys=True, separators=(",", ":"))
        return hashlib.blake2b(tree.encode(), digest_size=6).hexdigest()


def jsonable(value: object) -> Any:
    """A leaf as JSON types: secrets redacted, tuples as lists, mappings as dicts."""
    match value:
        case Secret():
            return str(value)
        case tuple():
            return [jsonable(item) for item in value]
        case Mapping():
            return {str(key): jsonable(item) for key, item in value.items()}
        case _:
            return value
