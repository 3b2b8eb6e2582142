# SPDX-License-Identifier: Apache-2.0
"""Idle tails and wake-ups of one load, from a live stream's sums and from another's segments."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qjoule.contract import OwnerKind
from qjoule.engine.live_effects import FIELDS
from qjoule.model.arrays import EFFECTS, Machine, Segments
from qjoule.model.energy import WindowEnergy
from qjoule.model.windows import SegmentWindows

F64 = npt.NDArray[np.float64]
#: Before the first window, so that the sweep knows who slept when it begins.
BEFORE_NS = 10**9


@dataclass(frozen=True)
class Effects:
    """`awake_ns` (windows, packages); `of` the effects by process, (15,) each, without traffic."""

    awake_ns: npt.NDArray[np.int64]
    of: dict[int, F64]
    everybody: F64


def whose(records: np.ndarray) -> npt.NDArray[np.int64]:
    """The process of each record. The kernel (0) and a tracer itself (-1) have one row each."""
    kind, tgid = records["owner_kind"], records["tgid"].astype(np.int64)
    return np.where(kind == OwnerKind.KERNEL, 0, np.where(kind == OwnerKind.TRACER, -1, tgid))


def of_sums(aggregates: np.ndarray, times: np.ndarray) -> tuple[Effects, npt.NDArray[np.int64]]:
    """The effects in a live stream, and the bounds of its windows but the first, whose sums
    contain what was before it."""
    starts = np.unique(times["t0_ns"])[1:]
    mine = aggregates[np.isin(aggregates["t0_ns"], starts)]
    each = np.zeros((len(mine), len(EFFECTS)))
    for name, columns in FIELDS:
        each[:, columns] = mine[name].reshape(len(mine), columns.stop - columns.start)
    kept = times[np.isin(times["t0_ns"], starts)]
    packages = np.unique(kept["package"])
    awake_ns = np.stack([kept["awake_ns"][kept["package"] == p] for p in packages], axis=1)
    bounds_ns = np.append(starts, kept["t1_ns"].max()).astype(np.int64)
    return _sums(awake_ns.astype(np.int64), each, whose(mine)), bounds_ns


def of_segments(
    segments: np.ndarray, cpus: np.ndarray, bounds_ns: npt.NDArray[np.int64]
) -> Effects:
    """The effects that the sweep finds in segments; `cpus`: the live stream's topology."""
    machine = Machine(
        cpus["cpu"].astype(np.int64),
        cpus["package"].astype(np.int64),
        cpus["sibling"].astype(np.int64),
    )
    first_ns = np.append(bounds_ns[0] - BEFORE_NS, bounds_ns)
    shape = (0, len(first_ns) - 1)
    nothing = np.zeros(shape, np.int64)
    energy = WindowEnergy((), first_ns, nothing, nothing.astype(np.uint8), nothing)
    ordered = np.sort(segments, order="t0_ns")
    owners, group = np.unique(whose(ordered), return_inverse=True)
    windows = SegmentWindows(machine, energy)
    t0_ns, t1_ns, cpu = (ordered[name].astype(np.int64) for name in ("t0_ns", "t1_ns", "cpu"))
    parts = [windows.add(Segments(t0_ns, t1_ns, cpu, group.astype(np.int64))), windows.finish()]
    each, who = [], []
    for part in parts:
        kept = part.entries.window + part.first > 0
        each.append(part.entries.effects[kept])
        who.append(owners[part.entries.group[kept]])
    awake_ns = np.concatenate([part.active_ns for part in parts])[1:]
    return _sums(awake_ns, np.concatenate(each), np.concatenate(who))


def _sums(awake_ns: npt.NDArray[np.int64], each: F64, who: npt.NDArray[np.int64]) -> Effects:
    of = {int(tgid): each[who == tgid].sum(axis=0) for tgid in np.unique(who)}
    return Effects(awake_ns, of, each.sum(axis=0))
