"""A drift report as one HTML page that needs nothing else: style and plots (SVG) are inside, scripts there are none."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from voices.drift import Record
from voices.drift_report import DriftReport, Gate

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 860, 120, 56, 18, 8

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem;
       color: #1d2330; background: #fff; }
h1 { font-size: 1.4rem; } h2 { font-size: 1rem; margin: 1.4rem 0 .2rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid #dfe3ea; }
td.n { text-align: right; } .ok { color: #13703a; } .bad { color: #b3261e; font-weight: 600; } .none { color: #6b7280; }
svg { width: 100%; height: auto; } svg text { font: 11px system-ui, sans-serif; fill: #6b7280; }
@media (prefers-color-scheme: dark) { body { background: #14171d; color: #e6e8ec; } th, td { border-color: #2c323d; }
  .ok { color: #6fd08c; } .bad { color: #ff8a80; } .none, svg text { color: #9aa3b2; fill: #9aa3b2; } }
"""

_PLOTS: tuple[tuple[str, str, Callable[[Record], float | None]], ...] = (
    ("Identity (V1)", "cosine to the voice", lambda row: row.judgement.readings.get("identity")),
    ("Timbre (V7)", "distance to the voice", lambda row: row.judgement.readings.get("timbre_distance")),
    ("Pitch (V4)", "semitones above 50 Hz", lambda row: row.pitch_st),
    ("Level (V6)", "dBFS", lambda row: row.level_db if row.active_s else None),
    ("Pace (V8)", "log of seconds taken over seconds expected", lambda row: row.pace),
    ("Pauses (V11)", "ms from their target", lambda row: row.judgement.readings.get("seam_pause")),
)


def report_html(report: DriftReport, title: str = "Voice drift") -> str:
    """The page. ``title`` is shown as text."""
    verdicts = ", ".join(f"{count} {escape(name)}" for name, count in report.verdicts.items() if count) or "nothing yet"
    failed = sum(gate.ok is False for gate in report.gates)
    summary = (
        "every meter within its gate" if not failed else f"{failed} of {len(report.gates)} meters outside their gates"
    )
    plots = "\n".join(_plot(report.rows, *each) for each in _PLOTS)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{escape(title)}</title><style>{_STYLE}</style></head><body>
<h1>{escape(title)}</h1>
<p>{report.segments} segments: {verdicts}; {summary}.</p>
<table><thead><tr><th>Meter</th><th>Name</th><th>Value</th><th>Wanted</th><th>Count</th><th></th></tr></thead><tbody>
{"".join(_gate_row(gate) for gate in report.gates)}</tbody></table>
{plots}
<h2>Segments that gave a reason</h2>
<table><thead><tr><th>Reply</th><th>Segment</th><th>At</th><th>Verdict</th><th>Reasons</th></tr></thead><tbody>
{"".join(_segment_row(row) for row in report.rows if row.judgement.reasons)}</tbody></table>
</body></html>
"""


def _gate_row(gate: Gate) -> str:
    state, mark = {True: ("ok", "ok"), False: ("bad", "outside"), None: ("none", "")}[gate.ok]
    return (
        f"<tr><td>{escape(gate.meter)}</td><td>{escape(gate.name)}</td>"
        f'<td class="n">{_number(gate.value)} {escape(gate.unit)}</td><td>{escape(gate.wanted)}</td>'
        f'<td class="n">{gate.count}</td><td class="{state}">{mark}</td></tr>\n'
    )


def _segment_row(row: Record) -> str:
    reasons = "; ".join(
        f"{one.meter} {one.name} {_number(one.value)} {one.unit} (limit {_number(one.limit)}"
        + (f", over {one.segments} segments)" if one.segments > 1 else ")")
        for one in row.judgement.reasons
    )
    return (
        f'<tr><td class="n">{row.reply}</td><td class="n">{row.index}</td><td class="n">{row.at_s:.1f} s</td>'
        f"<td>{escape(str(row.judgement.verdict))}</td><td>{escape(reasons)}</td></tr>\n"
    )


def _number(value: float | None) -> str:
    return "–" if value is None or not math.isfinite(value) else f"{value:.3g}"


def _plot(rows: Sequence[Record], title: str, unit: str, read: Callable[[Record], float | None]) -> str:
    """One quantity over the dialog's time; marked where the segment was not ``ok``. Empty without values."""
    points = [(row.at_s, value, row) for row in rows if (value := read(row)) is not None and math.isfinite(value)]
    if not points:
        return ""
    low, high = min(value for _, value, _ in points), max(value for _, value, _ in points)
    room = 0.08 * (high - low) or 0.5
    low, high = low - room, high + room
    end_s = max(points[-1][0], 1e-3)

    def place(at_s: float, value: float) -> tuple[float, float]:
        x = _LEFT + at_s / end_s * (_WIDTH - _LEFT - 8)
        return x, _TOP + (high - value) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)

    line = " ".join("{:.1f},{:.1f}".format(*place(at_s, value)) for at_s, value, _ in points)
    dots = "".join(_dot(*place(at_s, value), row) for at_s, value, row in points)
    return (
        f"<h2>{escape(title)} <span class='none'>{escape(unit)}</span></h2>"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">'
        f'<text x="0" y="{_TOP + 10}">{_number(high)}</text><text x="0" y="{_HEIGHT - _BOTTOM}">{_number(low)}</text>'
        f'<text x="{_LEFT}" y="{_HEIGHT - 3}">0 s</text>'
        f'<text x="{_WIDTH - 8}" y="{_HEIGHT - 3}" text-anchor="end">{end_s:.0f} s</text>'
        f'<polyline points="{line}" fill="none" stroke="#4a6fa5" stroke-width="1.5"/>{dots}</svg>'
    )


def _dot(x: float, y: float, row: Record) -> str:
    bad = bool(row.judgement.reasons)
    names = ", ".join(one.name for one in row.judgement.reasons)
    label = f"reply {row.reply}, segment {row.index}: {row.judgement.verdict} {names}".strip()
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{4 if bad else 2.5}" fill="{"#b3261e" if bad else "#4a6fa5"}">'
        f"<title>{escape(label)}</title></circle>"
    )
