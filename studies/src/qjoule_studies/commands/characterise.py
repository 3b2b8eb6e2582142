# SPDX-License-Identifier: Apache-2.0
"""`qjoule characterise`: what the hardware counters show about shapes, servers and workloads."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from qjoule.api import QjouleError, UsageError
from qjoule.api.attribution import progress
from qjoule.api.command import say, write_text
from qjoule.api.traces import open_several, readable
from qjoule_studies.characterisation import Characterisation, characterisation
from qjoule_studies.counted import BY, count

DEFAULT_ROWS = 30


@click.command(
    short_help="Hardware counters per shape: IPC, cache misses, PCA.",
    epilog="""\b
Examples:
  qjoule characterise shop.qjoule
  qjoule characterise shop.qjoule --by server --json
  qjoule characterise mysql.qjoule postgres.qjoule --by trace --plots figures
  qjoule characterise shop.qjoule --csv -o counters.csv
\b
Counters are recorded by:
  sudo qjoule record --counters branch-misses,L1-dcache-load-misses -d 60
""",
)
@click.argument(
    "traces", type=click.Path(path_type=Path), metavar="DIR...", nargs=-1, required=True
)
@click.option(
    "--by",
    type=click.Choice(BY),
    default="fingerprint",
    show_default=True,
    help="A row for each shape, for each server with its background work, or for each trace.",
)
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=DEFAULT_ROWS,
    show_default=True,
    metavar="N",
    help="Of each trace, the N rows with most CPU time; the others are one, and not compared.",
)
@click.option("--json", "form", flag_value="json", help="Print JSON.")
@click.option("--csv", "form", flag_value="csv", help="Print CSV.")
@click.option("--parquet", "form", flag_value="parquet", help="Write Parquet; needs -o.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write to this file. [default: standard output]",
)
@click.option(
    "--plots",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Also draw components, dendrogram and Kiviat diagrams there: SVG, PNG and their CSV.",
)
def command(
    *,
    traces: tuple[Path, ...],
    by: str,
    top: int,
    form: str | None,
    output: Path | None,
    plots: Path | None,
) -> None:
    """Characterise what database servers ran by its hardware counters.

    Instructions per cycle, misses per 1000 instructions (MPKI), stalls and so on, as far as the
    traces' counters tell; then principal components and clusters of the rows.
    """
    if form == "parquet" and output is None:
        raise UsageError("--parquet needs a file: add -o FILE")
    try:
        result = _characterised(traces, by, top)
        _write(result, form, output)
        if plots is not None:
            from qjoule_studies.reporters.characterisation_plots import write_all  # noqa: PLC0415

            say(f"{plots}: {', '.join(write_all(result, plots))}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("sklearn", "matplotlib"):
            raise
        raise QjouleError(
            f"{error.name} is missing: pip install 'qjoule-studies[statistics]'"
        ) from None


def _characterised(paths: tuple[Path, ...], by: str, top: int) -> Characterisation:
    opened = open_several(readable(paths))
    with progress(sum(trace.rows("segments") for trace in opened.values())) as step:
        counted = [count(name, trace, by, top, step) for name, trace in opened.items()]
    for name, trace in opened.items():
        for problem in trace.problems:
            say(f"{name}: {problem}")
    rows = [row for trace_counts in counted for row in trace_counts.rows]
    return characterisation(by, [trace_counts.about for trace_counts in counted], rows)


def _write(result: Characterisation, form: str | None, output: Path | None) -> None:
    """Imports only the reporter that is needed."""
    if form == "parquet" and output is not None:
        from qjoule_studies.reporters.characterisation_data import write_parquet  # noqa: PLC0415

        write_parquet(result, output)
        return
    text = _rendered(result, form, to_terminal=output is None and sys.stdout.isatty())
    write_text(text, output)


def _rendered(result: Characterisation, form: str | None, *, to_terminal: bool) -> str:
    if form == "json":
        from qjoule_studies.reporters.characterisation_data import to_json  # noqa: PLC0415

        return to_json(result)
    if form == "csv":
        from qjoule_studies.reporters.characterisation_data import to_csv  # noqa: PLC0415

        return to_csv(result)
    from qjoule_studies.reporters.characterisation import render  # noqa: PLC0415

    return render(result, color=to_terminal and not os.environ.get("NO_COLOR"))
