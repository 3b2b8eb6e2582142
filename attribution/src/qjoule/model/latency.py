"""Calls and latencies per group, from query records or from the live view's histograms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qjoule.contract import LATENCY_BUCKETS
from qjoule.model.arrays import F64
from qjoule.model.counters import I64

QUANTILES = (0.50, 0.95, 0.99)


@dataclass(frozen=True)
class CallStats:
    """Per group, (groups,): executions that ended, and latencies; NaN where there is none."""

    calls: I64
    latency_ns_mean: F64
    latency_ns_quantiles: F64  #: (groups, 3): p50, p95, p99

    @staticmethod
    def none(groups: int) -> CallStats:
        return CallStats(
            np.zeros(groups, np.int64), np.full(groups, np.nan), np.full((groups, 3), np.nan)
        )


def from_queries(group: I64, latency_ns: I64, executions: I64, groups: int) -> CallStats:
    """Exact statistics from one row per query that ended.

    A quantile is the smallest latency that at least that share of the queries does not exceed.
    """
    stats = CallStats.none(groups)
    stats.calls[:] = np.bincount(group, executions, minlength=groups).astype(np.int64)
    count = np.bincount(group, minlength=groups)
    total = np.bincount(group, latency_ns, minlength=groups)
    some = count > 0
    stats.latency_ns_mean[some] = total[some] / count[some]
    ordered = latency_ns[np.lexsort((latency_ns, group))]
    starts = np.cumsum(count) - count
    for i, q in enumerate(QUANTILES):
        nth = np.maximum(np.ceil(q * count[some]).astype(np.int64) - 1, 0)
        stats.latency_ns_quantiles[some, i] = ordered[starts[some] + nth]
    return stats


def bucket_edges_ns() -> F64:
    """Lower edges of the kernel's latency buckets and the upper edge of the last (qjoule.h)."""
    return 1000.0 * 2.0 ** (np.arange(LATENCY_BUCKETS + 1) / 2)


def from_histograms(calls: I64, latency_ns: F64, histogram: npt.NDArray[np.integer]) -> CallStats:
    """Statistics from sums and (groups, buckets) histograms; quantiles to within a half octave.

    `latency_ns` is summed over the calls. A quantile is interpolated within its bucket, on the
    bucket's logarithmic scale; the first bucket also holds everything faster.
    """
    stats = CallStats.none(len(calls))
    stats.calls[:] = calls
    count = histogram.sum(axis=1)
    some = (count > 0) & (calls > 0)
    stats.latency_ns_mean[some] = latency_ns[some] / count[some]
    running = np.cumsum(histogram, axis=1)
    edges = bucket_edges_ns()
    rows = np.flatnonzero(some)
    for i, q in enumerate(QUANTILES):
        rank = np.ceil(q * count[rows])
        bucket = (running[rows] < rank[:, None]).sum(axis=1)
        inside = histogram[rows, bucket]
        below = running[rows, bucket] - inside
        part = (rank - below) / np.maximum(inside, 1)
        stats.latency_ns_quantiles[rows, i] = edges[bucket] * (
            (edges[bucket + 1] / edges[bucket]) ** part
        )
    return stats
