# SPDX-License-Identifier: Apache-2.0
"""`qjoule advise`: what a trace shows that could be saved."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from qjoule.commands import options
from qjoule.commands.option_groups import ResultOptions


@click.command(
    short_help="What could be saved, by the evidence of a trace.",
    epilog="""\b
Examples:
  sudo qjoule record --stacks -d 60 -o shop.qjoule
  qjoule advise shop.qjoule
  qjoule advise shop.qjoule --json
""",
)
@click.argument("trace", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@options.symfs
def command(trace: Path, *, as_json: bool, symfs: Path | None) -> None:
    """Advise what to change, most joules first: indexes, sorts that spill, SELECT *, prepared
    statements, N+1, polling, lock convoys and too many parallel workers.

    Each advice says what the trace shows, and how much it could save at most, with its 95 %
    interval. Scans, sorts, columns and parsing are seen in sampled stacks (record --stacks).
    """
    from qjoule.commands.attribute_run import request_of  # noqa: PLC0415 (`--help` stays fast)
    from qjoule.commands.conversion import readable  # noqa: PLC0415
    from qjoule.commands.frame_names import trace_frame_names  # noqa: PLC0415
    from qjoule.engine.advice import advise  # noqa: PLC0415
    from qjoule.process import keep_freed_memory  # noqa: PLC0415
    from qjoule.reporters import advice  # noqa: PLC0415
    from qjoule.trace.reader import Trace  # noqa: PLC0415

    keep_freed_memory()
    opened = Trace(readable([trace])[0])
    request = request_of(opened, ResultOptions("fingerprint", "separate"))
    advised = advise(opened, request, trace_frame_names(opened, symfs))
    color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    click.echo(
        advice.to_json(advised) if as_json else advice.render(advised, color=color), nl=False
    )
