# SPDX-License-Identifier: Apache-2.0
"""Running sums of the errors of groups' energies and of their shares, over windows and blocks.

A group's share is its energy E over that of all owners, T: queries, background, other processes,
kernel and tracer, without idle and residual. With s = E / T, an error moves it by
(dE - s dT) / T. What moves all owners alike therefore moves no share.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from qjoule.model.arrays import F64, Renumbering
from qjoule.model.energy import I64
from qjoule.model.interval import EnergyErrors, RowErrors

#: Sums of variances: those of groups that are joined are treated as fully correlated.
_SQUARES = ("random_nj2", "common_nj2")
_SUMS = (
    *("model_nj", "scaled_nj", "loss_nj", "rest_nj", "tails_nj", "down_nj", "up_nj"),
    *("share_model_nj", "common_nj", "beside_nj2"),
)
_NO_WINDOW = -2


@dataclass
class TotalErrors:
    """Running sums of the errors of the energy of all owners together, T."""

    random_nj2: float = 0.0  #: variance of edges
    model_nj: float = 0.0  #: standard error
    #: By series: window and edge error of T at the first and the last window.
    _edges: dict[int, tuple[int, float, int, float]] = field(default_factory=dict)

    def add(self, key: int, first: int, sigma_nj: F64) -> F64:
        """Adds the edge errors of windows `first` on, (n,); returns the slopes of T's variance by
        them, halved, (n,)."""
        previous_nj = self._previous_nj(key, first)
        neighbours = np.concatenate([[previous_nj], sigma_nj, [0.0]])
        slopes = 2.0 * sigma_nj - neighbours[:-2] - neighbours[2:]
        self.random_nj2 += float(sigma_nj @ slopes) - previous_nj * float(sigma_nj[0])
        first_edge = self._edges[key][:2] if key in self._edges else (first, float(sigma_nj[0]))
        self._edges[key] = (*first_edge, first + len(sigma_nj) - 1, float(sigma_nj[-1]))
        return np.asarray(slopes)

    def _previous_nj(self, key: int, first: int) -> float:
        """The edge error of the window before number `first`; 0 if nobody ran in it."""
        _, _, last, x = self._edges.get(key, (0, 0.0, _NO_WINDOW, 0.0))
        return x if last == first - 1 else 0.0

    def merge(self, later: TotalErrors) -> dict[int, tuple[int, float, float]]:
        """Adds the sums of windows that follow. Returns, of each series whose windows join, number
        and edge error of its first later window, and the error of the one before."""
        self.random_nj2 += later.random_nj2
        self.model_nj += later.model_nj
        joints = {}
        for key, (first, x, last, last_x) in later._edges.items():
            if previous_nj := self._previous_nj(key, first):
                joints[key] = first, x, previous_nj
                self.random_nj2 -= 2.0 * x * previous_nj
            first_edge = self._edges[key][:2] if key in self._edges else (first, x)
            self._edges[key] = (*first_edge, last, last_x)
        return joints


@dataclass(frozen=True)
class ShareSigma:
    """The model's errors of n groups' shares in a block: `share` (n,), `sigma_nj` (n,), the
    standard error of E - s T, and `total_nj`, that of T."""

    share: F64
    sigma_nj: F64
    total_nj: float


@dataclass
class GroupErrors:
    """Running sums per group, in nJ and nJ**2; grows as groups appear."""

    random_nj2: F64 = field(default_factory=lambda: np.zeros(0))
    model_nj: F64 = field(default_factory=lambda: np.zeros(0))  #: standard error
    scaled_nj: F64 = field(default_factory=lambda: np.zeros(0))  #: 95 %, of multiplexed counters
    loss_nj: F64 = field(default_factory=lambda: np.zeros(0))
    rest_nj: F64 = field(default_factory=lambda: np.zeros(0))  #: may be power at rest
    #: Tails that idle may contain, 95 %: the energy may be higher by this, or lower if negative.
    tails_nj: F64 = field(default_factory=lambda: np.zeros(0))
    down_nj: F64 = field(default_factory=lambda: np.zeros(0))  #: one-sided, 95 %
    up_nj: F64 = field(default_factory=lambda: np.zeros(0))
    share_model_nj: F64 = field(default_factory=lambda: np.zeros(0))  #: of E - s T, by blocks
    #: By blocks: the model's standard error of T, times the group's share, or times its square.
    common_nj: F64 = field(default_factory=lambda: np.zeros(0))
    common_nj2: F64 = field(default_factory=lambda: np.zeros(0))
    beside_nj2: F64 = field(default_factory=lambda: np.zeros(0))  #: covariance of edges with T's
    total: TotalErrors = field(default_factory=TotalErrors)
    #: By series: edge error and window of each group's last entry, and of its first; -2: none.
    _last: dict[int, tuple[F64, I64]] = field(default_factory=dict)
    _first: dict[int, tuple[F64, I64]] = field(default_factory=dict)

    def grow(self, groups: int) -> None:
        """Makes room for `groups` groups."""
        missing = groups - len(self.random_nj2)
        if missing <= 0:
            return
        for name in (*_SQUARES, *_SUMS):
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
        last_x, last_window = _series_edges(self._last, key, size)
        first_x, first_window = _series_edges(self._first, key, size)
        # Windows are in order. Short integers are sorted by radix.
        order = np.argsort(group.astype(np.uint16) if size <= 1 << 16 else group, kind="stable")
        w, g, x = window[order], group[order], sigma_nj[order]
        before_w, before_x = np.empty_like(w), np.empty_like(x)
        before_w[1:], before_x[1:] = w[:-1], x[:-1]
        firsts = np.flatnonzero(np.diff(g, prepend=-1))
        before_w[firsts], before_x[firsts] = last_window[g[firsts]], last_x[g[firsts]]
        shared_edge = np.where(before_w == w - 1, before_x, 0.0)
        self.random_nj2 += np.bincount(g, 2 * x * x - 2 * x * shared_edge, minlength=size)
        self._add_beside(key, window, group, sigma_nj)
        last_rows = np.append(firsts[1:], len(g)) - 1 if len(g) else firsts
        new_rows = firsts[last_window[g[firsts]] == _NO_WINDOW]
        first_window[g[new_rows]], first_x[g[new_rows]] = w[new_rows], x[new_rows]
        last_window[g[last_rows]], last_x[g[last_rows]] = w[last_rows], x[last_rows]

    def _add_beside(self, key: int, window: I64, group: I64, sigma_nj: F64) -> None:
        """Adds the covariance of the groups' edge errors with those of all owners together."""
        if not len(window):
            return
        first, size = int(window[0]), len(self.random_nj2)
        last_x, last_window = _series_edges(self._last, key, size)
        window_nj = np.bincount(window - first, sigma_nj).astype(np.float64)
        slopes = self.total.add(key, first, window_nj)
        self.beside_nj2 += np.bincount(group, sigma_nj * slopes[window - first], minlength=size)
        self.beside_nj2 -= np.where(last_window == first - 1, last_x * window_nj[0], 0.0)

    def merge(self, later: GroupErrors) -> None:
        """Adds the sums of windows that follow these, made apart by `add_random` and `add`."""
        count = len(later.random_nj2)
        self.grow(count)
        for name in (*_SQUARES, *_SUMS):
            total: F64 = getattr(self, name)
            total[:count] += getattr(later, name)
        for key, (first, edge_nj, previous_nj) in self.total.merge(later.total).items():
            later_x, later_window = later._first[key]
            here_x, here_window = _series_edges(self._last, key, len(self.random_nj2))
            self.beside_nj2[:count] -= np.where(later_window == first, later_x * previous_nj, 0.0)
            self.beside_nj2 -= np.where(here_window == first - 1, here_x * edge_nj, 0.0)
        for key, (x, window) in later._last.items():
            first_x, first_window = later._first[key]
            last_x, last_window = _series_edges(self._last, key, len(self.random_nj2))
            adjacent = (first_window >= 0) & (last_window[:count] == first_window - 1)
            edge_nj2 = np.where(adjacent, 2 * first_x * last_x[:count], 0.0)
            self.random_nj2[:count] -= edge_nj2
            has_window = np.flatnonzero(window != _NO_WINDOW)
            last_x[has_window], last_window[has_window] = x[has_window], window[has_window]

    def add(self, name: str, group: I64, value_nj: F64) -> None:
        """Adds to one of the systematic sums."""
        total: F64 = getattr(self, name)
        total += np.bincount(group, value_nj, minlength=len(total))

    def move(self, source: int, target: int) -> None:
        """Adds one group's errors to another's as if fully correlated, so intervals are never
        too narrow."""
        for name in (*_SQUARES, *_SUMS):
            total = getattr(self, name)
            if name in _SQUARES:
                sigma_nj = np.sqrt(np.maximum(total[[source, target]], 0.0)).sum()
                total[target] = sigma_nj**2
            else:
                total[target] += total[source]
            total[source] = 0.0

    def move_common(self, source: I64, target: I64, part: F64) -> None:
        """Moves `common_nj` and `common_nj2` of the groups `source` to the groups `target` (n,),
        which get the part `part` (n,) of their energy."""
        remaining = max(1.0 - float(part.sum()), 0.0)
        for name, power in (("common_nj", 1), ("common_nj2", 2)):
            total: F64 = getattr(self, name)
            root = float((np.maximum(total[source], 0.0) ** (1 / power)).sum())
            total[target] += (part * root) ** power
            total[source] *= remaining**power

    def renumber(self, renumbering: Renumbering) -> None:
        """Renumbers the groups. Errors of groups that are merged are treated as fully
        correlated."""
        for name in _SQUARES:
            total = getattr(self, name)
            sigma_nj = renumbering.sums(np.sqrt(np.maximum(total, 0.0)))
            joined = np.where(renumbering.shared, sigma_nj**2, renumbering.sums(total))
            setattr(self, name, joined)
        for name in _SUMS:
            setattr(self, name, renumbering.sums(getattr(self, name)))
        for key, (x, window) in self._last.items():
            last = np.full(renumbering.groups, _NO_WINDOW, np.int64)
            unmerged = ~renumbering.shared
            first_number = renumbering.first[unmerged]
            has_window = first_number < len(window)
            last[np.flatnonzero(unmerged)[has_window]] = window[first_number[has_window]]
            self._last[key] = renumbering.sums(x), last
        self._first.clear()  # of use only until the sums are merged

    def add_model(self, group: I64, sigma_nj: F64, share: ShareSigma) -> None:
        """Adds the model's errors of one block to these groups."""
        self.add("model_nj", group, sigma_nj)
        self.add("share_model_nj", group, share.sigma_nj)
        self.add("common_nj", group, share.share * share.total_nj)
        self.add("common_nj2", group, share.share**2 * share.total_nj)
        self.total.model_nj += share.total_nj

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
            self.down_nj + self.rest_nj + np.maximum(-self.tails_nj, 0.0),
            self.up_nj + np.maximum(self.tails_nj, 0.0),
        )

    def of_shares(self, energy_nj: I64, *, record_loss: float = 0.0) -> EnergyErrors[F64]:
        """The errors of E - s T, (groups,): divided by T, they are those of the groups' shares."""
        energy = energy_nj.astype(np.float64)
        total_nj = max(float(energy.sum()), 1.0)
        share = energy / total_nj
        random = self.random_nj2 - 2.0 * share * self.beside_nj2
        random += share**2 * self.total.random_nj2
        # In a block where the group's share differs from that over all blocks, an error of T moves
        # its share. The signs in different blocks are unknown, so the absolute errors add up.
        difference2 = (
            self.common_nj2 - 2.0 * share * self.common_nj + share**2 * self.total.model_nj
        )
        block_nj = np.sqrt(self.total.model_nj * np.maximum(difference2, 0.0))
        # Lost time belonged to some owner: this one may own none of it, or twice the expected part.
        lost_nj = float(self.loss_nj.sum())
        shift = self.loss_nj - share * lost_nj
        symmetric_nj = np.minimum(self.loss_nj, lost_nj - self.loss_nj)
        # Unknown power at rest is in all groups' energy, so it is subtracted from all at once.
        above_rest = np.maximum(energy - self.rest_nj, 0.0)
        shifted = above_rest / max(float(above_rest.sum()), 1.0) * total_nj - energy
        zeros = np.zeros(len(energy))
        return EnergyErrors(
            np.maximum(random, 0.0),
            self.share_model_nj + block_nj,
            self.scaled_nj.copy(),
            zeros,
            zeros.copy(),
            np.float64(record_loss) * np.minimum(energy, total_nj - energy),
            np.maximum(symmetric_nj - shift, 0.0) + np.maximum(-shifted, 0.0) + self.down_nj,
            np.maximum(symmetric_nj + shift, 0.0) + np.maximum(shifted, 0.0) + self.up_nj,
        )

    def of_total(
        self, energy_nj: I64, *, total_error: float = 0.0, record_loss: float = 0.0
    ) -> RowErrors:
        """The errors of T."""
        total_nj = float(energy_nj.sum())
        return EnergyErrors(
            self.total.random_nj2,
            self.total.model_nj,
            0.0,
            total_error * total_nj,
            float(self.loss_nj.sum()),
            record_loss * total_nj,
            float(self.rest_nj.sum()) + max(-float(self.tails_nj.sum()), 0.0),
            max(float(self.tails_nj.sum()), 0.0),
        )


def _series_edges(edges: dict[int, tuple[F64, I64]], key: int, groups: int) -> tuple[F64, I64]:
    return edges.setdefault(key, (np.zeros(groups), np.full(groups, _NO_WINDOW, np.int64)))
