# SPDX-License-Identifier: Apache-2.0
"""`qjoule fleet query`: runs SQL over the views of a dataset."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from qjoule.api import UsageError
from qjoule.api.command import as_given, say
from qjoule.api.rollups import HOURLY, SLOW
from qjoule_fleet import views
from qjoule_fleet.catalog import Catalog, Selection
from qjoule_fleet.commands import fleet_options
from qjoule_fleet.commands.fleet_options import FleetRequest
from qjoule_fleet.files import dataset
from qjoule_fleet.relations import Session, Source


@click.command(
    short_help="SQL over the rollups of many hosts.",
    epilog="""\b
Examples:
  qjoule fleet query /srv/fleet 'select host, sum(energy_nj) / 1e9 as j
      from queries group by all order by j desc'
  qjoule fleet query /srv/fleet 'from shapes where texts > 1' --json
  qjoule fleet query /srv/fleet 'from minutes' --last 1h --format parquet -o hour.parquet
  qjoule fleet query /srv/fleet --print-views duckdb > views.sql

\b
Views (fleet/README.md): spans, minutes, hours, queries, owners, nodes, shapes,
servers, tags. Only rows of the time range are in them.
""",
)
@fleet_options.argument
@click.argument("sql", metavar="SQL", required=False)
@fleet_options.times
@fleet_options.outputs
@click.option(
    "--print-views",
    "dialect",
    type=click.Choice(("duckdb", "spark")),
    help="Print the views' definitions, to use the engine without qjoule, and end.",
)
@fleet_options.limits
def command(
    *,
    sql: str | None,
    form: str,
    as_json: bool,
    output: Path | None,
    dialect: views.Dialect | None,
    **options: Any,
) -> None:
    """Run one SELECT by DuckDB. It sees the dataset and nothing else, and changes nothing."""
    if dialect is not None:
        _print_views(as_given(options["where"]), dialect)
        return
    if sql is None:
        raise UsageError("give a SELECT statement, or --print-views")
    form = fleet_options.form_of(form, output, as_json=as_json)
    from qjoule_fleet.reporters.fleet_query import write  # noqa: PLC0415 (Arrow)

    request = fleet_options.parse_request(options)
    with Session(request.reader.files, request.limits) as session:
        session.only_reads(sql)
        selections, sources = _sources(request, sql)
        session.define(selections[0], sources)
        session.lock()
        every = {part.path: part for selection in selections for part in selection.refused}
        fleet_options.print_refused(tuple(every.values()))
        timed = [source for source in sources if source.minutes is not None]
        if timed and not any(source.parts for source in timed):
            raise fleet_options.no_rows_error(request.reader, request.range)
        fleet_options.print_missing(tuple(selections[0].missing), ())
        for note in selections[0].notes:
            say(note)
        write(session.batches(sql), form, output)


def _print_views(where: str, dialect: views.Dialect) -> None:
    files = dataset(where)
    tables = [table for table in (*HOURLY, *SLOW) if files.directories(table)]
    for statement in views.direct(files.root, dialect, tables):
        click.echo(f"{statement};\n")


def _sources(request: FleetRequest, sql: str) -> tuple[list[Selection], list[Source]]:
    """Selects parts of the views that the statement may use: those whose names it contains."""
    catalog, range_ = Catalog(request.reader.files), request.range
    names = set(re.findall(r"\w+", sql.lower()))
    selections, sources = [], []
    if names & {"spans", "span_parts", "hours", "queries", "owners", "nodes"}:
        selections.append(catalog.sums(range_))
        sources.append(Source("span_parts", selections[-1].parts, selections[-1].range))
    if names & {"minutes", "rollup_parts"}:
        selections.append(catalog.minutes(range_))
        sources.append(Source("rollup_parts", selections[-1].edges, range_))
    if names & {"tags", "tag_parts"}:
        selections.append(catalog.tags(range_))
        sources.append(Source("tag_parts", selections[-1].hourly, range_))
    if not selections:
        selections.append(catalog.slow(range_))
    slow = selections[0].slow
    sources += [Source(f"{table[:-1]}_parts", parts) for table, parts in slow.items()]
    return selections, sources
