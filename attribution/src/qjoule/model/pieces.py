"""Pieces of segments, cut at window boundaries, and their sums."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qjoule.model.arrays import COUNTERS, F64, Entries
from qjoule.model.counters import I64, Bool


def cut_at(boundaries_ns: I64, t0: I64, t1: I64) -> tuple[I64, I64, I64]:
    """Cuts intervals that lie within the boundaries into pieces of one window each.

    Returns each piece's row of origin, window and length in ns. Empty intervals give no piece.
    """
    empty = np.zeros(0, np.int64)
    if len(boundaries_ns) < 2 or not len(t0):
        return empty, empty, empty
    first = np.searchsorted(boundaries_ns, t0, "right") - 1
    some = t1 > t0
    if some.all() and (t1 <= boundaries_ns[first + 1]).all():
        return np.arange(len(t0)), first, t1 - t0
    last = np.searchsorted(boundaries_ns, t1, "left") - 1
    pieces = np.where(some, last - first + 1, 0)
    row = np.repeat(np.arange(len(t0)), pieces)
    nth = np.arange(len(row)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    window = first[row] + nth
    begin = np.maximum(t0[row], boundaries_ns[window])
    end = np.minimum(t1[row], boundaries_ns[window + 1])
    return row, window, end - begin


@dataclass(frozen=True)
class Pieces:
    """Stretches within one window each, one row per piece; `cpu` is a slot of the machine."""

    window: I64
    cpu: I64
    group: I64
    cpu_ns: I64
    counters: F64 | None
    counted_ns: F64 | None

    @staticmethod
    def none() -> Pieces:
        empty = np.zeros(0, np.int64)
        return Pieces(empty, empty, empty, empty, None, None)

    def take(self, mask: Bool) -> Pieces:
        return Pieces(
            self.window[mask],
            self.cpu[mask],
            self.group[mask],
            self.cpu_ns[mask],
            None if self.counters is None else self.counters[mask],
            None if self.counted_ns is None else self.counted_ns[mask],
        )


def join(parts: list[Pieces]) -> Pieces:
    """All parts as one."""
    if len(parts) < 2:
        return parts[0] if parts else Pieces.none()
    counters = [part.counters for part in parts if part.counters is not None]
    counted = [part.counted_ns for part in parts if part.counted_ns is not None]
    whole = len(counters) == len(parts)
    return Pieces(
        np.concatenate([part.window for part in parts]),
        np.concatenate([part.cpu for part in parts]),
        np.concatenate([part.group for part in parts]),
        np.concatenate([part.cpu_ns for part in parts]),
        np.concatenate(counters) if whole else None,
        np.concatenate(counted) if whole else None,
    )


def whole_sums(index: I64, values: npt.NDArray[np.generic], size: int) -> I64:
    """Exact integer sums by index: floats hold whole numbers to 2**53 ns, 104 days."""
    return np.bincount(index, values, minlength=size).astype(np.int64, copy=False)


def real_sums(index: I64, values: npt.NDArray[np.generic], size: int) -> F64:
    """Sums by index."""
    return np.bincount(index, values, minlength=size).astype(np.float64, copy=False)


def sum_entries(window: I64, package: I64, pieces: Pieces, packages: int) -> Entries:
    """Sums pieces by (window, package, group)."""
    groups = int(pieces.group.max(initial=-1)) + 1
    key = (window * packages + package) * groups + pieces.group
    size = int(key.max(initial=-1)) + 1
    if size <= max(4 * len(key), 1 << 16):
        # The usual case: few groups, so a table of all combinations beats sorting.
        present = np.flatnonzero(np.bincount(key, minlength=size))
        place, index, count = present, key, size
    else:
        present, index = np.unique(key, return_inverse=True)
        place, count = np.arange(len(present)), len(present)
    counters = np.zeros((len(present), COUNTERS))
    counted = np.zeros((len(present), COUNTERS))
    if pieces.counters is not None and pieces.counted_ns is not None:
        for i in range(COUNTERS):
            counters[:, i] = np.bincount(index, pieces.counters[:, i], minlength=count)[place]
            counted[:, i] = np.bincount(index, pieces.counted_ns[:, i], minlength=count)[place]
    cpu_ns = whole_sums(index, pieces.cpu_ns, count)[place]
    pair, group = np.divmod(present, max(groups, 1))
    return Entries(
        pair // packages if packages else pair,
        pair % packages if packages else pair,
        group.astype(np.int64),
        cpu_ns,
        np.zeros(len(cpu_ns), np.int64),
        cpu_ns.astype(np.float64),
        counters,
        counted,
        np.zeros_like(counters),
        np.zeros(len(cpu_ns)),
    )
