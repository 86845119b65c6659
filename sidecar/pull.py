"""``sidecar pull``: fetches a checkpoint from the model hub into the user's data folder."""

from __future__ import annotations

import re
from pathlib import Path

from sidecar.faults import ConfigError
from sidecar.wiring import data_folder, why_not_fetched

SHORT_NAMES = {
    "0.6b": "Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice",
    "1.7b": "Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice",
    "0.6b-base": "Qwen/Qwen3-TTS-12Hz-0.6B-Base",
    "1.7b-base": "Qwen/Qwen3-TTS-12Hz-1.7B-Base",
    "1.7b-design": "Qwen/Qwen3-TTS-12Hz-1.7B-VoiceDesign",
}
"""The released checkpoints."""

_HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")

PATTERNS = ("*.json", "*.safetensors", "*.txt", "speech_tokenizer/*.json", "speech_tokenizer/*.safetensors")
"""Weights as safetensors and settings as JSON; nothing that could run."""


def pull_checkpoint(name: str) -> Path:
    """Fetch a checkpoint, with progress bars; what is there already is not fetched again.

    ``name`` is a short name or ``owner/name``. Raises ``ConfigError`` with the reason.
    """
    hub_id = SHORT_NAMES.get(name.lower(), name)
    if not _HUB_ID.fullmatch(hub_id):
        raise ConfigError([f"'{name}' is no hub id (owner/name); short names: {', '.join(SHORT_NAMES)}"])
    import huggingface_hub

    folder = data_folder() / "checkpoints" / hub_id.replace("/", "--")
    try:
        huggingface_hub.snapshot_download(hub_id, allow_patterns=list(PATTERNS), local_dir=folder)
    except Exception as error:
        raise ConfigError([f"{hub_id} could not be fetched: {_reason(error)}"]) from error
    config = folder / "config.json"
    if not config.is_file():
        raise ConfigError([f"{hub_id} is no Qwen3-TTS checkpoint: it has no config.json"])
    config.touch()  # the one pulled last is the one that speaks
    return folder


def _reason(error: Exception) -> str:
    reason, first_line = why_not_fetched(error), str(error).strip().partition("\n")[0]
    return f"{reason}: {first_line[:200]}" if first_line and reason == type(error).__name__ else reason
