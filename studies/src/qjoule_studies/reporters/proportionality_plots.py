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


def write(found: Sequence[Proportionality], frontier: Frontier | None, folder: Path) -> list[Path]:
    """Writes the figures that there are data for, as SVG, PNG and CSV.

    Raises:
        QjouleError: the folder or a file cannot be written.
    """
    return save(_figures(found, frontier), folder)


def _figures(found: Sequence[Proportionality], frontier: Frontier | None) -> Iterator[Drawn]:
    if found:
        yield _power(found)
    if frontier is not None:
        yield _front(frontier)


def _power(found: Sequence[Proportionality]) -> Drawn:
    """All of one grade on one machine: `qjoule_studies.proportionality` refuses others."""
    figure, axes = plain()
    rows = []
    for at, each in enumerate(found):
        name = ", ".join(f"{key}={value}" for key, value in each.configuration.items())
        known = [level for level in each.levels if level.power_w.value is not None]
        axes.errorbar(
            [level.percent for level in known],
            [level.power_w.value or 0.0 for level in known],
            yerr=[_below([level.power_w for level in known]), _above([x.power_w for x in known])],
            color=OKABE_ITO[at % len(OKABE_ITO)],
            marker=MARKERS[at % len(MARKERS)],
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
            for level in each.levels
        ]
    axes.set_xlabel("load (% of the peak)")
    axes.set_ylabel("power of the machine (W)")
    # The axis begins at 0, because the figure shows how far idle power is from 0.
    axes.set_ylim(0, _room([level.power_w for each in found for level in each.levels]))
    axes.legend(**_BELOW)
    axes.set_title(
        f"grade {found[0].grade}, idle {text_of(found[0].idle_policy)}", fontsize="small"
    )
    return "power-against-load", figure, pd.DataFrame(rows)


def _front(frontier: Frontier) -> Drawn:
    figure, axes = plain()
    for at, one in enumerate(frontier.configurations[:MOST]):
        axes.errorbar(
            one.performance.value or 0.0,
            one.efficiency.value or 0.0,
            xerr=[_below([one.performance]), _above([one.performance])],
            yerr=[_below([one.efficiency]), _above([one.efficiency])],
            color=OKABE_ITO[at % len(OKABE_ITO)] if one.on_front else GREY,
            marker=MARKERS[at % len(MARKERS)],
            linestyle="none",
            label=text_of(one.label, 80) if one.on_front else None,
        )
    axes.set_xlabel("operations per second")
    axes.set_ylabel(f"operations per joule ({frontier.energy})")
    # With two runs an interval may be a thousand times its figure, so it is cut; the CSV has its
    # ends.
    axes.set_xlim(0, _room([one.performance for one in frontier.configurations]))
    axes.set_ylim(0, _room([one.efficiency for one in frontier.configurations]))
    axes.legend(title="Pareto front", **_BELOW)
    axes.set_title(
        f"grade {frontier.grade}, idle {text_of(frontier.idle_policy)}", fontsize="small"
    )
    rows = [
        {
            "configuration": one.label,
            "runs": one.runs,
            **_columns("operations_per_s", one.performance),
            **_columns("operations_per_j", one.efficiency),
            "on_front": one.on_front,
        }
        for one in frontier.configurations
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
