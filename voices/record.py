"""A stored voice: who it belongs to, what conditions an engine on it, and the form in which it is kept."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from voices.anchor import CODEBOOKS, MAX_CODE_FRAMES, MAX_TRANSCRIPT_CHARS, MAX_WIDTH, SpeakerAnchor, checked_text
from voices.binary import Body, DamagedValue, Fields, Form, packed_codes

MAX_RECORD_BYTES = 16 * 1024
"""Most bytes of a stored voice."""

MAX_HEAD_BYTES = 7 * 1024
"""So many bytes of a stored voice hold its card; 1 kB holds that of most."""

MAX_NAME_CHARS = 64
MAX_DESCRIPTION_CHARS = 500
MAX_CONSENT_CHARS = 128
MAX_OWNER_CHARS = 64
MAX_LANGUAGE_CHARS = 16
MAX_MEDIA_TYPE_CHARS = 64
MAX_SAID_CHARS = 500
"""Of what is said in a recording, so much is shown; an anchor with codes has it whole."""
MAX_ANCHORS = 4
"""Anchors of one voice, each of another width."""

LEVEL_RANGE_DB = (-90.0, 0.0)
"""Speech level of a voice in dB relative to full scale."""

FORM = Form(b"SdVo", 1, MAX_RECORD_BYTES)

_SEED_LIMIT = 1 << 63
_NO_CODES = 0


def voice_name(raw: str) -> str:
    """The name that ``raw`` means: trimmed, lower case, composed (NFC).

    Raises ``ValueError`` for an empty or too long name, ``.`` and ``..``, slashes, backslashes and characters that
    cannot be printed.
    """
    name = unicodedata.normalize("NFC", raw.strip().lower())
    if not name or len(name) > MAX_NAME_CHARS or name in (".", ".."):
        raise ValueError(f"a voice's name has 1 to {MAX_NAME_CHARS} characters and is not '.' or '..'")
    if not name.isprintable() or "/" in name or "\\" in name:
        raise ValueError("a voice's name has printable characters only and no slash or backslash")
    return name


@dataclass(frozen=True, slots=True)
class VoiceCard:
    """What a list shows of a voice. ``widths``: of its anchors; ``with_codes``: those that bring reference codes."""

    name: str
    owner: str
    consent: str
    language: str
    description: str
    base_voice: str
    base_seed: int
    level_db: float | None
    created_s: int
    fingerprint: str
    widths: tuple[int, ...]
    with_codes: tuple[int, ...]
    media_type: str = ""
    recording_bytes: int = 0
    said: str = ""
    version: int = 0

    @classmethod
    def from_bytes(cls, data: bytes, version: int = 0) -> VoiceCard:
        """From a stored voice or its first ``MAX_HEAD_BYTES``. Raises ``DamagedValue``."""
        return _card(Fields(FORM.head(data)), version)


@dataclass(frozen=True, slots=True, eq=False)
class VoiceRecord:
    """A voice of one tenant.

    ``name`` as ``voice_name`` makes it, ``owner`` the tenant, ``consent`` the id under which the speaker agreed
    (empty for voices of nobody), ``language`` an ISO 639-1 code or empty for any, ``anchors`` one for each width of
    embedding. ``base_voice``: the engine's own voice that is meant where no anchor fits; a record has an anchor or
    a base voice. ``base_seed`` in [0, 2**63) is the dialog seed of dialogs that bring none. ``level_db``: speech
    level in dB relative to full scale. ``created_s``: Unix seconds. ``media_type`` and ``recording_bytes``: of the file
    that the voice was made from (empty and 0 for one given as numbers); ``said``: the beginning of what is said in it.
    ``version``: what the store calls this state, 0
    for one that was not stored; it is not part of the stored bytes.

    Raises ``ValueError`` for fields out of range.
    """

    name: str
    owner: str
    anchors: tuple[SpeakerAnchor, ...] = ()
    consent: str = ""
    language: str = ""
    description: str = ""
    base_voice: str = ""
    base_seed: int = 0
    level_db: float | None = None
    created_s: int = 0
    media_type: str = ""
    recording_bytes: int = 0
    said: str = ""
    version: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "anchors", tuple(sorted(self.anchors, key=lambda anchor: anchor.width)))
        _check_texts(self)
        if len(self.anchors) > MAX_ANCHORS or len({anchor.width for anchor in self.anchors}) < len(self.anchors):
            raise ValueError(f"a voice has at most {MAX_ANCHORS} anchors, each of another width")
        if not self.anchors and not self.base_voice:
            raise ValueError("a voice has an anchor or a base voice")
        if not 0 <= self.base_seed < _SEED_LIMIT:
            raise ValueError("base_seed must be in [0, 2**63)")
        if not (0 <= self.created_s < 1 << 53 and 0 <= self.recording_bytes < 1 << 53 and self.version >= 0):
            raise ValueError("created_s, recording_bytes and version count from 0")
        low_db, high_db = LEVEL_RANGE_DB
        if self.level_db is not None:
            object.__setattr__(self, "level_db", float(self.level_db))
            if not (math.isfinite(self.level_db) and low_db <= self.level_db <= high_db):
                raise ValueError(f"level_db must be from {low_db:g} to {high_db:g}")

    def anchor(self, widths: Iterable[int]) -> SpeakerAnchor | None:
        """The anchor of the first of ``widths`` that this voice has one for."""
        by_width = {anchor.width: anchor for anchor in self.anchors}
        return next((by_width[width] for width in widths if width in by_width), None)

    @property
    def fingerprint(self) -> str:
        """32 hex digits over all that can be heard: anchors, base voice, language, seed, level."""
        return _fingerprint(self)

    def card(self) -> VoiceCard:
        """What a list shows."""
        return VoiceCard(
            name=self.name,
            owner=self.owner,
            consent=self.consent,
            language=self.language,
            description=self.description,
            base_voice=self.base_voice,
            base_seed=self.base_seed,
            level_db=self.level_db,
            created_s=self.created_s,
            fingerprint=self.fingerprint,
            widths=tuple(anchor.width for anchor in self.anchors),
            with_codes=tuple(anchor.width for anchor in self.anchors if anchor.codes is not None),
            media_type=self.media_type,
            recording_bytes=self.recording_bytes,
            said=self.said,
            version=self.version,
        )

    def to_bytes(self) -> bytes:
        """At most ``MAX_RECORD_BYTES``; raises ``ValueError`` if that is not enough (long recordings)."""
        return _to_bytes(self)

    @classmethod
    def from_bytes(cls, data: bytes, version: int = 0) -> VoiceRecord:
        """The inverse of ``to_bytes``. Raises ``DamagedValue`` for anything else."""
        return _from_bytes(data, version)


def _check_texts(record: VoiceRecord) -> None:
    if record.name != voice_name(record.name):
        raise ValueError("a voice's name is stored trimmed and in lower case")
    if not record.owner:
        raise ValueError("a voice belongs to a tenant")
    for text, most, what in (
        (record.owner, MAX_OWNER_CHARS, "the owner"),
        (record.consent, MAX_CONSENT_CHARS, "the consent id"),
        (record.language, MAX_LANGUAGE_CHARS, "the language"),
        (record.description, MAX_DESCRIPTION_CHARS, "the description"),
        (record.base_voice, MAX_NAME_CHARS, "the base voice"),
        (record.media_type, MAX_MEDIA_TYPE_CHARS, "the media type"),
        (record.said, MAX_SAID_CHARS, "what is said"),
    ):
        checked_text(text, most, what)
        if not text.replace("\n", "").isprintable():
            raise ValueError(f"{what} has printable characters only")


def _fingerprint(record: VoiceRecord) -> str:
    digest = blake2b(digest_size=16, person=b"sidecar.voice001")
    parts = [record.base_voice.encode(), record.language.encode(), str(record.base_seed).encode()]
    parts.append(repr(record.level_db).encode())
    for anchor in record.anchors:
        codes = b"" if anchor.codes is None else anchor.codes.astype("<i2").tobytes()
        parts += [anchor.embedding.astype("<f4").tobytes(), codes, anchor.transcript.encode()]
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def _to_bytes(record: VoiceRecord) -> bytes:
    """Recordings that several anchors share are written once."""
    card = record.card()
    rows: list[list[int]] = []
    body: list[bytes] = []
    written: dict[bytes, int] = {}
    recordings: list[list[int]] = []
    for anchor in record.anchors:
        number = _NO_CODES
        if anchor.codes is not None:
            codes, text = packed_codes(anchor.codes), anchor.transcript.encode()
            number = written.setdefault(codes + text, len(written) + 1)
            if number > len(recordings):
                recordings.append([int(anchor.codes.shape[0]), len(text)])
                body += [codes, text]
        rows.append([anchor.width, number, len(anchor.fingerprint.encode())])
    for anchor in record.anchors:
        body += [anchor.embedding.astype("<f4").tobytes(), anchor.fingerprint.encode()]
    head = {
        "name": card.name,
        "owner": card.owner,
        "consent": card.consent,
        "language": card.language,
        "description": card.description,
        "base_voice": card.base_voice,
        "base_seed": card.base_seed,
        "level_db": card.level_db,
        "created_s": card.created_s,
        "fingerprint": card.fingerprint,
        "media_type": card.media_type,
        "recording_bytes": card.recording_bytes,
        "said": card.said,
        "recordings": recordings,
        "anchors": rows,
    }
    return FORM.pack(head, b"".join(body))


def _card(fields: Fields, version: int) -> VoiceCard:
    if version < 0:
        raise DamagedValue("the version is damaged")
    anchors = fields.rows("anchors", 3, MAX_ANCHORS)
    return VoiceCard(
        name=fields.text("name"),
        owner=fields.text("owner"),
        consent=fields.text("consent"),
        language=fields.text("language"),
        description=fields.text("description"),
        base_voice=fields.text("base_voice"),
        base_seed=fields.integer("base_seed", 0, _SEED_LIMIT - 1),
        level_db=fields.optional_number("level_db"),
        created_s=fields.integer("created_s", 0, (1 << 53) - 1),
        fingerprint=fields.text("fingerprint"),
        widths=tuple(width for width, _, _ in anchors),
        with_codes=tuple(width for width, number, _ in anchors if number != _NO_CODES),
        media_type=fields.text("media_type"),
        recording_bytes=fields.integer("recording_bytes", 0, (1 << 53) - 1),
        said=fields.text("said"),
        version=version,
    )


def _from_bytes(data: bytes, version: int) -> VoiceRecord:
    head, rest = FORM.unpack(data)
    fields, body = Fields(head), Body(rest)
    card = _card(fields, version)
    recordings = []
    for frames, text_bytes in fields.rows("recordings", 2, MAX_ANCHORS):
        if not (0 < frames <= MAX_CODE_FRAMES and text_bytes <= 4 * MAX_TRANSCRIPT_CHARS):
            raise DamagedValue("a recording is damaged")
        recordings.append((body.codes(frames, CODEBOOKS), body.text(text_bytes)))
    try:
        record = VoiceRecord(
            name=card.name,
            owner=card.owner,
            anchors=tuple(_anchors(fields, body, recordings)),
            consent=card.consent,
            language=card.language,
            description=card.description,
            base_voice=card.base_voice,
            base_seed=card.base_seed,
            level_db=card.level_db,
            created_s=card.created_s,
            media_type=card.media_type,
            recording_bytes=card.recording_bytes,
            said=card.said,
        )
    except DamagedValue:
        raise
    except ValueError as error:
        raise DamagedValue("a field is damaged") from error
    body.end()
    if record.fingerprint != card.fingerprint:
        raise DamagedValue("the fingerprint does not fit")
    return replace(record, version=version)


def _anchors(fields: Fields, body: Body, recordings: list[tuple[NDArray[np.int16], str]]) -> Iterable[SpeakerAnchor]:
    for width, number, fingerprint_bytes in fields.rows("anchors", 3, MAX_ANCHORS):
        if not 0 < width <= MAX_WIDTH or number > len(recordings):
            raise DamagedValue("an anchor is damaged")
        embedding, fingerprint = body.floats(width), body.text(fingerprint_bytes)
        if number == _NO_CODES:
            yield SpeakerAnchor(embedding, fingerprint=fingerprint)
        else:
            codes, transcript = recordings[number - 1]
            yield SpeakerAnchor(embedding, codes, transcript, fingerprint)
