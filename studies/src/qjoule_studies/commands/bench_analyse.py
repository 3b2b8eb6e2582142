# SPDX-License-Identifier: Apache-2.0
"""`qjoule bench analyse`: the statistics of a study."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from qjoule.api import QjouleError, UsageError


@click.command(
    short_help="The statistics of a study's runs.",
    epilog="""\b
Examples:
  qjoule bench analyse study/
  qjoule bench analyse study/ --response energy_j,latency_ns_p99 --factors server,command
  qjoule bench analyse study/ --json > study.json
  qjoule bench analyse study/ --plots figures/
""",
)
@click.argument("study", type=click.Path(path_type=Path), metavar="DIR")
@click.option(
    "--response",
    "responses",
    metavar="NAME,...",
    help="What to analyse: columns of runs.jsonl.  [default: j_per_operation,wall_s]",
)
@click.option(
    "--factors",
    metavar="NAME,...",
    help="Compare levels of these factors only; what others do counts as error.",
)
@click.option(
    "--type",
    "kind",
    type=click.Choice(["2", "3"]),
    default="2",
    show_default=True,
    help="Sums of squares of the ANOVA table.",
)
@click.option(
    "--mixed",
    is_flag=True,
    help="Compare also runs of different grades, idle policies, energy sources or machines.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--plots",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write every figure as SVG and PNG, and its data as CSV.",
)
def command(
    study: Path,
    *,
    responses: str | None,
    factors: str | None,
    kind: str,
    mixed: bool,
    as_json: bool,
    plots: Path | None,
) -> None:
    """Compare the runs of the study in DIR: means, ANOVA, checks, pairs, energy against time.

    Failed runs are left out and counted. Runs that were measured in different ways are refused.
    """
    try:
        import scipy  # noqa: F401, PLC0415
        import statsmodels  # noqa: F401, PLC0415

        if plots is not None:
            import matplotlib  # noqa: F401, PLC0415
    except ImportError as error:
        raise QjouleError(
            "statistics need more: pip install 'qjoule-studies[statistics]'"
        ) from error
    from qjoule.api.command import read_runs  # noqa: PLC0415
    from qjoule_studies.reporters.study import render  # noqa: PLC0415 (these load pandas and scipy)
    from qjoule_studies.reporters.study_json import to_json  # noqa: PLC0415
    from qjoule_studies.statistics.study import analyse  # noqa: PLC0415

    requested = _names(responses, "--response")
    chosen = _names(factors, "--factors")
    analysis = analyse(read_runs(study), requested, chosen, type_=int(kind), mixed=mixed)
    if plots is not None:
        from qjoule_studies.statistics.plots import write  # noqa: PLC0415

        write(analysis, plots)
    if as_json:
        click.echo(to_json(analysis, study.resolve().name), nl=False)
    else:
        color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        click.echo(render(analysis, color=color), nl=False)


def _names(text: str | None, option: str) -> list[str] | None:
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise UsageError(f"{option} {text}: give names with commas between them")
    return names
