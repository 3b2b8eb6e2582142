# SPDX-License-Identifier: Apache-2.0
"""Formats `qjoule fleet top` as a table: rows, then their totals by grade and policy."""

from __future__ import annotations

from rich.style import Style
from rich.table import Table
from rich.text import Text

from qjoule.api.screen import (
    FIXED_NAMES,
    HELPERS,
    NO_TEXT,
    STATEMENT,
    WAIT_TITLES,
    Page,
    fitted_table,
    helpers_cell,
    key_width,
    notes_grid,
    notes_on_waits,
    page_width,
    ruled_table,
    sized,
    wait_cells,
)
from qjoule.api.screen import format as fmt
from qjoule_fleet.times import iso
from qjoule_fleet.top import SEVERAL_TEXTS, Row, Top, Total

_MIN_WIDTH = 60
_FALLBACK = 140  #: columns if the terminal's width is unknown
_NONE = "(none)"

#: Columns: title, and rank; the highest rank is dropped first if the table is too wide, 0 never.
_COLUMNS = {
    "label": ("", 0),
    "energy": ("energy ± 95 %", 0),
    "share": ("share", 2),
    "calls": ("calls", 3),
    "per_call": ("J/call ± 95 %", 1),
    "cpu": ("CPU", 4),
    "p50": ("lat p50", 7),
    "p95": ("lat p95", 6),
    "hosts": ("hosts", 5),
    "grade": ("grade", 0),
    "policy": ("idle", 8),
    "flags": ("", 0),
}
#: Columns with parts of the latency instead of a call's cost.
_OF_WAITS = {
    **{key: _COLUMNS[key] for key in ("label", "energy", "share", "calls")},
    "mean": ("lat mean", 3),
    **{key: (title, 1) for key, title in (WAIT_TITLES | {HELPERS: HELPERS}).items()},
    **{key: _COLUMNS[key] for key in ("hosts", "grade", "policy", "flags")},
}


def render(
    ranking: Top, *, width: int | None = None, color: bool = False, waits: bool = False
) -> str:
    """Returns the table as text that ends with a line feed. `width`: cells, else the terminal's.

    `waits`: show columns with parts of the latency instead of a call's cost.
    """
    width = page_width(width, _MIN_WIDTH, _FALLBACK)
    page = Page(width, color)
    page.print(notes_grid(fmt.safe_notes(_heading(ranking))))
    page.print()
    page.print(_rows(ranking, width, _OF_WAITS if waits else _COLUMNS))
    page.print()
    page.print(_totals(ranking))
    page.print()
    wait_notes = notes_on_waits(ranking.rows) if waits else ()
    page.print(notes_grid(fmt.safe_notes([*wait_notes, *_footing(ranking)])))
    return page.text()


def _heading(ranking: Top) -> list[tuple[str, str]]:
    read = ranking.read
    hosts = "1 host" if read.hosts == 1 else f"{read.hosts:,} hosts"
    lines = [
        ("time", f"{iso(ranking.range.begin_s)} to {iso(ranking.range.end_s)}"),
        ("read", f"{hosts}, {read.parts:,} parts, {fmt.si(float(read.bytes), 'B')}"),
    ]
    if read.refused:
        lines.append(("LEFT OUT", f"{len(read.refused):,} parts that are not what they should be"))
    if read.missing:
        hosts_missing = len({host for host, _ in read.missing})
        lines.append(("MISSING", f"{len(read.missing):,} hours of {hosts_missing:,} hosts"))
    if read.silent:
        lines.append(("SILENT", f"{len(read.silent):,} known hosts have no row in this time"))
    return lines


def _rows(ranking: Top, width: int, of: dict[str, tuple[str, int]]) -> Table:
    classes = {(total.grade, total.policy) for total in ranking.totals}
    keys = _key_columns(ranking)
    cells = [_cells(row, ranking) | _key_cells(row, keys) for row in ranking.rows]
    most = dict.fromkeys(keys, key_width(width, len(keys))) | {"label": STATEMENT}
    columns = []
    named = {key: (fmt.one_line(name), 0) for key, name in keys.items()}
    for key, (title, rank) in {"label": of["label"], **named, **of}.items():
        shown = title or (_title(ranking) if key == "label" else "")
        contents = [line[key] for line in cells]
        if not any(contents) or (key == "policy" and len({class_[1] for class_ in classes}) < 2):
            continue
        left = key in ("label", "grade", "policy", "flags", *keys)
        columns.append(sized(key, shown, contents, rank, most.get(key, 28), left=left))
    table, shown_keys = fitted_table(columns, width, "label")
    for line in cells:
        table.add_row(*(Text(line[key]) for key in shown_keys))
    return table


def _cells(row: Row, ranking: Top) -> dict[str, str]:
    ends = row.energy_nj_ci95
    ci95 = None if ends is None else (ends[0] / 1e9, ends[1] / 1e9)
    cpu_s = row.cpu_ns / 1e9
    return {
        "label": label(row),
        "energy": fmt.with_interval(row.energy_nj / 1e9, ci95),
        "share": fmt.share(row.share),
        "calls": fmt.count(row.calls),
        "per_call": fmt.with_interval(row.j_per_call, row.j_per_call_ci95),
        "cpu": fmt.duration(cpu_s * 1e9),
        "mean": fmt.duration(row.latency_ns_mean),
        "p50": fmt.duration(row.latency_ns_p50),
        "p95": fmt.duration(row.latency_ns_p95),
        "hosts": "" if ranking.by.keys == ("host",) else fmt.count(row.hosts),
        "grade": fmt.one_line(row.grade) or fmt.UNKNOWN,
        "policy": fmt.one_line(row.policy) or fmt.UNKNOWN,
        "flags": "T" if row.texts > 1 else "",
        **wait_cells(row.waits),
        **({HELPERS: ""} | helpers_cell(row)),
    }


def _key_columns(ranking: Top) -> dict[str, str]:
    """Returns keys beside the statement by column: rows could not be distinguished without them."""
    if "fingerprint" not in ranking.by.keys:
        return {}
    own = ("fingerprint", "grade", "policy")
    return {f"key:{key}": key for key in ranking.by.keys if key not in own}


def _key_cells(row: Row, keys: dict[str, str]) -> dict[str, str]:
    return {column: fmt.one_line(row.keys.get(key, "")) or _NONE for column, key in keys.items()}


def _title(ranking: Top) -> str:
    if "fingerprint" in ranking.by.keys:
        return "shape"
    keys = [key for key in ranking.by.keys if key not in ("grade", "policy")]
    return " ".join(fmt.one_line(key) for key in keys)


def label(row: Row) -> str:
    """Returns the shape's text on one line, or the keys of a group without a shape."""
    if "fingerprint" in row.keys:
        return fmt.one_line(row.text) or fmt.one_line(f"{row.keys['fingerprint']} {NO_TEXT}")
    keys = {key: value for key, value in row.keys.items() if key not in ("grade", "policy")}
    if len(keys) == 1:
        return fmt.one_line(next(iter(keys.values()))) or _NONE
    return fmt.one_line("  ".join(f"{key}={value or _NONE}" for key, value in keys.items()))


def _totals(ranking: Top) -> Table:
    """Makes a column for each grade and policy; the lines add up to the last one."""
    table = ruled_table(total=True)
    table.add_column("")
    lines: dict[str, list[str]] = {}
    for total in ranking.totals:
        energies_nj = _energies(total, ranking)
        column = fmt.energy_column(list(energies_nj.values()))
        grade = fmt.graded(total.grade or fmt.UNKNOWN, total.total_error)
        class_ = f"{grade}, idle {total.policy or fmt.UNKNOWN}"
        table.add_column(Text(f"{fmt.one_line(class_)} {column.unit}"), justify="right")
        for name, figure in zip(energies_nj, column.figures, strict=True):
            lines.setdefault(name, [""] * len(ranking.totals))[ranking.totals.index(total)] = figure
        of = lines.setdefault("MEASURED" if total.grade == "measured" else "TOTAL", [])
        of += [""] * (len(ranking.totals) - len(of))
        of[ranking.totals.index(total)] = column.total
    totals = [name for name in lines if name in ("MEASURED", "TOTAL")]
    for name, figures in lines.items():
        if name not in totals:
            table.add_row(Text(name), *map(Text, figures), style=Style(dim=name != _SHOWN))
    table.add_section()
    for name in totals:
        table.add_row(Text(name), *map(Text, lines[name]), style=Style(bold=True))
    return table


_SHOWN = "rows above"


def _energies(total: Total, top: Top) -> dict[str, int]:
    others = (
        f"other queries ({fmt.count(top.hidden)} groups)" if top.hidden else "queries in no row"
    )
    parts = {_SHOWN: total.rows_nj}
    if top.hidden or total.others_nj:
        parts[others] = total.others_nj
    parts |= {FIXED_NAMES.get(kind, kind): energy for kind, energy in total.parts_nj.items()}
    if total.unaccounted_nj:
        parts["NOT ACCOUNTED FOR"] = total.unaccounted_nj
    return parts


def _footing(ranking: Top) -> list[tuple[str, str]]:
    notes = []
    if len(ranking.totals) > 1:
        classes = "grades or idle policies" if not ranking.by.mix_grades else "idle policies"
        notes.append(("note", f"rows of different {classes} are not added up"))
    if ranking.by.mix_grades:
        notes.append(("MIXED", "measured and estimated joules are added up, as --mix-grades asks"))
    for total in ranking.totals:
        if total.lost_records or total.lost_cpu_ns:
            time = fmt.duration(float(total.lost_cpu_ns))
            notes.append(
                (
                    "lost",
                    f"{total.grade}: {total.lost_records:,} records and {time} of CPU time; "
                    "intervals are wider for it",
                )
            )
    if any(row.texts > 1 for row in ranking.rows):
        notes.append(("T", SEVERAL_TEXTS))
    return [*notes, *(("note", note) for note in ranking.notes)]
