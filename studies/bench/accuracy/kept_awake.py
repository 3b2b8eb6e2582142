# SPDX-License-Identifier: Apache-2.0
"""Packages that sleep themselves while another one keeps them awake: what they draw, and for whom.

The equations and the rule of ownership are in `PHYSICS.md`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from studies.bench.accuracy.activity import Cells
from studies.bench.accuracy.machine import PhysicalMachine
from studies.bench.accuracy.recording import F64, I64


@dataclass(frozen=True)
class Kept:
    """What a package draws because another one is awake: `nj` (edges,) is the running sum since the
    first of `edges_ns`, `of_slice_nj` (slices,) what of it belongs to each slice."""

    edges_ns: I64
    nj: F64
    of_slice_nj: F64


def kept_power(
    machine: PhysicalMachine, share: float, times_ns: tuple[I64, I64], cpu: I64, span_ns: I64
) -> tuple[Kept, ...]:
    """For each package; `times_ns` begin and end of all slices, `cpu` theirs."""
    topology = machine.topology
    core = cpu % topology.cores
    edges_ns = np.unique(np.concatenate([*times_ns, span_ns]))
    cells = Cells.of(edges_ns, *times_ns, core, topology.cores)
    threads = cells.core_threads.reshape(topology.packages, -1, len(edges_ns) - 1)
    busy = np.asarray(threads.sum(axis=1) > 0)
    out = []
    for package in range(topology.packages):
        kept_w = share * machine.maintenance_w * (~busy[package] & busy.any(axis=0))
        nj = kept_w * cells.dt_ns
        per_core = nj / np.maximum(cells.busy_cores, 1)
        of_cell = per_core[cells.interval] / cells.threads
        of_slice = np.bincount(cells.row, of_cell, minlength=len(cpu)).astype(np.float64)
        out.append(Kept(edges_ns, np.append(0.0, np.cumsum(nj)), of_slice))
    return tuple(out)
