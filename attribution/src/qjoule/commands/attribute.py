"""`qjoule attribute`: joules per query from a recorded trace."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import click

from qjoule.commands import options
from qjoule.errors import QjouleError, UsageError
from qjoule.machine.in_force import for_trace
from qjoule.model.attribute import attribute
from qjoule.model.coefficients import IdlePolicy
from qjoule.model.fold import fold_rows
from qjoule.model.result import Attribution
from qjoule.trace.reader import Trace

TABLE_ROWS = 20  #: rows of queries in a table, unless --top says otherwise
FORMATS = ("table", "json", "csv", "parquet")


@click.command(
    short_help="Joules per query from a recorded trace.",
    epilog="""\b
Examples:
  qjoule attribute shop.qjoule
  qjoule attribute shop.qjoule --by database,user --idle proportional
  qjoule attribute shop.qjoule --by tag:endpoint --format csv -o endpoints.csv
  qjoule attribute shop.qjoule --top 20 --calibration other-run.json
""",
)
@click.argument("trace", type=click.Path(path_type=Path), metavar="DIR")
@click.option(
    "--by",
    default="fingerprint",
    show_default=True,
    metavar="KEY[,KEY…]",
    help="Group by fingerprint, query, server, database, user, session, thread or tag:KEY.",
)
@options.idle
@options.calibration
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="table",
    show_default=True,
    help="How to write the result; parquet needs -o.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write to this file. [default: standard output]",
)
@click.option(
    "--top",
    type=click.IntRange(min=1),
    metavar="N",
    help="Show N rows of queries; the others become one. [default: all, in a table 20]",
)
def command(
    trace: Path,
    *,
    by: str,
    idle: str,
    calibration: str | None,
    form: str,
    output: Path | None,
    top: int | None,
) -> None:
    """Apportion every joule of a recorded trace to the queries and to everything else that ran."""
    if form == "parquet" and output is None:
        raise UsageError("--format parquet needs a file: add -o FILE")
    opened = Trace(trace)
    keys = tuple(key.strip() for key in by.split(","))
    calibrated = for_trace(opened, calibration)
    with progress(opened.rows("segments")) as step:
        result = attribute(
            opened, keys, cast(IdlePolicy, idle), progress=step, calibrated=calibrated
        )
    write(result, form, output, top)


@contextmanager
def progress(segments: int) -> Iterator[Callable[[int], None] | None]:
    """A progress bar on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    with click.progressbar(length=segments, label="attributing", file=sys.stderr) as bar:
        yield bar.update


def write(result: Attribution, form: str, output: Path | None, top: int | None = None) -> None:
    """Writes a result in one of `FORMATS`, to a file or to standard output.

    `top`: rows of queries to show; by default all, in a table 20.
    """
    if top and form != "table":
        result = fold_rows(result, top)
    if form == "parquet" and output is not None:
        from qjoule.reporters.parquet_report import write_parquet  # noqa: PLC0415

        write_parquet(result, output)
        return
    text = _render(result, form, top, to_terminal=output is None and sys.stdout.isatty())
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise QjouleError(f"cannot write {output}: {error.strerror}") from error


def _render(result: Attribution, form: str, top: int | None, *, to_terminal: bool) -> str:
    """Imports only the reporter that is asked for."""
    if form == "json":
        from qjoule.reporters.json_report import to_json  # noqa: PLC0415

        return to_json(result)
    if form == "csv":
        from qjoule.reporters.csv_report import to_csv  # noqa: PLC0415

        return to_csv(result)
    from qjoule.reporters.table import render  # noqa: PLC0415

    color = to_terminal and not os.environ.get("NO_COLOR")
    return render(result, color=color, limit=top or TABLE_ROWS)
