"""Defaults <- TOML file <- environment <- flags, with every mistake reported at once."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_type_hints

from sidecar.config_rules import LEAF_RULES, TREE_RULES
from sidecar.config_tree import MIB, Config
from sidecar.config_values import LEAVES, Leaf, Setting, convert
from sidecar.faults import ConfigError

PREFIX = "SIDECAR_"

CONFIG_VARIABLE = "SIDECAR_CONFIG"
"""Names the file for those who start the server; it is no setting itself."""

DATA_VARIABLE = "SIDECAR_DATA_DIR"
"""Names the folder for checkpoints and the local store; no setting either."""

_SECTIONS = tuple(section.name for section in fields(Config))

# Kubernetes puts these into every pod of a namespace that has a service called sidecar or sidecar-something.
_SERVICE_LINK = re.compile(r"SIDECAR_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)")
_SERVICE_LINK_URL = re.compile(r"SIDECAR_(\w+_)?PORT=(tcp|udp|sctp)://.*", re.DOTALL)


def load(file: Path | None, environ: Mapping[str, str], flags: Mapping[str, object]) -> Config:
    """The configuration: defaults, changed by ``file``, then ``environ``, then ``flags``.

    ``environ`` may hold anything; what begins with ``SIDECAR_`` must be a setting, written
    ``SIDECAR_SECTION__KEY``; an empty variable counts as not set. ``flags`` maps dotted names to values, or to None
    where the flag was not given. Entries of ``voices.aliases`` are merged, everything else is replaced. Raises
    ``ConfigError`` with every problem found, each naming the setting and where it came from.
    """
    loading = _Loading()
    if file is not None:
        loading.take_file(file)
    loading.take_environment(environ)
    loading.take_flags(flags)
    return loading.finish()


def explain() -> list[Setting]:
    """Every setting there is, in the order of the tree."""
    return [leaf.setting() for leaf in LEAVES.values()]


class _Loading:
    """Values so far, where each came from, and what is wrong."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {name: leaf.default for name, leaf in LEAVES.items()}
        self.origins: dict[str, str] = {}
        self.failed: set[str] = set()
        self.problems: list[str] = []

    def take_file(self, file: Path) -> None:
        tree = self._read_toml(file)
        for section, content in tree.items():
            if section not in _SECTIONS:
                self._unknown(section, str(file), self._like_section(section, content))
            elif not isinstance(content, dict):
                self._problem(section, "expected a table of settings", str(file))
            else:
                for key, raw in content.items():
                    self._take(f"{section}.{key}", raw, str(file), from_text=False)

    def take_environment(self, environ: Mapping[str, str]) -> None:
        # A map before its single entries, so that the narrower variable wins.
        for variable in sorted(name for name in environ if name.startswith(PREFIX)):
            text = environ[variable]
            if not text.strip() or variable in (CONFIG_VARIABLE, DATA_VARIABLE) or _is_service_link(variable, text):
                continue
            name = variable.removeprefix(PREFIX).lower().replace("__", ".")
            if variable != variable.upper() or "." in variable or _resolve(name)[0] is None:
                nearest = _nearest(name.replace("_", "."), {_flat(known): known for known in LEAVES})
                self._unknown(variable, None, nearest and LEAVES[nearest].variable)
            else:
                self._take(name, text, variable, from_text=True)

    def take_flags(self, flags: Mapping[str, object]) -> None:
        for name, raw in flags.items():
            if raw is not None:
                self._take(name, raw, "a flag", from_text=True)

    def finish(self) -> Config:
        self._check_leaves()
        config = _build(self.values)
        for rule in TREE_RULES:
            if self.failed.isdisjoint(rule.names) and rule.broken(config):
                origins = [self.origins[name] for name in rule.names if name in self.origins]
                self._problem(rule.names[0], rule.message, ", ".join(dict.fromkeys(origins)) or "the defaults")
        if self.problems:
            raise ConfigError(self.problems)
        return config

    def _read_toml(self, file: Path) -> dict[str, Any]:
        try:
            with file.open("rb") as opened:
                content = opened.read(MIB + 1)
            if len(content) > MIB:
                raise ValueError("it is larger than 1 MiB")
            return tomllib.loads(content.decode())
        except OSError as error:
            self.problems.append(f"{file}: cannot be read: {error.strerror or type(error).__name__}")
        except UnicodeDecodeError:
            self.problems.append(f"{file}: is not UTF-8 text")
        except (ValueError, RecursionError) as error:
            self.problems.append(f"{file}: is not a TOML file: {error}")
        return {}

    def _take(self, name: str, raw: object, origin: str, *, from_text: bool) -> None:
        """One value for one setting, or for one entry of a map (``voices.aliases.alloy``)."""
        leaf, entry = _resolve(name)
        if leaf is None:
            self._unknown(name, origin, _nearest(name, {known: known for known in LEAVES}))
            return
        try:
            value = convert(leaf, {entry: raw} if entry else raw, from_text=from_text)
        except ValueError as wrong:
            self._problem(name, str(wrong), origin)
            self.failed.add(leaf.name)
            return
        self.values[leaf.name] = {**self.values[leaf.name], **value} if leaf.is_map else value
        self.origins[leaf.name] = origin

    def _check_leaves(self) -> None:
        for name, rule in LEAF_RULES.items():
            for wrong in rule(self.values[name]):
                self._problem(name, wrong, self.origins.get(name, "the defaults"))
                self.failed.add(name)

    def _like_section(self, section: str, content: object) -> str | None:
        """The section meant; or, for a key outside of any, the setting with that key."""
        if isinstance(content, dict):
            return _nearest(section, {name: name for name in _SECTIONS})
        return _nearest(section, {known.partition(".")[2]: known for known in LEAVES})

    def _problem(self, name: str, message: str, origin: str) -> None:
        self.problems.append(f"{name}: {message} (from {origin})")

    def _unknown(self, name: str, origin: str | None, nearest: str | None) -> None:
        hint = f"; did you mean {nearest}?" if nearest else ""
        shown = name if name.isprintable() and len(name) <= 100 else ascii(name[:100])
        self.problems.append(f"{shown}: no such setting{hint}" + (f" (from {origin})" if origin else ""))


def _resolve(name: str) -> tuple[Leaf | None, str | None]:
    """The setting called ``name``, and for an entry of a map its key."""
    if name in LEAVES:
        return LEAVES[name], None
    section, _, rest = name.partition(".")
    key, _, entry = rest.partition(".")
    leaf = LEAVES.get(f"{section}.{key}")
    return (leaf, entry) if leaf and leaf.is_map and entry else (None, None)


def _nearest(name: str, known: Mapping[str, str]) -> str | None:
    """What ``known`` maps the name to that looks most like ``name``; a key right but for its section counts too."""
    close = difflib.get_close_matches(name[:100], known, n=1, cutoff=0.6)
    if close:
        return known[close[0]]
    key = name[:100].rpartition(".")[2]
    same_key = [known[full] for full in known if full.rpartition(".")[2] == key]
    return same_key[0] if same_key else None


def _flat(name: str) -> str:
    return name.replace("_", ".")


def _is_service_link(variable: str, text: str) -> bool:
    if "__" in variable:
        return False
    return bool(_SERVICE_LINK.fullmatch(variable) or _SERVICE_LINK_URL.fullmatch(f"{variable}={text}"))


def _build(values: Mapping[str, Any]) -> Config:
    sections: dict[str, dict[str, Any]] = {section: {} for section in _SECTIONS}
    for name, value in values.items():
        section, _, key = name.partition(".")
        sections[section][key] = MappingProxyType(dict(value)) if LEAVES[name].is_map else value
    types = get_type_hints(Config)
    return Config(**{section: types[section](**content) for section, content in sections.items()})
