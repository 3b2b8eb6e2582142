# SPDX-License-Identifier: Apache-2.0
"""Formats `qjoule fleet compare --hosts`, outliers among hosts, as a table and JSON."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rich.style import Style
from rich.text import Text

from qjoule.api.command import shorten
from qjoule.api.comparison import ratio_text
from qjoule.api.screen import NO_TEXT, Page, page_width, ruled_table, writers
from qjoule.api.screen import format as fmt
from qjoule_fleet.outliers import FALSE_SHARE, LEAST_CALLS, LEAST_HOSTS, Outlier, Outliers
from qjoule_fleet.times import Range, iso
from qjoule_fleet.top import Read

SCHEMA = "qjoule.fleet-hosts/1"
METHOD = "median and MAD of log J/call over hosts, with each host's interval; Benjamini-Hochberg"
_ROWS = 30
_MIN_WIDTH, _FALLBACK = 80, 140
_LONGEST = 200


def to_json(result: Outliers, time_range: Range, read: Read) -> str:
    document = {
        "schema": SCHEMA,
        "from": iso(time_range.begin_s),
        "to": iso(time_range.end_s),
        "method": METHOD,
        "false_share": FALSE_SHARE,
        "tested": result.tested,
        "not_tested": result.skipped,
        "rows": [_row(outlier) for outlier in result.outliers],
        "refused": [{"path": part.path, "reason": part.reason} for part in read.refused],
        "missing_hours": [{"host": host, "hour": iso(hour)} for host, hour in read.missing],
    }
    return writers.json_text(document)


def _row(outlier: Outlier) -> dict[str, Any]:
    row = outlier.row
    return {
        **row.keys,
        "shape": row.text,
        "grade": row.grade,
        "policy": row.policy,
        "calls": row.calls,
        "energy_nj": row.energy_nj,
        "j_per_call": row.j_per_call,
        "j_per_call_ci95": row.j_per_call_ci95,
        "median_j_per_call": outlier.median_j,
        "ratio": outlier.ratio,
        "ratio_ci95": outlier.ratio_ci95,
        "hosts": outlier.hosts,
        "p": outlier.p,
    }


def render(
    result: Outliers, time_range: Range, *, width: int | None = None, color: bool = False
) -> str:
    """Returns the table as text that ends with a line feed. `width`: cells, else the terminal's."""
    page = Page(page_width(width, _MIN_WIDTH, _FALLBACK), color)
    page.print(Text(f"time  {time_range}", style=Style(dim=True)))
    page.print()
    table = ruled_table()
    table.add_column("shape", overflow="ellipsis", no_wrap=True, min_width=16)
    table.add_column("host", no_wrap=True)
    for name in ("J/call ± 95 %", "median host", "ratio", "of hosts"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("grade", no_wrap=True)
    for outlier in result.outliers[:_ROWS]:
        row = outlier.row
        text = row.text or f"{row.keys['fingerprint']} {NO_TEXT}"
        table.add_row(
            Text(shorten(fmt.one_line(text), _LONGEST)),
            Text(fmt.one_line(row.keys["host"])),
            Text(fmt.with_interval(row.j_per_call, row.j_per_call_ci95)),
            Text(fmt.joules(outlier.median_j)),
            Text(ratio_text(outlier.ratio, outlier.ratio_ci95)),
            Text(fmt.count(outlier.hosts)),
            Text(fmt.one_line(row.grade)),
        )
    if result.outliers:
        page.print(table)
        page.print()
    for line in _lines(result):
        page.print(Text(line))
    return page.text()


def _lines(result: Outliers) -> list[str]:
    lines = [
        f"{len(result.outliers):,} of {result.tested:,} shapes on hosts differ from the median "
        f"host; at most {FALSE_SHARE:.0%} of these are expected to be chance"
    ]
    if len(result.outliers) > _ROWS:
        lines.append(f"{len(result.outliers) - _ROWS:,} are not shown: --json has all")
    if result.skipped:
        lines.append(
            f"{result.skipped:,} could not be compared: fewer than {LEAST_HOSTS} hosts of one "
            f"grade and idle policy, fewer than {LEAST_CALLS} calls, or no interval"
        )
    often = Counter(outlier.row.keys["host"] for outlier in result.outliers).most_common(3)
    if often and often[0][1] > 1:
        named = ", ".join(f"{fmt.one_line(host)} ({count:,})" for host, count in often)
        lines.append(f"hosts that differ in most shapes: {named}")
    return lines
