"""The tail of what a voice has just said, given to its next utterance as acoustic context."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from voices.anchor import CODEBOOKS, checked_codes, checked_text
from voices.binary import Body, DamagedValue, Fields, Form, packed_codes

MAX_CARRY_FRAMES = 100
"""Longest carry in frames of 80 ms: 8 s. Two to four are usual; more makes errors feed on themselves."""

MAX_CARRY_CHARS = 500
"""Most characters that sound in a carry."""

MAX_GAP_S = 120.0
"""A dialog that was silent for longer begins anew from its anchor."""

MAX_CARRY_BYTES = 8 * 1024
"""Most bytes of a stored carry."""

FORM = Form(b"SdCa", 1, MAX_CARRY_BYTES)

_MAX_NAME_CHARS = 128


@dataclass(frozen=True, slots=True, eq=False)
class Carry:
    """``codes`` ``(frames, 16)`` int16 of the last frames spoken and ``text``, the words that sound in them.

    The array is a read-only copy. Raises ``ValueError`` for codes out of range and for too many frames or characters.
    """

    codes: NDArray[np.int16]
    text: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "codes", checked_codes(self.codes, MAX_CARRY_FRAMES))
        checked_text(self.text, MAX_CARRY_CHARS, "the text")


@dataclass(frozen=True, slots=True, eq=False)
class KeptCarry:
    """A carry as it is kept between two replies of a dialog, with what must still hold when it is used.

    ``voice`` names what spoke (a voice record's fingerprint, or an engine's own voice), ``language`` is an ISO 639-1
    code, ``spoken_s`` the Unix seconds at which the reply ended, ``next_reply`` the index of the reply that it is for.
    Raises ``ValueError`` for fields out of range.
    """

    carry: Carry
    voice: str
    language: str
    spoken_s: int
    next_reply: int

    def __post_init__(self) -> None:
        checked_text(self.voice, _MAX_NAME_CHARS, "the voice")
        checked_text(self.language, 16, "the language")
        if not (0 <= self.spoken_s < 1 << 53 and 0 <= self.next_reply < 1 << 53):
            raise ValueError("spoken_s and next_reply count from 0")

    def usable(self, *, voice: str, language: str, now_s: float, reply_index: int) -> bool:
        """True if the next reply may lean on it.

        It may not after another voice, a change of language, a reply in between, or a silence of more than
        ``MAX_GAP_S``. A clock of another machine that is behind does no harm.
        """
        return (
            voice == self.voice
            and language == self.language
            and reply_index == self.next_reply
            and now_s - self.spoken_s <= MAX_GAP_S
        )

    def to_bytes(self) -> bytes:
        """At most ``MAX_CARRY_BYTES``."""
        text = self.carry.text.encode()
        head = {
            "voice": self.voice,
            "language": self.language,
            "spoken_s": self.spoken_s,
            "next_reply": self.next_reply,
            "frames": int(self.carry.codes.shape[0]),
            "text": len(text),
        }
        return FORM.pack(head, packed_codes(self.carry.codes) + text)

    @classmethod
    def from_bytes(cls, data: bytes) -> KeptCarry:
        """The inverse of ``to_bytes``. Raises ``DamagedValue`` for anything else."""
        head, rest = FORM.unpack(data)
        fields, body = Fields(head), Body(rest)
        frames = fields.integer("frames", 1, MAX_CARRY_FRAMES)
        codes = body.codes(frames, CODEBOOKS)
        text = body.text(fields.integer("text", 0, 4 * MAX_CARRY_CHARS))
        body.end()
        try:
            return cls(
                carry=Carry(codes, text),
                voice=fields.text("voice"),
                language=fields.text("language"),
                spoken_s=fields.integer("spoken_s", 0, (1 << 53) - 1),
                next_reply=fields.integer("next_reply", 0, (1 << 53) - 1),
            )
        except DamagedValue:
            raise
        except ValueError as error:
            raise DamagedValue("a field is damaged") from error
