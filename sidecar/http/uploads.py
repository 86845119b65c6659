"""Forms as browsers and SDKs send them: fields and files, within bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any
from urllib.parse import parse_qsl

from litestar import Request
from multipart import MultipartError, MultipartParser, parse_options_header

from sidecar.faults import BadRequest
from sidecar.http.wire import read_body

MAX_FILE_BYTES = 10 << 20
"""Largest file of a form."""

MAX_PARTS = 16
MAX_FIELD_BYTES = 256 << 10
"""Longest text field: a vector of 4,096 numbers with all their digits fits."""

_FORM_OVERHEAD_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class UploadedFile:
    """A file of a form: its bytes, its name as the client gave it, and its media type in lower case."""

    data: bytes
    filename: str
    media_type: str


@dataclass(frozen=True, slots=True)
class Form:
    """What was sent; of repeated names the last counts."""

    fields: Mapping[str, str]
    files: Mapping[str, UploadedFile]

    def text(self, name: str) -> str:
        """A field, trimmed; empty if it is absent or blank."""
        return self.fields.get(name, "").strip()


async def read_form(request: Request[Any, Any, Any], timeout_s: float) -> Form:
    """The form in a request's body.

    Raises ``BadRequest`` for another content type, a body that is no form, too many or too long parts, ``TooLarge``
    for a body that is longer than any form may be, ``ClientGone``.
    """
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    if kind not in ("multipart/form-data", "application/x-www-form-urlencoded"):
        raise BadRequest("The Content-Type must be multipart/form-data.")
    body = await read_body(request, MAX_FILE_BYTES + _FORM_OVERHEAD_BYTES, timeout_s)
    if kind == "application/x-www-form-urlencoded":
        return Form(_urlencoded(body), {})
    return await asyncio.to_thread(parsed_form, body, options.get("boundary", ""))


def parsed_form(body: bytes, boundary: str) -> Form:
    """A multipart body taken apart. Raises ``BadRequest``."""
    fields: dict[str, str] = {}
    files: dict[str, UploadedFile] = {}
    try:
        parser = MultipartParser(
            BytesIO(body),
            boundary,
            part_limit=MAX_PARTS,
            spool_limit=len(body) + 1,
            memory_limit=len(body) + 1,
            disk_limit=0,
        )
        for part in parser:
            if part.filename is not None:
                files[part.name] = UploadedFile(part.raw, part.filename, part.content_type.lower())
            elif part.size > MAX_FIELD_BYTES:
                raise BadRequest(f"A field of the form is longer than {MAX_FIELD_BYTES} bytes.")
            else:
                fields[part.name] = part.raw.decode("utf-8")
    except (MultipartError, UnicodeDecodeError, ValueError):
        raise BadRequest("The body is not a valid form.") from None
    for name, file in files.items():
        if len(file.data) > MAX_FILE_BYTES:
            raise BadRequest(f"The file is larger than {MAX_FILE_BYTES >> 20} MiB.", param=name[:64])
    return Form(fields, files)


def _urlencoded(body: bytes) -> dict[str, str]:
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=MAX_PARTS, errors="strict")
    except ValueError:
        raise BadRequest("The body is not a valid form.") from None
    if any(len(value) > MAX_FIELD_BYTES for _, value in pairs):
        raise BadRequest(f"A field of the form is longer than {MAX_FIELD_BYTES} bytes.")
    return dict(pairs)
