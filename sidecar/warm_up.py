"""What an engine is asked to say before anybody listens, so that it is loaded and known to speak."""

from __future__ import annotations

import numpy as np

from sidecar.ports import EngineTraits, Utterance
from voices.anchor import SpeakerAnchor

WARM_UP_TEXT = "Ready to speak."
WARM_UP_FRAMES = 25


def warm_up_utterance(traits: EngineTraits, voice: str | None = None) -> Utterance | None:
    """A sentence for any engine: ``voice`` (one of its own), its default voice, or a vector of nobody where it clones.

    None for an engine that has neither voices nor clones.
    """
    if not (traits.voices or traits.clone_widths):
        return None
    nobody = None if traits.voices else SpeakerAnchor(np.ones(traits.clone_widths[0], np.float32))
    return Utterance(
        WARM_UP_TEXT,
        voice or traits.default_voice,
        seed=0,
        language="en" if "en" in traits.languages else None,
        max_frames=WARM_UP_FRAMES,
        anchor=nobody,
        output="pcm" if traits.pcm_out else "codes",
    )
