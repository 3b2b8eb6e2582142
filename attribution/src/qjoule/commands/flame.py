# SPDX-License-Identifier: Apache-2.0
"""`qjoule flame`: divides a trace's joules over the servers' functions."""

from __future__ import annotations

from pathlib import Path

import click

from qjoule.commands import options
from qjoule.commands.option_groups import ResultOptions, as_dataclass
from qjoule.commands.say import say, write_text

FORMATS = ("collapsed", "table", "nodes", "html")


@click.command(
    short_help="Joules by stack, from a trace recorded with --stacks.",
    epilog="""\b
Examples:
  qjoule flame shop.qjoule | flamegraph.pl --countname=nJ > shop.svg
  qjoule flame shop.qjoule --format html -o shop.html
  qjoule flame shop.qjoule --shape 2f3a9c11 --format table
  qjoule flame shop.qjoule --by user
""",
)
@click.argument("trace", type=click.Path(path_type=Path), metavar="DIR")
@click.option(
    "--shape", metavar="FINGERPRINT", help="Only this statement; its beginning is enough."
)
@click.option(
    "--by",
    default="fingerprint",
    show_default=True,
    metavar="KEY[,KEY…]",
    help="Keys of the first frames, as of `qjoule attribute`.",
)
@options.where
@options.idle
@options.calibration
@options.memory
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="collapsed",
    show_default=True,
    help="collapsed: a line for each stack and its nanojoules, for all tools that draw flame "
    "graphs. table: functions. nodes: of each statement's plan; both with waits. html: a page.",
)
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=30,
    show_default=True,
    metavar="N",
    help="Functions in the table.",
)
@options.symfs
@options.output
@as_dataclass(ResultOptions, "result_options")
def command(
    trace: Path,
    *,
    shape: str | None,
    result_options: ResultOptions,
    form: str,
    top: int,
    symfs: Path | None,
    output: Path | None,
) -> None:
    """Divide the joules of a trace over the stacks that were sampled.

    The parts of a row add up to its joules in `qjoule attribute`, to the nanojoule, and all rows to
    what was measured. Functions are named by the files that were traced, if they are still there,
    and by debug files of their build ids. Without those, a frame is a file and an address in it.
    """
    from qjoule.commands.flame_run import run  # noqa: PLC0415 (`--help` stays fast)

    text, notes = run(trace, shape, result_options, form, top, symfs=symfs)
    for line in notes:
        say(line)
    write_text(text, output)
