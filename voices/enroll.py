"""From a recording of somebody to the part of it that makes a good voice.

Recordings of 4 to 8 s serve best: shorter ones say too little of a voice, longer references make it speak faster
(the model has then heard more speech than it has text to say). What bleeds from a reference that ends in mid-sound
into what is spoken is kept apart by half a second of silence.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from voices.features import HOP, RATE_HZ, active_frames, frame_levels_db

F32 = NDArray[np.float32]

MIN_RECORDING_S = 1.0
MAX_RECORDING_S = 30.0
"""Bounds of a recording as it comes."""

BEST_S = (4.0, 8.0)
"""Between these a recording serves best; of a longer one without a transcript a part of this length is used."""

SILENCE_AFTER_S = 0.5
"""Appended to a reference that is heard in context."""

MIN_SPEECH_S = 0.3
"""With less active speech a recording says nothing of a voice."""

LIKELY_LETTERS_PER_S = (4.0, 25.0)
MOST_LETTERS_PER_S = 50.0
LEAST_LETTERS_PER_S = 2.0
"""Speech has 10 to 20 letters a second; a transcript beyond the outer bounds belongs to something else.

One that leaves most of its recording unsaid makes a model go round in circles, so as a reference it is refused.
"""

_KEPT_SILENCE_S = 0.05
_QUIETEST_PEAK = 1e-3  # -60 dBFS
_CLIPPED = 0.999
_MOST_CLIPPED = 1e-3
_QUIET_DB, _LOUD_DB = -40.0, -9.0
_LETTERS_OF_IDEOGRAPH = 3


class UnusableClip(ValueError):
    """The recording makes no voice; the message says why. ``of_text``: it is the transcript that does not fit."""

    def __init__(self, why: str, *, of_text: bool = False) -> None:
        super().__init__(why)
        self.of_text = of_text


@dataclass(frozen=True, slots=True, eq=False)
class Clip:
    """What is used of a recording: ``pcm`` ``(samples,)`` float32 at 24 kHz.

    ``from_s`` and ``to_s`` are its place in the recording, ``speech_s`` the active speech in it, ``level_db`` its
    level (dB relative to full scale), ``notes`` what might be better about it, in words for who recorded it.
    """

    pcm: F32
    from_s: float
    to_s: float
    speech_s: float
    level_db: float
    notes: tuple[str, ...]


def prepared(pcm: F32, transcript: str = "", *, in_context: bool = False) -> Clip:
    """The part of a recording ``(samples,)`` at 24 kHz that is to be encoded.

    Silence at both ends goes. ``in_context``: the recording and its transcript will be a reference, so all of the
    rest stays and silence is appended as far as the bound lets; else of a long recording the part with most speech is
    chosen. Raises ``UnusableClip``.
    """
    _check(pcm)
    active = active_frames(frame_levels_db(pcm))
    loud = np.flatnonzero(active)
    if len(loud) * HOP < MIN_SPEECH_S * RATE_HZ:
        raise UnusableClip("there is hardly any speech in it")
    kept = int(_KEPT_SILENCE_S * RATE_HZ / HOP)
    first, end = max(0, int(loud[0]) - kept), min(len(active), int(loud[-1]) + 1 + kept)
    speech_s = float(active[first:end].sum()) * HOP / RATE_HZ
    notes = list(_text_notes(transcript, speech_s, in_context)) if transcript else []
    if not in_context:
        first, end = _best_part(active, first, end)
    part = pcm[first * HOP : end * HOP]
    part_active = active[first:end]
    notes += _sound_notes(part, part_active)
    room = max(0, int(MAX_RECORDING_S * RATE_HZ) - len(part))
    silence = np.zeros(min(room, int(SILENCE_AFTER_S * RATE_HZ)) if in_context else 0, np.float32)
    return Clip(
        pcm=np.concatenate((part, silence)).astype(np.float32, copy=False),
        from_s=first * HOP / RATE_HZ,
        to_s=min(end * HOP, len(pcm)) / RATE_HZ,
        speech_s=min(float(part_active.sum()) * HOP, len(part)) / RATE_HZ,
        level_db=_level_db(part, part_active),
        notes=tuple(notes),
    )


def letters(text: str) -> int:
    """Letters and digits of a text; an ideograph or syllable counts as three."""
    return sum(_weight(char) for char in text)


def _weight(char: str) -> int:
    if not char.isalnum():
        return 0
    return _LETTERS_OF_IDEOGRAPH if unicodedata.east_asian_width(char) in "WF" else 1


def _check(pcm: F32) -> None:
    if pcm.ndim != 1 or not np.isfinite(pcm).all():
        raise UnusableClip("it is no mono sound")
    length_s = len(pcm) / RATE_HZ
    if length_s < MIN_RECORDING_S:
        raise UnusableClip(f"it lasts {length_s:.2f} s, and at least {MIN_RECORDING_S:g} s are needed")
    if length_s > MAX_RECORDING_S:
        raise UnusableClip(f"it lasts {length_s:.1f} s, and at most {MAX_RECORDING_S:g} s are taken")
    if float(np.abs(pcm).max()) < _QUIETEST_PEAK:
        raise UnusableClip("it is silent")


def _best_part(active: NDArray[np.bool_], first: int, end: int) -> tuple[int, int]:
    """The frames, at most 8 s of them, with most active ones; it begins and ends in pauses where it can."""
    shortest, longest = (int(seconds * RATE_HZ / HOP) for seconds in BEST_S)
    if end - first <= longest:
        return first, end
    heard = np.concatenate(([0], np.cumsum(active)))
    pauses = np.flatnonzero(~active[first:end]) + first
    best, most = (first, first + longest), -1
    for start in (first, *pauses.tolist()):
        limit = min(end, start + longest)
        if limit - start < shortest:
            break
        before = pauses[(pauses > start + shortest) & (pauses <= limit)]
        stop = int(before[-1]) if len(before) else limit
        if int(heard[stop] - heard[start]) > most:
            best, most = (start, stop), int(heard[stop] - heard[start])
    return best


def _level_db(pcm: F32, active: NDArray[np.bool_]) -> float:
    mask = np.repeat(active, HOP)[: len(pcm)]
    power = float(np.square(pcm[mask].astype(np.float64)).mean()) if mask.any() else 0.0
    return min(0.0, 10 * float(np.log10(max(power, 1e-9))))


def _text_notes(transcript: str, speech_s: float, in_context: bool) -> list[str]:
    rate = letters(transcript) / speech_s
    low, high = LIKELY_LETTERS_PER_S
    if rate > MOST_LETTERS_PER_S:
        raise UnusableClip(f"nobody says its transcript in {speech_s:.1f} s", of_text=True)
    if in_context and rate < LEAST_LETTERS_PER_S:
        raise UnusableClip(f"its transcript is far too short for {speech_s:.1f} s of speech", of_text=True)
    if not low <= rate <= high:
        length = "short" if rate < low else "long"
        return [f"The transcript is {length} for {speech_s:.1f} s of speech; it should be word for word."]
    return []


def _sound_notes(pcm: F32, active: NDArray[np.bool_]) -> list[str]:
    notes = []
    speech_s = float(active.sum()) * HOP / RATE_HZ
    shortest_s, longest_s = BEST_S
    if speech_s < shortest_s - 1:
        notes.append(f"There are {speech_s:.1f} s of speech; {shortest_s:g} to {longest_s:g} s serve best.")
    elif len(pcm) > longest_s * RATE_HZ * 1.1:
        notes.append(f"With a transcript, recordings of {shortest_s:g} to {longest_s:g} s serve best.")
    if float((np.abs(pcm) >= _CLIPPED).mean()) > _MOST_CLIPPED:
        notes.append("The recording is overdriven.")
    level_db = _level_db(pcm, active)
    if not _QUIET_DB <= level_db <= _LOUD_DB:
        notes.append(f"The recording is {'quiet' if level_db < _QUIET_DB else 'loud'} ({level_db:.0f} dBFS).")
    return notes
