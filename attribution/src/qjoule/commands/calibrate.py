# SPDX-License-Identifier: Apache-2.0
"""`qjoule calibrate`: measures what this machine draws at rest, and for every kind of work."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import click

from qjoule.commands import calibrate_quick, option_groups, options
from qjoule.commands.calibrated_run import InUse, busy_share, check_source, summarise
from qjoule.commands.option_groups import Quick, as_dataclass
from qjoule.commands.say import say
from qjoule.contract import Mode
from qjoule.errors import QjouleError
from qjoule.interrupts import terminable
from qjoule.machine import calibration as file
from qjoule.machine.calibration import Calibration
from qjoule.machine.facts import read_cpu_info
from qjoule.machine.identity import this_machine
from qjoule.machine.steps import IDLE, Step, plan_steps
from qjoule.root_part.client import refusal_message, root_part
from qjoule.root_part.protocol import Refused
from qjoule.session.calibrating import SETTLE_S, Done, Recording, recording, run_steps
from qjoule.session.directory import inside
from qjoule.session.targets import NO_SERVERS
from qjoule.session.tracer import Settings
from qjoule.session.tracing import tracing
from qjoule.trace.reader import Trace

WINDOW_MS = 20
#: A larger busy share of the machine in idle phases is refused. Tracing itself takes well below one
#: per cent; any other program keeps the package awake.
MOST_BUSY = 0.20


@click.command(
    short_help="Measure what this machine draws, for exact shares.",
    epilog="""\b
Examples:
  sudo qjoule calibrate
  sudo qjoule calibrate --quick
  sudo qjoule calibrate --short -o /tmp/this-machine.json
  sudo qjoule calibrate --json | jq .identified

\b
Stop other work first: it takes 70 to 110 seconds and loads every CPU. On a
machine that must go on working, use --quick.
Exit code 1: nothing was calibrated, and no file was written.
""",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help=f"Write it here. [default: {file.MACHINE_FILE}, where top and record look]",
)
@click.option("--short", is_flag=True, help="About 30 seconds, with wider intervals.")
@click.option("--busy", is_flag=True, help="Go on although other programs run.")
@option_groups.quick
@options.energy("auto, powercap[:ROOT], perf[:SYSFS], hwmon[:ROOT], host:ROOT or replay:FILE.")
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Keep the recorded trace in this directory.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the calibration as JSON.")
@as_dataclass(Quick, "of_quick")
def command(
    *,
    output: Path | None,
    short: bool,
    busy: bool,
    quick: bool,
    energy: str,
    keep: Path | None,
    as_json: bool,
    of_quick: Quick,
) -> None:
    """Measure idle and shared power, and what cycles, instructions and cache misses cost here.

    Runs known loads on this machine's CPUs beside its energy counters, and fits the model's
    coefficients to them. What the measurements cannot tell is said to be so.
    """
    in_quick = calibrate_quick.requested_quick_run(of_quick, short=short, busy=busy, quick=quick)
    root_part().need("calibrating")
    machine, path = this_machine(), output or file.MACHINE_FILE
    prior = calibrate_quick.prior_coefficients(in_quick, machine) if in_quick else None
    with (
        terminable(),
        # Opened before the measurement, so that an unwritable file is reported at once.
        _atomic_output(path) as document,
        nullcontext(keep) if keep else _temporary_directory() as directory,
        inside(directory),
    ):
        phases, in_use = _run(plan_steps(read_cpu_info(), short=short), energy, busy, in_quick)
        say("fitting the model")
        if in_use is not None and prior is not None:
            in_use = replace(in_use, prior=prior[0], notes=(*in_use.notes, *prior[1]))
        result = summarise(Trace("."), machine, phases, short or quick, in_use)
        text = result.to_json()
        document.write(text.encode())
    click.echo(text if as_json else _render(result), nl=False)
    say(f"written to {path}")


@contextmanager
def _atomic_output(path: Path) -> Iterator[BinaryIO]:
    """Yields a file that replaces `path` if the block ends without an error."""
    try:
        with os.fdopen(os.memfd_create("calibration"), "wb") as document:
            root_part().publish(path, document.fileno())  # checks the path first
            yield document
            document.flush()
            root_part().publish(path, document.fileno())
    except Refused as error:
        raise QjouleError(
            f"cannot write {path}: {refusal_message(error)}; give another with -o"
        ) from None


@contextmanager
def _temporary_directory() -> Iterator[Path]:
    """Yields a temporary directory, and removes it at the end."""
    directory = Path(tempfile.mkdtemp(prefix="qjoule-calibrate-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _run(
    steps: Sequence[Step], energy: str, busy_allowed: bool, quick: Quick | None
) -> tuple[list[Done], InUse | None]:
    """Records all steps, or those of a quick run, into the working directory."""
    settings = Settings(Mode.RECORD, window_ms=WINDOW_MS, energy=energy)
    # Loads are started during the recording, so this process stays unconfined.
    with tracing(NO_SERVERS, settings, confined=False) as running:
        with recording(running) as run:
            check_source(run.announced())
            if quick is not None:
                done, in_use = calibrate_quick.run(quick, run)
            else:
                done, in_use = _run_all(steps, run, busy_allowed), None
        run.check()
        running.tracer.close()
    return done, in_use


def _run_all(steps: Sequence[Step], run: Recording, busy_allowed: bool) -> list[Done]:
    seconds = sum(step.seconds + SETTLE_S for step in steps)
    say(f"{len(steps)} phases, about {seconds:.0f} s; Ctrl-C stops and leaves nothing")
    with click.progressbar(length=len(steps), file=sys.stderr, label="calibrating") as bar:

        def after(phase: Done) -> None:
            bar.update(1)
            check_quiet(phase, busy_allowed)

        return run_steps(steps, run.check, after)


def check_quiet(done: Done, allowed: bool) -> None:
    """Raises `QjouleError` if an idle phase was too busy, unless `allowed`."""
    if done.step.kernel != IDLE or allowed:
        return
    share = busy_share(done)
    if share > MOST_BUSY:
        raise QjouleError(
            f"this machine is not idle: other programs keep {share:.0%} of it busy; stop them, or "
            "calibrate all the same with --busy, with less certain idle power"
        )


def _render(result: Calibration) -> str:
    from qjoule.reporters.calibration import render  # noqa: PLC0415 (rich takes its time)

    return render(result, color=sys.stdout.isatty() and not os.environ.get("NO_COLOR"))
