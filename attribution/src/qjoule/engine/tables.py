# SPDX-License-Identifier: Apache-2.0
"""Converts a trace's Arrow tables to the arrays of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from qjoule.model.arrays import COUNTERS, LostTime, Machine
from qjoule.model.charge import Ids
from qjoule.model.energy import I64, Bool, Readings, Series
from qjoule.trace.columns import plain
from qjoule.trace.meta import DomainInfo
from qjoule.trace.views import bits, is_told, view

_CPUS = 2**16  #: as wide as a segment's `cpu`
#: 104 days: a larger sum of lost time is invalid, and floats could not hold it exactly
_MOST_LOST_NS = 2**53
COUNTER_COLUMNS = ("cycles", "instructions", "llc_misses")
_WHOLE = 2**16 - 1  #: stands for the die of a counter that covers its whole package
POWER = "power"  #: kind of a domain that is made of readings of power
SHARE_COLUMN = "counted"  #: share of a segment in which its counters counted


def readings(
    energy: pa.Table, domains: Sequence[DomainInfo] = ()
) -> tuple[Readings, tuple[Series, ...]]:
    """The `energy` table as readings, and their counters by (package, domain) and die.

    `domains`: from meta.json, for how often counters move.
    """
    domain = energy.column("domain").cast(pa.string()).to_pylist()
    keys = list(
        zip(
            energy.column("package").to_pylist(),
            domain,
            energy.column("unit_j").to_pylist(),
            view(energy.column("range"), 0).tolist(),
            view(energy.column("die"), _WHOLE).tolist(),
            strict=True,
        )
    )
    # repr makes units sortable that are not numbers (NaN equals nothing, not even itself).
    plain = [(package, name, repr(unit), *rest) for package, name, unit, *rest in keys]
    numbers = {key: i for i, key in enumerate(sorted(set(plain)))}
    how = {
        (one.package, one.name, _WHOLE if one.die is None else one.die): (
            one.period_ns or 0,
            one.kind == POWER,
        )
        for one in domains
    }
    series = tuple(
        Series(p, name, float(unit), size, *how.get((p, name, die), (0, False)))
        for p, name, unit, size, die in numbers
    )
    raw = energy.column("raw")
    return (
        Readings(
            t_ns=view(energy.column("t_ns")),
            raw=view(raw, 0).astype(np.uint64),
            ok=is_told(raw) & (view(energy.column("status")) == 0),
            half_width_ns=view(energy.column("half_width_ns")).astype(np.int64),
            series=np.array([numbers[key] for key in plain], np.int64),
        ),
        series,
    )


def machine(
    cpus: list[tuple[int, int]], segments_cpus: I64, siblings: Mapping[int, int] | None = None
) -> Machine:
    """CPUs as (cpu, package); without a topology, the CPUs of the segments, as package 0.

    `siblings`: the lowest CPU of each CPU's core; a CPU that is not in it has a core of its own.
    """
    known = dict(cpus) or {int(cpu): 0 for cpu in segments_cpus}
    ids = sorted(cpu for cpu in known if 0 <= cpu < _CPUS)
    core = [(siblings or {}).get(cpu, cpu) for cpu in ids]
    core = [first if 0 <= first < _CPUS else cpu for first, cpu in zip(core, ids, strict=True)]
    package = [known[cpu] for cpu in ids]
    return Machine(*(np.array(column, np.int64) for column in (ids, package, core)))


def lost_time(loss: pa.Table, begin_ns: int) -> list[LostTime]:
    """Running sums of lost CPU time per CPU and cause; losses without a CPU are left out."""
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
    """Counters of n segments (n, 3), which were read, and the share of the time they counted.

    Where the share is not known, they are assumed to count all the time.
    """
    # By column, as Arrow and the sweep have them.
    values = np.empty((COUNTERS, table.num_rows), np.uint64)
    valid = np.empty((COUNTERS, table.num_rows), bool)
    for i, name in enumerate(COUNTER_COLUMNS):
        column = table.column(name)
        values[i] = view(column, 0)
        valid[i] = is_told(column) if column.null_count else True
    return values.T, valid.T, view(table.column(SHARE_COLUMN), 1.0)


def ids(column: pa.ChunkedArray) -> Ids:
    """A column of ids, without a copy where it has one chunk."""
    if column.num_chunks != 1:
        return Ids(view(column, 0))
    (chunk,) = column.chunks
    return Ids(plain(chunk, np.uint64), *bits(chunk))
