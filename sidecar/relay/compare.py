"""What to send again and when, and how the answers differ from those that were recorded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sidecar.faults import BadRequest
from sidecar.relay.hiding import hidden_members
from sidecar.relay.recording import Entry, RecordedSocket
from sidecar.relay.seen import Side
from sidecar.relay.tally import ANSWERS, SOUND, Spoken, Tally

_UNSENDABLE = (1005, 1006, 1015)
_MAX_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Step:
    """One thing the client does: send ``payload``, close with ``close_code``, or, with neither, cut the connection.

    It comes ``wait_ms`` after the latest of: the step before, the answer number ``after_answers``, and, with
    ``after_sound``, the first sound since then. So a slower server is given its time, and what cut sound finds some.
    """

    wait_ms: float
    payload: str | bytes | None = None
    close_code: int | None = None
    after_answers: int = 0
    after_sound: bool = False


def steps_of(socket: RecordedSocket, members: Mapping[str, Any] | None = None) -> list[Step]:
    """The client's side of a recorded socket.

    ``members`` replace those of every ``session.config`` (None removes one). Raises ``BadRequest`` for what was
    hidden when it was recorded and is not replaced.
    """
    steps: list[Step] = []
    last_ms = socket.entries[0].at_ms if socket.entries else 0.0
    answers, sounding, closed = 0, False, False
    for entry in socket.entries:
        if entry.side is Side.SERVER:
            closed = closed or entry.close_code is not None
            if entry.message is not None and entry.message.get("type") in ANSWERS:
                answers, sounding, last_ms = answers + 1, False, entry.at_ms
            elif entry.data_bytes is not None and not sounding:
                sounding = True
            continue
        if closed:
            break
        step = _step(entry, entry.at_ms - last_ms, answers, members or {})
        cuts = entry.message is None or entry.message.get("type") == "input.cancel"
        after_sound = sounding and cuts and entry.text is None and entry.data is None
        steps.append(Step(max(0.0, step.wait_ms), step.payload, step.close_code, answers, after_sound))
        last_ms = entry.at_ms
        if step.payload is None:
            break
    return steps


@dataclass(frozen=True, slots=True)
class Ending:
    """How a recorded conversation ended: after so many events, with the connection ``over`` or left as it was,
    ``after_ms`` after the client's last step."""

    events: int
    over: bool
    after_ms: float


def ending_of(socket: RecordedSocket) -> Ending:
    """The ending of a recorded socket."""
    client_ms = [entry.at_ms for entry in socket.entries if entry.side is Side.CLIENT and entry.end is None]
    over = any(entry.close_code is not None or entry.end is not None for entry in socket.entries)
    last_ms = max((entry.at_ms for entry in socket.entries), default=0.0)
    return Ending(len(tally_of(socket).events), over, last_ms - max(client_ms, default=0.0))


def _step(entry: Entry, wait_ms: float, answers: int, members: Mapping[str, Any]) -> Step:
    if entry.close_code is not None:
        return Step(wait_ms, close_code=1000 if entry.close_code in _UNSENDABLE else entry.close_code)
    if entry.end is not None:
        return Step(wait_ms)
    if entry.text is not None:
        return Step(wait_ms, entry.text)
    if entry.message is None:
        if entry.data is None:
            raise BadRequest("The client's binary frames were recorded by length only; record with --frames.")
        return Step(wait_ms, entry.data)
    message = entry.message
    if message.get("type") == "session.config":
        removed = [name for name, value in members.items() if value is None]
        message = {name: value for name, value in {**message, **members}.items() if name not in removed}
    if hidden := hidden_members(message):
        raise BadRequest(
            f"{', '.join(hidden)}: never recorded. Give another with --set NAME=JSON, or leave it out with NAME=null."
        )
    return Step(wait_ms, json.dumps(message, ensure_ascii=False))


@dataclass(frozen=True, slots=True)
class Comparison:
    """``same``: both servers answered with the same sequence of events. ``lines`` say what differs."""

    same: bool
    lines: list[str]


def tally_of(socket: RecordedSocket) -> Tally:
    """What was recorded."""
    tally = Tally()
    for entry in socket.entries:
        tally.entry(entry)
    return tally


def compare(recorded: Tally, replayed: Tally) -> Comparison:
    """Recorded against replayed. Lengths of sound and times are reported, and are no mismatch."""
    lines = [f"events      {len(recorded.events)} recorded, {len(replayed.events)} replayed"]
    same = recorded.events == replayed.events
    if same:
        lines[0] += ": the same sequence"
    elif _apart(recorded.events) == _apart(replayed.events):
        same = True
        lines[0] += ": the same sequence, with errors at another moment"
    else:
        lines += _difference(recorded.events, replayed.events)
    if recorded.texts != replayed.texts and len(recorded.texts) == len(replayed.texts):
        differing = sum(a != b for a, b in zip(recorded.texts, replayed.texts, strict=True))
        lines.append(f"texts       {differing} of {len(recorded.texts)} units have another text")
    for index in range(max(len(recorded.spoken), len(replayed.spoken))):
        lines += [
            f"utterance {index:<3} {name}  {_figures(side.spoken[index]) if index < len(side.spoken) else 'none'}"
            for name, side in (("recorded", recorded), ("replayed", replayed))
        ]
    return Comparison(same, lines)


def _apart(events: list[str]) -> tuple[list[str], list[str]]:
    """Speech, and errors: these answer the client's messages as they come, whatever is being spoken meanwhile."""
    errors = [event for event in events if event.startswith("error")]
    speech: list[str] = []
    for event in events:
        if not event.startswith("error") and not (event == SOUND and speech[-1:] == [SOUND]):
            speech.append(event)
    return speech, errors


def _difference(recorded: list[str], replayed: list[str]) -> list[str]:
    pairs = zip(recorded, replayed, strict=False)
    at = next((index for index, (a, b) in enumerate(pairs) if a != b), min(len(recorded), len(replayed)))
    return [
        f"  event {at} and on differ:",
        *(f"    recorded  {event}" for event in recorded[at : at + _MAX_SHOWN] or ["nothing more"]),
        *(f"    replayed  {event}" for event in replayed[at : at + _MAX_SHOWN] or ["nothing more"]),
    ]


def _figures(spoken: Spoken) -> str:
    clock = spoken.clock
    first = "no sound" if clock.first_ms is None else f"{clock.sound_ms / 1000:.2f} s of sound"
    if spoken.first_audio_ms is not None:
        first += f", first after {spoken.first_audio_ms:.0f} ms"
    dry = f", ran dry for {clock.dry_ms:.0f} ms" if clock.dry_ms else ""
    cancelled = ", cancelled" if spoken.cancelled else ""
    sizes = f"{spoken.units} units, {spoken.frames} frames, {spoken.frame_bytes} B"
    return f"{first}, longest gap {clock.max_gap_ms:.0f} ms{dry}; {sizes}{cancelled}"
