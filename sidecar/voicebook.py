"""Which voice a name means: the engine's own voices and the aliases of the configuration."""

from __future__ import annotations

from collections.abc import Mapping

from sidecar.faults import UnknownVoice
from sidecar.ports import EngineTraits

PLACEHOLDER = "default"
"""The voice name that means 'whichever is the default'."""


class VoiceBook:
    """Resolves voice names, without regard to case."""

    def __init__(self, traits: EngineTraits, aliases: Mapping[str, str], default: str | None) -> None:
        self._traits = traits
        self._aliases = {k.lower(): v.lower() for k, v in aliases.items()}
        self._own = {voice.name for voice in traits.voices}
        self._default = (default or traits.default_voice).lower()

    def resolve(self, name: str | None, param: str = "voice") -> str:
        """The engine's name for a voice; None and ``default`` mean the default voice.

        A mix of the engine's voices (``a+b``, ``a:0.7+b:0.3``) is handed on as it is. Raises ``UnknownVoice``, which
        lists the voices there are.
        """
        key = (name or PLACEHOLDER).strip().lower()
        if key not in self._own:
            key = self._aliases.get(key, key)
        if key == PLACEHOLDER:
            return self._default
        parts = [part.partition(":")[0].strip() for part in key.split("+")]
        if all(part in self._own for part in parts):
            return key
        known = f"There is no voice '{(name or '')[:64]}'. Voices: {', '.join(self.names())}."
        raise UnknownVoice(f"{known} {self._traits.more_voices}".rstrip(), param=param)

    def names(self) -> list[str]:
        """Every name that ``resolve`` takes, sorted, with ``default``."""
        return sorted({PLACEHOLDER, *self._own, *self._aliases})

    def describe(self) -> list[dict[str, str]]:
        """The same with a readable name, for pickers."""
        described = {voice.name: voice.description or voice.name for voice in self._traits.voices}
        entries = []
        for name in self.names():
            voice = self.resolve(name)
            entries.append({"id": name, "name": described.get(name, f"{name}: {voice}")})
        return entries
