# SPDX-License-Identifier: Apache-2.0
"""Options that the fleet commands share, and their evaluation."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from qjoule.api import QjouleError, UsageError
from qjoule.api.command import leave_pandas_out, say
from qjoule_fleet.catalog import Catalog
from qjoule_fleet.files import Refused, dataset
from qjoule_fleet.reader import Engine, InProcess, Reader
from qjoule_fleet.relations import Limits
from qjoule_fleet.times import Range, Zone, iso, time_range

#: Number of refused parts, and of hosts, named on standard error; JSON names all.
_NAMED = 10

_Command = Callable[..., Any]
FORMATS = ("table", "json", "csv", "parquet")

argument = click.argument("where", type=click.Path(readable=False), metavar="DATASET")

_TIMES = (
    click.option(
        "--from",
        "begin",
        metavar="TIME",
        help="Since this time; it may be a date. [default: 24h ago]",
    ),
    click.option(
        "--to", "end", metavar="TIME", help="Until this time, which is left out. [default: now]"
    ),
    click.option("--last", metavar="TIME", help="So long before the end: 90min, 24h, 7d."),
    click.option(
        "--tz",
        "zone",
        metavar="ZONE",
        default="",
        help="Time zone of times that name none, such as Europe/Berlin. [default: this machine's]",
    ),
)
_ENGINES = (
    click.option(
        "--engine",
        type=click.Choice(("duckdb", "dask")),
        default="duckdb",
        show_default=True,
        help="Who reads the parts: DuckDB in this process, or Dask's workers.",
    ),
    click.option(
        "--scheduler",
        metavar="ADDRESS",
        help="Dask's scheduler, tcp://host:8786. [default: threads of this process]",
    ),
)
_LIMITS = (
    click.option(
        "--memory",
        type=click.IntRange(min=100),
        default=1000,
        show_default=True,
        metavar="MB",
        help="What DuckDB may hold; beyond it, it writes to a temporary directory.",
    ),
    click.option(
        "--threads",
        type=click.IntRange(min=1, max=256),
        metavar="N",
        help="Threads that read. [default: one for each CPU]",
    ),
)
_OUTPUTS = (
    click.option(
        "--format",
        "form",
        type=click.Choice(FORMATS),
        default="table",
        show_default=True,
        help="How to write the rows; parquet needs -o.",
    ),
    click.option("--json", "as_json", is_flag=True, help="The same as --format json."),
    click.option(
        "-o",
        "--output",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Write to this file. [default: standard output]",
    ),
)


def _all(options: tuple[Callable[[_Command], _Command], ...]) -> Callable[[_Command], _Command]:
    def add(function: _Command) -> _Command:
        for option in reversed(options):
            function = option(function)
        return function

    return add


times, engines, limits = _all(_TIMES), _all(_ENGINES), _all(_LIMITS)
outputs = _all(_OUTPUTS)


@dataclass(frozen=True)
class FleetRequest:
    """The dataset and the range of time that the options select."""

    reader: Reader
    range: Range
    zone: Zone

    @property
    def limits(self) -> Limits:
        return self.reader.limits


def parse_request(options: dict[str, Any]) -> FleetRequest:
    """Evaluates the options `argument`, `times`, `engines` and `limits`."""
    leave_pandas_out()
    zone = Zone(options["zone"])
    range_ = range_of(options, zone)
    limit = Limits(options["memory"], options["threads"] or 0)
    files = dataset(options["where"])
    return FleetRequest(Reader(files, limit, _engine(options, limit)), range_, zone)


def form_of(form: str, output: Path | None, *, as_json: bool) -> str:
    """Evaluates the options `outputs`. Raises `UsageError` if the format needs a file."""
    form = "json" if as_json else form
    if form == "parquet" and output is None:
        raise UsageError("--format parquet needs a file: add -o FILE")
    return form


def range_of(options: dict[str, Any], zone: Zone) -> Range:
    """Evaluates the options `times`."""
    range_, notes = time_range(options["begin"], options["end"], options["last"], zone, time.time())
    for note in notes:
        say(note)
    return range_


def _engine(options: dict[str, Any], limit: Limits) -> Engine:
    name, scheduler = options.get("engine", "duckdb"), options.get("scheduler")
    if name == "dask":
        from qjoule_fleet.dask_engine import DaskEngine  # noqa: PLC0415 (an extra)

        return DaskEngine(scheduler or "", limit.cpus)
    if scheduler:
        raise UsageError("--scheduler is of --engine dask")
    return InProcess()


def no_rows_error(reader: Reader, range_: Range) -> QjouleError:
    """Returns the error that the range has no rows, with the range of the dataset."""
    span = Catalog(reader.files).span()
    has = f"the dataset has {iso(span.begin_s)} to {iso(span.end_s)}" if span else "it has no parts"
    return QjouleError(f"nothing from {range_}: {has}; see --from, --to and --last")


def print_refused(refused: tuple[Refused, ...]) -> None:
    """Names the refused parts on standard error."""
    for part in refused[:_NAMED]:
        say(f"left out: {part.path}: {part.reason}")
    if len(refused) > _NAMED:
        say(f"left out: {len(refused) - _NAMED:,} more parts; --json names all")


def print_missing(missing: tuple[tuple[str, int], ...], silent: tuple[str, ...]) -> None:
    hours: dict[str, list[int]] = {}
    for host, hour_s in missing:
        hours.setdefault(host, []).append(hour_s)
    for host, missing_hours in list(hours.items())[:_NAMED]:
        count = "1 hour" if len(missing_hours) == 1 else f"{len(missing_hours):,} hours"
        say(f"no rows of {host} for {count}, the first at {iso(missing_hours[0])}")
    if len(hours) > _NAMED:
        say(f"no rows of {len(hours) - _NAMED:,} more hosts for some hours; --json names all")
    if silent:
        named = ", ".join(silent[:_NAMED])
        more = f" and {len(silent) - _NAMED:,} more" if len(silent) > _NAMED else ""
        say(f"known hosts without any row in the range: {named}{more}")
