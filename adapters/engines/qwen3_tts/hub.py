"""Why the model hub gave nothing, in words for whoever asked for a checkpoint."""

from __future__ import annotations

import errno

_UNREACHABLE = "the model hub cannot be reached and the local hub cache does not hold it; give a folder, or try again"
_REASONS = (
    (("GatedRepoError",), "its owner asks for an agreement: accept it on its page at the hub, then set HF_TOKEN"),
    (("DisabledRepoError",), "the hub has disabled it"),
    (
        ("RevisionNotFoundError", "RepositoryNotFoundError"),
        "the hub has no such repository, or HF_TOKEN may not see it",
    ),
    (("LocalEntryNotFoundError", "OfflineModeIsEnabled"), _UNREACHABLE),
    (("ConnectionError", "ConnectError", "Timeout", "TimeoutException", "TimeoutError"), _UNREACHABLE),
    (("PermissionError",), "the folder for it may not be written to"),
)


def why_not_fetched(error: BaseException) -> str:
    """The reason for a failed download, without addresses, paths or tokens; the exception's type if it has no other.

    The library's exceptions are told by their names, and those of the HTTP client below it by the names of their
    families, so that neither has to be loaded for this.
    """
    kinds = {kind.__name__ for kind in type(error).__mro__}
    for names, reason in _REASONS:
        if not kinds.isdisjoint(names):
            return reason
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return "the disk is full"
    return type(error).__name__
