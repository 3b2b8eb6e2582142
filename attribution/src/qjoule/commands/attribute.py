# SPDX-License-Identifier: Apache-2.0
"""`qjoule attribute`: joules per query from a recorded trace."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

import click

from qjoule.commands import impact, options
from qjoule.commands.conversion import readable
from qjoule.commands.say import say
from qjoule.engine.attribute import attribute
from qjoule.engine.groups import check_keys
from qjoule.engine.other_ids import recorded_ids, with_ids
from qjoule.engine.selection import selection
from qjoule.errors import QjouleError, UsageError
from qjoule.freed_memory import keep_freed_memory
from qjoule.machine import memory_in_force
from qjoule.machine.in_force import for_trace
from qjoule.model.coefficients import IdlePolicy
from qjoule.model.fit.cells import Cell
from qjoule.model.fold import bound_tags, fold_rows
from qjoule.model.result import Attribution, TracePart
from qjoule.model.together import together
from qjoule.trace.reader import Trace
from qjoule.trace.several import counted_twice, open_several

TABLE_ROWS = 20  #: rows of queries in a table, unless --top says otherwise
#: Numbers within one recording; another recording may use the same numbers for something else.
OF_ONE_TRACE = ("session", "thread")
FORMATS = ("table", "json", "csv", "parquet")


@click.command(
    short_help="Joules per query from recorded traces.",
    epilog="""\b
Examples:
  qjoule attribute shop.qjoule
  qjoule attribute shop.qjoule --by database,user --idle proportional
  qjoule attribute shop.qjoule --by fingerprint,child
  qjoule attribute shop.qjoule --ids
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
@options.max_values
@click.option(
    "--ids",
    is_flag=True,
    help="In the table, also list the ids that other tools have for each statement, of a trace "
    "recorded with --ids. Other formats always have them.",
)
@impact.options
def command(
    traces: tuple[Path, ...],
    *,
    by: str,
    where: tuple[str, ...],
    idle: str,
    calibration: str | None,
    memory: str | None,
    form: str,
    output: Path | None,
    top: int | None,
    max_values: int,
    ids: bool,
    price: str | None,
    carbon: str | None,
    pue: float | None,
    embodied: str | None,
) -> None:
    """Apportion every joule of a recorded trace to the queries and to everything else that ran.

    Of several traces, rows of equal keys are added up: a request that touched several servers is
    one row by its tag, also where each was recorded on a machine of its own.
    """
    if form == "parquet" and output is None:
        raise UsageError("--format parquet needs a file: add -o FILE")
    keep_freed_memory()
    opened = open_several(readable(traces))
    keys = tuple(key.strip() for key in by.split(","))
    selected = selection(where)
    used = {*keys, *(key for key, _ in selected.wanted)}
    if len(opened) > 1 and (local := [key for key in OF_ONE_TRACE if key in used]):
        raise UsageError(f"{local[0]} is a number of one trace: leave it out, or give one trace")
    recorded = recorded_ids(opened.values())
    if ids and "fingerprint" not in keys:
        raise UsageError("--ids are of statements: group by fingerprint, with --by")
    if ids and not recorded:
        raise QjouleError("the trace has no ids of other tools: record it with --ids")
    checked = check_keys(keys)

    with progress(sum(trace.rows("segments") for trace in opened.values())) as step:
        found = [
            TracePart(
                name,
                attribute(
                    trace,
                    checked,
                    cast(IdlePolicy, idle),
                    progress=step,
                    calibrated=for_trace(trace, calibration, memory),
                    where=selected,
                    learned=_remembering(trace, memory),
                ),
            )
            for name, trace in opened.items()
        ]
    whole = together(found, counted_twice(opened)) if len(found) > 1 else found[0].attribution
    costs = impact.Asked(price, carbon, pue, embodied)
    whole = replace(whole, impact=impact.factors(costs, opened, whole))
    write(bound_tags(with_ids(whole, recorded), max_values), form, output, top, ids=ids)


def _remembering(trace: Trace, choice: str | None) -> Callable[[tuple[Cell, ...]], None]:
    """Adds the evidence of a trace to the machine's memory, or says why that fails."""
    path = memory_in_force.where_to_extend(trace, choice)

    def remember(cells: tuple[Cell, ...]) -> None:
        if path is not None:
            try:
                memory_in_force.add(path, cells, memory_in_force.identity_of(trace))
            except QjouleError as error:
                say(f"the memory is not extended: {error}")

    return remember


@contextmanager
def progress(segments: int) -> Iterator[Callable[[int], None] | None]:
    """A progress bar on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    with click.progressbar(length=segments, label="attributing", file=sys.stderr) as bar:
        yield bar.update


def write(
    result: Attribution,
    form: str,
    output: Path | None,
    top: int | None = None,
    *,
    ids: bool = False,
) -> None:
    """Writes a result in one of `FORMATS`, to a file or to standard output.

    `top`: rows of queries to show; by default all, in a table 20. `ids`: list other tools' ids of
    statements in a table.
    """
    if top and form != "table":
        result = fold_rows(result, top)
    if form == "parquet" and output is not None:
        from qjoule.reporters.parquet_report import write_parquet  # noqa: PLC0415

        write_parquet(result, output)
        return
    to_terminal = output is None and sys.stdout.isatty()
    text = _render(result, form, top, ids=ids, to_terminal=to_terminal)
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise QjouleError(f"cannot write {output}: {error.strerror}") from error


def _render(
    result: Attribution, form: str, top: int | None, *, ids: bool, to_terminal: bool
) -> str:
    """Imports only the reporter that is needed."""
    if form == "json":
        from qjoule.reporters.json_report import to_json  # noqa: PLC0415

        return to_json(result)
    if form == "csv":
        from qjoule.reporters.csv_report import to_csv  # noqa: PLC0415

        return to_csv(result)
    from qjoule.reporters.table import render  # noqa: PLC0415

    color = to_terminal and not os.environ.get("NO_COLOR")
    return render(result, color=color, limit=top or TABLE_ROWS, ids=ids)
