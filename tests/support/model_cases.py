# SPDX-License-Identifier: Apache-2.0
"""Small machines, segments and energies for tests of the model, drawn or handmade."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import strategies as st

from qjoule.contract import AGGREGATE, OwnerKind
from qjoule.engine.accounts import divided
from qjoule.model.account import Account, AccountSettings
from qjoule.model.arrays import Anomalies, LostTime, Machine, Segments, WindowBatch
from qjoule.model.coefficients import Coefficients, IdlePolicy, PowerInterval
from qjoule.model.energy import UPDATE_PERIOD_NS, Cause, Series, WindowEnergy
from qjoule.model.ledger import Ledger
from qjoule.model.split import Split
from qjoule.model.windows import SegmentWindows

UNIT_J = 2.0**-14


@dataclass(frozen=True)
class Case:
    """A complete input of the model."""

    machine: Machine
    energy: WindowEnergy
    segments: Segments
    lost: tuple[LostTime, ...]
    coefficients: Coefficients
    idle: IdlePolicy


@dataclass
class Run:
    ledger: Ledger
    batches: list[WindowBatch]
    splits: list[list[Split]]
    anomalies: Anomalies


def machine(*packages: int) -> Machine:
    """One CPU per argument: the package that it is in."""
    return Machine(np.arange(len(packages)), np.array(packages, np.int64))


def energy(
    bounds: Sequence[int],
    rows: dict[tuple[int, str], Sequence[int]],
    causes: dict[tuple[int, str], Sequence[int]] | None = None,
) -> WindowEnergy:
    """Windows between `bounds` with nanojoules per (package, domain)."""
    shape = (len(rows), len(bounds) - 1)
    cause = [list((causes or {}).get(key, [Cause.NONE] * shape[1])) for key in rows]
    return WindowEnergy(
        tuple(Series(package, domain, UNIT_J, 2**32) for package, domain in rows),
        np.array(bounds, np.int64),
        np.array(list(rows.values()), np.int64).reshape(shape),
        np.array(cause, np.uint8).reshape(shape),
        np.zeros(shape, np.int64),
    )


def segments(rows: Sequence[tuple[int, int, int, int]]) -> Segments:
    """(t0, t1, cpu, group) in any order."""
    t0, t1, cpu, group = np.array(sorted(rows), np.int64).reshape(-1, 4).T
    return Segments(t0, t1, cpu, group)


def chunks(segments: Segments, cuts: Sequence[int]) -> list[Segments]:
    edges = [0, *sorted(cuts), len(segments.t0_ns)]
    return [
        Segments(
            segments.t0_ns[a:b],
            segments.t1_ns[a:b],
            segments.cpu[a:b],
            segments.group[a:b],
            None if segments.counters is None else segments.counters[a:b],
            None if segments.valid is None else segments.valid[a:b],
            stolen=None if segments.stolen is None else segments.stolen[a:b],
        )
        for a, b in pairwise(edges)
    ]


def account(
    series: tuple[Series, ...],
    packages: tuple[int, ...] = (0,),
    coefficients: Coefficients | None = None,
    idle: IdlePolicy = "separate",
    *,
    refit: bool = True,
    **others: Any,
) -> Account:
    """An empty account of a machine whose counters move once a millisecond."""
    used_coefficients = coefficients or Coefficients()
    settings = AccountSettings(series, packages, used_coefficients, idle, UPDATE_PERIOD_NS, refit)
    return Account(settings, **others)


def run(
    case: Case, cuts: Sequence[int] = (), *, refit: bool = False, without_stolen: bool = False
) -> Run:
    """The whole engine over a case, its segments in chunks cut at `cuts`."""
    stream = SegmentWindows(case.machine, case.energy, case.lost, without_stolen=without_stolen)
    batches: list[WindowBatch] = []
    splits: list[list[Split]] = []

    def closed(batch: WindowBatch, _ledger: Ledger, window_splits: Sequence[Split]) -> None:
        batches.append(batch)
        splits.append(list(window_splits))

    packages, idle = case.machine.packages, case.idle
    series, coefficients = case.energy.series, case.coefficients
    accounted = account(series, packages, coefficients, idle, refit=refit, closed=closed)
    ledger = divided(accounted, stream, chunks(case.segments, cuts))
    return Run(ledger, batches, splits, stream.anomalies)


def aggregates(case: Case, groups: int) -> np.ndarray[Any, Any]:
    """The case's segments as the kernel sums them: per window, package and owner.

    Uses plain loops on purpose, as an independent check of `SegmentWindows`. Group g is a process
    with tgid g + 1. Segments must not overlap.
    """
    bounds = case.energy.boundaries_ns.tolist()
    sums: dict[tuple[int, int, int], int] = {}
    s = case.segments
    for t0, t1, cpu, group in zip(s.t0_ns, s.t1_ns, s.cpu, s.group, strict=True):
        for k, (a, b) in enumerate(pairwise(bounds)):
            if (ns := min(int(t1), b) - max(int(t0), a)) > 0:
                key = (k, int(case.machine.cpu_package[cpu]), int(group))
                sums[key] = sums.get(key, 0) + ns
    records = np.zeros(len(sums), AGGREGATE)
    for record, ((k, package, group), ns) in zip(records, sums.items(), strict=True):
        assert group < groups
        record["t0_ns"], record["t1_ns"] = bounds[k], bounds[k + 1]
        record["cpu_ns"], record["package"], record["tgid"] = ns, package, group + 1
        record["owner_kind"] = OwnerKind.PROCESS
    return records


@st.composite
def cases(draw: st.DrawFn, *, tidy: bool = False) -> Case:
    """Machines of one or two packages, windows from 1 ns up, energies up to the largest plausible.

    Unless `tidy`, segments may overlap, end before they begin, name CPUs that do not exist and
    reach beyond the trace.
    """
    packages = draw(st.lists(st.sampled_from([0, 1]), min_size=1, max_size=4))
    steps = draw(st.lists(st.integers(1, 40_000_000), min_size=1, max_size=6))
    bounds = np.cumsum([draw(st.sampled_from([0, 10**9, 2**62])), *steps])
    domains = draw(st.sampled_from([("package",), ("package", "dram"), ("package", "psys")]))
    keys = [(p, d) for p in sorted(set(packages)) for d in domains if d != "psys" or p == 0]
    amount = st.integers(0, 10**11) | st.sampled_from([0, 1, 2**53 + 1, 2**60])
    unsure = st.sampled_from([Cause.NONE, Cause.NONE, Cause.INTERPOLATED, Cause.GAP, Cause.RESET])
    row = st.lists(amount, min_size=len(steps), max_size=len(steps))
    flags = st.lists(unsure, min_size=len(steps), max_size=len(steps))
    drawn = energy(bounds.tolist(), {k: draw(row) for k in keys}, {k: draw(flags) for k in keys})
    idle_w = {key: PowerInterval(5.0, 3.0, 9.0) for key in keys if draw(st.booleans())}
    return Case(
        machine(*packages),
        drawn,
        segments(_tidy(draw, bounds, packages) if tidy else _wild(draw, bounds, packages)),
        () if tidy else tuple(_lost_times(draw, bounds, len(packages))),
        Coefficients(
            idle_w=idle_w,
            shared_w={keys[0]: draw(st.sampled_from([0.0, 2.0]))},
            kept=draw(st.sampled_from([0.0, 3.0])),
        ),
        draw(st.sampled_from(["separate", "even", "proportional"])),
    )


def _wild(draw: st.DrawFn, bounds: Any, packages: list[int]) -> list[tuple[int, int, int, int]]:
    low, high = max(int(bounds[0]) - 100, 0), int(bounds[-1]) + 100
    t_ns = st.integers(low, high) | st.sampled_from(bounds.tolist())
    row = st.tuples(t_ns, t_ns, st.integers(0, len(packages)), st.integers(0, 5))
    return draw(st.lists(row, max_size=25))


def _tidy(draw: st.DrawFn, bounds: Any, packages: list[int]) -> list[tuple[int, int, int, int]]:
    rows = []
    t_ns = st.integers(int(bounds[0]), int(bounds[-1]))
    for cpu in range(len(packages)):
        edges = sorted(set(draw(st.lists(t_ns, max_size=12))))
        for a, b in pairwise(edges):
            if draw(st.booleans()):
                rows.append((a, b, cpu, draw(st.integers(0, 5))))
    return rows


def _lost_times(draw: st.DrawFn, bounds: Any, cpus: int) -> list[LostTime]:
    t_ns = np.array([bounds[0], *bounds[1:]], np.int64)
    out = []
    for cpu in range(cpus):
        steps = draw(st.lists(st.integers(0, 50_000_000), min_size=len(t_ns), max_size=len(t_ns)))
        if draw(st.booleans()):
            out.append(LostTime(cpu, t_ns, np.cumsum(steps)))
    return out
