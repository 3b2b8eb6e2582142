# SPDX-License-Identifier: Apache-2.0
"""Runs the product's engine on simulated recordings: calibration, memory, attribution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from studies.bench.accuracy.recording import I64, Case, Group, Recording

from qjoule.engine.accounts import account_settings, divided, idle_table
from qjoule.engine.class_keys import ClassKeys, classes
from qjoule.engine.memory_adapter import MemoryAdapter
from qjoule.engine.recorded import energy_windows
from qjoule.model.account import Account
from qjoule.model.arrays import Segments, WindowBatch
from qjoule.model.coefficients import Coefficients
from qjoule.model.energy import Series, WindowEnergy
from qjoule.model.fit.cells import Cell, Conditions
from qjoule.model.fit.known_loads import MachineInUse, Phase, fit_calibration
from qjoule.model.fit.remembered import Now
from qjoule.model.labels import GroupLabel
from qjoule.model.ledger import Ledger
from qjoule.model.windows import SegmentWindows
from qjoule.trace.meta import EnergyInfo, Meta

#: When the machines' clocks began, in seconds since 1970.
BOOTED_S = 1.7e9
CONDITIONS = Conditions("6.1", "performance", "", "0x1", "powercap measured")
_SOURCE_BITS = (1 << 31) - 1

#: A simulated machine shows what a measured one would.
META = Meta(energy=EnergyInfo("powercap", "measured", "simulated by the benchmark"))


class NotConserved(Exception):
    """The parts of a ledger do not add up to the measured energy."""


def calibrated(case: Case, around: MachineInUse | None = None) -> Coefficients:
    """Coefficients of the case's calibration run, as `qjoule calibrate` fits them.

    `around`: of a run on a machine in use.
    """
    if case.calibration is None:
        return Coefficients()
    around = replace(around or MachineInUse(), idle_table=idle_table(meta_of(case.calibration)))
    return fit_calibration(*phases_and_windows(case), around).coefficients


def phases_and_windows(
    case: Case,
) -> tuple[list[WindowBatch], tuple[Series, ...], list[Phase]]:
    """What a calibration is fitted from. The case must have a calibration run."""
    recording = case.calibration
    assert recording is not None
    stream = windows_of(recording)
    batches = [stream.add(recording.segments), stream.finish()]
    return batches, recording.series, [Phase(**vars(phase)) for phase in case.calibration_phases]


def attribute(
    recording: Recording,
    coefficients: Coefficients | None,
    *,
    refit: bool,
    group: I64 | None = None,
    labels: Sequence[GroupLabel] = (),
    memory: MemoryAdapter | None = None,
) -> Ledger:
    """The engine's ledger of a recording, divided as `qjoule attribute` divides a trace.

    `coefficients` None: the defaults. `group` (n,) replaces the groups that segments are charged
    to; `labels` names them. Raises `NotConserved` unless the ledger's parts add up to the measured
    energy, in whole nanojoules.
    """
    windows, segments = windows_of(recording), recording.segments
    if group is not None:
        segments = Segments(**{**vars(segments), "group": group})
    energy, packages = windows.energy, recording.machine.packages
    meta = meta_of(recording)
    settings = account_settings(meta, energy.series, packages, "separate", coefficients)
    class_of = classes(labels or shape_labels(recording.groups))
    account = Account(replace(settings, refit=refit), class_of=class_of, memory=memory)
    ledger = divided(account, windows, [segments])
    check_conserved(ledger, measured_nj(energy))
    return ledger


def remembering(
    recording: Recording,
    cells: Sequence[Cell],
    now: Now | None = None,
    source: int | None = None,
) -> MemoryAdapter:
    """The memory that a recording is attributed with.

    `now`: its day, where that is not what its machine's clock shows. `source`: a number of the
    recording, where the clock's time does not tell it from others.
    """
    begin_s = recording.begin_ns * 1e-9
    now = now or Now(BOOTED_S + begin_s, CONDITIONS)
    keys = ClassKeys(shape_labels(recording.groups), {})
    source = (recording.begin_ns if source is None else source) & _SOURCE_BITS
    return MemoryAdapter(cells, keys, source, now, round((now.when_s - begin_s) * 1e9))


def meta_of(recording: Recording) -> Meta:
    """What a trace of this recording would say of its machine."""
    return replace(META, idle_states=recording.idle_states)


def windows_of(recording: Recording) -> SegmentWindows:
    energy = energy_windows(
        META, recording.readings, recording.series, recording.begin_ns, recording.end_ns
    )
    return SegmentWindows(recording.machine, energy, recording.lost)


def shape_labels(groups: Sequence[Group]) -> list[GroupLabel]:
    """Query shapes by their names, as `--by fingerprint` has them."""
    return [GroupLabel(group.kind, (("fingerprint", group.name),)) for group in groups]


def measured_nj(energy: WindowEnergy) -> dict[str, int]:
    """What was measured in known windows, by domain."""
    measured: dict[str, int] = {}
    for s, series in enumerate(energy.series):
        nj = int(energy.energy_nj[s][energy.known[s]].sum())
        measured[series.domain] = measured.get(series.domain, 0) + nj
    return measured


def check_conserved(ledger: Ledger, measured_nj: dict[str, int]) -> None:
    """Raises `NotConserved` unless groups, idle and residual add up to exactly the
    measured energy.
    """
    for domain, total in measured_nj.items():
        sums = ledger.domains[domain]
        parts = int(sums.energy_nj.sum()) + sums.idle_nj + sums.residual_nj
        if parts != total or sums.measured_nj != total:
            raise NotConserved(f"{domain}: {parts} nJ attributed of {total} nJ measured")


def by_time(recording: Recording) -> Recording:
    """The same recording of a machine without hardware counters."""
    cut = recording.segments
    return replace(recording, segments=Segments(cut.t0_ns, cut.t1_ns, cut.cpu, cut.group))
