"""How replies are cut and joined, from the settings: the same for the server and for ``sidecar say``."""

from __future__ import annotations

from segmenter import SegmentOptions
from sidecar.config import Config
from sidecar.core.feed import FeedLimits
from sidecar.reply import SoundRules


def segment_options(config: Config) -> SegmentOptions:
    """How a reply is cut."""
    chat = config.chat
    return SegmentOptions(
        granularity=chat.granularity,
        first_by_clause=chat.first_by_clause,
        join_short=chat.join_short,
        verbalise=chat.verbalise,
        max_chars=chat.max_segment_chars,
        fragment_after_ms=chat.idle_flush_ms,
    )


def sound_rules(config: Config) -> SoundRules:
    """How the segments of a reply are joined."""
    return SoundRules(config.voices.shape_pauses, config.voices.target_level_db)


def feed_limits(config: Config) -> FeedLimits:
    """How much text a live reply's engine sees, and when another generation takes over."""
    chat = config.chat
    return FeedLimits(
        low_tokens=chat.live_low_tokens,
        high_tokens=chat.live_high_tokens,
        roll_tokens=chat.live_roll_tokens,
        roll_s=chat.live_roll_s,
        paragraph_tokens=chat.live_paragraph_tokens,
        settle_ms=chat.live_settle_ms,
        stall_ms=chat.live_stall_ms,
    )
