# SPDX-License-Identifier: Apache-2.0
"""The windows of a calibration run as the rows of a regression, with a class for each kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from qjoule.model.arrays import F64
from qjoule.model.energy import I64, Bool
from qjoule.model.features import FEATURES
from qjoule.model.fit.observed import Rows
from qjoule.model.fit.rows import thinned

_IDLE = "idle"
#: Phases of known wake-ups. They compute the same as the kernel `integer`, so they share its
#: factor: what the rate of wake-ups changes is the cost of wake-ups alone.
_WAKEUPS, _WAKEUPS_COMPUTE = "wakeups_", "integer"
#: Numbers for windows that do not belong to one kernel.
_AT_REST, _OUTSIDE = -1, -2
#: Foreign programs with a factor of their own; all others share one class, whose factor is 1.
_MOST_FOREIGN = 8
_NS = [FEATURES.index("cpu_ns"), FEATURES.index("cpu_ns_shared")]


@dataclass(frozen=True)
class Phase:
    """A phase of a calibration run: `threads` kernels `name` ran; `smt`: two on each core."""

    name: str
    t0_ns: int
    t1_ns: int
    threads: int
    smt: bool


@dataclass(frozen=True)
class KernelRows:
    """`rows`: their first `kernels` classes are the kernels, any others are foreign programs.

    `steady` (n,): whether a row is of a kernel that computes all the time; only these rows test a
    prediction of the kernel.
    """

    rows: Rows
    kernels: int
    steady: Bool

    def tested(self, kernel: int) -> Bool:
        """(n,) the known, steady rows in which this kernel ran, and no other for longer."""
        own = self.rows.features[:, kernel].sum(axis=1)
        every = self.rows.features[:, : self.kernels].sum(axis=(1, 2))
        return np.asarray(self.rows.known & self.steady & (own > 0) & (own > 0.5 * every))


def kernel_rows(
    rows: Rows, bounds_ns: I64, phases: Sequence[Phase], most: int, own: Bool | None = None
) -> KernelRows:
    """Rows of `make_rows`, at most `most` per zone, with one class per kernel.

    Windows that are not wholly within a phase are unknown. `own` (groups,): which groups were the
    load; their work is the kernel's, and the work of the largest other groups has classes of its
    own. None: all that ran in a phase was its kernel's.
    """
    names = sorted({_computes(phase.name) for phase in phases} - {_IDLE})
    kernel, steady = _kernel_of(bounds_ns, phases, names)
    zones = len(rows.edge_w)
    kernel, steady = np.tile(kernel, zones), np.tile(steady, zones)
    made = _by_kernel(rows, kernel, len(names), own)
    width = -(-max(int((rows.zone == z).sum()) for z in range(zones)) // most)
    whole = thinned(replace(made, active=steady.astype(np.float64)), width).active >= 1.0
    return KernelRows(thinned(made, width), len(names), np.asarray(whole))


def _computes(phase: str) -> str:
    return _WAKEUPS_COMPUTE if phase.startswith(_WAKEUPS) else phase


def _kernel_of(bounds_ns: I64, phases: Sequence[Phase], names: Sequence[str]) -> tuple[I64, Bool]:
    """Number of the kernel that ran in each window; `_OUTSIDE` if no phase contains it wholly."""
    out = np.full(max(len(bounds_ns) - 1, 0), _OUTSIDE, np.int64)
    steady = np.ones(len(out), bool)
    for phase in phases:
        inside = (bounds_ns[:-1] >= phase.t0_ns) & (bounds_ns[1:] <= phase.t1_ns)
        name = _computes(phase.name)
        out[inside] = names.index(name) if name in names else _AT_REST
        steady[inside] = not phase.name.startswith(_WAKEUPS)
    return out, steady


def _by_kernel(rows: Rows, kernel: I64, kernels: int, own: Bool | None) -> Rows:
    """Rows with one class per kernel, which holds all own work of its phase."""
    groups = rows.classes
    mine = np.ones(len(groups) + 1, bool)
    if own is not None:
        mine[:-1] = own[groups]
        mine[-1] = False  # the smallest groups of all
    foreign = _largest(rows, np.flatnonzero(~mine[:-1]))
    rest = np.setdiff1d(np.flatnonzero(~mine), foreign)
    size = kernels + len(foreign) + 1
    features = np.zeros((len(kernel), size, rows.features.shape[2]))
    crowd = np.zeros((len(kernel), size))
    for column, one in enumerate(foreign.tolist(), kernels):
        features[:, column], crowd[:, column] = rows.features[:, one], rows.crowd[:, one]
    if own is not None:
        features[:, -1], crowd[:, -1] = _together(rows, rest)
    load, beside = _together(rows, np.flatnonzero(mine))
    runs = np.flatnonzero(kernel >= 0)
    features[runs, kernel[runs]], crowd[runs, kernel[runs]] = load[runs], beside[runs]
    # Outside of the loads, what is left of them counts as the rest.
    still = kernel < 0
    others, near = _together(rows, np.union1d(rest, np.flatnonzero(mine)))
    features[still, -1], crowd[still, -1] = others[still], near[still]
    return replace(
        rows,
        known=rows.known & (kernel != _OUTSIDE),
        features=features,
        crowd=crowd,
        classes=np.arange(size - 1),
    )


def _largest(rows: Rows, groups: I64) -> I64:
    """The foreign groups that ran longest."""
    ns = rows.features[:, groups][:, :, _NS].sum(axis=(0, 2))
    return np.sort(groups[np.argsort(-ns, kind="stable")[:_MOST_FOREIGN]])


def _together(rows: Rows, groups: I64) -> tuple[F64, F64]:
    """Features (n, f) of these groups together, and the busy cores (n,) while they ran."""
    features = rows.features[:, groups]
    ns = features[:, :, _NS].sum(axis=2)
    crowd = (rows.crowd[:, groups] * ns).sum(axis=1) / np.maximum(ns.sum(axis=1), 1e-30)
    return features.sum(axis=1), crowd
