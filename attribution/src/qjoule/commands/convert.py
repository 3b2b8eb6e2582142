# SPDX-License-Identifier: Apache-2.0
"""`qjoule convert`: makes the tables of recordings that were only captured."""

from __future__ import annotations

from pathlib import Path

import click

from qjoule.commands.conversion import converted
from qjoule.commands.say import say
from qjoule.commands.written import what_was_written
from qjoule.engine.calls import count_calls
from qjoule.errors import UsageError
from qjoule.trace.arrow import leave_pandas_out
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
def command(*, traces: tuple[Path, ...], output: Path | None, keep: bool) -> int:
    """Make the tables of recordings that were captured with `--convert later` or cut off.

    A recording may be converted on another machine and by another user. Until its tables are
    whole it stays as it is, so a conversion can be interrupted and begun anew at any time.
    """
    if output is not None and len(traces) > 1:
        raise UsageError("--output is for one recording")
    leave_pandas_out()
    complete = True
    for trace in traces:
        meta = converted(trace, output, keep=keep).meta
        complete &= meta.complete
        where = output or trace
        say(what_was_written(where, meta, count_calls(Trace(where))))
        if meta.stopped is not None:
            say(f"{where} is not complete: {meta.stopped}")
    return 0 if complete else 1
