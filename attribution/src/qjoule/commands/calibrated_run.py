# SPDX-License-Identifier: Apache-2.0
"""Computes the calibration from the trace of a calibration run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from qjoule.errors import QjouleError
from qjoule.machine.calibration import Calibration, DomainName, FittedCoefficient, PhaseSummary
from qjoule.machine.identity import Identity
from qjoule.machine.steps import IDLE
from qjoule.model.coefficients import Coefficients
from qjoule.model.energy import ONE_CORE, SLOW_NS
from qjoule.session.calibrating import Done
from qjoule.trace.meta import Meta
from qjoule.trace.reader import Trace

#: Busy share of an idle phase above which the calibration notes it.
NOTABLE_BUSY = 0.02
#: Relative change of idle power during the run that is noted: warm packages leak a few per cent
#: more.
NOTABLE_DRIFT = 0.05
_LOAD = "qjoule-load"
_CIRCULAR = "a calibration on a power model only returns the model"


@dataclass(frozen=True)
class InUse:
    """Facts of a run on a machine in use: `busy_cpus` of other programs at the start, the earlier
    coefficients (`prior`), and `notes` on an early end."""

    busy_cpus: float
    prior: Coefficients = field(default_factory=Coefficients)
    notes: tuple[str, ...] = ()


def check_source(meta: Meta) -> None:
    """Raises `QjouleError` unless the trace has measured energy.

    Counters from a hypervisor are an estimate, but of this machine and varying with it, so they are
    accepted.
    """
    energy = meta.energy
    slow = next((domain for domain in meta.domains if (domain.period_ns or 0) > SLOW_NS), None)
    if slow is not None:
        raise QjouleError(
            f"cannot calibrate: {slow.name} of {energy.source} moves once in "
            f"{(slow.period_ns or 0) * 1e-9:g} s, and loads are told apart by windows that are "
            "shorter: use --energy powercap or perf"
        )
    if energy.grade in ("measured", "simulated") or energy.source == "host":
        return
    kind = "this machine's energy is only estimated" if energy.grade == "estimated" else "no energy"
    raise QjouleError(
        f"cannot calibrate: {kind}, and {_CIRCULAR}; load intel_rapl_msr, or in a virtual machine "
        f"have the hypervisor export its counters (--energy host:DIR). {energy.reason}".rstrip(". ")
    )


def busy_share(done: Done) -> float:
    """Share of the machine's CPU time that was not idle."""
    return min(done.busy_cpus / (os.cpu_count() or 1), 1.0)


def summarise(
    trace: Trace,
    machine: Identity,
    done: Sequence[Done],
    quick: bool = False,
    in_use: InUse | None = None,
) -> Calibration:
    """Fits the recorded phases. Raises `QjouleError` if nothing could be measured.

    `quick`: the run was shorter than possible. `in_use`: other programs ran meanwhile.
    """
    from qjoule.engine.accounts import idle_table  # noqa: PLC0415 (slow to import)
    from qjoule.engine.other_results import phase_power_w, phase_windows  # noqa: PLC0415 (slow to import)
    from qjoule.model.fit.known_loads import MachineInUse, fit_calibration  # noqa: PLC0415
    from qjoule.model.zones import left_out  # noqa: PLC0415

    phases = [recorded.phase for recorded in done]
    batches, series, foreign = phase_windows(trace, _LOAD)
    if not series:
        raise QjouleError("nothing was measured: the energy counters gave no reading")
    around = MachineInUse(idle_table=idle_table(trace.meta))
    if in_use:
        around = replace(around, load_groups=foreign, prior=in_use.prior)
    fit = fit_calibration(batches, series, phases, around)
    if in_use and not fit.coefficients.calibrated:
        raise QjouleError(
            "too little was measured: nothing could be fitted; " + "; ".join(fit.notes)
        )
    power = phase_power_w(batches, series, phases)
    summaries = tuple(
        PhaseSummary(
            recorded.step.kernel,
            recorded.phase.threads,
            recorded.phase.smt,
            recorded.phase.t0_ns,
            recorded.phase.t1_ns,
            windows,
            watts,
        )
        for recorded, (windows, watts) in zip(done, power, strict=True)
    )
    return Calibration(
        identity=machine,
        date=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        energy=trace.meta.energy,
        domains=tuple(
            dict.fromkeys(
                DomainName(d.package, d.name) for d in trace.meta.domains if d.name != ONE_CORE
            )
        ),
        counters=trace.meta.counters,
        phases=summaries,
        held_out_error=dict(fit.held_out_error),
        identified={
            name: FittedCoefficient(
                float(c.value), float(c.low), float(c.high), bool(c.ok), c.reason
            )
            for name, c in fit.identified.items()
        },
        notes=(
            *fit.notes,
            *(f"{name} is wrong: {why}" for name, why in left_out(batches, series).items()),
            *notes(trace, done, summaries, in_use),
        ),
        quick=quick,
        idle_states=trace.meta.idle_states,
        coefficients=fit.coefficients,
    )


def notes(
    trace: Trace,
    done: Sequence[Done],
    phases: Sequence[PhaseSummary],
    in_use: InUse | None = None,
) -> Iterator[str]:
    """Yields notes that a reader needs to judge the calibration."""
    if trace.meta.energy.source == "host":
        yield "energy is what the host apportions to this guest, so are the coefficients"
    if trace.meta.energy.grade == "simulated":
        yield "energy is simulated: these are not the powers of a real machine"
    if not trace.meta.counters:
        yield "no hardware counters: only CPU time could be weighed"
    if in_use is None:
        yield from _idle_notes(done, phases)
    else:
        share = in_use.busy_cpus / (os.cpu_count() or 1)
        yield f"measured beside other programs, which kept {share:.0%} of the machine busy"
        yield from in_use.notes
    if not all(recorded.exceeds_cache for recorded in done):
        yield "too little memory is free for stream and chase to exceed the last level cache"
    if trace.lost_cpu_ns:
        yield f"{trace.lost_cpu_ns * 1e-9:.3g} s of CPU time were lost"


def _idle_notes(done: Sequence[Done], phases: Sequence[PhaseSummary]) -> Iterator[str]:
    busiest = max(
        (busy_share(recorded) for recorded in done if recorded.step.kernel == IDLE), default=0.0
    )
    if busiest > NOTABLE_BUSY:
        yield f"the machine was up to {busiest:.0%} busy while it should have been idle"
    quiet = [phase for phase in phases if phase.kernel == IDLE and phase.windows]
    for domain, first_w in quiet[0].power_w.items() if len(quiet) > 1 else ():
        last_w = quiet[-1].power_w.get(domain, first_w)
        if abs(last_w - first_w) > NOTABLE_DRIFT * max(first_w, last_w):
            yield f"idle {domain} drifted from {first_w:.2f} W to {last_w:.2f} W during the run"
