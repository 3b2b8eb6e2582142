# SPDX-License-Identifier: Apache-2.0
"""The columns of the per-query energy table: which are shown, how wide, and in what order."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rich.style import Style
from rich.table import Table
from rich.text import Text

from qjoule.reporters.plain import (
    STATEMENT,
    Column,
    fitted_table,
    key_width,
    sized,
)
from qjoule.reporters.result_columns import FIGURES
from qjoule.reporters.waits import (
    HELPERS,
    STOLEN,
    WAIT_TITLES,
)

#: Columns that this module makes, in order: title, and rank. The column with the highest rank is
#: dropped first if the table is too wide; 0 is never dropped.
_COLUMNS = {
    "label": ("query", 0),
    "server": ("server", 5),
    "fingerprint": ("fingerprint", 9),
    "calls": ("calls", 3),
    "energy": ("energy", 0),
    "share": ("share ± 95 %", 2),
    "kwh": ("", 5),
    "cost": ("cost", 2),
    "gco2e": ("CO2e", 2),
    "per_call": ("J/call ± 95 %", 1),
    "cost_call": ("cost/call", 1),
    "gco2e_call": ("CO2e/call", 1),
    "flags": ("", 0),
    "power": ("W", 7),
    "cpu": ("CPU ms/call", 4),
    "commit": ("commit", 2),
    "commit_time": ("for", 3),
}
#: Further columns: those of a result that have an `InTable`.
OF_RESULT = [(column, column.in_table) for column in FIGURES if column.in_table]
_BESIDE_WAITS = ("label", "server", "fingerprint", "calls", "energy", "share", "latency_ns_mean")
_LEFT_ALIGNED = ("label", "server", "fingerprint", "flags")
KEY = "key:"  #: prefix of the column name of a key


@dataclass(frozen=True)
class Line:
    """One line of the table, before its energies are rounded together."""

    section: str  #: query, fixed or total
    energy_nj: int
    cells: dict[str, str]


def table_of(
    table_lines: list[Line], units: dict[str, str], width: int, *, waits: bool, ranked: bool
) -> Table:
    columns = _columns(table_lines, units, width, waits=waits)
    if ranked:
        # Shares are far better known than the joules of an estimated total, so they come first.
        columns = [replace(c, rank=0) if c.key == "share" else c for c in columns]
        columns.sort(key=lambda column: (column.align == "right", column.key != "share"))
    table, keys = fitted_table(columns, width, "label", total=True)
    for index, line in enumerate(table_lines):
        if index and line.section != table_lines[index - 1].section:
            table.add_section()
        style = {"query": Style(), "fixed": Style(dim=True), "total": Style(bold=True)}
        table.add_row(*(Text(line.cells.get(key, "")) for key in keys), style=style[line.section])
    return table


def _columns(
    table_lines: list[Line], units: dict[str, str], width: int, *, waits: bool
) -> list[Column]:
    """Returns the columns that have content, as wide as needed."""
    columns = []
    servers = {line.cells.get("server") for line in table_lines} - {None, ""}
    keys = {
        key: key.removeprefix(KEY)
        for line in table_lines
        for key in line.cells
        if key.startswith(KEY)
    }
    most = dict.fromkeys(keys, key_width(width, len(keys))) | {"label": STATEMENT}
    titles = {"label": _COLUMNS["label"], **{key: (name, 0) for key, name in keys.items()}}
    titles |= _COLUMNS | {
        column.name: (in_table.title, in_table.rank) for column, in_table in OF_RESULT
    }
    if waits:
        titles = {key: title for key, title in titles.items() if key in (*_BESIDE_WAITS, *keys)}
        titles |= {key: (title, 1) for key, title in WAIT_TITLES.items()}
        titles[HELPERS] = (HELPERS, 1)
        titles["waiting"] = ("idle J while waiting", 2)
        titles[STOLEN] = (STOLEN, 1)
    for key, (title, rank) in titles.items():
        contents = [line.cells.get(key, "") for line in table_lines]
        if not any(contents) or (key == "server" and len(servers) < 2):
            continue
        full_title = " ".join(filter(None, (title, units.get(key))))
        left = key in _LEFT_ALIGNED or key in keys
        columns.append(sized(key, full_title, contents, rank, most.get(key, 28), left=left))
    return columns
