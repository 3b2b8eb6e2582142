# SPDX-License-Identifier: Apache-2.0
"""Energy per time bucket and group, exact to the nanojoule, in bounded memory.

A *bucket* is a run of consecutive windows. Cells (group, bucket) are stored where they hold energy.
If there are too many, groups with the least energy so far are folded into their kind, so each kind
and the total still add up.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from qjoule.model.energy import I64, Bool
from qjoule.model.result import PARTS
from qjoule.model.split import apportion

BUCKETS_MAX = 600
CELLS_MAX = 4_000_000  #: 16 bytes each
_BITS = 12  #: the bucket's bits in a key
_KINDS = len(PARTS)


class Buckets:
    """Maps windows to buckets of about equally many windows.

    Args:
        boundaries_ns: (n + 1,) begins of windows, and the end of the last one.
        most: maximum number of buckets; fewer than 1 << `_BITS`.
    """

    def __init__(self, boundaries_ns: I64, most: int = BUCKETS_MAX) -> None:
        windows = len(boundaries_ns) - 1
        count = max(min(windows, most), 0)
        self.first = np.unique(np.linspace(0, max(windows, 0), count + 1).astype(np.int64))
        self.edges_ns = boundaries_ns[self.first] if len(boundaries_ns) else self.first
        self.count = max(len(self.first) - 1, 0)

    def of_windows(self, window: I64) -> I64:
        """The bucket of each window."""
        return np.searchsorted(self.first, window, "right") - 1

    def of_times(self, t_ns: I64) -> I64:
        """The bucket of each time; times outside the trace go to the first or last one."""
        index = np.searchsorted(self.edges_ns, t_ns, "right") - 1
        return np.clip(index, 0, max(self.count - 1, 0))


class Cells:
    """Energy sums by (group, bucket). `kind` (groups,): index of each group's kind in `PARTS`."""

    def __init__(self, kind: I64, most: int = CELLS_MAX) -> None:
        self._kind, self._most = kind, most
        self.folded: Bool = np.zeros(len(kind), bool)
        self._keys: I64 = np.zeros(0, np.int64)
        self._sums: I64 = np.zeros(0, np.int64)
        self._waiting: list[tuple[I64, I64]] = []
        self._waiting_rows = 0

    def add(self, group: I64, bucket: I64, energy_nj: I64) -> None:
        """Adds energies of groups, (m,) each."""
        number = np.where(self.folded[group], self._kind[group], group + _KINDS)
        self._add(number << _BITS | bucket, energy_nj)

    def add_part(self, part: str, bucket: I64, energy_nj: I64) -> None:
        """Adds energy that belongs to no group, (buckets,): idle, residual."""
        some = np.flatnonzero(energy_nj)
        self._add(PARTS.index(part) << _BITS | bucket[some], energy_nj[some])

    def _add(self, keys: I64, energy_nj: I64) -> None:
        sums = _sum_by_key(keys, energy_nj)
        self._waiting.append(sums)
        self._waiting_rows += len(sums[0])
        if self._waiting_rows > max(len(self._keys), self._most // 4):
            self._merge_waiting()
            if len(self._keys) > self._most:
                self._fold()

    def _merge_waiting(self) -> None:
        parts = [(self._keys, self._sums), *self._waiting]
        keys, sums = (np.concatenate(column) for column in zip(*parts, strict=True))
        self._keys, self._sums = _sum_by_key(keys, sums)
        self._waiting, self._waiting_rows = [], 0

    def _fold(self) -> None:
        """Folds groups with little energy, until the others use half of the room for cells."""
        number = self._keys >> _BITS
        is_group = number >= _KINDS
        size = len(self._kind) + _KINDS
        energy = np.zeros(size, np.int64)
        np.add.at(energy, number[is_group], self._sums[is_group])
        cells = np.bincount(number[is_group], minlength=size)
        order = np.argsort(-energy, kind="stable")
        keep = np.zeros(size, bool)
        keep[order[np.cumsum(cells[order]) <= self._most // 2]] = True
        self.folded |= ~keep[_KINDS:]
        group = np.maximum(number - _KINDS, 0)
        to = np.where(is_group & self.folded[group], self._kind[group], number)
        bucket = self._keys & ((1 << _BITS) - 1)
        self._keys, self._sums = _sum_by_key(to << _BITS | bucket, self._sums)

    def of_groups(self, groups: Sequence[int], buckets: int) -> I64:
        """Returns (buckets,) the energy of some groups together, none of them folded."""
        return self._sum_by_bucket(np.asarray(sorted(groups), np.int64) + _KINDS, buckets)

    def of_kinds(self, buckets: int) -> npt.NDArray[np.int64]:
        """Returns (kinds, buckets) all energy by kind."""
        self._merge_waiting()
        number = self._keys >> _BITS
        group = np.maximum(number - _KINDS, 0)
        kind = (
            number
            if not len(self._kind)
            else np.where(
                number < _KINDS, number, self._kind[np.minimum(group, len(self._kind) - 1)]
            )
        )
        out = np.zeros((_KINDS, buckets), np.int64)
        np.add.at(out, (kind, self._keys & ((1 << _BITS) - 1)), self._sums)
        return out

    def _sum_by_bucket(self, numbers: I64, buckets: int) -> I64:
        self._merge_waiting()
        out = np.zeros(buckets, np.int64)
        low = np.searchsorted(self._keys, numbers << _BITS)
        high = np.searchsorted(self._keys, (numbers + 1) << _BITS)
        for begin, end in zip(low.tolist(), high.tolist(), strict=True):
            np.add.at(out, self._keys[begin:end] & ((1 << _BITS) - 1), self._sums[begin:end])
        return out

    def move(self, taken: I64, given: I64, buckets: int) -> None:
        """Applies what `Ledger` moved among groups at the end: (groups,) each, >= 0, of equal sums.

        The times are unknown, so the given energy is spread over time like the taken energy.
        """
        loss = np.zeros(buckets, np.int64)
        for group in np.flatnonzero(taken).tolist():
            over_time = self.of_groups([group], buckets)
            part = apportion(taken[[group]], np.zeros(buckets, np.int64), over_time)
            self._add(_keys(group, buckets), -part)
            loss += part
        receivers = np.flatnonzero(given)
        parts = table_of(given[receivers], loss)
        for receiver, part in zip(receivers.tolist(), parts, strict=True):
            self.folded[receiver] = False
            self._add(_keys(receiver, buckets), part)


def _keys(group: int, buckets: int) -> I64:
    return (group + _KINDS) << _BITS | np.arange(buckets)


def _sum_by_key(keys: I64, sums: I64) -> tuple[I64, I64]:
    """Returns the distinct keys, sorted, with their sums."""
    if not len(keys):
        return keys, sums
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    first = np.flatnonzero(np.diff(keys, prepend=keys[0] - 1))
    return keys[first], np.add.reduceat(sums[order], first)


def table_of(rows: I64, columns: I64) -> npt.NDArray[np.int64]:
    """Returns (r, c) integers >= 0 with these row and column sums, nearly in proportion.

    The rounding remainder is placed by the north-west corner rule of transportation problems.
    """
    shares = columns / max(int(rows.sum()), 1)
    out = np.floor(rows[:, None] * shares[None, :] * (1 - 1e-12)).astype(np.int64)
    left_rows, left_columns = rows - out.sum(axis=1), columns - out.sum(axis=0)
    column, last = 0, len(columns)
    for row in range(len(rows)):
        while left_rows[row] > 0 and column < last:
            step = int(min(left_rows[row], left_columns[column]))
            out[row, column] += step
            left_rows[row] -= step
            left_columns[column] -= step
            column += 0 if left_columns[column] else 1
    return out
