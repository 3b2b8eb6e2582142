# SPDX-License-Identifier: Apache-2.0
"""The per-query energy table: costs of queries, other users of energy, and a total that adds up."""

from __future__ import annotations

from qjoule.model.result import OWNERS, PARTS, Attribution, Row
from qjoule.reporters import format as fmt
from qjoule.reporters import impact, provenance
from qjoule.reporters.labels import (
    FIXED_NAMES,
    fingerprint,
    fixed_label,
    id_notes,
    key_cells,
    statement_label,
)
from qjoule.reporters.plain import (
    Page,
    notes_grid,
    page_width,
)
from qjoule.reporters.provenance import flag_letters, footing, graded, has_energy, heading
from qjoule.reporters.table_columns import KEY, OF_RESULT, Line, table_of
from qjoule.reporters.waits import (
    helpers_cell,
    notes_on_waits,
    stolen_cell,
    wait_cells,
)

_MIN_WIDTH = 40
_FALLBACK = 120  #: columns if the terminal's width is unknown
_FIXED_ROWS_PER_PART = 3


def render(
    attribution: Attribution,
    *,
    width: int | None = None,
    color: bool = False,
    limit: int = 20,
    ids: bool = False,
    waits: bool = False,
) -> str:
    """Returns the table as text that ends with a line feed.

    Args:
        attribution: the result to show.
        width: cells; by default the terminal's, 120 without one.
        color: write ANSI colours. The caller decides (a terminal, NO_COLOR).
        limit: query rows shown; the rest becomes one row, `other queries`.
        ids: also list the statements' ids in other tools.
        waits: show columns of the latency's parts instead of a call's cost.
    """
    width = page_width(width, _MIN_WIDTH, _FALLBACK)
    limit = max(0, limit)
    flags = flag_letters(attribution, limit)
    table_lines = lines(attribution, limit, flags)
    units = _with_energies(attribution, table_lines)
    page = Page(width, color)
    page.print(notes_grid(heading(attribution)))
    page.print()
    ranked = attribution.energy_source.grade == "estimated"
    page.print(table_of(table_lines, units, width, waits=waits, ranked=ranked))
    page.print()
    legend = "  ".join(f"{letter} {fmt.one_line(flag)}" for flag, letter in flags.items())
    notes = [("flags", legend)] if legend else []
    remarks = [*impact.notes(attribution), *provenance.power_factors(attribution, limit)]
    if waits and any(row.calls for row in attribution.rows):
        remarks += notes_on_waits(attribution.rows)
    elif waits:
        remarks.append(("waits", "not recorded: no query was seen"))
    listed = id_notes(attribution, limit) if ids else []
    page.print(notes_grid([*notes, *listed, *remarks, *footing(attribution)]))
    return page.text()


def lines(attribution: Attribution, limit: int, flags: dict[str, str]) -> list[Line]:
    """Makes lines whose energies add up exactly to the total line's, in nJ."""
    listed = attribution.rows[:limit]
    result = [_line_of_row(row, attribution, flags) for row in listed]
    parts = attribution.main.parts_nj if attribution.domains else dict.fromkeys(PARTS, 0)
    hidden = attribution.rows[limit:]
    rest_nj = parts.get("queries", 0) - sum(row.energy_nj for row in listed)
    if hidden or rest_nj:
        label = (
            f"other queries ({fmt.count(len(hidden))} groups)" if hidden else "queries in no row"
        )
        result.append(_line_of_others(label, rest_nj, hidden, attribution))
    for part in PARTS[1:]:
        result += _fixed_lines(part, parts.get(part, 0), attribution, flags, limit)
    measured_nj = attribution.main.measured_nj if attribution.domains else 0
    missing_nj = measured_nj - sum(line.energy_nj for line in result)
    if missing_nj:
        result.append(_line("fixed", "NOT ACCOUNTED FOR", missing_nj, attribution, owned_nj=0))
    grade = graded(attribution) if has_energy(attribution) else "(no energy source)"
    owned_nj = attribution.main.owned_nj if attribution.domains else 0
    total = _line("total", f"TOTAL {grade}", measured_nj, attribution, owned_nj=owned_nj)
    total.cells["calls"] = fmt.count(sum(row.calls for row in attribution.rows))
    return [*result, total]


def _line_of_row(row: Row, attribution: Attribution, flags: dict[str, str]) -> Line:
    line = _line("query", statement_label(row), row.energy_nj, attribution, row)
    line.cells.update({KEY + name: value for name, value in key_cells(row).items()})
    line.cells.update(
        **cells_per_call(row, attribution),
        server=fmt.one_line(row.server),
        calls=fmt.count(row.calls),
        flags="".join(flags[flag] for flag in row.flags),
    )
    line.cells.update(wait_cells(row.waits), **helpers_cell(row), **stolen_cell(row))
    if row.waiting_nj is not None:
        line.cells["waiting"] = fmt.joules(row.waiting_nj / 1e9)
    line.cells.update(impact.per_call_cells(row, attribution))
    if row.commit_nj is not None:
        line.cells["commit_time"] = fmt.duration(row.commit_ns_mean)
        if has_energy(attribution) and row.energy_nj:
            line.cells["commit"] = fmt.share(row.commit_nj / row.energy_nj)
    return line


def cells_per_call(row: Row, attribution: Attribution) -> dict[str, str]:
    """Returns the cost of one call, by column; the live view has the same columns."""
    energy_known = has_energy(attribution)
    return {
        "fingerprint": fingerprint(row),
        "per_call": fmt.with_interval(row.j_per_call, row.j_per_call_ci95)
        if energy_known
        else fmt.UNKNOWN,
        "cpu": fmt.milliseconds(row.cpu_ns / row.calls if row.calls else None),
        **{
            column.name: in_table.text(column.of(row, energy_known))
            for column, in_table in OF_RESULT
        },
    }


def _line_of_others(
    label: str, energy_nj: int, hidden: tuple[Row, ...], attribution: Attribution
) -> Line:
    line = _line("query", label, energy_nj, attribution)
    calls = sum(row.calls for row in hidden)
    if calls:
        line.cells["calls"] = fmt.count(calls)
        line.cells["cpu"] = fmt.milliseconds(sum(row.cpu_ns for row in hidden) / calls)
        if has_energy(attribution):
            line.cells["per_call"] = fmt.joules(energy_nj * 1e-9 / calls)
    return line


def _fixed_lines(
    part: str, part_nj: int, attribution: Attribution, flags: dict[str, str], limit: int
) -> list[Line]:
    """Makes lines for a part's largest rows, and one for the rest of the part.

    If a server is known by threads only, as many rows are shown as of queries.
    """
    rows = sorted((r for r in attribution.fixed if r.kind == part), key=lambda r: -r.energy_nj)
    most = max(limit if any(row.by_thread for row in rows) else 0, _FIXED_ROWS_PER_PART)
    listed = rows if len(rows) <= most else rows[: most - 1]
    result = []
    for row in listed:
        line = _line("fixed", fixed_label(row), row.energy_nj, attribution, row)
        line.cells["flags"] = "".join(flags[flag] for flag in row.flags)
        line.cells["server"] = fmt.one_line(row.server)
        result.append(line)
    rest_nj = part_nj - sum(row.energy_nj for row in listed)
    if rest_nj or not listed or len(rows) > len(listed):
        name = FIXED_NAMES[part] + (": others" if listed else "")
        owned_nj = rest_nj if part in OWNERS else 0
        result.append(_line("fixed", name, rest_nj, attribution, owned_nj=owned_nj))
    return result


def _line(
    section: str,
    label: str,
    energy_nj: int,
    attribution: Attribution,
    row: Row | None = None,
    *,
    owned_nj: int | None = None,
) -> Line:
    """Makes a line of the table. Its share is that of `row`, else that of `owned_nj`, the energy of
    owners in it (by default all). Idle and residual have no share."""
    cells = {"label": label, "share": "", "power": fmt.UNKNOWN}
    if not has_energy(attribution):
        return Line(section, energy_nj, cells | {"share": fmt.UNKNOWN})
    whole_nj = attribution.main.owned_nj
    owned_nj = energy_nj if owned_nj is None else owned_nj
    if row is not None and row.share is not None:
        cells["share"] = fmt.share_with_interval(row.share, row.share_ci95)
    elif row is None and owned_nj and whole_nj:
        cells["share"] = fmt.share(owned_nj / whole_nj)
    seconds = attribution.trace.duration_s
    cells["power"] = fmt.watts(energy_nj * 1e-9 / seconds if seconds > 0 else None)
    return Line(section, energy_nj, cells)


def _with_energies(attribution: Attribution, table_lines: list[Line]) -> dict[str, str]:
    """Fills the columns of totals, and returns their units.

    The displayed lines add up to the displayed total.
    """
    energies_nj = [line.energy_nj for line in table_lines]
    if has_energy(attribution):
        column = fmt.energy_column(energies_nj[:-1])
        columns = {"energy": (column.unit, [*column.figures, column.total])}
        columns |= impact.total_columns(energies_nj, attribution)
    else:
        columns = {"energy": ("J", [fmt.UNKNOWN] * len(table_lines))}
    for key, (_, figures) in columns.items():
        for line, figure in zip(table_lines, figures, strict=True):
            line.cells[key] = figure
    units = {key: unit for key, (unit, _) in columns.items()}
    if attribution.impact and "cost" in units:
        units["cost"] += attribution.impact.currency
    return units
