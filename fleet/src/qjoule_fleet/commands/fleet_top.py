# SPDX-License-Identifier: Apache-2.0
"""`qjoule fleet top`: ranks statements, hosts and others by energy over any range of time."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from qjoule.api.command import options, write_text
from qjoule_fleet import questions
from qjoule_fleet.commands import fleet_options
from qjoule_fleet.reader import Question
from qjoule_fleet.top import Top, top


@click.command(
    short_help="What draws most, over many hosts.",
    epilog="""\b
Examples:
  qjoule fleet top /srv/fleet
  qjoule fleet top /srv/fleet --by host --last 7d
  qjoule fleet top /srv/fleet --columns waits
  qjoule fleet top /srv/fleet --by tag:tenant --from 2026-11-22 --to 2026-11-23
  qjoule fleet top /srv/fleet --by release,shape --sort j_per_call --limit 50
  qjoule fleet top /srv/fleet --from 2026-10-25T02:30+02:00 --last 30min --tz Europe/Berlin
  qjoule fleet top s3://bucket/fleet --engine dask --scheduler tcp://desk:8786 --json

Measured and estimated joules, and idle policies, have rows of their own.
""",
)
@fleet_options.argument
@click.option(
    "--by",
    default="shape",
    show_default=True,
    metavar="KEY[,KEY…]",
    help="Group by shape, host, server, database, release, grade, policy or tag:KEY.",
)
@click.option(
    "--sort",
    type=click.Choice(list(questions.SORTS)),
    default="energy",
    show_default=True,
    help="Most of this first; power is joules per second of CPU time.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1, max=1_000_000),
    default=20,
    show_default=True,
    metavar="N",
    help="Rows of queries; the others are one.",
)
@fleet_options.times
@click.option(
    "--mix-grades",
    is_flag=True,
    help="Add measured and estimated joules up; the grade is then `mixed`.",
)
@options.absolute
@options.columns
@fleet_options.outputs
@fleet_options.engines
@fleet_options.limits
def command(
    *,
    by: str,
    sort: str,
    limit: int,
    mix_grades: bool,
    absolute: bool,
    columns: str,
    form: str,
    as_json: bool,
    output: Path | None,
    **more_options: Any,
) -> None:
    """Rank statements, hosts, servers, releases or tags of a fleet by their joules.

    Rows, other queries and everything else that ran add up to what the hosts measured, to the nJ.
    """
    form = fleet_options.form_of(form, output, as_json=as_json)
    by_keys = questions.parse_by(by, mix_grades=mix_grades)
    question = Question(by_keys, sort, limit, absolute=absolute)
    request = fleet_options.parse_request(more_options)
    ranking = top(request.reader, request.range, question)
    fleet_options.print_refused(ranking.read.refused)
    if not ranking.totals:
        raise fleet_options.no_rows_error(request.reader, request.range)
    fleet_options.print_missing(ranking.read.missing, ranking.read.silent)
    _write(ranking, form, output, waits=columns == "waits")


def _write(ranking: Top, form: str, output: Path | None, *, waits: bool) -> None:
    from qjoule_fleet.reporters import fleet_export  # noqa: PLC0415 (Arrow)

    if form == "parquet" and output is not None:
        fleet_export.write_parquet(ranking, output)
        return
    if form == "json":
        text = fleet_export.to_json(ranking)
    elif form == "csv":
        text = fleet_export.to_csv(ranking)
    else:
        from qjoule_fleet.reporters.fleet_table import render  # noqa: PLC0415 (a table alone needs it)

        color = output is None and sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        text = render(ranking, color=color, waits=waits)
    write_text(text, output)
