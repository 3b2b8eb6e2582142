# SPDX-License-Identifier: Apache-2.0
"""`qjoule bench proportionality`: how power follows load, and efficiency against performance."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from qjoule.api import QjouleError

if TYPE_CHECKING:
    import pandas as pd

    from qjoule_studies.pareto import Energy, Frontier


@click.command(
    short_help="How power follows load; efficiency against performance.",
    epilog="""\b
Examples:
  qjoule bench proportionality study/
  qjoule bench proportionality study/ --energy attributed
  qjoule bench proportionality study/ --plots figures/
  qjoule bench proportionality study/ --json > proportionality.json
""",
)
@click.argument("study", type=click.Path(path_type=Path), metavar="DIR")
@click.option(
    "--level",
    "factor",
    default="level",
    show_default=True,
    metavar="FACTOR",
    help="The factor whose levels are percent of the peak.",
)
@click.option(
    "--energy",
    type=click.Choice(["machine", "attributed"]),
    default="machine",
    show_default=True,
    help="Joules of efficiency: all, or those of queries and background.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--plots",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write the figures as SVG and PNG, and their data as CSV.",
)
def command(study: Path, *, factor: str, energy: str, as_json: bool, plots: Path | None) -> None:
    """Say how power followed load in the study in DIR, and which configuration was best.

    Of a study with levels of load: idle share, dynamic range and proportionality index of each
    configuration, and joules per operation at each level. Of several configurations: operations
    per joule against operations per second (at 100 %, if there are levels), the Pareto front, and
    whether the fastest was the most efficient one.
    """
    from qjoule.api.command import FACTOR, read_runs  # noqa: PLC0415
    from qjoule_studies.proportionality import proportionality  # noqa: PLC0415
    from qjoule_studies.reporters.proportionality import render, to_json  # noqa: PLC0415 (loads pandas)

    runs = read_runs(study)
    has_levels = FACTOR + factor in runs
    curves = proportionality(runs, factor) if has_levels else []
    best = _frontier(runs, factor if has_levels else "", cast("Energy", energy))
    if plots is not None:
        try:
            from qjoule_studies.reporters.proportionality_plots import write  # noqa: PLC0415
        except ImportError as error:
            raise QjouleError(
                "figures need more: pip install 'qjoule-studies[statistics]'"
            ) from error
        write(curves, best, plots)
    if as_json:
        click.echo(json.dumps(to_json(curves, best), indent=2, allow_nan=False))
    else:
        color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        click.echo(render(curves, best, color=color), nl=False)


def _frontier(runs: pd.DataFrame, levels: str, energy: Energy) -> Frontier | None:
    """The frontier of all runs, or of those at 100 % of a factor of levels; None if only levels
    differ."""
    from qjoule.api.command import FACTOR  # noqa: PLC0415
    from qjoule_studies.estimates import factors_of  # noqa: PLC0415
    from qjoule_studies.pareto import frontier  # noqa: PLC0415

    others = [name for name in factors_of(runs) if name != levels]
    if levels:
        import pandas as pd  # noqa: PLC0415

        runs = runs[pd.to_numeric(runs[FACTOR + levels]) == 100]
        if not others or runs.empty:
            return None
    elif not others:
        raise QjouleError("the study has no factor: there is nothing to compare")
    return frontier(runs, energy)
