"""Downloads that fail say why, whatever the library calls it."""

from __future__ import annotations

import errno
import importlib
from typing import Any

import pytest

from adapters.engines.qwen3_tts.hub import why_not_fetched

CANARY = "canary-4711"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("GatedRepoError", "agreement"),
        ("RepositoryNotFoundError", "no such repository"),
        ("RevisionNotFoundError", "no such repository"),
        ("DisabledRepoError", "disabled"),
        ("LocalEntryNotFoundError", "cannot be reached"),
        ("OfflineModeIsEnabled", "cannot be reached"),
    ],
)
def test_the_library_s_own_reasons_in_words(name: str, said: str) -> None:
    kind: Any = getattr(importlib.import_module("huggingface_hub.errors"), name)
    error = kind.__new__(kind, CANARY)  # what they are made from changes with the library
    got = why_not_fetched(error)
    assert said in got
    assert name not in got
    assert CANARY not in got


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConnectionResetError(CANARY), "cannot be reached"),
        (TimeoutError(CANARY), "cannot be reached"),
        (PermissionError(errno.EACCES, CANARY), "may not be written"),
        (OSError(errno.ENOSPC, CANARY), "the disk is full"),
        (OSError(CANARY), "OSError"),
        (RuntimeError(CANARY), "RuntimeError"),
    ],
)
def test_what_lies_below_the_library(error: Exception, said: str) -> None:
    assert said in why_not_fetched(error)
    assert CANARY not in why_not_fetched(error)
