# SPDX-License-Identifier: Apache-2.0
"""Converts a trace's Arrow tables to the arrays of the model."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qjoule.lazy_import import pa, pc
from qjoule.model.arrays import COUNTERS, LostTime, Machine
from qjoule.model.charge import Ids
from qjoule.model.clock import ClockFit, fit_clock, to_ours
from qjoule.model.energy import I64, ONE_CORE, UPDATE_PERIOD_NS, WALL, Bool, Readings, Series
from qjoule.model.per_core import CoreCounters
from qjoule.trace.columns import bits, is_valid, numpy_view, view
from qjoule.trace.meta import DomainInfo, Meta

_CPUS = 2**16  #: the range of a segment's `cpu`
#: 104 days: a larger sum of lost time is invalid, and not exact as a float.
_MOST_LOST_NS = 2**53
COUNTER_COLUMNS = ("cycles", "instructions", "llc_misses")
_WHOLE = 2**16 - 1  #: die number of a counter that covers its whole package
POWER = "power"  #: kind of a domain with readings of power
SHARE_COLUMN = "counted"  #: the share of a segment in which its counters ran
_DEFAULT_PERIOD_NS = 1_000_000_000
_EPOCH_NS = 10**18  #: a clock with a larger value counts since 1970 (this is in 2001)


_Key = tuple[int, str, str, int, int]  #: package, domain, unit, range and die of a counter


def readings(
    energy: pa.Table, domains: Sequence[DomainInfo] = ()
) -> tuple[Readings, tuple[Series, ...]]:
    """Reads the `energy` table: its readings, and their counters by (package, domain) and die.

    `domains`: from meta.json, gives the counters' periods. Counters of single cores are left out.
    """
    values, keys = _readings(_rows(energy, of_cores=False))
    how = {
        (domain.package, domain.name, _WHOLE if domain.die is None else domain.die): (
            domain.period_ns or 0,
            domain.kind == POWER,
        )
        for domain in domains
    }
    series = tuple(
        Series(p, name, float(unit), size, *how.get((p, name, die), (0, False)))
        for p, name, unit, size, die in keys
    )
    return values, series


def announced_series(domains: Mapping[int, DomainInfo]) -> dict[int, Series]:
    """The counters of a live stream, by the domain number that its readings carry."""
    return {
        number: Series(
            *(domain.package, domain.name, domain.unit_j, domain.range or 0),
            *(domain.period_ns or 0, domain.kind == POWER),
        )
        for number, domain in domains.items()
    }


def core_readings(energy: pa.Table) -> tuple[Readings, CoreCounters] | None:
    """Reads single cores' readings in the `energy` table, and their counters; None without any."""
    table = _rows(energy, of_cores=True)
    if not table.num_rows:
        return None
    values, keys = _readings(table)
    series = tuple(
        Series(core, ONE_CORE, float(unit), size, UPDATE_PERIOD_NS)
        for _, _, unit, size, core in keys
    )
    return values, CoreCounters(series, tuple(package for package, *_ in keys))


def _rows(energy: pa.Table, *, of_cores: bool) -> pa.Table:
    """Returns the rows of single cores, or all others."""
    domain = energy.column("domain").cast(pa.string())
    if ONE_CORE not in pc.unique(domain).to_pylist():
        return energy.slice(0, 0) if of_cores else energy
    is_core = pc.equal(domain, ONE_CORE)
    return energy.filter(is_core if of_cores else pc.invert(is_core))


def _readings(energy: pa.Table) -> tuple[Readings, list[_Key]]:
    """Returns the rows as readings, and their counters in order."""
    keys = zip(
        energy.column("package").to_pylist(),
        energy.column("domain").cast(pa.string()).to_pylist(),
        energy.column("unit_j").to_pylist(),
        view(energy.column("range"), 0).tolist(),
        view(energy.column("die"), _WHOLE).tolist(),
        strict=True,
    )
    # repr makes units sortable that are not numbers (NaN equals nothing, not even itself).
    plain: list[_Key] = [(package, name, repr(unit), *rest) for package, name, unit, *rest in keys]
    numbers = {key: i for i, key in enumerate(sorted(set(plain)))}
    raw = energy.column("raw")
    values = Readings(
        t_ns=view(energy.column("t_ns")),
        raw=view(raw, 0).astype(np.uint64),
        ok=is_valid(raw) & (view(energy.column("status")) == 0),
        half_width_ns=view(energy.column("half_width_ns")).astype(np.int64),
        series=np.array([numbers[key] for key in plain], np.int64),
    )
    return values, list(numbers)


@dataclass(frozen=True)
class Metered:
    """`series` of `readings`, whose numbers begin at the number that the caller gave."""

    readings: Readings
    series: Series
    clock: ClockFit | None  #: None: the meter has no clock
    apart_ns: int = 0  #: the meter's clock minus this machine's, when the meter began
    epoch: bool = False  #: true if the clock counts since 1970

    @property
    def note(self) -> str:
        """Describes how the meter's clock was interpreted."""
        if self.clock is None:
            return "wall meter: without a clock, so its readings are of when they came"
        if not self.clock.followed:
            return "wall meter: its clock jumps, so its readings are of when they came"
        whose = "this machine's" if self.epoch else "this machine's monotonic one"
        drift_ppm = -self.clock.drift * 1e6 + 0.0  # no -0.0
        return (
            f"wall meter: its clock is {self.apart_ns * 1e-9:+.3f} s from {whose} and drifts "
            f"{drift_ppm:+.1f} ppm; 95 % of its readings came within "
            f"{self.clock.delay_ns * 1e-9:.3f} s"
        )


def metered(table: pa.Table, meta: Meta, number: int) -> Metered | None:
    """Reads the `meter` table as a counter of the domain `wall`, on the trace's clock; None without
    a meter. `number`: the number of its series."""
    info = meta.meter
    if not table.num_rows or info is None:
        return None
    t_ns = view(table.column("t_ns"))
    stamps = table.column("stamp_ns")
    raw = view(table.column("raw")).astype(np.uint64)
    clock, half_ns, ours, apart_ns, epoch = None, 0, t_ns, 0, False
    if not stamps.null_count:
        stamp_ns = view(stamps)
        clock = fit_clock(stamp_ns, t_ns)
        ours, half_ns = to_ours(clock, stamp_ns, t_ns), clock.half_width_ns
        since_ns = meta.realtime_offset_ns or 0
        epoch = bool(since_ns) and int(stamp_ns[0]) >= _EPOCH_NS
        apart_ns = -clock.offset_ns - (since_ns if epoch else 0)
    moved = np.flatnonzero(np.append(True, raw[1:] != raw[:-1]))
    steps_ns = np.diff(ours[moved])
    period_ns = int(np.median(steps_ns)) if len(steps_ns) else _DEFAULT_PERIOD_NS
    ones = np.ones(len(ours), np.int64)
    return Metered(
        Readings(ours, raw, ones.astype(bool), ones * half_ns, ones * number),
        Series(0, WALL, info.unit_j, 0, max(period_ns, 1), info.kind == POWER),
        clock,
        apart_ns,
        epoch,
    )


def with_meter(readings: Readings, meter: Metered) -> Readings:
    """Merges both kinds of readings."""
    pairs = zip(vars(readings).values(), vars(meter.readings).values(), strict=True)
    return Readings(*(np.concatenate(pair) for pair in pairs))


def machine(
    cpus: list[tuple[int, int]],
    segments_cpus: I64,
    siblings: Mapping[int, int] | None = None,
    small: Collection[int] = (),
) -> Machine:
    """Makes a machine of CPUs as (cpu, package); without a topology, all `segments_cpus` are in
    package 0.

    `siblings`: the lowest CPU of each CPU's core; a CPU that is missing has its own core.
    `small`: CPUs of the smaller core type.
    """
    package_of = dict(cpus) or {int(cpu): 0 for cpu in segments_cpus}
    ids = sorted(cpu for cpu in package_of if 0 <= cpu < _CPUS)
    core = [(siblings or {}).get(cpu, cpu) for cpu in ids]
    core = [first if 0 <= first < _CPUS else cpu for first, cpu in zip(core, ids, strict=True)]
    package = [package_of[cpu] for cpu in ids]
    columns = [np.array(column, np.int64) for column in (ids, package, core)]
    of_small = np.isin(columns[0], list(small)) if small else None
    return Machine(columns[0], columns[1], columns[2], of_small)


def lost_time(loss: pa.Table, begin_ns: int) -> list[LostTime]:
    """Returns running sums of lost CPU time per CPU and cause; losses without a CPU are omitted."""
    by_key: dict[tuple[int, str], list[tuple[int, int]]] = {}
    for row in loss.select(["t_ns", "cpu", "cause", "lost_ns"]).to_pylist():
        if row["cpu"] is not None and row["lost_ns"]:
            point = (row["t_ns"], min(row["lost_ns"], _MOST_LOST_NS))
            by_key.setdefault((row["cpu"], row["cause"]), []).append(point)
    out = []
    for (cpu, _), points in sorted(by_key.items()):
        t_ns, lost_ns = np.array(sorted(points), np.float64).T
        out.append(
            LostTime(
                cpu,
                np.append(min(begin_ns, int(t_ns[0])), t_ns).astype(np.int64),
                np.maximum.accumulate(np.append(0, lost_ns)).astype(np.int64),
            )
        )
    return out


def counters(
    table: pa.Table,
) -> tuple[npt.NDArray[np.uint64], Bool, npt.NDArray[np.float32]]:
    """Returns n segments' counters (n, 3), which of them were read, and the share of the time that
    they ran.

    Where the share is unknown, they are assumed to have run all the time.
    """
    # By column, as Arrow and the sweep hold them.
    values = np.empty((COUNTERS, table.num_rows), np.uint64)
    valid = np.empty((COUNTERS, table.num_rows), bool)
    for i, name in enumerate(COUNTER_COLUMNS):
        column = table.column(name)
        values[i] = view(column, 0)
        valid[i] = is_valid(column) if column.null_count else True
    return values.T, valid.T, view(table.column(SHARE_COLUMN), 1.0)


def ids(column: pa.ChunkedArray) -> Ids:
    """Returns a column of ids, without a copy if it has one chunk."""
    if column.num_chunks != 1:
        return Ids(view(column, 0))
    (chunk,) = column.chunks
    return Ids(numpy_view(chunk, np.uint64), *bits(chunk))
