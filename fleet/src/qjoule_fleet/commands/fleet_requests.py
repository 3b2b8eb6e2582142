# SPDX-License-Identifier: Apache-2.0
"""`qjoule fleet requests`: adds up one request's cost over all servers that it used."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import cast

import click

from qjoule.api import UsageError
from qjoule.api.attribution import AttributionRequest, for_trace, progress
from qjoule.api.command import options
from qjoule.api.model import IdlePolicy
from qjoule.api.traces import Trace, counted_twice, open_several, readable
from qjoule_fleet.requests.run import Answer, Query, Source, answer
from qjoule_fleet.requests.written import request_writer

FORMATS = ("table", "json")


@click.command(
    short_help="Joules of requests over the servers of several hosts.",
    epilog="""\b
Examples:
  qjoule fleet requests db1.qjoule db2.qjoule cache.qjoule
  qjoule fleet requests */shop.qjoule --top 50 --format json
  qjoule fleet requests */shop.qjoule --tag order --longest 5
""",
)
@click.argument(
    "traces", type=click.Path(path_type=Path), metavar="DIR...", nargs=-1, required=True
)
@click.option(
    "--tag",
    default="trace",
    show_default=True,
    metavar="KEY",
    help="The tag that identifies a request on every host.",
)
@click.option(
    "--longest",
    type=click.FloatRange(min=0.001, max=86_400),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="No request takes longer. It bounds the offset of clocks, and tells apart requests that "
    "have the same id.",
)
@options.idle
@options.calibration
@options.memory
@options.absolute
@click.option("--top", type=click.IntRange(1, 100_000), default=20, show_default=True, metavar="N")
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write every request to this Parquet file.",
)
def command(
    traces: tuple[Path, ...],
    *,
    tag: str,
    longest: float,
    idle: str,
    calibration: str | None,
    memory: str | None,
    absolute: bool,
    top: int,
    form: str,
    output: Path | None,
) -> None:
    """Add up what each request used on every server, wherever it was recorded.

    Give the trace of each host. Requests are joined by a tag, in bounded memory. The offsets of the
    hosts' clocks are estimated from requests that the hosts share.
    """
    if not tag.strip():
        raise UsageError("--tag needs a key, such as trace")
    opened = open_several(readable(traces))

    def source(name: str, trace: Trace) -> Source:
        calibrated = for_trace(trace, calibration, memory)
        return Source(
            name, trace, AttributionRequest(idle=cast(IdlePolicy, idle), calibrated=calibrated)
        )

    sources = [source(name, trace) for name, trace in opened.items()]
    rows = sum(trace.rows("segments") for trace in opened.values())
    with progress(rows) as step, request_writer(output) as each:

        def done(trace: Trace) -> None:
            if step:
                step(trace.rows("segments"))

        wanted = Query(tag, top, round(longest * 1e9), each, absolute)
        result = answer(sources, wanted, done)
    _write(result, counted_twice(opened), form)


def _write(result: Answer, notes: list[str], form: str) -> None:
    from qjoule_fleet.reporters.requests import render, to_json  # noqa: PLC0415

    result = replace(result, notes=(*result.notes, *notes))
    color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    click.echo(to_json(result) if form == "json" else render(result, color=color), nl=False)
