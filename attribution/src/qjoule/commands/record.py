# SPDX-License-Identifier: Apache-2.0
"""`qjoule record`: records a trace of this machine's database servers."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from importlib import import_module
from pathlib import Path

import click

from qjoule.commands import option_groups, options
from qjoule.commands.option_groups import Keeping, as_dataclass
from qjoule.commands.record_job import Job
from qjoule.commands.say import say
from qjoule.commands.via import ViaCommand, directory_to_send, record_remotely
from qjoule.contract import Mode
from qjoule.errors import QjouleError, UsageError
from qjoule.interrupts import imports
from qjoule.remote.wire import Streams
from qjoule.root_part.client import check_program, root_part
from qjoule.session.directory import inside
from qjoule.session.options import TracingOptions
from qjoule.session.targets import find_targets
from qjoule.session.tracer import Settings


@click.command(
    cls=ViaCommand,
    short_help="Record a trace of what the servers do.",
    epilog="""\b
Examples:
  sudo qjoule record -d 60
  sudo qjoule record -o shop.qjoule --pid 812
  sudo qjoule record -d 60 --generic
  sudo qjoule record -d 60 --agent
  sudo qjoule record -d 60 --children
  sudo qjoule record -d 60 --client-tags
  sudo qjoule record -d 60 --credentials accounts.toml
  sudo qjoule record -d 60 --ids
  sudo qjoule record -d 60 --stacks
  sudo qjoule record -d 60 --pin-map
  sudo qjoule record -o shop.qjoule --keep 5m --trigger 'query>5J'
  sudo qjoule record -d 60 --counters branch-misses,instructions:u
  sudo qjoule record -o load.qjoule -- pgbench -T 30 shop
  sudo qjoule record -o load.qjoule --rest 60 -- pgbench -T 30 shop
  qjoule record --via 'ssh db1 sudo' -d 60
""",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write the trace here. [default: qjoule-DATE-TIME.qjoule]",
)
@click.option(
    "-d", "--duration", type=click.FloatRange(min=0.1), metavar="SECONDS", help="Stop after this."
)
@click.option(
    "--rest",
    "rest_s",
    type=click.FloatRange(1, 3600),
    metavar="SECONDS",
    help="Record for so long before CMD starts, or before -d counts: if the machine idles, its "
    "power at rest becomes known without a calibration. Use 30 or more.",
)
@click.option(
    "--pid",
    "pids",
    type=click.IntRange(min=1),
    multiple=True,
    metavar="PID",
    help="Only this server; may be repeated. Any process may be named: a server that qjoule does "
    "not know is traced by thread name. [default: all known servers]",
)
@options.generic
@options.agent
@options.attach
@options.energy(
    "auto, none, powercap[:ROOT], perf[:SYSFS], hwmon[:ROOT], host:ROOT, replay:FILE or "
    "estimated:W0,W10,W50,W100 (docs/energy.md)."
)
@options.meter
@options.meter_file
@options.calibration
@options.memory
@click.option("--host-root", metavar="DIR", help="For auto: counters given by the hypervisor.")
@click.option(
    "--window-ms",
    type=click.IntRange(5, 1000),
    metavar="MS",
    default=20,
    show_default=True,
    help="Time between two readings of the energy counters.",
)
@click.option(
    "--ring-mb",
    type=click.IntRange(1, 1024),
    metavar="MB",
    default=8,
    show_default=True,
    help="Memory of the kernel's buffers.",
)
@click.option(
    "--children",
    is_flag=True,
    help="MySQL, MariaDB: also separate what procedures, functions and triggers execute.",
)
@options.stacks("`qjoule flame`")
@options.client_tags
@options.ids
@options.pin_map
@options.no_follow
@options.credentials
@option_groups.capture
@option_groups.keeping
@click.option(
    "--no-counters",
    "counters",
    is_flag=True,
    flag_value=False,
    default=True,
    help="Leave the hardware counters alone.",
)
@options.counters
@click.option(
    "--capture-literals",
    "literals",
    is_flag=True,
    help="Also keep statements with their literals: they may be personal data.",
)
@options.via
@options.streamed
@click.argument("program", nargs=-1, type=click.UNPROCESSED, metavar="[-- CMD...]")
@as_dataclass(TracingOptions, "tracing_options")
@as_dataclass(Settings, "settings", mode=Mode.RECORD)
@as_dataclass(Job, "job")
@as_dataclass(Keeping, "keeping")
def command(
    *,
    output: Path | None,
    meter_command: str | None,
    meter_file: Path | None,
    tracing_options: TracingOptions,
    settings: Settings,
    job: Job,
    keeping: Keeping,
    via: str | None,
    streamed: bool,
) -> int:
    """Record a trace: until Ctrl-C, for -d seconds, or while CMD runs."""
    directory = output or Path(datetime.now().strftime("qjoule-%Y%m%d-%H%M%S.qjoule"))
    if (via is not None or streamed) and keeping:
        raise UsageError("--keep is for a directory of the machine that records")
    if via is not None:
        return record_remotely(via, directory)
    _check(settings, job, keeping)
    root_part().need("recording")
    streams = None
    if streamed:
        streams, directory = Streams(), Path("trace")
    targets = find_targets(tracing_options, _import_run)
    from qjoule.commands.record_run import record  # noqa: PLC0415 - see `_import_run`
    from qjoule.session.meter import start_meter  # noqa: PLC0415

    for line in targets.left_out:
        say(line)
    job = replace(
        job,
        directory=directory,
        meter=start_meter(meter_command, meter_file),
        other_ids=targets.ids if tracing_options.ids else None,
    )
    settings = replace(
        settings, client_tags=tracing_options.client_tags, pin_map=tracing_options.pin_map
    )
    with ExitStack() as stack:
        if streams is not None:
            directory = stack.enter_context(directory_to_send(streams))
        stack.enter_context(inside(directory))
        return record(targets, settings, job, keeping, streams)


def _check(settings: Settings, job: Job, keeping: Keeping) -> None:
    """Raises `UsageError` or `QjouleError` if the options do not fit together."""
    if keeping.triggers and not keeping:
        raise UsageError("--trigger saves what --keep holds: add --keep TIME")
    if settings.stacks_hz and keeping:
        raise UsageError("--stacks and --keep: give one of them")
    if settings.more_counters and not settings.counters:
        raise UsageError("--counters and --no-counters: give one of them")
    if job.rest_s is not None and job.program and shutil.which(job.program[0]) is None:
        raise QjouleError(f"there is no program {job.program[0]}")
    check_program(job.program)


def _import_run() -> None:
    """Imports the recording's modules in parallel with planning."""
    with imports():
        import_module("qjoule.commands.record_run")
