# SPDX-License-Identifier: Apache-2.0
"""Energy proportionality, and efficiency against performance: as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from rich.text import Text

from qjoule.api.screen import Page, page_width, ruled_table
from qjoule.api.screen import format as fmt
from qjoule_studies.estimates import Estimate
from qjoule_studies.pareto import Frontier
from qjoule_studies.proportionality import Proportionality

SCHEMA = "qjoule.proportionality/1"
_MIN_WIDTH = 60
_FALLBACK = 120
_GRADES = {  # what must not be concluded from a grade
    "measured": "",
    "estimated": "The power is a model's, so its curve over load is the model's too: this compares "
    "the work that was done, and says nothing of how this machine's power follows its load.",
    "simulated": "The power is a test source's: nothing of this is about a machine.",
}


def to_json(curves: Sequence[Proportionality], frontier: Frontier | None) -> dict[str, Any]:
    """The document, for `json.dumps`. Unknown values are null."""
    return {
        "schema": SCHEMA,
        "proportionality": [_plain(asdict(curve)) for curve in curves],
        "frontier": None if frontier is None else _plain(asdict(frontier)),
    }


def render(
    curves: Sequence[Proportionality],
    frontier: Frontier | None,
    *,
    width: int | None = None,
    color: bool = False,
) -> str:
    """Both as text that ends with a line feed; either may be empty."""
    page = Page(page_width(width, _MIN_WIDTH, _FALLBACK), color)
    for curve in curves:
        _curve(page, curve)
    if frontier is not None:
        _front(page, frontier)
    return page.text()


def _curve(page: Page, curve: Proportionality) -> None:
    levels = ", ".join(f"{name}={level}" for name, level in curve.configuration.items())
    page.print(Text(f"Energy proportionality {fmt.one_line(levels)}".rstrip(), style="bold"))
    table = ruled_table(leading=0)
    names = ("load", "runs", "ops/s", "power", "machine J/op", "attributed J/op", "efficiency")
    for name in names:
        table.add_column(name, justify="right", overflow="fold")
    for level in curve.levels:
        table.add_row(
            f"{level.percent:g} %" + (" *" if level.saturated else ""),
            str(level.runs),
            fmt.rate(level.throughput.value),
            _figure(level.power_w, "W"),
            _figure(level.machine_j_per_operation),
            _figure(level.j_per_operation),
            _share(level.relative_efficiency),
        )
    page.print(table)
    if any(level.saturated for level in curve.levels):
        page.print("* less was answered than arrived")
    page.print(f"idle share of the peak's power  {_share(curve.idle_share)}")
    page.print(f"dynamic range                   {_share(curve.dynamic_range)}")
    page.print(f"proportionality index           {_bare(curve.index)}  (1: power follows load)")
    page.print(f"linear deviation                {_bare(curve.linear_deviation)}")
    for line in curve.missing:
        page.print(f"unknown: {line}")
    _about(page, curve)


def _front(page: Page, frontier: Frontier) -> None:
    page.print(Text("Efficiency against performance", style="bold"))
    table = ruled_table(leading=0)
    table.add_column("configuration", overflow="fold", min_width=16)
    for name in ("runs", "ops/s", "ops/J", "Pareto front"):
        table.add_column(name, justify="right", overflow="fold")
    for configuration in frontier.configurations:
        table.add_row(
            fmt.one_line(configuration.label),
            str(configuration.runs),
            _figure(configuration.performance, ""),
            _figure(configuration.efficiency, ""),
            "yes" if configuration.on_front else "",
        )
    page.print(table)
    page.print("Was the fastest configuration the most efficient one?")
    page.print(fmt.one_line(frontier.verdict.text))
    energy = (
        "all of the machine's" if frontier.energy == "machine" else "what the queries were given"
    )
    page.print(f"Joules: {energy}.")
    _about(page, frontier)


def _about(page: Page, result: Proportionality | Frontier) -> None:
    source, grade = fmt.one_line(result.energy_source), fmt.one_line(result.grade)
    line = f"Energy: {grade}, from {source}; idle policy {fmt.one_line(result.idle_policy)}."
    if result.skipped:
        line += f" {result.skipped} runs failed or have no energy, and are left out."
    line += " Intervals: 95 %, over runs; the energy source's own error is not in them."
    page.print(Text(line, style="dim"))
    warning = _GRADES.get(result.grade, f"What the grade {grade} means is not known here.")
    if warning:
        page.print(Text(warning, style="bold"))
    page.print()


def _figure(estimate: Estimate, unit: str = "J") -> str:
    return fmt.with_interval(estimate.value, _interval(estimate), unit)


def _interval(estimate: Estimate) -> tuple[float, float] | None:
    if estimate.low is None or estimate.high is None:
        return None
    return estimate.low, estimate.high


def _share(estimate: Estimate) -> str:
    return _with_bounds(estimate, fmt.share)


def _bare(estimate: Estimate) -> str:
    return _with_bounds(estimate, lambda value: f"{round(value, 3) + 0.0:.3f}")


def _with_bounds(estimate: Estimate, written: Any) -> str:
    if estimate.value is None:
        return fmt.UNKNOWN
    interval = _interval(estimate)
    if interval is None:
        return f"{written(estimate.value)} ({fmt.UNKNOWN})"
    return f"{written(estimate.value)} ({written(interval[0])} to {written(interval[1])})"


def _plain(value: Any) -> Any:
    """Converts numpy types, which levels of factors have; NaN becomes None."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
