"""What engines check of a speaker anchor and of the recording it is made from."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sidecar.faults import BadRequest
from sidecar.ports import MAX_CLIP_S, SAMPLE_RATE_HZ, Codes, Pcm
from voices.anchor import MAX_CODE_FRAMES, MAX_TRANSCRIPT_CHARS, SpeakerAnchor, anchor_fingerprint

_SILENT = 1e-4  # -80 dBFS: no recording of anybody


def checked_clip(pcm: Pcm, transcript: str | None, *, min_samples: int) -> tuple[Pcm, str]:
    """The recording ``(samples,)`` float32 and its transcript, empty for none. Raises ``BadRequest``, see the port."""
    samples = np.asarray(pcm)
    if samples.ndim != 1 or samples.dtype != np.float32:
        raise BadRequest("The recording must be mono samples.", param="ref_audio")
    longest, shortest_ms = int(MAX_CLIP_S * SAMPLE_RATE_HZ), min_samples * 1_000 / SAMPLE_RATE_HZ
    if len(samples) > longest:
        raise BadRequest(f"The recording is longer than {MAX_CLIP_S:.0f} s.", param="ref_audio")
    if len(samples) < min_samples:
        raise BadRequest(f"The recording is too short; {shortest_ms:.0f} ms are needed.", param="ref_audio")
    if not np.isfinite(samples).all():
        raise BadRequest("The recording has samples that are not finite.", param="ref_audio")
    if np.abs(samples).max() < _SILENT:
        raise BadRequest("The recording is silent.", param="ref_audio")
    return samples, _checked_transcript(transcript)


def checked_reference_length(frames: int) -> None:
    """Raise ``BadRequest`` for a recording that is too long for a reference in context."""
    if frames > MAX_CODE_FRAMES:
        longest_s = MAX_CODE_FRAMES * 0.08
        raise BadRequest(f"With a transcript the recording may have at most {longest_s:.0f} s.", param="ref_audio")


def made_anchor(
    encoder: str, pcm: Pcm, embedding: NDArray[np.float32], codes: Codes | None, said: str
) -> SpeakerAnchor:
    """The anchor that ``encoder`` (a name for its weights) has made of a recording and its transcript."""
    transcript = said if codes is not None else ""
    return SpeakerAnchor(embedding, codes, transcript, anchor_fingerprint(encoder, pcm, transcript))


def checked_embedding(anchor: SpeakerAnchor, widths: tuple[int, ...]) -> NDArray[np.float32]:
    """The anchor's embedding ``(width,)``. Raises ``BadRequest`` when its width is none of these."""
    if anchor.width not in widths:
        expected = " or ".join(map(str, widths))
        message = f"The speaker embedding has {anchor.width} values; {expected} are needed."
        raise BadRequest(message, param="speaker_embedding")
    return anchor.embedding


def _checked_transcript(transcript: str | None) -> str:
    said = (transcript or "").strip()
    if len(said) > MAX_TRANSCRIPT_CHARS:
        raise BadRequest(f"The transcript is longer than {MAX_TRANSCRIPT_CHARS} characters.", param="ref_text")
    try:
        said.encode()
    except UnicodeEncodeError:
        raise BadRequest("The transcript is not valid Unicode.", param="ref_text") from None
    return said
