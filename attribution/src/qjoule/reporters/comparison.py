# SPDX-License-Identifier: Apache-2.0
"""Formats what runs of B gain over runs of A: a table, and JSON (`qjoule.comparison/2`)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.style import Style
from rich.table import Table
from rich.text import Text

from qjoule.model.compared import ONE_RUN, Compared, Sides
from qjoule.model.gate import GateResult
from qjoule.model.gpsup import Form, Interval, in_words, latency_change
from qjoule.model.repeated import Difference, MadeWith
from qjoule.model.run_ratios import LEVEL
from qjoule.reporters import format as fmt
from qjoule.reporters.plain import GAP, Page, key_width, notes_grid, page_width, ruled_table
from qjoule.reporters.waits import LATENCY_PARTS, WAIT_TITLES
from qjoule.reporters.writers import finite, json_text
from qjoule.shapes.safe_text import shorten

SCHEMA = "qjoule.comparison/2"

METHOD = "Welch's t interval on the log of the ratio over runs"
_MIN_WIDTH = 60
_FALLBACK = 120  #: columns if the terminal's width is unknown
#: Terminal width in cells from which these columns are shown; others are always shown.
_FROM = {"powerup": 74, "EDP gain": 86}
_ROWS = 20  #: statements, and gates, in the table; JSON and JUnit have all
_LONGEST = 300  #: characters of a statement
_ALONE_MAX = 10  #: number of statements without a partner that the table names
_PARTS = {name: WAIT_TITLES[part] for name, part in LATENCY_PARTS.items()}
_LEGEND = (
    "How many times faster B is (speedup), how much more power it draws while it runs (powerup), "
    "how much less energy it needs (greenup), and how many times smaller its energy-delay product "
    "is (EDP gain); below each its 95 % interval. Verdicts hold for all statements together."
)


@dataclass(frozen=True)
class Report:
    """A comparison. `across`: differences in properties of the runs that should be equal.

    `alone_a`, `alone_b`: statements of one side without a partner. `runs_a`, `runs_b`: names.
    """

    sides: Sides
    made_with_a: MadeWith
    made_with_b: MadeWith
    runs_a: tuple[str, ...]
    runs_b: tuple[str, ...]
    across: tuple[Difference, ...]
    alone_a: tuple[Form, ...]
    alone_b: tuple[Form, ...]
    gates: tuple[GateResult, ...]
    gate_total: bool
    notes: tuple[str, ...]

    @property
    def several(self) -> bool:
        return len(self.runs_a) > 1 and len(self.runs_b) > 1

    def about(self) -> list[tuple[str, str]]:
        """Returns the (name, text) lines of every output format."""
        a, b = self.made_with_a, self.made_with_b
        lines = [
            ("runs", f"{len(self.runs_a)} of A, {len(self.runs_b)} of B"),
            ("energy", f"{a.grade} (A), {b.grade} (B), apportioned · {a.energy_source}"),
            ("idle", a.idle_policy),
            ("machine", a.machine or "not known"),
            ("calibration", a.calibration),
        ]
        for difference in self.across:
            lines.append(("ACROSS", f"not comparable, compared on request: {difference}"))
        return lines


def to_json(report: Report) -> str:
    """Returns the document; unbounded ends of intervals and unknown values are null."""
    return json_text(finite(document(report)))


def document(report: Report) -> dict[str, Any]:
    """Returns the document as plain objects. `more_runs` null: unknown, or no number is enough."""
    a, b = asdict(report.made_with_a), asdict(report.made_with_b)
    return {
        "schema": SCHEMA,
        **{key: {"base": a[key], "new": b[key]} for key in a},
        "runs": {"base": list(report.runs_a), "new": list(report.runs_b)},
        "across": [asdict(difference) for difference in report.across],
        "method": METHOD if report.several else "intervals of the single runs",
        "level": LEVEL,
        "rows": [_row(row) for row in report.sides.rows],
        "total": _row(report.sides.total),
        "not_in_total": [form.name for form in report.sides.not_in_total],
        "unmatched": {
            "base": [_alone(form) for form in report.alone_a],
            "new": [_alone(form) for form in report.alone_b],
        },
        "gates": [_gate(result) for result in report.gates],
        "notes": list(report.notes),
    }


def _row(row: Compared) -> dict[str, Any]:
    out = asdict(row) | {"words": in_words(row.category)}
    for side in ("base", "new"):
        if not out[side]["latency_parts_ns"]:
            del out[side]["latency_parts_ns"]
    if change := latency_change(row.base, row.new):
        out["latency_change"] = {"part": change[0], "ns_per_call": change[1]}
    return out


def _alone(form: Form) -> dict[str, Any]:
    return {"name": form.name, "shape": form.shape, "calls": form.calls}


def _gate(result: GateResult) -> dict[str, Any]:
    return {
        "gate": str(result.gate),
        "metric": result.gate.metric,
        "limit": result.gate.limit,
        "statement": result.compared.base.name,
        "ratio": result.ratio,
        "ratio_ci95": result.ci95,
        "status": result.status,
        "reason": result.reason,
        "more_runs": result.more_runs,
    }


def render(report: Report, *, width: int | None = None, color: bool = False) -> str:
    """Returns the comparison as text; `width`: in cells, by default the terminal's."""
    width = page_width(width, _MIN_WIDTH, _FALLBACK)
    page = Page(width, color)
    page.print(notes_grid(fmt.safe_notes(report.about()), 11))
    page.print()
    page.print(_table(report, width))
    page.print()
    if report.gates:
        page.print(_gates(report))
        page.print()
    notes = [*_footing(report), *(("note", note) for note in report.notes)]
    page.print(notes_grid(fmt.safe_notes(notes), 11))
    page.print(Text(_LEGEND, style="dim"))
    return page.text()


def _table(report: Report, width: int) -> Table:
    compared = shown_first(report.sides.rows)[:_ROWS]
    keys = list(dict.fromkeys(key for row in compared for key in row.base.keys))
    room = key_width(width, len(keys))
    rest = width - len(keys) * (room + GAP)
    columns = [
        name for name in ("speedup", "powerup", "greenup", "EDP gain") if rest >= _FROM.get(name, 0)
    ]
    table = ruled_table(leading=1)
    table.add_column("statement", overflow="fold", min_width=14)
    for key in keys:
        table.add_column(Text(fmt.one_line(key)), overflow="fold", max_width=room)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", min_width=16, max_width=36)
    rows = [(statement(row, keys=False), row) for row in compared]
    if len(report.sides.rows) > 1:
        rows.append(("all of them, in A's mix of calls", report.sides.total))
    for title, row in rows:
        cells = {
            "speedup": _ratio(row.speedup, row.speedup_ci95),
            "powerup": _ratio(row.powerup, row.powerup_ci95),
            "greenup": _ratio(row.greenup, row.greenup_ci95),
            "EDP gain": _ratio(row.edp_gain, row.edp_gain_ci95),
        }
        bold = Text(title, style=Style(bold=True))
        values = (Text(_key_change(row, key)) for key in keys)
        verdict = Text(_verdict(row))
        if words := latency_words(row.base, row.new):
            verdict.append(f"\nlatency: mostly {words}", style=Style(dim=True))
        table.add_row(bold, *values, *(cells[name] for name in columns), verdict)
    return table


def latency_words(base: Form, new: Form) -> str:
    """Returns the part of the latency that changed most (`lock +41.0 ms/call`), '' if unknown."""
    part, ns = latency_change(base, new) or ("", 0.0)
    return f"{_PARTS[part]} {'+' if ns > 0 else ''}{fmt.duration(ns)}/call" if part else ""


def shown_first(rows: Sequence[Compared]) -> list[Compared]:
    """Sorts statements whose joules differ first; otherwise keeps the order (most energy first)."""
    return sorted(rows, key=lambda row: row.energy_differs is None)


def statement(row: Compared, *, keys: bool = True) -> str:
    """Names what is compared, on one line of bounded length without control characters."""
    names = [_form_label(form, keys=keys) for form in (row.base, row.new)]
    return names[0] if row.new.name == row.base.name else "  →  ".join(names)


def _form_label(form: Form, *, keys: bool = True) -> str:
    pairs = [f"{key}={value}" for key, value in form.keys.items()] if keys else []
    return shorten(fmt.one_line("  ".join((*pairs, form.shape or form.name))), _LONGEST)


def _key_change(row: Compared, key: str) -> str:
    first, then = row.base.keys.get(key, ""), row.new.keys.get(key, "")
    return fmt.one_line(first if first == then else f"{first} → {then}")


def _verdict(row: Compared) -> str:
    words = in_words(row.category)
    text = words if words == row.category else f"{row.category.partition(':')[0]}: {words}"
    if row.category == "energy not separable":
        more = how_many_more(row.more_runs), _detectable_text(row.detectable)
        text = "; ".join(filter(None, (text, *more)))
    # A single run is mentioned once, in a note for all rows.
    return "; ".join([fmt.one_line(text), *(flag for flag in row.flags if flag != ONE_RUN)])


def _detectable_text(detectable: float | None) -> str:
    return f"{fmt.share(detectable - 1)} more would have been found" if detectable else ""


def how_many_more(more_runs: float | None) -> str:
    """Says how many more runs would make the result separable."""
    if more_runs is None:
        return ""
    if math.isinf(more_runs):
        return "no number of runs would settle it"
    if more_runs > 1000:
        return "over 1,000 more runs a side would be needed"
    runs = "run" if more_runs == 1 else "runs"
    return f"about {fmt.count(more_runs)} more {runs} a side would settle it"


def _gates(report: Report) -> Table:
    table = ruled_table()
    table.add_column("gate", no_wrap=True)
    table.add_column("statement", overflow="fold", min_width=14)
    table.add_column("B / A", justify="right", no_wrap=True)
    table.add_column("result", min_width=16, max_width=44)
    states = ("regressed", "not separable", "passes")
    for result in sorted(report.gates, key=lambda result: states.index(result.status))[:_ROWS]:
        title = "all, in A's mix of calls" if report.gate_total else statement(result.compared)
        ratio, words = _ratio(result.ratio, result.ci95), Text(gate_words(result))
        table.add_row(str(result.gate), Text(title), ratio, words)
    return table


def gate_words(result: GateResult) -> str:
    """Returns a gate's result with its reason, on one line."""
    reason = "; ".join(filter(None, (result.reason, how_many_more(result.more_runs))))
    return ": ".join(filter(None, (result.status, reason)))


def _footing(report: Report) -> list[tuple[str, str]]:
    lines = []
    if (hidden := len(report.sides.rows) - _ROWS) > 0:
        lines.append(("more", f"{hidden:,} statements are not shown: --json has all"))
    if report.gates:
        counts = Counter(result.status for result in report.gates)
        statuses = ", ".join(f"{count:,} {status}" for status, count in sorted(counts.items()))
        lines.append(("gates", statuses))
    for side, alone in (("A", report.alone_a), ("B", report.alone_b)):
        if alone:
            labels = [_form_label(form) for form in alone[:_ALONE_MAX]]
            more = [f"and {len(alone) - _ALONE_MAX:,} more"] if len(alone) > _ALONE_MAX else []
            other = "B" if side == "A" else "A"
            lines.append((f"only {side}", f"not in {other}: " + " · ".join([*labels, *more])))
    if report.sides.not_in_total and len(report.sides.rows) > 1:
        count = len(report.sides.not_in_total)
        lines.append(("total", f"without {count} of them, which a run lacks, or their energy"))
    return lines


def ratio_text(value: float | None, ci95: Interval | None) -> str:
    """Formats `1.23 (1.10…1.40)`; an unknown value is an en dash."""
    if not fmt.is_known(value):
        return fmt.UNKNOWN
    return f"{fmt.significant(value)} ({_ends(ci95)})"


def _ratio(value: float | None, ci95: Interval | None) -> Text:
    if not fmt.is_known(value):
        return Text(fmt.UNKNOWN)
    return Text(fmt.significant(value)).append("\n" + _ends(ci95), style=Style(dim=True))


def _ends(ci95: Interval | None) -> str:
    if ci95 is None:
        return fmt.UNKNOWN
    digits = 3 if ci95[1] < 1.1 * ci95[0] else 2
    return "…".join("∞" if end == math.inf else fmt.significant(end, digits) for end in ci95)
