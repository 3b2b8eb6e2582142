# SPDX-License-Identifier: Apache-2.0
"""`qjoule export`: writes a trace's joules for profilers and trace viewers."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from qjoule.commands import options
from qjoule.commands.option_groups import ResultOptions, as_dataclass, is_given
from qjoule.commands.say import say, write_bytes
from qjoule.errors import UsageError

FORMATS = ("pprof", "speedscope", "perfetto", "otlp")
_TIMELINE, _TEXT = "perfetto", "speedscope"


@click.command(
    short_help="Joules for pprof, speedscope, Perfetto or OpenTelemetry.",
    epilog="""\b
Examples:
  qjoule export pprof shop.qjoule -o shop.pb.gz
  go tool pprof -http=: -tagroot=db.query.summary shop.pb.gz
  qjoule export speedscope shop.qjoule -o shop.speedscope.json
  qjoule export perfetto shop.qjoule -o shop.pftrace
  qjoule export otlp shop.qjoule | curl --data-binary @- \\
    -H 'Content-Type: application/x-protobuf' \\
    http://localhost:4318/v1development/profiles
""",
)
@click.argument("form", type=click.Choice(FORMATS))
@click.argument("trace", type=click.Path(path_type=Path), metavar="DIR")
@click.option(
    "--by",
    default="fingerprint,server,database",
    show_default=True,
    metavar="KEY[,KEY…]",
    help="Keys that become labels, as of `qjoule attribute`; not of perfetto.",
)
@options.where
@options.idle
@options.calibration
@options.memory
@options.symfs
@options.output
@as_dataclass(ResultOptions, "result_options")
def command(
    form: str,
    trace: Path,
    *,
    result_options: ResultOptions,
    symfs: Path | None,
    output: Path | None,
) -> None:
    """Write the joules and the CPU time of a trace for other tools, with the query as labels.

    Of a trace with stacks, pprof, speedscope and otlp have what `qjoule flame` shows; of any other,
    a row of `qjoule attribute` is one frame. perfetto has a track for each session, with its
    queries and their joules, and counters of power. Joules are whole nanojoules, and all of a file
    add up to what was measured.
    """
    if form == _TIMELINE and is_given("by"):
        raise UsageError("perfetto has every query: leave out --by")
    if form != _TEXT and output is None and sys.stdout.isatty():
        raise UsageError(f"{form} is not for a terminal: add -o FILE")
    from qjoule.commands.export_run import run  # noqa: PLC0415 (`--help` stays fast)

    content, notes = run(form, trace, result_options, symfs)
    for line in notes:
        say(line)
    write_bytes(content, output)
