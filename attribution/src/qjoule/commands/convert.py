# SPDX-License-Identifier: Apache-2.0
"""`qjoule convert`: makes the tables of captured recordings."""

from __future__ import annotations

from pathlib import Path

import click

from qjoule.commands.conversion import converted, cpus, what_was_written
from qjoule.commands.say import say
from qjoule.engine.calls import count_calls
from qjoule.errors import UsageError
from qjoule.lazy_import import leave_pandas_out
from qjoule.trace.reader import Trace


@click.command(
    short_help="Make the tables of what `record` captured.",
    epilog="""\b
Examples:
  qjoule convert shop.qjoule
  qjoule convert shop.qjoule -o tables.qjoule
""",
)
@click.argument(
    "traces", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="TRACE..."
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write the tables here, and leave the recording as it is. [default: into the recording]",
)
@click.option("--keep", is_flag=True, help="Keep what was captured beside the tables.")
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Processes that convert; more than two are of no use. The tables do not depend on it. "
    "[default: as many as CPUs]",
)
def command(*, traces: tuple[Path, ...], output: Path | None, keep: bool, jobs: int | None) -> int:
    """Make the tables of recordings that were captured with `--convert later` or cut off.

    A recording may be converted on another machine and by another user. Until its tables are
    whole it stays as it is, so a conversion can be interrupted and begun anew at any time.
    """
    if output is not None and len(traces) > 1:
        raise UsageError("--output is for one recording")
    leave_pandas_out()
    complete = True
    target = None if output is None else output.absolute()
    for trace in traces:
        place = output or trace
        meta = converted(trace, target, keep=keep, jobs=jobs or cpus()).meta
        counted = count_calls(Trace(target or trace))
        complete &= meta.complete
        say(what_was_written(place, meta, counted))
        if meta.stopped is not None:
            say(f"{place} is not complete: {meta.stopped}")
    return 0 if complete else 1
