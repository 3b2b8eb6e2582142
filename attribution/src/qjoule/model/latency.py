# SPDX-License-Identifier: Apache-2.0
"""Calls and latencies per group, from query records or from the live view's histograms."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from qjoule.contract import LATENCY_BUCKETS, WAITS
from qjoule.model.arrays import F64
from qjoule.model.energy import I64, Bool

QUANTILES = (0.50, 0.95, 0.99)
#: Significant bits of a rounded latency, and number of distinct latencies that are kept exactly.
DIGITS, EXACT = 8, 100
_MERGE_ROWS = 1 << 16
#: Rows that are added at once: how latencies are kept is decided between them.
_BATCH = 1 << 16
#: Integers of fewer bits are exact as float64, of which a bucket drops all but DIGITS - 1 bits of
#: its fraction. `_ZERO` stands for 0, whose exponent would be far from that of 1.
_FLOAT_BITS = 53
_DROPPED = 52 - (DIGITS - 1)
_ZERO = (1023 << (DIGITS - 1)) - 1
#: Buckets are counted in a table up to this size; beyond that, and four per row, they are sorted.
_TABLE_SIZE = 1 << 16
_T = TypeVar("_T", bound=np.generic)


#: Columns of `CallStats.outcomes`: queries that ended with an error, calls of which it is not known
#: how they ended, rows, and calls of which their number is not known.
OUTCOMES = ("errors", "unanswered", "rows", "rowless")


@dataclass(frozen=True)
class CallStats:
    """Per group, (groups,): executions that ended, and their latencies; NaN without any."""

    calls: I64
    latency_ns_mean: F64
    latency_ns_quantiles: F64  #: (groups, 3): p50, p95, p99
    timed: I64  #: how many calls have a latency
    #: (groups, 1 + WAITS), ns: latency of the queries whose waits are recorded, and what they
    #: waited for (`qjoule.contract.Wait`); 0 without any
    waits_ns: I64
    #: the same of helpers of queries: how long they worked for them; None: not recorded
    helpers_ns: I64 | None = None
    #: (groups, LATENCY_BUCKETS) calls by latency, where only these are known
    histogram: I64 | None = None
    #: (groups, OUTCOMES), of a live stream
    outcomes: I64 | None = None

    @staticmethod
    def none(groups: int) -> CallStats:
        return CallStats(
            np.zeros(groups, np.int64),
            np.full(groups, np.nan),
            np.full((groups, 3), np.nan),
            np.zeros(groups, np.int64),
            np.zeros((groups, 1 + WAITS), np.int64),
        )


@dataclass
class Latencies:
    """Calls and latencies per group, in memory that does not grow with the calls.

    Mean and count are exact. So are the quantiles of a group with up to `EXACT` distinct latencies.
    Beyond that, latencies are kept to `DIGITS` significant bits, which moves a quantile by at most
    2^-DIGITS (0.4 %). These are HdrHistogram's buckets (G. Tene, http://hdrhistogram.org), but only
    those in use are stored. The statistics depend only on the calls, not on their order or on how
    they are batched.
    """

    _calls: F64 = field(default_factory=lambda: np.zeros(0))
    _total_ns: F64 = field(default_factory=lambda: np.zeros(0))
    _rounded: Bool = field(default_factory=lambda: np.zeros(0, bool))
    _counts: list[_Counts] = field(default_factory=list)
    _waits_ns: I64 = field(default_factory=lambda: np.zeros((0, 1 + WAITS), np.int64))
    _waiting: int = 0  #: rows appended since the last merge

    def add_waits(self, group: I64, waits_ns: I64) -> None:
        """Takes one row per query whose waits are recorded: columns as in `CallStats`."""
        self._waits_ns = _grown(self._waits_ns, int(group.max(initial=-1)) + 1)
        np.add.at(self._waits_ns, group, waits_ns)

    def add(self, group: I64, latency_ns: I64, executions: I64) -> None:
        """Takes one row per query that ended: its group, latency (< 0: unknown), executions."""
        for first in range(0, len(group), _BATCH):
            rows = slice(first, first + _BATCH)
            self._add(group[rows], latency_ns[rows], executions[rows])

    def _add(self, group: I64, latency_ns: I64, executions: I64) -> None:
        size = max(int(group.max(initial=-1)) + 1, len(self._calls))
        self._calls = _grown(self._calls, size) + np.bincount(group, executions, size)
        if not (timed := latency_ns >= 0).all():
            group, latency_ns = group[timed], latency_ns[timed]
        self._total_ns = _grown(self._total_ns, size) + np.bincount(group, latency_ns, size)
        self._rounded = _grown(self._rounded, size)
        if (rounded := self._rounded[group]).all():
            self._append(_buckets(group, latency_ns))
        else:
            self._append(_buckets(group[rounded], latency_ns[rounded]))
            exact = ~rounded
            ones = np.ones(int(exact.sum()), np.int64)
            self._append(_Counts(group[exact], latency_ns[exact], ones))
        if self._waiting > max(_MERGE_ROWS, len(self._counts[0].group)):
            self._merge()

    def stats(self, groups: int, group_of: I64 | None = None) -> CallStats:
        """Statistics of groups 0 to `groups` - 1; `group_of`: maps group numbers so far to final
        ones.

        A quantile is the smallest latency that at least that share of the queries does not exceed.
        """
        regrouped = self if group_of is None else self._regrouped(group_of)
        regrouped._merge()
        (counts,) = regrouped._counts
        stats = CallStats.none(groups)
        stats.waits_ns[:] = _grown(regrouped._waits_ns, groups)[:groups]
        stats.calls[:] = _grown(regrouped._calls, groups).astype(np.int64)
        count = np.bincount(counts.group, counts.count, groups).astype(np.int64)
        stats.timed[:] = count
        timed_groups = np.flatnonzero(count)
        stats.latency_ns_mean[timed_groups] = (
            regrouped._total_ns[timed_groups] / count[timed_groups]
        )
        cumulative = np.cumsum(counts.count)
        before_group = (np.cumsum(count) - count)[timed_groups]
        for i, q in enumerate(QUANTILES):
            rank = np.maximum(np.ceil(q * count[timed_groups]).astype(np.int64), 1)
            row = np.searchsorted(cumulative, before_group + rank)
            stats.latency_ns_quantiles[timed_groups, i] = counts.latency_ns[row]
        return stats

    def _append(self, counts: _Counts) -> None:
        self._counts.append(counts)
        self._waiting += len(counts.group) if len(self._counts) > 1 else 0

    def _merge(self) -> None:
        """Joins all counts; latencies of groups that have too many distinct ones are rounded
        from now on."""
        empty = np.zeros(0, np.int64)
        groups, latencies_ns, numbers = (
            np.concatenate([getattr(counts, name) for counts in self._counts] or [empty])
            for name in ("group", "latency_ns", "count")
        )
        order = _order(groups, latencies_ns)
        merged = _Counts(groups[order], latencies_ns[order], numbers[order]).summed()
        distinct = np.bincount(merged.group, minlength=len(self._rounded))
        self._rounded = self._rounded | (distinct > EXACT)
        # Rounding keeps the order.
        latency_ns = np.where(
            self._rounded[merged.group], _rounded(merged.latency_ns), merged.latency_ns
        )
        self._counts = [_Counts(merged.group, latency_ns, merged.count).summed()]
        self._waiting = 0

    def _regrouped(self, group_of: I64) -> Latencies:
        target = group_of[: len(self._calls)]
        size = int(target.max(initial=-1)) + 1
        waits_ns = np.zeros((size, 1 + WAITS), np.int64)
        np.add.at(waits_ns, target[: len(self._waits_ns)], self._waits_ns)
        return Latencies(
            np.bincount(target, self._calls, size).astype(np.float64),
            np.bincount(target, self._total_ns, size).astype(np.float64),
            np.bincount(target, self._rounded, size) > 0,
            [
                _Counts(target[counts.group], counts.latency_ns, counts.count)
                for counts in self._counts
            ],
            waits_ns,
        )


@dataclass(frozen=True)
class _Counts:
    """Number of queries by group and latency, (n,) each."""

    group: I64
    latency_ns: I64
    count: I64

    def summed(self) -> _Counts:
        """Joins adjacent rows of the same group and latency."""
        if not len(self.group):
            return self
        changes = (np.diff(self.group) != 0) | (np.diff(self.latency_ns) != 0)
        heads = np.flatnonzero(np.append(True, changes))
        return _Counts(
            self.group[heads], self.latency_ns[heads], np.add.reduceat(self.count, heads)
        )


def _buckets(group: I64, latency_ns: I64) -> _Counts:
    """Rounded latencies, counted: a few rows for many queries."""
    if int(latency_ns.max(initial=0)) >= 1 << _FLOAT_BITS:
        ones = np.ones(len(group), np.int64)
        order = np.lexsort((latency_ns, group))
        return _Counts(group[order], _rounded(latency_ns[order]), ones).summed()
    # A float64 begins with its exponent, so its upper bits are the number of the bucket.
    bits = latency_ns.astype(np.float64).view(np.int64) >> _DROPPED
    bits = np.maximum(bits, _ZERO)  # 0 comes right before 1
    lowest = int(bits.min()) if len(bits) else _ZERO
    size = int(bits.max(initial=lowest)) - lowest + 1
    joint = group * size + (bits - lowest)
    if int(joint.max(initial=0)) < max(4 * len(joint), _TABLE_SIZE):
        counts = np.bincount(joint)
        bucket = np.flatnonzero(counts)
        count = counts[bucket]
    else:
        bucket, count = np.unique(joint, return_counts=True)
    low = ((bucket % size + lowest) << _DROPPED).view(np.float64).astype(np.int64)
    return _Counts(bucket // size, _rounded(low), count.astype(np.int64))


def _order(group: I64, latency_ns: I64) -> npt.NDArray[np.intp]:
    """The rows by group and latency; equal ones in any order."""
    longest, last = int(latency_ns.max(initial=0)), int(group.max(initial=0))
    if (last + 1) * (longest + 1) < 1 << 62:  # one key sorts faster than two
        return np.argsort(group * (longest + 1) + latency_ns)
    return np.lexsort((latency_ns, group))


def _rounded(latency_ns: I64) -> I64:
    shift = _shift(latency_ns)
    return ((latency_ns >> shift) << shift) + ((np.int64(1) << shift) >> 1)


def _shift(latency_ns: I64) -> I64:
    """How many low bits a latency loses."""
    bits = np.frexp(latency_ns.astype(np.float64))[1].astype(np.int64)
    # The conversion to float may have rounded it up to a power of two.
    bits -= (latency_ns >> np.maximum(bits - 1, 0)) == 0
    return np.maximum(bits - DIGITS, 0)


def _grown(values: npt.NDArray[_T], size: int) -> npt.NDArray[_T]:
    missing = max(size - len(values), 0)
    return np.concatenate([values, np.zeros((missing, *values.shape[1:]), values.dtype)])


def bucket_edges_ns() -> F64:
    """Lower edges of the kernel's latency buckets and the upper edge of the last (qjoule.h)."""
    return 1000.0 * 2.0 ** (np.arange(LATENCY_BUCKETS + 1) / 2)


def from_histograms(calls: I64, latency_ns: F64, histogram: npt.NDArray[np.integer]) -> CallStats:
    """Statistics from sums and (groups, buckets) histograms; quantiles to within a half octave.

    `latency_ns` is summed over the calls. A quantile is interpolated within its bucket, on the
    bucket's logarithmic scale; the first bucket also holds everything faster.
    """
    stats = replace(CallStats.none(len(calls)), histogram=histogram.astype(np.int64))
    stats.calls[:] = calls
    count = histogram.sum(axis=1)
    is_timed = (count > 0) & (calls > 0)
    stats.timed[is_timed] = count[is_timed]
    stats.latency_ns_mean[is_timed] = latency_ns[is_timed] / count[is_timed]
    cumulative = np.cumsum(histogram, axis=1)
    edges = bucket_edges_ns()
    rows = np.flatnonzero(is_timed)
    for i, q in enumerate(QUANTILES):
        rank = np.ceil(q * count[rows])
        bucket = (cumulative[rows] < rank[:, None]).sum(axis=1)
        inside = histogram[rows, bucket]
        below = cumulative[rows, bucket] - inside
        part = (rank - below) / np.maximum(inside, 1)
        stats.latency_ns_quantiles[rows, i] = edges[bucket] * (
            (edges[bucket + 1] / edges[bucket]) ** part
        )
    return stats
