# SPDX-License-Identifier: Apache-2.0
"""`qjoule calibrate`: measures what this machine draws at rest, and for every kind of work."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import BinaryIO

import click

from qjoule.commands import options
from qjoule.commands.say import say
from qjoule.contract import Mode
from qjoule.errors import QjouleError
from qjoule.machine import calibration as file
from qjoule.machine.calibration import Calibration, DomainName, Found, PhaseSummary
from qjoule.machine.cpu import read_cpu_info
from qjoule.machine.identity import Identity, this_machine
from qjoule.machine.load import IDLE, Step, plan_steps
from qjoule.model.energy import SLOW_NS
from qjoule.root_part.client import root_part, why
from qjoule.root_part.protocol import Refused
from qjoule.session.calibrating import SETTLE_S, Done, recording, run_steps
from qjoule.session.directory import inside
from qjoule.session.targets import NO_SERVERS
from qjoule.session.tracer import Settings
from qjoule.session.tracing import tracing
from qjoule.trace.meta import Meta
from qjoule.trace.reader import Trace

WINDOW_MS = 20
#: Busy share of the machine while it should be idle: reported above the first, refused above the
#: second. Tracing itself takes well below one per cent; anything else that runs wakes the package.
NOTABLE_BUSY, MOST_BUSY = 0.02, 0.20
#: Idle power at the end against the beginning: a package that got warm leaks a few per cent more.
NOTABLE_DRIFT = 0.05
_CIRCULAR = "a calibration on a power model only returns the model"


@click.command(
    short_help="Measure what this machine draws, for exact shares.",
    epilog="""\b
Examples:
  sudo qjoule calibrate
  sudo qjoule calibrate --quick -o /tmp/this-machine.json
  sudo qjoule calibrate --json | jq .identified

\b
Stop other work first: it takes 60 to 90 seconds and loads every CPU.
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
@click.option("--quick", is_flag=True, help="About 20 seconds, with wider intervals.")
@click.option("--busy", is_flag=True, help="Go on although other programs run.")
@options.energy("auto, powercap[:ROOT], perf[:SYSFS], hwmon[:ROOT], host:ROOT or replay:FILE.")
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Keep the recorded trace in this directory.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the calibration as JSON.")
def command(
    *,
    output: Path | None,
    quick: bool,
    busy: bool,
    energy: str,
    keep: Path | None,
    as_json: bool,
) -> None:
    """Measure idle and shared power, and what cycles, instructions and cache misses cost here.

    Runs known loads on this machine's CPUs beside its energy counters, and fits the model's
    coefficients to them. What the measurements cannot tell is said to be so.
    """
    root_part().need("calibrating")
    machine, steps = this_machine(), plan_steps(read_cpu_info(), quick=quick)
    path = output or file.MACHINE_FILE
    with (
        _interruptible(),
        # Opened before the measurement, so that an unwritable file is reported at once.
        _published(path) as document,
        nullcontext(keep) if keep else _scratch() as directory,
        inside(directory),
    ):
        done = _run(steps, energy, busy)
        say("fitting the model")
        result = summarise(Trace("."), machine, done, quick)
        text = result.to_json()
        document.write(text.encode())
    click.echo(text if as_json else _render(result), nl=False)
    say(f"written to {path}")


@contextmanager
def _published(path: Path) -> Iterator[BinaryIO]:
    """A file that replaces `path` when the block has ended without an error."""
    try:
        with os.fdopen(root_part().stage(path), "wb") as document:
            yield document
        root_part().publish()
    except Refused as error:
        raise QjouleError(f"cannot write {path}: {why(error)}; give another with -o") from None


@contextmanager
def _scratch() -> Iterator[Path]:
    """A directory of our own, which is removed afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="qjoule-calibrate-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _run(steps: Sequence[Step], energy: str, busy_allowed: bool) -> list[Done]:
    """Records all steps into the working directory."""
    settings = Settings(Mode.RECORD, window_ms=WINDOW_MS, energy=energy)
    # Loads are started while it records, so this process stays unconfined.
    with tracing(NO_SERVERS, settings, confined=False) as running:
        with recording(running) as run:
            check_source(run.announced())
            seconds = sum(step.seconds + SETTLE_S for step in steps)
            say(f"{len(steps)} phases, about {seconds:.0f} s; Ctrl-C stops and leaves nothing")
            bar = click.progressbar(length=len(steps), file=sys.stderr, label="calibrating")
            with bar:

                def after(one: Done) -> None:
                    bar.update(1)
                    check_quiet(one, busy_allowed)

                done = run_steps(steps, run.check, after)
        run.check()
        running.tracer.close()
    return done


def check_source(meta: Meta) -> None:
    """Raises `QjouleError` unless there is measured energy to calibrate on.

    Counters from a hypervisor are an estimate, but of this machine and varying with it, so they are
    accepted.
    """
    energy = meta.energy
    slow = next((one for one in meta.domains if (one.period_ns or 0) > SLOW_NS), None)
    if slow is not None:
        raise QjouleError(
            f"cannot calibrate: {slow.name} of {energy.source} moves once in "
            f"{(slow.period_ns or 0) * 1e-9:g} s, and loads are told apart by windows that are "
            "shorter: use --energy powercap or perf"
        )
    if energy.grade in ("measured", "simulated") or energy.source == "host":
        return
    what = "this machine's energy is only estimated" if energy.grade == "estimated" else "no energy"
    raise QjouleError(
        f"cannot calibrate: {what}, and {_CIRCULAR}; load intel_rapl_msr, or in a virtual machine "
        f"have the hypervisor export its counters (--energy host:DIR). {energy.reason}".rstrip(". ")
    )


def check_quiet(done: Done, allowed: bool) -> None:
    """Raises `QjouleError` if an idle phase was not nearly idle, unless that is `allowed`."""
    if done.step.kernel != IDLE or allowed:
        return
    share = busy_share(done)
    if share > MOST_BUSY:
        raise QjouleError(
            f"this machine is not idle: other programs keep {share:.0%} of it busy; stop them, or "
            "calibrate all the same with --busy, with less certain idle power"
        )


def busy_share(done: Done) -> float:
    """Share of the machine's CPU time that was not idle."""
    return min(done.busy_cpus / (os.cpu_count() or 1), 1.0)


def summarise(
    trace: Trace, machine: Identity, done: Sequence[Done], quick: bool = False
) -> Calibration:
    """Fits the recorded phases. Raises `QjouleError` if nothing could be measured."""
    from qjoule.engine.phases import all_windows, phase_power_w  # noqa: PLC0415 (slow to import)
    from qjoule.model.fit.known_loads import fit_calibration  # noqa: PLC0415

    phases = [one.phase for one in done]
    batches, series = all_windows(trace)
    if not series:
        raise QjouleError("nothing was measured: the energy counters gave no reading")
    fit = fit_calibration(batches, series, phases)
    power = phase_power_w(batches, series, phases)
    summaries = tuple(
        PhaseSummary(
            one.step.kernel,
            one.phase.threads,
            one.phase.smt,
            one.phase.t0_ns,
            one.phase.t1_ns,
            windows,
            watts,
        )
        for one, (windows, watts) in zip(done, power, strict=True)
    )
    return Calibration(
        identity=machine,
        date=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        energy=trace.meta.energy,
        domains=tuple(DomainName(one.package, one.name) for one in trace.meta.domains),
        counters=trace.meta.counters,
        phases=summaries,
        held_out_error=dict(fit.held_out_error),
        identified={
            name: Found(float(one.value), float(one.low), float(one.high), bool(one.ok), one.why)
            for name, one in fit.identified.items()
        },
        notes=(*fit.notes, *notes(trace, done, summaries)),
        quick=quick,
        coefficients=fit.coefficients,
    )


def notes(trace: Trace, done: Sequence[Done], phases: Sequence[PhaseSummary]) -> Iterator[str]:
    """What a reader must know to judge the calibration."""
    if trace.meta.energy.source == "host":
        yield "energy is what the host apportions to this guest, so are the coefficients"
    if trace.meta.energy.grade == "simulated":
        yield "energy is simulated: these are not the powers of a real machine"
    if not trace.meta.counters:
        yield "no hardware counters: only CPU time could be weighed"
    busiest = max((busy_share(one) for one in done if one.step.kernel == IDLE), default=0.0)
    if busiest > NOTABLE_BUSY:
        yield f"the machine was up to {busiest:.0%} busy while it should have been idle"
    if not all(one.exceeds_cache for one in done):
        yield "too little memory is free for stream and chase to exceed the last level cache"
    quiet = [phase for phase in phases if phase.kernel == IDLE and phase.windows]
    for domain, first_w in quiet[0].power_w.items() if len(quiet) > 1 else ():
        last_w = quiet[-1].power_w.get(domain, first_w)
        if abs(last_w - first_w) > NOTABLE_DRIFT * max(first_w, last_w):
            yield f"idle {domain} drifted from {first_w:.2f} W to {last_w:.2f} W during the run"
    if trace.lost_cpu_ns:
        yield f"{trace.lost_cpu_ns * 1e-9:.3g} s of CPU time were lost"


@contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM ends it like Ctrl-C: everything is cleaned up."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _render(result: Calibration) -> str:
    from qjoule.reporters.calibration import render  # noqa: PLC0415 (rich takes its time)

    return render(result, color=sys.stdout.isatty() and not os.environ.get("NO_COLOR"))
