# SPDX-License-Identifier: Apache-2.0
"""`qjoule attribute`: joules per query from a recorded trace."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from qjoule.commands import option_groups, options
from qjoule.commands.option_groups import Costs, ResultOptions, as_dataclass
from qjoule.commands.say import write_text
from qjoule.errors import UsageError

if TYPE_CHECKING:
    from qjoule.model.result import Attribution

TABLE_ROWS = 20  #: rows of queries in a table, unless --top says otherwise
FORMATS = ("table", "json", "csv", "parquet")


@click.command(
    short_help="Joules per query from recorded traces.",
    epilog="""\b
Examples:
  qjoule attribute shop.qjoule
  qjoule attribute shop.qjoule --by database,user --idle proportional
  qjoule attribute shop.qjoule --by fingerprint,child
  qjoule attribute shop.qjoule --ids
  qjoule attribute shop.qjoule --explain 1
  qjoule attribute shop.qjoule --by transaction
  qjoule attribute shop.qjoule --by tag:endpoint --format csv -o endpoints.csv
  qjoule attribute shop.qjoule --by tag:endpoint --where tag:tenant=42
  qjoule attribute db1.qjoule db2.qjoule --by tag:trace --top 10
  qjoule attribute shop.qjoule --top 20 --calibration other-run.json
  qjoule attribute shop.qjoule --memory none
  qjoule attribute shop.qjoule --price 0.30/kWh:EUR --carbon 380 --pue 1.3
  qjoule attribute shop.qjoule --carbon grid.csv --embodied 35/h --format json
""",
)
@click.argument(
    "traces", type=click.Path(path_type=Path), metavar="DIR...", nargs=-1, required=True
)
@click.option(
    "--by",
    default="fingerprint",
    show_default=True,
    metavar="KEY[,KEY…]",
    help="Group by fingerprint, query, server, database, user, application, session, thread, child "
    "(what a procedure executed, see record --children), transaction or tag:KEY.",
)
@options.where
@options.idle
@options.without_stolen
@options.absolute
@options.calibration
@options.memory
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="table",
    show_default=True,
    help="How to write the result; parquet needs -o.",
)
@options.output
@click.option(
    "--top",
    type=click.IntRange(min=1),
    metavar="N",
    help="Show N rows of queries; the others become one. [default: all, in a table 20]",
)
@options.max_values
@click.option(
    "--ids",
    is_flag=True,
    help="In the table, also list the ids that other tools have for each statement, of a trace "
    "recorded with --ids. Other formats always have them.",
)
@options.columns
@click.option(
    "--explain",
    "row",
    metavar="ROW",
    help="Say where one row's joules and their interval come from. ROW is its number in the table, "
    "or the begin of its fingerprint.",
)
@option_groups.costs
@as_dataclass(Costs, "costs")
@as_dataclass(ResultOptions, "result_options")
def command(
    traces: tuple[Path, ...],
    *,
    form: str,
    output: Path | None,
    top: int | None,
    ids: bool,
    columns: str,
    row: str | None,
    result_options: ResultOptions,
    costs: Costs,
) -> None:
    """Apportion every joule of a recorded trace to the queries and to everything else that ran.

    Of several traces, rows of equal keys are added up: a request that touched several servers is
    one row by its tag, also where each was recorded on a machine of its own.
    """
    if form == "parquet" and output is None:
        raise UsageError("--format parquet needs a file: add -o FILE")
    from qjoule.commands.attribute_run import explained, run  # noqa: PLC0415 (fast `--help`)

    if row is not None:
        if form != "table":
            raise UsageError("--explain is a text: leave out --format")
        write_text(explained(traces, result_options, row), output)
        return
    result = run(traces, result_options, costs, ids=ids)
    write(result, form, output, top, ids=ids, waits=columns == "waits")


def write(
    result: Attribution,
    form: str,
    output: Path | None,
    top: int | None = None,
    *,
    ids: bool = False,
    waits: bool = False,
) -> None:
    """Writes a result in one of `FORMATS`, to a file or to standard output.

    `top`: rows of queries to show; by default all, in a table 20. `ids` and `waits`: as in
    `table.render`.
    """
    if top and form != "table":
        from qjoule.model.row_sums import fold_rows  # noqa: PLC0415

        result = fold_rows(result, top)
    if form == "parquet" and output is not None:
        from qjoule.reporters.json_report import write_parquet  # noqa: PLC0415

        write_parquet(result, output)
        return
    to_terminal = output is None and sys.stdout.isatty()
    text = _render(result, form, top, ids=ids, waits=waits, to_terminal=to_terminal)
    write_text(text, output)


def _render(
    result: Attribution, form: str, top: int | None, *, ids: bool, waits: bool, to_terminal: bool
) -> str:
    """Renders in a format other than Parquet. Imports only the reporter that is needed."""
    if form == "json":
        from qjoule.reporters.json_report import to_json  # noqa: PLC0415

        return to_json(result)
    if form == "csv":
        from qjoule.reporters.result_columns import to_csv  # noqa: PLC0415

        return to_csv(result)
    from qjoule.reporters.table import render  # noqa: PLC0415

    color = to_terminal and not os.environ.get("NO_COLOR")
    return render(result, color=color, limit=top or TABLE_ROWS, ids=ids, waits=waits)
