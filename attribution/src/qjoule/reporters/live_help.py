# SPDX-License-Identifier: Apache-2.0
"""The live view's help: its keys and what its figures mean."""

from __future__ import annotations

from qjoule.reporters import format as fmt
from qjoule.reporters.live_frame import Line, Span, wrap

_KEYS = (
    ("e c l n", "sort by energy, CPU, latency, calls"),
    ("<", "turn the sort order round"),
    ("/", "filter by query text, fingerprint or server; Esc clears it"),
    ("Space", "pause the view; counting goes on"),
    ("↑ ↓ PgUp PgDn", "move the cursor"),
    ("Enter", "everything about one row"),
    ("g", "group by fingerprint, server, database, user or a tag, as far as the source knows them"),
    ("a", "figures of the last interval, or of everything since the last reset"),
    ("+ -", "longer or shorter interval"),
    ("E", "write this screen to a JSON file here, or in the temporary directory"),
    ("R", "reset: count anew from now on"),
    ("h", "this help"),
    ("q", "quit"),
)
_FIGURES = (
    ("W, %E", "mean power over the interval, and its part of the measured energy"),
    ("J/CALL", "energy per call with its 95 % interval; one-sided where the sides differ"),
    ("CPU ms/CALL", "time on a CPU, parallel workers included"),
    ("IPC", "instructions per cycle, where hardware counters can be read"),
    ("LAT", "time from the server's receipt of a statement to its end"),
    ("other queries", "every query that this screen has no line for"),
    ("residual", "measured energy that no owner's time accounts for"),
    (fmt.UNKNOWN, "unknown; never the same as 0"),
    ("grade", "measured: a hardware counter. estimated: a power model. simulated: a test source"),
)


def help_lines(width: int) -> list[Line]:
    lines = [Line(), Line((Span(2, "Keys", "title"),)), *_entries(_KEYS, width), Line()]
    return [*lines, Line((Span(2, "Figures", "title"),)), *_entries(_FIGURES, width)]


def _entries(entries: tuple[tuple[str, str], ...], width: int) -> list[Line]:
    lines = []
    for name, text in entries:
        for index, piece in enumerate(wrap(text, max(8, width - 20))):
            spans = [Span(2, name, "accent")] if index == 0 else []
            lines.append(Line((*spans, Span(18, piece))))
    return lines
