"""Which voice a name means: the engine's own voices, and the aliases of the configuration.

The engine's own voices come first, then stored voices (``sidecar.voice_choice``), then aliases.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from sidecar.faults import UnknownVoice
from sidecar.ports import EngineTraits

PLACEHOLDER = "default"
"""The voice name that means 'whichever is the default'."""

MAX_NAMES_TOLD = 60
"""Names that an error message lists."""


ROUTES = ("export", "import", "mix", "nearest")
"""Where the list of vectors has paths of its own."""


class VoiceBook:
    """Resolves voice names, without regard to case."""

    def __init__(self, traits: EngineTraits, aliases: Mapping[str, str], default: str | None) -> None:
        self._traits = traits
        self._aliases = {k.lower(): v.lower() for k, v in aliases.items()}
        self._own = {voice.name for voice in traits.voices}
        self._default = (default or traits.default_voice).lower()

    def own(self, name: str) -> str | None:
        """The engine's own voice of that name, or a mix of them (``a+b``, ``a:0.7+b:0.3``), which is handed on."""
        key = name.strip().lower()
        parts = [part.partition(":")[0].strip() for part in key.split("+")]
        return key if all(part in self._own for part in parts) else None

    def target(self, name: str) -> str | None:
        """What an alias or ``default`` stands for in the end, perhaps a stored voice; None for other names.

        An empty string: the default of an engine without voices.
        """
        key = first = name.strip().lower()
        seen: set[str] = set()
        while key not in self._own and key not in seen:
            seen.add(key)
            key = self._aliases.get(key, self._default if key == PLACEHOLDER else key)
        return key if key != first or first in self._aliases or first == PLACEHOLDER else None

    def reserved(self, name: str) -> bool:
        """True for names that no stored voice may have: the engine's own, ``default``, and paths of the API."""
        key = name.strip().lower()
        return key == PLACEHOLDER or key in ROUTES or self.own(key) is not None

    def resolve(self, name: str | None, param: str = "voice") -> str:
        """The engine's name for a voice, stored ones left aside; None and ``default`` mean the default voice.

        Raises ``UnknownVoice``, which lists the voices there are.
        """
        key = (name or PLACEHOLDER).strip().lower()
        target = self.target(key)
        own = self.own(key) or (self.own(target) if target else None)
        if own is None:
            raise self.unknown(name, (), param)
        return own

    def unknown(self, name: str | None, stored: Iterable[str], param: str) -> UnknownVoice:
        """The fault for a name that means nothing."""
        stored = sorted(stored)
        names = sorted({*self.names(stored), *stored})
        told = ", ".join(names[:MAX_NAMES_TOLD]) + (", ..." if len(names) > MAX_NAMES_TOLD else "")
        said = [
            f"There is no voice '{(name or PLACEHOLDER)[:64]}'.",
            f"Voices: {told}." if told else "There is none yet.",
        ]
        if not self._own:
            said.append("The engine clones voices and brings none: name a stored one, or send ref_audio or a vector.")
            if stored and not self._leads(PLACEHOLDER, stored):
                said.append(
                    f"With voices.default (SIDECAR_VOICES__DEFAULT={stored[0][:64]}) a stored one speaks where none is "
                    "named, and under OpenAI's names."
                )
        return UnknownVoice(" ".join([*said, self._traits.more_voices]).rstrip(), param=param)

    def names(self, stored: Iterable[str] = ()) -> list[str]:
        """The engine's voices, and ``default`` and the aliases where they lead to one of these or of ``stored``."""
        stored = frozenset(stored)
        return sorted({*self._own, *(name for name in (PLACEHOLDER, *self._aliases) if self._leads(name, stored))})

    def describe(self, stored: Iterable[str] = ()) -> list[dict[str, str]]:
        """The same with a readable name, for pickers."""
        described = {voice.name: voice.description or voice.name for voice in self._traits.voices}
        return [
            {"id": name, "name": described.get(name) or f"{name}: {self.target(name)}"} for name in self.names(stored)
        ]

    def _leads(self, name: str, stored: Container[str]) -> bool:
        """True if ``default``, or an alias, ends at a voice that there is."""
        target = self.target(name)
        return target is not None and (self.own(target) is not None or target in stored)
