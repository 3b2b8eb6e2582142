# SPDX-License-Identifier: Apache-2.0
"""Features of entries that their energy may depend on: counters and time, alone or with a busy
sibling."""

from __future__ import annotations

import numpy as np

from qjoule.model.arrays import COUNTERS, F64, Entries, real_sums
from qjoule.model.coefficients import WEIGHT_TERMS, Weights
from qjoule.model.energy import Bool

#: Columns of `entry_features`; `_shared`: beside a busy SMT sibling. Cycles times f**2 in GHz**2.
#: Columns of small cores are the parts of the other columns that ran there.
FEATURES = (
    *("cycles", "cycles_shared", "instructions", "llc_misses"),
    *("cpu_ns", "cpu_ns_shared", "cycles_f2", "cycles_f2_shared"),
    *("instructions_shared", "llc_misses_shared"),
    *("cycles_small", "instructions_small", "cpu_ns_small", "cycles_f2_small"),
)
_SMALL = slice(FEATURES.index("cycles_small"), len(FEATURES))
#: Upper limits of cycles, instructions and misses per ns, far above any core (10 GHz, 16
#: instructions per cycle); and the possible difference in ns between a counter's reading and the
#: clock's.
MAX_PER_NS = np.array([10.0, 160.0, 10.0])
_READING_NS = 1000.0
_A, _B, _C, _T, _V, _ALPHA, _K, _BETA, _E = range(len(WEIGHT_TERMS))


def counted(entries: Entries) -> Bool:
    """(3,) whether each counter was ever read and moved; a counter that stands still is useless."""
    columns = zip(entries.counted_ns.T, entries.counters.T, strict=True)
    return np.array([(ns > 0).any() and (counts > 0).any() for ns, counts in columns], bool)


def plausible(entries: Entries) -> Bool:
    """(m,) whether the counts of each entry are physically possible."""
    maxima = MAX_PER_NS * (entries.counted_ns + _READING_NS)
    return np.asarray((entries.counters <= maxima).all(axis=1))


def by_counters(entries: Entries, weights: Weights) -> bool:
    """Whether any counter that `weights` depend on was read."""
    read = counted(entries)
    return bool(
        (read[0] and (weights.a or weights.v)) or (read[1] and weights.b) or (read[2] and weights.c)
    )


def entry_features(entries: Entries, windows: int) -> F64:
    """(m, 14): every entry's `FEATURES`.

    Time in which a counter was not read is counted at the entry's own rate. If the counter was
    never read, the window's mean rate is used.
    """
    cpu_ns = entries.cpu_ns.astype(np.float64)
    shared_ns = np.minimum(entries.overlap_ns, entries.cpu_ns).astype(np.float64)
    # Each feature is contiguous: most operations work on one feature at a time.
    features = np.empty((len(FEATURES), len(cpu_ns)))
    for i in range(COUNTERS):
        counts, shared = _counts(entries, i, cpu_ns, shared_ns, windows)
        if i > 0:
            np.subtract(counts, shared, out=features[1 + i])
            features[7 + i] = shared
            continue
        frequency2 = (counts / np.maximum(cpu_ns, 1.0)) ** 2
        np.subtract(counts, shared, out=features[0])
        features[1] = shared
        np.multiply(features[:2], frequency2, out=features[6:8])
    np.subtract(cpu_ns, shared_ns, out=features[4])
    features[5] = shared_ns
    _add_small(entries, cpu_ns, features)
    return features.T


def _add_small(entries: Entries, cpu_ns: F64, features: F64) -> None:
    """Fills the rows of small cores. Each kind of core has a frequency of its own."""
    features[_SMALL] = 0.0
    if not entries.small.any():
        return
    small_ns = np.minimum(entries.small[:, 0], cpu_ns)
    time_share = small_ns / np.maximum(cpu_ns, 1.0)
    # Small cores have no SMT: all that they counted is in the columns of time alone.
    for row, (row_of, i) in enumerate(((0, 0), (2, 1))):
        counts = entries.counters[:, i]
        count_share = np.minimum(entries.small[:, 1 + i] / np.maximum(counts, 1.0), 1.0)
        total_counts = features[row_of] + features[row_of + 1 if i == 0 else 8]
        small_counts = np.where(counts > 0, count_share, time_share) * total_counts
        features[_SMALL.start + row] = np.minimum(small_counts, features[row_of])
    features[_SMALL.start + 2] = small_ns
    cycles = features[_SMALL.start]
    squared = cycles * (cycles / np.maximum(small_ns, 1.0)) ** 2
    large, large_ns = features[0] + features[1] - cycles, np.maximum(cpu_ns - small_ns, 1.0)
    ran_small = cycles > 0
    for row, other_cycles in ((6, features[0] - cycles), (7, features[1])):
        features[row, ran_small] = (other_cycles * (large / large_ns) ** 2)[ran_small]
    features[6, ran_small] += squared[ran_small]
    features[_SMALL.start + 3] = squared


def _counts(entries: Entries, i: int, cpu_ns: F64, shared_ns: F64, windows: int) -> tuple[F64, F64]:
    """(m,) counts of one counter, and the part of them beside a busy sibling."""
    counts, read_ns = entries.counters[:, i].copy(), entries.counted_ns[:, i]
    shared = np.minimum(entries.overlap_counters[:, i], counts)
    if (read_ns >= cpu_ns).all():
        return counts, shared
    read = read_ns > 0
    window_ns = real_sums(entries.window, read_ns, windows)
    mean = real_sums(entries.window, counts, windows) / np.where(window_ns > 0, window_ns, 1.0)
    scale = cpu_ns / np.where(read, read_ns, 1.0)
    mean_rate = mean[entries.window]
    return (
        np.where(read, counts * scale, mean_rate * cpu_ns),
        np.where(read, shared * scale, mean_rate * shared_ns),
    )


def crowd(entries: Entries) -> F64:
    """(m,) number of busy cores while each entry ran, including its own: the harmonic mean over
    time."""
    core_ns = entries.cpu_ns - 0.5 * np.minimum(entries.overlap_ns, entries.cpu_ns)
    shared_ns = entries.shared_ns
    return np.maximum(core_ns / np.where(shared_ns > 0, shared_ns, np.inf), 1.0)


def basis(theta: F64) -> F64:
    """(14,): the weight of one unit of each feature, from the vector of `THETA`."""
    a, b, c, t, v, alpha = theta[:_K]
    beta, small_difference = theta[_BETA], theta[_E] - 1.0
    large = [a, a * alpha, b, c, t, t * alpha, v, v * alpha, b * beta, c * beta]
    return np.array(
        [
            *large,
            small_difference * a,
            small_difference * b,
            small_difference * t,
            small_difference * v,
        ]
    )


def basis_slopes(theta: F64) -> F64:
    """(14, 9): derivative of `basis` by each of `WEIGHT_TERMS`; saturation does not affect it."""
    a, b, c, t, v, alpha = theta[:_K]
    slopes = np.zeros((len(FEATURES), len(WEIGHT_TERMS)))
    slopes[[0, 1], _A] = 1.0, alpha
    slopes[[2, 8], _B] = slopes[[3, 9], _C] = 1.0, theta[_BETA]
    slopes[[4, 5], _T] = 1.0, alpha
    slopes[[6, 7], _V] = 1.0, alpha
    slopes[[1, 5, 7], _ALPHA] = a, t, v
    slopes[[8, 9], _BETA] = b, c
    small = range(_SMALL.start, _SMALL.stop)
    slopes[small, [_A, _B, _T, _V]] = theta[_E] - 1.0
    slopes[small, _E] = a, b, t, v
    return slopes
