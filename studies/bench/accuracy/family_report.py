# SPDX-License-Identifier: Apache-2.0
"""Prints the figures of every family and scenario: errors, coverage, machines, parts."""

from __future__ import annotations

from collections.abc import Sequence

from studies.bench.accuracy.figures import ENOUGH, Figures, best_by_time, figures
from studies.bench.accuracy.outcomes import FAMILIES, FRIENDLY, HISTORY, MEMORY, CaseResult

#: Method, title, and whether it is about cases with hardware counters only.
WAYS = (
    ("qjoule", "calibrated, with counters", True),
    ("rested", "not calibrated, after a minute at rest, with counters", True),
    ("uncalibrated", "not calibrated, never idle, with counters", True),
    ("qjoule_time", "calibrated, by time", False),
    ("rested_time", "not calibrated, after a minute at rest, by time", False),
    ("uncalibrated_time", "not calibrated, never idle, by time", False),
)
#: The same, on recordings of one machine on several days.
HISTORIES = (
    ("uncalibrated", "one machine on several days, not calibrated, each day alone"),
    (MEMORY, "one machine on several days, not calibrated, with what earlier days taught"),
)
_FIRST = 27
_COLUMNS = (
    ("by case", 11),
    ("by shape", 11),
    ("held", 7),
    ("95 % of it", 11),
    ("width", 7),
    ("worst", 7),
    ("below", 7),
    ("> time", 8),
    ("> alone", 9),
)
LEGEND = (
    "by case, by shape: mean / worst error, %. held: share of 95 % intervals that hold the",
    "truth, with its 95 % interval by machine. width: median half width, %. worst: share held on",
    f"the worst machine; below: machines that hold less than {100 * ENOUGH:.0f} %. > time: cases",
    "with a larger error than the best time-based method of their scenario, which is given the",
    "power at rest that a calibration run would have measured; > alone: than the best of those",
    "that are not given it (Kepler, Scaphandre, CPU time above the least power seen).",
)


def of_family(results: Sequence[CaseResult], family: str, counters: bool) -> list[CaseResult]:
    """The cases of one family without histories; only those with hardware counters if
    `counters`.
    """
    of_this_family = [r for r in results if r.family == family and r.scenario != HISTORY]
    return [r for r in of_this_family if r.counted or not counters]


def histories_of(results: Sequence[CaseResult], family: str) -> list[CaseResult]:
    """The recordings of histories on machines of one family."""
    return [r for r in results if r.family == family and r.scenario == HISTORY]


def plain_of(results: Sequence[CaseResult]) -> list[CaseResult]:
    """The cases on friendly machines, of which all methods are shown."""
    return of_family(results, FRIENDLY, counters=False)


def families_of(results: Sequence[CaseResult]) -> list[str]:
    """Families that were run, in the order of `FAMILIES`."""
    present = dict.fromkeys(result.family for result in results)
    return sorted(present, key=lambda name: (*FAMILIES, name).index(name))


def render(results: Sequence[CaseResult]) -> list[str]:
    """All tables, as lines of at most 105 columns."""
    lines = list(LEGEND)
    for method, title, counters in WAYS:
        if table := _table(results, method, counters):
            lines += ["", f"{title} ({method})", _header(), *table]
    for method, title in HISTORIES:
        if table := _history_table(results, method):
            lines += ["", title, _header(), *table]
    lines += ["", "All methods: mean error by case, %", "", *_methods(results)]
    if parts := _parts(results):
        lines += ["", "Parts of the interval: median half width, % (share of shapes where it is"]
        lines += ["the widest part, %)", "", *parts]
    return lines


def _header() -> str:
    return " " * _FIRST + "".join(f"{name:>{width}}" for name, width in _COLUMNS)


def _table(results: Sequence[CaseResult], method: str, counters: bool) -> list[str]:
    lines = []
    for family in families_of(results):
        rows = of_family(results, family, counters)
        if (overall := figures(rows, method)) is None:
            continue
        lines.append(f"{family:<{_FIRST}}" + _cells(overall))
        for scenario in dict.fromkeys(row.scenario for row in rows):
            scenario_rows = [row for row in rows if row.scenario == scenario]
            if (scenario_figures := figures(scenario_rows, method)) is not None:
                lines.append(f"  {scenario:<{_FIRST - 2}}" + _cells(scenario_figures))
    return lines


def _methods(results: Sequence[CaseResult]) -> list[str]:
    """Methods as rows, families as columns, over all cases on which a method ran."""
    families = families_of(results)
    lines = [" " * 18 + "".join(f"{name[:12]:>13}" for name in families)]
    methods = dict.fromkeys(outcome.method for result in results for outcome in result.outcomes)
    for method in methods:
        cells = [figures(of_family(results, name, counters=False), method) for name in families]
        texts = ["-" if cell is None else percent(cell.case_mean) for cell in cells]
        lines.append(f"{method:<18}" + "".join(f"{text:>13}" for text in texts))
    return lines


def _history_table(results: Sequence[CaseResult], method: str) -> list[str]:
    rows = [(name, figures(histories_of(results, name), method)) for name in families_of(results)]
    return [f"{name:<{_FIRST}}" + _cells(cell) for name, cell in rows if cell is not None]


def percent(value: float | None, digits: int = 1) -> str:
    """A fraction in per cent; "-" if there is none."""
    return "-" if value is None else f"{100 * value:.{digits}f}"


def _cells(row: Figures) -> str:
    coverage = "-" if row.low is None else f"{percent(row.low)}-{percent(row.high)}"
    cells = (
        f"{percent(row.case_mean)}/{percent(row.case_worst)}",
        f"{percent(row.shape_mean)}/{percent(row.shape_worst)}",
        percent(row.share),
        coverage,
        percent(row.width),
        percent(row.machine_worst, 0),
        f"{row.machines_below}/{row.cases}" if row.low is not None else "-",
        f"{row.worse}/{row.compared}" if row.compared else "-",
        f"{row.worse_alone}/{row.compared}" if row.compared else "-",
    )
    return "".join(f"{text:>{width}}" for text, (_, width) in zip(cells, _COLUMNS, strict=True))


def _parts(results: Sequence[CaseResult]) -> list[str]:
    lines: list[str] = []
    for method, title, counters in WAYS:
        for family in families_of(results):
            totals = figures(of_family(results, family, counters), method)
            if totals is None or not totals.parts:
                continue
            if not lines or not lines[-1].startswith("  "):
                names = "".join(f"{name:>15}" for name in totals.parts)
                lines += [f"{'':<{_FIRST}}{names}"] if not lines else []
                lines.append(title)
            cells = (
                f"{percent(totals.parts[n])} ({percent(totals.dominant[n], 0)})"
                for n in totals.parts
            )
            lines.append(f"  {family:<{_FIRST - 2}}" + "".join(f"{cell:>15}" for cell in cells))
        if lines and lines[-1].startswith("  "):
            lines.append("")
    return lines[:-1] if lines and not lines[-1] else lines


def time_based(results: Sequence[CaseResult], family: str) -> tuple[str, Figures] | None:
    """The best time-based method of a family, with its figures."""
    rows = of_family(results, family, counters=False)
    name = best_by_time(rows)
    time_figures = figures(rows, name) if name else None
    return None if name is None or time_figures is None else (name, time_figures)
