"""The configuration: ``load`` resolves it, ``Config`` is what everybody is handed parts of.

Defaults <- TOML file <- environment (``SIDECAR_SECTION__KEY``) <- flags. An unknown key is an error.
"""

from __future__ import annotations

from sidecar.config_load import CONFIG_VARIABLE, explain, load
from sidecar.config_rules import is_loopback
from sidecar.config_tree import (
    OPENAI_VOICES,
    AuthConfig,
    ChatConfig,
    Config,
    EngineConfig,
    LlmConfig,
    ServerConfig,
    SpeechConfig,
    StoreConfig,
    StreamConfig,
    VoicesConfig,
)
from sidecar.config_values import Setting
from sidecar.redaction import Secret, SecretUrl

__all__ = [
    "CONFIG_VARIABLE",
    "OPENAI_VOICES",
    "AuthConfig",
    "ChatConfig",
    "Config",
    "EngineConfig",
    "LlmConfig",
    "Secret",
    "SecretUrl",
    "ServerConfig",
    "Setting",
    "SpeechConfig",
    "StoreConfig",
    "StreamConfig",
    "VoicesConfig",
    "explain",
    "is_loopback",
    "load",
]
