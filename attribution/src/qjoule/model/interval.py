# SPDX-License-Identifier: Apache-2.0
"""The 95 % interval of a group's energy.

Two kinds of error are kept apart. *Random* errors come from the time at which a counter was last
updated before it was read, and from its unit. One window's error appears in the next window with
the opposite sign, so they cancel over a group that runs steadily. *Systematic* errors are those of
the power model, the total, and lost records. They are common to all calls of a fingerprint, so they
are added up and never averaged away.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Generic, TypeAlias, TypeVar, cast

import numpy as np

from qjoule.model.arrays import F64, Renumbering
from qjoule.model.energy import I64

Z95 = 1.959963984540054
_V = TypeVar("_V", float, F64)


@dataclass(frozen=True, slots=True)
class EnergyErrors(Generic[_V]):
    """The errors that make up the 95 % interval of one energy, or of each of n energies, (n,).

    `random_nj2` is a variance and `model_nj` a standard error; the others are widths at 95 %.
    """

    random_nj2: _V  #: of the windows' edges
    model_nj: _V  #: of the power model
    scaled_nj: _V  #: of multiplexed counters
    total_nj: _V  #: of the total
    loss_nj: _V  #: of lost time: the true energy may be higher by none, one or two times this
    unnamed_nj: _V  #: of records whose owner is unknown, in either direction
    down_nj: _V  #: of unknown power at rest, and of costs that are known only from one side
    up_nj: _V

    def ends(self, energy_nj: _V, *, absolute: bool = False) -> tuple[_V, _V]:
        """Lower and upper end, in whole nJ, never negative.

        `absolute`: with the error of the total, which is common to all rows.
        """
        variance = np.maximum(self.random_nj2, 0.0) + self.model_nj**2
        total_nj = self.total_nj if absolute else 0.0
        # Lost energy is added to what was seen: none of it, the expected amount, or twice that.
        half = np.sqrt(Z95**2 * variance + self.scaled_nj**2 + total_nj**2 + self.loss_nj**2)
        middle = energy_nj + self.loss_nj
        low = middle - half - self.unnamed_nj - self.down_nj
        high = middle + half + self.unnamed_nj + self.up_nj
        return cast(_V, np.floor(np.maximum(low, 0.0))), cast(_V, np.ceil(high))

    def each(self) -> list[RowErrors]:
        """The errors of each of them, (n,)."""
        columns = (np.asarray(getattr(self, name)).tolist() for name in _ERRORS)
        return [EnergyErrors(*row) for row in zip(*columns, strict=True)]


_ERRORS = tuple(field.name for field in fields(EnergyErrors))

RowErrors: TypeAlias = EnergyErrors[float]  #: of one row's energy


def of_recordings(parts: Sequence[RowErrors]) -> RowErrors:
    """Errors of the sum of energies that were recorded separately; order does not matter.

    Errors of windows' edges are independent, so their variances add up. All other errors may be the
    same in every recording (priors, differences between statements that counters do not show, an
    estimator's curve), so the errors themselves are added up.
    """
    return EnergyErrors(
        *(math.fsum(getattr(part, f.name) for part in parts) for f in fields(EnergyErrors))
    )


def of_one_recording(parts: Sequence[RowErrors]) -> RowErrors:
    """Errors of the sum of energies of one recording, as if fully correlated: never too small."""
    sigma_nj = math.fsum(max(part.random_nj2, 0.0) ** 0.5 for part in parts)
    return replace(of_recordings(parts), random_nj2=sigma_nj**2)


_SUMS = ("random_nj2", "model_nj", "scaled_nj", "loss_nj", "down_nj", "up_nj")
_NO_WINDOW = -2


@dataclass
class GroupErrors:
    """Running sums per group, in nJ and nJ**2; grows as groups appear."""

    random_nj2: F64 = field(default_factory=lambda: np.zeros(0))
    model_nj: F64 = field(default_factory=lambda: np.zeros(0))  #: standard error
    scaled_nj: F64 = field(default_factory=lambda: np.zeros(0))  #: 95 %, of multiplexed counters
    loss_nj: F64 = field(default_factory=lambda: np.zeros(0))
    down_nj: F64 = field(default_factory=lambda: np.zeros(0))  #: of what can only be less, 95 %
    up_nj: F64 = field(default_factory=lambda: np.zeros(0))
    #: By series: edge error and window of each group's last entry, and of its first; -2: none.
    _last: dict[int, tuple[F64, I64]] = field(default_factory=dict)
    _first: dict[int, tuple[F64, I64]] = field(default_factory=dict)

    def grow(self, groups: int) -> None:
        """Makes room for `groups` groups."""
        missing = groups - len(self.random_nj2)
        if missing <= 0:
            return
        for name in _SUMS:
            setattr(self, name, np.append(getattr(self, name), np.zeros(missing)))
        for edges in (self._last, self._first):
            for key, (x, window) in edges.items():
                edges[key] = (
                    np.append(x, np.zeros(missing)),
                    np.append(window, np.full(missing, _NO_WINDOW, np.int64)),
                )

    def add_random(self, key: int, window: I64, group: I64, sigma_nj: F64) -> None:
        """Adds entries of one series (`key`) in order of `window`; `sigma_nj`: of one window edge.

        A window's energy is the difference of two edges. With x the edge error that reaches the
        group in a window, its variance over all windows is sum(2 x[k]^2 - 2 x[k-1] x[k]), because
        adjacent windows share an edge. One window alone has sigma/E = (T/W) sqrt(1/6).
        """
        size = len(self.random_nj2)
        last_x, last_window = _of(self._last, key, size)
        first_x, first_window = _of(self._first, key, size)
        # Windows are in order. Short integers are sorted by radix.
        order = np.argsort(group.astype(np.uint16) if size <= 1 << 16 else group, kind="stable")
        w, g, x = window[order], group[order], sigma_nj[order]
        before_w, before_x = np.empty_like(w), np.empty_like(x)
        before_w[1:], before_x[1:] = w[:-1], x[:-1]
        firsts = np.flatnonzero(np.diff(g, prepend=-1))
        before_w[firsts], before_x[firsts] = last_window[g[firsts]], last_x[g[firsts]]
        shared_edge = np.where(before_w == w - 1, before_x, 0.0)
        self.random_nj2 += np.bincount(g, 2 * x * x - 2 * x * shared_edge, minlength=size)
        ends = np.append(firsts[1:], len(g)) - 1 if len(g) else firsts
        new = firsts[last_window[g[firsts]] == _NO_WINDOW]
        first_window[g[new]], first_x[g[new]] = w[new], x[new]
        last_window[g[ends]], last_x[g[ends]] = w[ends], x[ends]

    def merge(self, later: GroupErrors) -> None:
        """Adds the sums of windows that follow these, made apart by `add_random` and `add`."""
        count = len(later.random_nj2)
        self.grow(count)
        for name in _SUMS:
            total: F64 = getattr(self, name)
            total[:count] += getattr(later, name)
        for key, (x, window) in later._last.items():
            first_x, first_window = later._first[key]
            last_x, last_window = _of(self._last, key, len(self.random_nj2))
            adjacent = (first_window >= 0) & (last_window[:count] == first_window - 1)
            edge_nj2 = np.where(adjacent, 2 * first_x * last_x[:count], 0.0)
            self.random_nj2[:count] -= edge_nj2
            known = np.flatnonzero(window != _NO_WINDOW)
            last_x[known], last_window[known] = x[known], window[known]

    def add(self, name: str, group: I64, value_nj: F64) -> None:
        """Adds to one of the systematic sums."""
        total: F64 = getattr(self, name)
        total += np.bincount(group, value_nj, minlength=len(total))

    def move(self, source: int, target: int) -> None:
        """Adds one group's errors to another's as if fully correlated, so intervals are never
        too narrow."""
        sigma_nj = np.sqrt(np.maximum(self.random_nj2[[source, target]], 0.0)).sum()
        self.random_nj2[target] = sigma_nj**2
        for name in _SUMS[1:]:
            total = getattr(self, name)
            total[target] += total[source]
            total[source] = 0.0
        self.random_nj2[source] = 0.0

    def renumber(self, renumbering: Renumbering) -> None:
        """Renumbers the groups. Errors of groups that are merged are treated as fully
        correlated."""
        sigma_nj = renumbering.sums(np.sqrt(np.maximum(self.random_nj2, 0.0)))
        self.random_nj2 = np.where(
            renumbering.shared, sigma_nj**2, renumbering.sums(self.random_nj2)
        )
        for name in _SUMS[1:]:
            setattr(self, name, renumbering.sums(getattr(self, name)))
        for key, (x, window) in self._last.items():
            last = np.full(renumbering.groups, _NO_WINDOW, np.int64)
            alone = ~renumbering.shared
            mine = renumbering.first[alone]
            known = mine < len(window)
            last[np.flatnonzero(alone)[known]] = window[mine[known]]
            self._last[key] = renumbering.sums(x), last
        self._first.clear()  # of use only until the sums are merged

    def ci95(self, energy_nj: I64, *, record_loss: float = 0.0) -> tuple[F64, F64]:
        """Lower and upper bounds in whole nJ, (groups,), never negative. See `parts`."""
        parts = self.parts(energy_nj, record_loss=record_loss)
        return parts.ends(energy_nj.astype(np.float64))

    def parts(
        self, energy_nj: I64, *, total_error: float = 0.0, record_loss: float = 0.0
    ) -> EnergyErrors[F64]:
        """The errors that make up the groups' intervals, (groups,).

        `total_error`: relative 95 % error of the total. `record_loss`: share of query records that
        were lost.
        """
        return EnergyErrors(
            self.random_nj2.copy(),
            self.model_nj.copy(),
            self.scaled_nj.copy(),
            np.float64(total_error) * energy_nj.astype(np.float64),
            self.loss_nj.copy(),
            np.float64(record_loss) * energy_nj.astype(np.float64),
            self.down_nj.copy(),
            self.up_nj.copy(),
        )


def _of(edges: dict[int, tuple[F64, I64]], key: int, groups: int) -> tuple[F64, I64]:
    return edges.setdefault(key, (np.zeros(groups), np.full(groups, _NO_WINDOW, np.int64)))


def edge_sigma_nj(
    energy_nj: F64, share: F64, dt_ns: F64, *, period_ns: float, half_width_ns: F64, unit_nj: float
) -> F64:
    """Standard error of one window edge, for an entry with `share` of the window's energy.

    Uniform errors: the update period T (T/sqrt(12)), the reading's width, the counter's unit.
    """
    power_w = energy_nj / np.maximum(dt_ns, 1.0)
    phase = power_w * period_ns / math.sqrt(12)
    width = power_w * half_width_ns / math.sqrt(3)
    return np.sqrt(phase**2 + width**2 + (share * unit_nj) ** 2 / 12)
