"""What every store asks of names, values and times to live."""

from __future__ import annotations

import math

from sidecar.faults import BadRequest, TooLarge

Name = tuple[str, str, str]
"""Tenant, kind, key."""

MAX_NAME_BYTES = 1_024
"""Longest tenant, kind or key, in UTF-8."""

MAX_VALUE_BYTES = 16 * 1024 * 1024
"""Largest value of one record."""

MAX_VERSION = (1 << 53) - 1
"""Largest version: the largest whole number that every store counts exactly. 1 comes after it."""


def checked_name(tenant: str, kind: str, key: str) -> Name:
    """The name itself. Raises ``BadRequest`` for parts that are too long or not valid Unicode."""
    for part in (tenant, kind, key):
        try:
            size = len(part.encode())
        except UnicodeEncodeError as error:
            raise BadRequest("A name in the store is not valid Unicode.") from error
        if size > MAX_NAME_BYTES:
            raise BadRequest(f"A name in the store may have at most {MAX_NAME_BYTES} bytes.")
    return tenant, kind, key


def checked_value(value: bytes, max_bytes: int = MAX_VALUE_BYTES) -> bytes:
    """A copy of the value. Raises ``TooLarge``."""
    if len(value) > max_bytes:
        raise TooLarge(f"A record may have at most {max_bytes} bytes.")
    return bytes(value)


def check_ttl(ttl_s: float | None) -> None:
    """Raises ``ValueError`` for a time to live that is not positive and finite."""
    if ttl_s is not None and not (math.isfinite(ttl_s) and ttl_s > 0):
        raise ValueError("ttl_s must be positive and finite")
