"""What was said under which ``audio.id``, and how a dialog's seed chain goes on.

Pure: turns messages and records into one another. Keeping the records is the business of ``sidecar.memory``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from sidecar.faults import BadRequest, UnknownAudio

MAX_ID_CHARS = 128
MAX_REFERENCES = 1_000
"""Spoken replies that one request may refer to: each of them is looked up."""


@dataclass(frozen=True, slots=True)
class SpokenTurn:
    """What is remembered of one spoken reply until ``expires_at`` (unix seconds). ``dialog`` names its dialog.

    ``cut``: its listener interrupted it, so that what comes next must not lean on how it ended.
    """

    transcript: str
    dialog_seed: int
    reply_index: int
    expires_at: int
    dialog: str = ""
    cut: bool = False

    def to_bytes(self) -> bytes:
        """JSON, readable by every later version."""
        return json.dumps(
            {
                "v": 1,
                "transcript": self.transcript,
                "dialog_seed": self.dialog_seed,
                "reply_index": self.reply_index,
                "expires_at": self.expires_at,
                "dialog": self.dialog,
                "cut": self.cut,
            },
            ensure_ascii=False,
        ).encode("utf-8", "surrogatepass")

    @staticmethod
    def from_bytes(value: bytes) -> SpokenTurn | None:
        """None for anything that is not a whole record: a foreign or corrupt value counts as absent."""
        try:
            record = json.loads(value.decode("utf-8", "surrogatepass"))
            turn = SpokenTurn(
                transcript=record["transcript"],
                dialog_seed=record["dialog_seed"],
                reply_index=record["reply_index"],
                expires_at=record["expires_at"],
                dialog=record.get("dialog", ""),
                cut=record.get("cut") is True,
            )
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        numbers = (turn.dialog_seed, turn.reply_index, turn.expires_at)
        texts = (turn.transcript, turn.dialog)
        if not all(isinstance(text, str) for text in texts) or not all(type(n) is int for n in numbers):
            return None
        return turn


@dataclass(frozen=True, slots=True)
class AudioReference:
    """An assistant message that carries ``audio``: its place, its id, and the transcript it brings, if any.

    ``has_content``: it brings its words as ``content``.
    """

    position: int
    audio_id: str
    transcript: str | None
    has_content: bool = False

    @property
    def has_words(self) -> bool:
        """It can be read without what was remembered."""
        return self.has_content or self.transcript is not None


def audio_references(messages: Any) -> list[AudioReference]:
    """The assistant messages that refer to spoken replies.

    People also append the SDK's message object whole, with data and transcript. Raises ``BadRequest`` for a
    reference without a usable id, and for more than ``MAX_REFERENCES``.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        return []
    found = []
    for position, message in enumerate(messages):
        if not isinstance(message, Mapping) or message.get("role") != "assistant" or message.get("audio") is None:
            continue
        audio = message["audio"]
        audio_id = audio.get("id") if isinstance(audio, Mapping) else None
        if not isinstance(audio_id, str) or not 0 < len(audio_id) <= MAX_ID_CHARS:
            raise BadRequest(
                "An assistant message's 'audio' must be an object with an 'id'.",
                param=f"messages[{position}].audio",
            )
        found.append(AudioReference(position, audio_id, _transcript(audio), bool(message.get("content"))))
        if len(found) > MAX_REFERENCES:
            raise BadRequest(f"The messages refer to more than {MAX_REFERENCES} spoken replies.", param="messages")
    return found


def _transcript(audio: Mapping[str, Any]) -> str | None:
    transcript = audio.get("transcript")
    return transcript if isinstance(transcript, str) and transcript else None


def resolved_messages(
    messages: Sequence[Any], references: Iterable[AudioReference], turns: Mapping[str, SpokenTurn]
) -> list[Any]:
    """The messages as a text-only model can read them: each reference replaced by what was said.

    A message's own ``content`` stays; else the record counts (it knows what was heard), else the transcript that the
    message brings. A reply of which nothing was heard is left out. Raises ``UnknownAudio`` where there is none of them.
    """
    resolved = list(messages)
    unheard: set[int] = set()
    for reference in references:
        message = {k: v for k, v in resolved[reference.position].items() if k != "audio" and v is not None}
        if not message.get("content"):
            turn = turns.get(reference.audio_id)
            words = turn.transcript if turn is not None else reference.transcript
            if words is None:
                raise UnknownAudio(
                    f"The audio '{reference.audio_id}' is unknown or has expired; send its transcript as "
                    "'content' instead.",
                    param=f"messages[{reference.position}].audio.id",
                )
            if words:
                message["content"] = words
            elif not (message.get("tool_calls") or message.get("refusal")):
                unheard.add(reference.position)
        resolved[reference.position] = message
    return [message for position, message in enumerate(resolved) if position not in unheard]


def dialog_seed_of(audio_id: str) -> int:
    """The seed of a dialog, from the ``audio.id`` of its first reply: who has that needs no memory to go on."""
    return int.from_bytes(_digest(audio_id, b"sidecar.seed", 8), "little") >> 1


def dialog_name_of(audio_id: str) -> str:
    """The name of a dialog, likewise."""
    return f"dialog_{_digest(audio_id, b'sidecar.dialog', 12).hex()}"


def _digest(audio_id: str, person: bytes, size: int) -> bytes:
    return blake2b(audio_id.encode("utf-8", "surrogatepass"), digest_size=size, person=person).digest()


def last_turn(references: Sequence[AudioReference], turns: Mapping[str, SpokenTurn]) -> SpokenTurn | None:
    """The latest known turn of the dialog that goes on, if any: its seed chain and name are continued."""
    known = (turns.get(reference.audio_id) for reference in reversed(references))
    return next((turn for turn in known if turn is not None), None)
