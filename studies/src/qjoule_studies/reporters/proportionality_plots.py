# SPDX-License-Identifier: Apache-2.0
"""Figures of `qjoule bench proportionality`: power against load, and the Pareto front."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from qjoule_studies.estimates import Estimate
from qjoule_studies.pareto import Frontier
from qjoule_studies.proportionality import Proportionality
from qjoule_studies.statistics.plot_style import (
    GREY,
    MARKERS,
    MOST,
    OKABE_ITO,
    Drawn,
    plain,
    save,
    text_of,
)

_BELOW: Any = {"frameon": False, "loc": "upper center", "bbox_to_anchor": (0.5, -0.15)}


def write(curves: Sequence[Proportionality], frontier: Frontier | None, folder: Path) -> list[Path]:
    """Writes the figures that there are data for, as SVG, PNG and CSV.

    Raises:
        QjouleError: the folder or a file cannot be written.
    """
    return save(_figures(curves, frontier), folder)


def _figures(curves: Sequence[Proportionality], frontier: Frontier | None) -> Iterator[Drawn]:
    if curves:
        yield _power(curves)
    if frontier is not None:
        yield _front(frontier)


def _power(curves: Sequence[Proportionality]) -> Drawn:
    """All of one grade on one machine: `qjoule_studies.proportionality` refuses others."""
    figure, axes = plain()
    rows = []
    for number, curve in enumerate(curves):
        name = ", ".join(f"{key}={value}" for key, value in curve.configuration.items())
        measured = [level for level in curve.levels if level.power_w.value is not None]
        axes.errorbar(
            [level.percent for level in measured],
            [level.power_w.value or 0.0 for level in measured],
            yerr=[
                _below([level.power_w for level in measured]),
                _above([x.power_w for x in measured]),
            ],
            color=OKABE_ITO[number % len(OKABE_ITO)],
            marker=MARKERS[number % len(MARKERS)],
            capsize=2,
            label=text_of(name or "power", 80),
        )
        rows += [
            {
                "configuration": name,
                "load_percent": level.percent,
                "runs": level.runs,
                **_columns("power_w", level.power_w),
                **_columns("operations_per_s", level.throughput),
                **_columns("machine_j_per_operation", level.machine_j_per_operation),
                **_columns("relative_efficiency", level.relative_efficiency),
            }
            for level in curve.levels
        ]
    axes.set_xlabel("load (% of the peak)")
    axes.set_ylabel("power of the machine (W)")
    # The axis begins at 0, because the figure shows how far idle power is from 0.
    axes.set_ylim(0, _room([level.power_w for curve in curves for level in curve.levels]))
    axes.legend(**_BELOW)
    axes.set_title(
        f"grade {curves[0].grade}, idle {text_of(curves[0].idle_policy)}", fontsize="small"
    )
    return "power-against-load", figure, pd.DataFrame(rows)


def _front(frontier: Frontier) -> Drawn:
    figure, axes = plain()
    for number, configuration in enumerate(frontier.configurations[:MOST]):
        axes.errorbar(
            configuration.performance.value or 0.0,
            configuration.efficiency.value or 0.0,
            xerr=[_below([configuration.performance]), _above([configuration.performance])],
            yerr=[_below([configuration.efficiency]), _above([configuration.efficiency])],
            color=OKABE_ITO[number % len(OKABE_ITO)] if configuration.on_front else GREY,
            marker=MARKERS[number % len(MARKERS)],
            linestyle="none",
            label=text_of(configuration.label, 80) if configuration.on_front else None,
        )
    axes.set_xlabel("operations per second")
    axes.set_ylabel(f"operations per joule ({frontier.energy})")
    # With two runs an interval may be a thousand times its figure, so it is cut; the CSV has its
    # ends.
    axes.set_xlim(
        0, _room([configuration.performance for configuration in frontier.configurations])
    )
    axes.set_ylim(0, _room([configuration.efficiency for configuration in frontier.configurations]))
    axes.legend(title="Pareto front", **_BELOW)
    axes.set_title(
        f"grade {frontier.grade}, idle {text_of(frontier.idle_policy)}", fontsize="small"
    )
    rows = [
        {
            "configuration": configuration.label,
            "runs": configuration.runs,
            **_columns("operations_per_s", configuration.performance),
            **_columns("operations_per_j", configuration.efficiency),
            "on_front": configuration.on_front,
        }
        for configuration in frontier.configurations
    ]
    return "efficiency-against-performance", figure, pd.DataFrame(rows)


def _columns(name: str, of: Estimate) -> dict[str, float | None]:
    return {name: of.value, f"{name}_low": of.low, f"{name}_high": of.high}


def _room(estimates: Sequence[Estimate]) -> float:
    """The end of an axis that holds every figure."""
    return 1.3 * max((x.value or 0.0 for x in estimates), default=0.0) or 1.0


def _below(estimates: Sequence[Estimate]) -> list[float]:
    """Lengths of the bars to the lower ends; 0 for a value whose interval is unknown."""
    return [max(0.0, (x.value or 0.0) - x.low) if x.low is not None else 0.0 for x in estimates]


def _above(estimates: Sequence[Estimate]) -> list[float]:
    return [max(0.0, x.high - (x.value or 0.0)) if x.high is not None else 0.0 for x in estimates]
