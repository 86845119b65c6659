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

        A name the engine may know how to read itself (a mix such as ``a+b``) is handed on. Raises ``UnknownVoice``,
        which lists the voices there are.
        """
        key = (name or PLACEHOLDER).strip().lower()
        if key not in self._own:
            key = self._aliases.get(key, key)
        if key == PLACEHOLDER:
            return self._default
        if key in self._own or "+" in key:
            return key
        raise UnknownVoice(f"There is no voice '{(name or '')[:64]}'. Voices: {', '.join(self.names())}.", param=param)

    def names(self) -> list[str]:
        """Every name that ``resolve`` takes, sorted, with ``default``."""
        return sorted({PLACEHOLDER, *self._own, *self._aliases})

    def describe(self) -> list[dict[str, str]]:
        """The same with a readable name, for pickers."""
        described = {voice.name: voice.description or voice.name for voice in self._traits.voices}
        return [{"id": name, "name": described.get(name, name)} for name in self.names()]
