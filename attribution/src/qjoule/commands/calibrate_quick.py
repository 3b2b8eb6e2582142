# SPDX-License-Identifier: Apache-2.0
"""`qjoule calibrate --quick`: calibrates a machine that is in use."""

from __future__ import annotations

import sys
from dataclasses import asdict
from math import isfinite
from random import SystemRandom

import click

from qjoule.commands.calibrated_run import InUse
from qjoule.commands.option_groups import Quick, is_given
from qjoule.commands.say import say
from qjoule.errors import QjouleError, UsageError
from qjoule.machine.calibration import load, machine_file, match
from qjoule.machine.facts import read_cpu_info
from qjoule.machine.identity import Identity
from qjoule.machine.load import Limits
from qjoule.machine.steps import QUICK_SETTLE_S, loaded_cores, plan_quick
from qjoule.model.coefficients import Coefficients
from qjoule.session.calibrating import Bounds, Done, QuickRun, Recording

#: The machine's load is measured for so long before our loads; the tracer settles meanwhile.
BEGIN_S = 3.0


def requested_quick_run(requested: Quick, *, short: bool, busy: bool, quick: bool) -> Quick | None:
    """Returns the requested quick run, or None without --quick. Raises `UsageError` for options
    that would have no effect."""
    values = asdict(requested)
    if not quick:
        for name in values:
            if is_given(name):
                raise UsageError(f"--{name.replace('_', '-')} is of a quick run: add --quick")
        return None
    if short or busy:
        option = "--short" if short else "--busy"
        raise UsageError(f"--quick is for a machine in use: leave out {option}")
    for name, value in values.items():
        if isinstance(value, float) and not isfinite(value):
            raise UsageError(f"--{name.replace('_', '-')} needs a number")
    return requested


def prior_coefficients(quick: Quick, machine: Identity) -> tuple[Coefficients, tuple[str, ...]]:
    """Returns the machine's calibration, and notes about it for the reader."""
    nothing = Coefficients()
    if quick.anew:
        return nothing, ()
    try:
        calibration = load(machine_file())
    except QjouleError as error:
        return nothing, (f"the earlier calibration is not used: {error}",)
    if calibration is None:
        return nothing, ()
    judged = match(calibration, machine)
    if judged.refused:
        return nothing, (f"the earlier calibration is not used: {judged.refused[0]}",)
    flags = "".join(f", {flag}" for flag in judged.flagged)
    return calibration.coefficients, (f"refines the calibration of {calibration.origin}{flags}",)


def run(quick: Quick, recording: Recording) -> tuple[list[Done], InUse]:
    """Records the phases. Raises `QjouleError` if the machine is or becomes too busy."""
    info = read_cpu_info()
    limits = Limits(quick.rise / 100 * len(info.cpus), quick.waiting)
    quick_run = QuickRun(Bounds(limits, quick.most_watts), recording.power, recording.check)
    say("looking at the machine's load")
    use = quick_run.begin(BEGIN_S)
    cores = loaded_cores(info, use, quick.most_cores)
    steps = plan_quick(info, cores, quick.seconds - BEGIN_S, SystemRandom())
    seconds = sum(step.seconds + QUICK_SETTLE_S for step in steps)
    share = use.busy_cpus / len(info.cpus)
    say(
        f"the machine is {share:.0%} busy; {len(steps)} phases on up to {len(cores)} of "
        f"{info.cores} cores, about {seconds:.0f} s; Ctrl-C stops and leaves nothing"
    )
    with click.progressbar(length=len(steps), file=sys.stderr, label="calibrating") as bar:
        phases, why = quick_run.run(steps, lambda _done: bar.update(1))
    return phases, InUse(use.busy_cpus, notes=(why,) if why else ())
