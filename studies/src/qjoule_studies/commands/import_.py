# SPDX-License-Identifier: Apache-2.0
"""`qjoule import`: makes traces from recordings of other tools."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from qjoule.api import UsageError
from qjoule.api.command import say

if TYPE_CHECKING:
    from qjoule_studies.import_perf.build import Request


@click.group(
    short_help="Make a trace of what another tool recorded.",
    epilog="""\b
Examples:
  sudo qjoule import perf --print-commands
  qjoule import perf qjoule-perf.data --energy qjoule-energy.csv
""",
)
def command() -> None:
    """Make a trace of what another tool recorded, for hosts where BPF is not allowed."""


@command.command(
    "perf",
    short_help="Of `perf record` and `perf stat`.",
    epilog="""\b
Examples:
  sudo qjoule import perf --print-commands
  sudo qjoule import perf --print-commands --pid 812 --seconds 60
  qjoule import perf qjoule-perf.data --energy qjoule-energy.csv
  qjoule import perf qjoule-perf.data --energy estimated
  qjoule import perf made-elsewhere.txt --energy estimated:35,52,118,160
""",
)
@click.argument("recording", type=click.Path(path_type=Path), required=False, metavar="PERF.data")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write the trace here. [default: qjoule-DATE-TIME.qjoule]",
)
@click.option(
    "--energy",
    type=click.Path(readable=False),
    default="none",
    show_default=True,
    metavar="SOURCE",
    help="A file of `perf stat -I -x,`, estimated[:W0,W10,W50,W100[,DRAM]], or none.",
)
@click.option(
    "--energy-start",
    "stat_begin",
    metavar="SECONDS",
    help="When perf stat began, by CLOCK_MONOTONIC. [default: as the recording tells]",
)
@click.option(
    "--server",
    "servers",
    multiple=True,
    metavar="ID=KIND,PID,VERSION,NAME",
    help="A server of the host, as --print-commands prints it. [default: by the probes hit]",
)
@click.option(
    "--capture-literals",
    is_flag=True,
    help="Also keep statements with their literals: they may be personal data.",
)
@click.option(
    "--print-commands", is_flag=True, help="Print what to run on this host, and import nothing."
)
@click.option(
    "--pid",
    "pids",
    type=click.IntRange(min=1),
    multiple=True,
    metavar="PID",
    help="With --print-commands: only this server; may be repeated.",
)
@click.option(
    "--seconds",
    type=click.IntRange(1, 86_400),
    default=60,
    show_default=True,
    metavar="N",
    help="With --print-commands: how long to record.",
)
def perf(
    *,
    recording: Path | None,
    output: Path | None,
    energy: str,
    stat_begin: str | None,
    servers: tuple[str, ...],
    capture_literals: bool,
    print_commands: bool,
    pids: tuple[int, ...],
    seconds: int,
) -> int:
    """Make a trace of a perf.data, or of the text that `perf script` made of one.

    Queries are seen by uprobes on the server's functions. What is lost against `qjoule record`:
    interrupts, hardware counters, users, databases, tags and outcomes
    (studies/docs/import-perf.md).
    """
    if print_commands:
        if recording is not None:
            raise UsageError("--print-commands imports nothing: leave out PERF.data")
        _print(pids, seconds)
        return 0
    if recording is None:
        raise UsageError("name the perf.data to import; --print-commands says how to record one")
    if pids:
        raise UsageError("--pid is for --print-commands; --server names servers of a recording")
    from qjoule_studies.import_perf.build import Request  # noqa: PLC0415 (not for --help)
    from qjoule_studies.import_perf.scan import parse_server  # noqa: PLC0415

    named = tuple(parse_server(text) for text in servers)
    request = Request(recording, energy, stat_begin, named, capture_literals)
    _import(request, output or Path(datetime.now().strftime("qjoule-%Y%m%d-%H%M%S.qjoule")))
    return 0


def _import(request: Request, directory: Path) -> None:
    from qjoule.api.attribution import count_calls  # noqa: PLC0415
    from qjoule.api.traces import Trace, what_was_written  # noqa: PLC0415
    from qjoule_studies.import_perf.build import import_perf  # noqa: PLC0415

    done = import_perf(request, directory)
    meta = done.meta
    for note in done.notes:
        say(note)
    say(what_was_written(directory, meta, count_calls(Trace(directory))))


def _counters(folder: Path = Path("/sys/bus/event_source/devices/power/events")) -> list[str]:
    """The energy events of this machine's PMU: packages and, if available, DRAM."""
    return [name for name in ("energy-pkg", "energy-ram") if (folder / name).exists()]


def _print(pids: tuple[int, ...], seconds: int) -> None:
    from qjoule.api.command import sanitise  # noqa: PLC0415
    from qjoule.api.servers import plan_tracing  # noqa: PLC0415
    from qjoule_studies.import_perf.probes import commands  # noqa: PLC0415

    plan = plan_tracing(pids)
    running = [planned for planned in plan.traced if planned.server.running]
    if not running:
        raise UsageError("no server that qjoule knows is running: --pid names one")
    script = commands(running, seconds=seconds, counters=_counters())
    for line in script.splitlines():
        click.echo(sanitise(line))
