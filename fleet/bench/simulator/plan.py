# SPDX-License-Identifier: Apache-2.0
"""The tables of the plan to internet scale in fleet/README.md, from a bench's figures."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fleet.bench.simulator.coverage import ROOT, Held, Run
from fleet.bench.simulator.queries import Costs, Dask, Work
from fleet.bench.simulator.query_kills import Killed as QueriesKilled
from fleet.bench.simulator.ship_kills import Killed as ShippersKilled
from fleet.bench.simulator.sizes import Day, Estimate

from qjoule.agent.rollup_layout import HOURS, ROLLUPS
from qjoule.errors import QjouleError

PAGE = ROOT / "fleet" / "README.md"
BEGIN, END = "<!-- Tables of make bench-fleet. -->", "<!-- End of the tables. -->"
#: What is asked of how large a fleet: its words, hosts and days.
FLEETS = (
    ("100 hosts, a day", 100, 1),
    ("100 hosts, 30 days", 100, 30),
    ("1,000 hosts, 30 days", 1_000, 30),
    ("10,000 hosts, 30 days", 10_000, 30),
    ("10,000 hosts, a year", 10_000, 365),
    ("100,000 hosts, 30 days", 100_000, 30),
)
NAMES = {HOURS: "by hour", ROLLUPS: "by minute"}


@dataclass
class Figures:
    """What was measured; the parts that did not run are missing."""

    machine: str = ""
    days: list[Day] = field(default_factory=list)
    top: list[Run] = field(default_factory=list)
    costs: dict[str, Costs] = field(default_factory=dict)
    work: Work | None = None
    dask: Dask | None = None
    coverage: dict[bool, Held] = field(default_factory=dict)
    kills: tuple[ShippersKilled, QueriesKilled] | None = None


def save(figures: Figures, page: Path = PAGE) -> Path:
    """Replaces the tables between the page's marks. Raises `QjouleError` if it has none."""
    text = page.read_text(encoding="utf-8")
    before, begin, after_begin = text.partition(BEGIN)
    _, end, after = after_begin.partition(END)
    if not begin or not end:
        raise QjouleError(f"{page}: the marks {BEGIN!r} and {END!r} are missing")
    tables = "\n\n".join("\n".join(lines) for lines in _tables(figures))
    page.write_text(f"{before}{BEGIN}\n\n{tables}\n\n{END}{after}", encoding="utf-8")
    return page


def _tables(figures: Figures) -> Iterator[list[str]]:
    yield [f"Measured on {figures.machine}."]
    if figures.days:
        yield _days(figures.days)
    yield [*_measured(figures)]
    if HOURS in figures.costs:
        yield _extrapolated(figures.costs, figures.work)
    if HOURS in figures.costs and figures.work is not None:
        yield _limits(figures.costs[HOURS], figures.work)


def _days(days: list[Day]) -> list[str]:
    head = (
        "| statements | calls/s | MB of a host and day | by minute | by hour | if all had minutes |"
    )
    rows = [
        f"| {day.shapes} | {day.calls_per_s:,} | {day.all_mb:.1f} | {day.minutes_mb:.1f} | "
        f"{day.hours_mb:.1f} | {day.every_mb + day.hours_mb:.1f} |"
        for day in days
    ]
    return [head, "|---|---|---|---|---|---|", *rows]


def _measured(figures: Figures) -> Iterator[str]:
    yield "| figure | measured | target |"
    yield "|---|---|---|"
    if top := figures.top:
        wall, cpu = [run.wall_s for run in top], [run.cpu_s for run in top]
        yield f"| top 20 of 100 hosts, a day, 500 statements: time | {_spread(wall)} s | < 5 s |"
        yield f"| its CPU time | {_spread(cpu)} s | |"
        most = max(run.peak_mb for run in top)
        yield f"| its memory | {most:.0f} MB | < 1,000 MB |"
    for table, costs in figures.costs.items():
        yield f"| rows {NAMES[table]}: power of host-days | {costs.slope:.2f} | at most 1 |"
    if (dask := figures.dask) is not None:
        yield f"| 4 workers of Dask by one process | {_spread(dask.ratios)} | at most 1.3 |"
        yield f"| power of Dask's divisions | {dask.scaling:.2f} | at most 1 |"
        yield f"| one more division | {dask.per_task_ms:.0f} ms | |"
    for sided, held in figures.coverage.items():
        kind = ", with one-sided errors" if sided else ""
        low, high = held.interval
        target = "at least 93 %" if sided else "93 to 97 %"
        yield (
            f"| intervals with the truth inside{kind} | {held.share:.1%} of {held.count:,} "
            f"({low:.1%} to {high:.1%}) | {target} |"
        )
    if figures.kills:
        ship, query = figures.kills
        yield (
            f"| kills of {ship.kills} shippers, {query.workers} workers, {query.schedulers} "
            f"schedulers: lost, twice or wrong | "
            f"{ship.lost + ship.twice + ship.damaged + query.different} | 0 |"
        )


def _extrapolated(costs: dict[str, Costs], work: Work | None) -> list[str]:
    tables = [table for table in (HOURS, ROLLUPS) if table in costs]
    head = "| question about | parts | " + " | ".join(
        f"CPU time, rows {NAMES[table]} | memory" for table in tables
    )
    head += " | of it, finding parts |" if work else " |"
    lines = [head, _rule(head)]
    for fleet_name, hosts, days in FLEETS:
        size = hosts * days
        cells = [fleet_name, f"{24 * size:,}"]
        for table in tables:
            measured = size <= max(costs[table].sizes)
            mark = "" if measured else "≈ "
            cells.append(mark + _time(costs[table].time.at(size)))
            cells.append(mark + _memory(costs[table].memory.at(size)))
        if work:
            cells.append(_seconds(work.find_s * size))
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _limits(costs: Costs, work: Work) -> list[str]:
    lines = ["| what ends | at |", "|---|---|"]
    for limit, cpus, seconds in (
        ("DuckDB on 2 CPUs, answers in 5 s", 2, 5),
        ("DuckDB on 2 CPUs, answers in a minute", 2, 60),
        ("DuckDB on 32 CPUs, answers in a minute", 32, 60),
    ):
        # Finding the parts is the work of one CPU.
        each_s = work.find_s + (costs.time.each - work.find_s) / cpus
        lines.append(f"| {limit} | {(seconds - costs.time.start) / each_s:,.0f} host-days |")
    hosts = 64e9 / (work.cell_bytes * work.cells_of_host)
    lines.append(f"| adding the cells up in 64 GB, whoever made them | {hosts:,.0f} hosts |")
    lines.append(f"| finding the parts in a minute | {60 / work.find_s:,.0f} host-days |")
    return lines


def _rule(head: str) -> str:
    return "|" + "---|" * (head.count("|") - 1)


def _spread(values: list[float] | tuple[float, ...]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def _time(estimate: Estimate) -> str:
    return f"{_seconds(estimate.value)} ({_seconds(estimate.low)} to {_seconds(estimate.high)})"


def _seconds(value: float) -> str:
    unit, divisor = ("s", 1) if value < 120 else ("min", 60) if value < 7_200 else ("h", 3_600)
    number = value / divisor
    return f"{number:,.1f} {unit}" if number < 10 else f"{number:,.0f} {unit}"


def _memory(mb: Estimate) -> str:
    return f"{mb.value / 1000:,.1f} GB" if mb.value > 2000 else f"{mb.value:,.0f} MB"
