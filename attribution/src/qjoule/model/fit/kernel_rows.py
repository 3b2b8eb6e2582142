# SPDX-License-Identifier: Apache-2.0
"""The windows of a calibration run as the rows of a regression, with a class for each kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from qjoule.model.arrays import F64
from qjoule.model.energy import I64, Bool
from qjoule.model.features import FEATURES
from qjoule.model.fit.merging import thinned
from qjoule.model.fit.observed import Rows

_IDLE = "idle"
#: Phases of known wake-ups. They run the kernel `integer` and share its factor, so the rate of
#: wake-ups changes only the cost of wake-ups.
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
    """`rows`: their first `kernels` classes are the kernels, other classes are foreign programs.

    `steady` (n,): whether the row's kernel computes all the time; only these rows test a prediction
    of a kernel.
    """

    rows: Rows
    kernels: int
    steady: Bool

    def tested(self, kernel: int) -> Bool:
        """(n,) the measured, steady rows in which this kernel did most of the work."""
        kernel_sum = self.rows.features[:, kernel].sum(axis=1)
        all_sum = self.rows.features[:, : self.kernels].sum(axis=(1, 2))
        return np.asarray(
            self.rows.known & self.steady & (kernel_sum > 0) & (kernel_sum > 0.5 * all_sum)
        )


def kernel_rows(
    rows: Rows,
    bounds_ns: I64,
    phases: Sequence[Phase],
    max_rows: int,
    load_groups: Bool | None = None,
) -> KernelRows:
    """Rows of `make_rows`, at most `max_rows` per zone, with one class per kernel.

    Windows that are not entirely within a phase are unknown. `load_groups` (groups,): which groups
    were the load; their work counts as the kernel's. The largest other groups have classes of their
    own. None: all work in a phase is its kernel's.
    """
    names = sorted({_computes(phase.name) for phase in phases} - {_IDLE})
    kernel, steady = _kernel_of(bounds_ns, phases, names)
    zones = len(rows.edge_w)
    kernel, steady = np.tile(kernel, zones), np.tile(steady, zones)
    by_kernel = _by_kernel(rows, kernel, len(names), load_groups)
    width = -(-max(int((rows.zone == z).sum()) for z in range(zones)) // max_rows)
    always_steady = (
        thinned(replace(by_kernel, active=steady.astype(np.float64)), width).active >= 1.0
    )
    return KernelRows(thinned(by_kernel, width), len(names), np.asarray(always_steady))


def _computes(phase: str) -> str:
    return _WAKEUPS_COMPUTE if phase.startswith(_WAKEUPS) else phase


def _kernel_of(bounds_ns: I64, phases: Sequence[Phase], names: Sequence[str]) -> tuple[I64, Bool]:
    """Number of the kernel that ran in each window, `_OUTSIDE` if no phase contains the window; and
    whether the kernel was steady."""
    kernel = np.full(max(len(bounds_ns) - 1, 0), _OUTSIDE, np.int64)
    steady = np.ones(len(kernel), bool)
    for phase in phases:
        inside = (bounds_ns[:-1] >= phase.t0_ns) & (bounds_ns[1:] <= phase.t1_ns)
        name = _computes(phase.name)
        kernel[inside] = names.index(name) if name in names else _AT_REST
        steady[inside] = not phase.name.startswith(_WAKEUPS)
    return kernel, steady


def _by_kernel(rows: Rows, kernel: I64, kernels: int, load_groups: Bool | None) -> Rows:
    """Rows with one class per kernel, which contains all work of the load in its phases."""
    groups = rows.classes
    is_load = np.ones(len(groups) + 1, bool)
    if load_groups is not None:
        is_load[:-1] = load_groups[groups]
        is_load[-1] = False  # the last class: all small groups
    foreign = _largest(rows, np.flatnonzero(~is_load[:-1]))
    other_groups = np.setdiff1d(np.flatnonzero(~is_load), foreign)
    size = kernels + len(foreign) + 1
    features = np.zeros((len(kernel), size, rows.features.shape[2]))
    crowd = np.zeros((len(kernel), size))
    for column, group in enumerate(foreign.tolist(), kernels):
        features[:, column], crowd[:, column] = rows.features[:, group], rows.crowd[:, group]
    if load_groups is not None:
        features[:, -1], crowd[:, -1] = _combined(rows, other_groups)
    load_features, load_crowd = _combined(rows, np.flatnonzero(is_load))
    in_kernel = np.flatnonzero(kernel >= 0)
    features[in_kernel, kernel[in_kernel]], crowd[in_kernel, kernel[in_kernel]] = (
        load_features[in_kernel],
        load_crowd[in_kernel],
    )
    # Outside of the phases, remaining work of the load belongs to the last class.
    outside = kernel < 0
    other_features, other_crowd = _combined(rows, np.union1d(other_groups, np.flatnonzero(is_load)))
    features[outside, -1], crowd[outside, -1] = other_features[outside], other_crowd[outside]
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


def _combined(rows: Rows, groups: I64) -> tuple[F64, F64]:
    """Sums of the groups' features (n, f), and the mean number of busy cores (n,) while they
    ran."""
    features = rows.features[:, groups]
    ns = features[:, :, _NS].sum(axis=2)
    crowd = (rows.crowd[:, groups] * ns).sum(axis=1) / np.maximum(ns.sum(axis=1), 1e-30)
    return features.sum(axis=1), crowd
