"""Forms taken apart: whatever bytes come, there is a form or a clear refusal."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.faults import BadRequest
from sidecar.http.uploads import MAX_FIELD_BYTES, MAX_FILE_BYTES, MAX_PARTS, Form, parsed_form

EDGE = "XX"


def part(name: str, content: bytes, more: str = "", headers: str = "") -> bytes:
    return (
        f'--{EDGE}\r\nContent-Disposition: form-data; name="{name}"{more}\r\n{headers}\r\n'.encode() + content + b"\r\n"
    )


def body(*parts: bytes) -> bytes:
    return b"".join(parts) + f"--{EDGE}--\r\n".encode()


def parsed(data: bytes, edge: str = EDGE) -> Form | None:
    try:
        return parsed_form(data, edge)
    except BadRequest:
        return None


def test_fields_and_files() -> None:
    wav = part("audio_sample", b"\x00\r\n--X\xff", '; filename="../a \xfc.wav"', "Content-Type: Audio/WAV\r\n")
    form = parsed_form(body(part("name", " Änna ".encode()), part("name", b"last"), part("empty", b" "), wav), EDGE)
    assert (form.text("name"), form.text("empty"), form.text("absent")) == ("last", "", "")
    file = form.files["audio_sample"]
    assert (file.data, file.media_type) == (b"\x00\r\n--X\xff", "audio/wav")
    untyped = parsed_form(body(part("f", b"x", '; filename="a.mp3"')), EDGE).files["f"]
    assert untyped.media_type == "application/octet-stream"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        body(part("a", b"x"))[:-6],
        body(part("a", b"\xff\xfe")),
        body(part("a", b"x" * (MAX_FIELD_BYTES + 1))),
        body(part("f", bytes(MAX_FILE_BYTES + 1), '; filename="f"')),
        body(*(part(f"p{n}", b"x") for n in range(MAX_PARTS + 1))),
        body(part("a", b"x", headers="X: " + "y" * 10_000 + "\r\n")),
        body(part("a", b"x", headers="".join(f"X{n}: y\r\n" for n in range(20)))),
        f"--{EDGE}\r\n\r\nx\r\n--{EDGE}--\r\n".encode(),
    ],
    ids=["empty", "cut", "text", "long", "large", "many", "header", "headers", "bare"],
)
def test_what_is_no_form(data: bytes) -> None:
    assert parsed(data) is None


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300), st.text(max_size=20))
def test_any_bytes_with_any_edge(data: bytes, edge: str) -> None:
    parsed(data, edge)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_forms_that_were_tampered_with(data: st.DataObject) -> None:
    whole = bytearray(body(part("name", b"x"), part("f", b"0123456789", '; filename="f"', "Content-Type: a/b\r\n")))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(whole) - 1))
        kind = data.draw(st.sampled_from(["change", "cut", "insert"]))
        if kind == "change":
            whole[at] = data.draw(st.integers(0, 255))
        elif kind == "cut":
            del whole[at : at + data.draw(st.integers(1, 9))]
        else:
            whole[at:at] = data.draw(st.binary(max_size=9))
        if not whole:
            break
    form = parsed(bytes(whole))
    assert form is None or len(form.fields) + len(form.files) <= 3
