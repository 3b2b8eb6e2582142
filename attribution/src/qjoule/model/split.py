# SPDX-License-Identifier: Apache-2.0
"""Splits a window's joules among owners: static, shared, and dynamic by weight, in integer nJ.

Every function here takes many windows at once. For each window, sum(entries) + idle + residual =
energy, exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from qjoule.model.arrays import F64, Entries, real_sums
from qjoule.model.coefficients import IdlePolicy
from qjoule.model.energy import I64, Bool
from qjoule.model.zones import Load


@dataclass(frozen=True)
class Split:
    """Energies of m entries and n windows: `entry_nj` (m,), the others (n,).

    `dynamic_nj` is what was split by weight, in whole nJ, with the part of the lost time.
    """

    entry_nj: I64
    idle_nj: I64
    residual_nj: I64
    dynamic_nj: I64
    entry_shared_nj: I64  #: the part of `entry_nj` that a package draws once
    entry_dynamic_nj: I64  #: the part of `entry_nj` that was split by weight
    entry_static_nj: I64  #: the part of `entry_nj` that is power at rest, as the policy spreads it


@dataclass(frozen=True)
class Effects:
    """Energy in nJ that m entries cause besides running (`each_nj`), and the part that the package
    draws once."""

    each_nj: F64
    once_nj: F64


#: Above this a float64 of nJ has too few bits left to order remainders of a nanojoule.
_FLOAT_NJ = 2**50


def apportion(total_nj: I64, window: I64, weight: F64 | I64) -> I64:
    """Splits `total_nj` of each window over its entries by weight; whole nJ, nothing left over.

    `window` (m,) is sorted and indexes `total_nj` (n,). Largest remainder (Hamilton's method);
    equal remainders go to the entry that comes first. Windows whose weights sum to 0 give 0:
    the caller decides who gets their energy. Weights must be finite and >= 0. If they are integers
    whose sum is at least the total, no entry gets more than its weight.
    """
    if not len(window):
        return np.zeros(0, np.int64)
    # Scaling by the largest weight keeps sums of huge weights finite.
    starts = np.flatnonzero(np.diff(window, prepend=-1))
    counts = np.diff(starts, append=len(window))
    peak = np.maximum.reduceat(weight, starts)
    scaled = weight / np.repeat(np.where(peak > 0, peak, 1.0), counts)
    sums = np.add.reduceat(scaled, starts)
    totals = np.where(peak > 0, total_nj[window[starts]], 0)
    quota = np.repeat(totals, counts) * (scaled / np.repeat(np.where(sums > 0, sums, 1.0), counts))
    floor = np.floor(quota)
    share: I64 = floor.astype(np.int64)
    remaining = totals - np.add.reduceat(share, starts)
    share += _largest(quota - floor, remaining, starts, counts)
    # Rounding errors of large totals are no remainders, and an entry without weight must not get
    # them.
    for i in np.flatnonzero((remaining < 0) | (remaining > counts) | (totals > _FLOAT_NJ)):
        window_entries = slice(starts[i], starts[i] + counts[i])
        share[window_entries] = _apportion_exactly(int(totals[i]), weight[window_entries].tolist())
    return share


def _largest(remainder: F64, remaining: I64, starts: I64, counts: I64) -> Bool:
    """(m,) whether a remainder is among the `remaining` largest of its window; of equal ones the
    first."""
    # One key for window and remainder, so that plain values are sorted, without argsort or a
    # second key.
    key = np.repeat(np.arange(1.0, len(starts) + 1), counts) - remainder
    last = np.sort(key)[starts + np.clip(remaining, 1, counts) - 1]
    last = np.repeat(np.where(remaining > 0, last, 0.0), counts)
    is_largest = key <= last
    extra = np.add.reduceat(is_largest, starts, dtype=np.int64) - remaining
    if (remaining < counts).any() and (extra > 0).any():
        equal = key == last
        equal_count = np.cumsum(equal)
        equal_before = equal_count[starts] - equal[starts]
        keep = np.add.reduceat(equal, starts, dtype=np.int64) - extra
        is_largest &= ~equal | (equal_count <= np.repeat(equal_before + keep, counts))
    return np.asarray(is_largest)


def _apportion_exactly(total_nj: int, weight: list[float] | list[int]) -> list[int]:
    fractions = [Fraction(w) for w in weight]
    total = sum(fractions)
    quota = [total_nj * w / total for w in fractions]
    share = [int(q) for q in quota]
    order = sorted(range(len(quota)), key=lambda i: (share[i] - quota[i], i))
    for i in order[: total_nj - sum(share)]:
        share[i] += 1
    return share


def split(
    energy_nj: I64,
    known: Bool,
    load: Load,
    entries: Entries,
    weight: F64,
    *,
    idle_w: float | F64,
    shared_w: float,
    policy: IdlePolicy,
    effects: Effects | None = None,
) -> Split:
    """Splits n windows of one zone over the m entries that ran there.

    `idle_w`: one for all windows, or one of each (n,). If it is 0, all energy of a window is
    dynamic and belongs to the entries that ran; without entries it is idle. Lost CPU time takes its
    part, at the window's mean weight per nanosecond, as residual. Unknown windows are split as 0.
    `effects`: what the entries cause besides running; an owner that slept before the window began
    may have nothing else.
    """
    energy = np.where(known, energy_nj, 0)
    count = len(energy)
    busy_ns = real_sums(entries.window, entries.cpu_ns, count)
    weight_sum = real_sums(entries.window, weight, count)
    if (no_weight := (busy_ns > 0) & (weight_sum <= 0)).any():
        # Entries ran without any event of the weight, so time is used as the weight.
        weight = np.where(no_weight[entries.window], entries.cpu_ns, weight)
        weight_sum = real_sums(entries.window, weight, count)
    static = np.minimum(energy, _energy_nj(idle_w, load.dt_ns))
    # Lost time is assumed to have run on cores of its own.
    active_ns = np.where(busy_ns > 0, load.active_ns, 0) + load.lost_ns
    shared_limit_nj = _energy_nj(shared_w, np.minimum(load.dt_ns, active_ns))
    if effects is not None:
        shared_limit_nj += _energy_nj(1.0, real_sums(entries.window, effects.each_nj, count))
    shared = np.minimum(energy - static, shared_limit_nj)
    dynamic = energy - static - shared
    window, weight, is_lost = _with_lost(entries.window, weight, load, busy_ns, weight_sum)
    given_nj = apportion(dynamic, window, weight)
    weight_nj = given_nj[~is_lost]
    once_nj = np.zeros(len(entries.window), np.int64)
    if shared.any():
        shared_weight = shared_w * _shared_ns(entries, load, busy_ns, is_lost, window)
        if effects is not None:
            shared_weight[~is_lost] += effects.each_nj
        shared_nj = apportion(shared, window, shared_weight)
        given_nj += shared_nj
        once_nj = _package_part(shared_nj[~is_lost], shared_weight[~is_lost], effects)
    static_entry_nj = np.zeros(len(entries.window), np.int64)
    if policy != "separate" and static.any():
        even_weight = np.zeros(len(window))
        even_weight[~is_lost] = entries.cpu_ns > 0
        static_weight = even_weight if policy == "even" else np.where(is_lost, 0, weight)
        static_nj = apportion(static, window, static_weight)
        given_nj, static_entry_nj = given_nj + static_nj, static_nj[~is_lost]
    entry_nj = given_nj[~is_lost]
    residual = np.zeros(count, np.int64)
    residual[window[is_lost]] = given_nj[is_lost]
    idle_nj = energy - residual
    np.subtract.at(idle_nj, entries.window, entry_nj)
    # No CPU of this zone is known: its energy has no owner, not even idle.
    no_cpu = (busy_ns == 0) & (load.idle_ns == 0) & (load.lost_ns == 0)
    residual[no_cpu] += idle_nj[no_cpu]
    idle_nj[no_cpu] = 0
    return Split(entry_nj, idle_nj, residual, dynamic, once_nj, weight_nj, static_entry_nj)


def _package_part(shared_nj: I64, weight_nj: F64, effects: Effects | None) -> I64:
    """The part of each entry's shared energy that a package draws once, in whole nJ."""
    if effects is None:
        return shared_nj
    once_share = 1.0 - (effects.each_nj - effects.once_nj) / np.where(weight_nj > 0, weight_nj, 1.0)
    return np.floor(shared_nj * np.clip(once_share, 0.0, 1.0)).astype(np.int64)


def _shared_ns(entries: Entries, load: Load, busy_ns: F64, is_lost: Bool, window: I64) -> F64:
    """Time that divides shared power; lost time has the window's mean share of it."""
    shared_ns = np.zeros(len(window))
    shared_ns[~is_lost] = entries.shared_ns
    window_shared_ns = real_sums(entries.window, entries.shared_ns, len(busy_ns))
    has_shared = (busy_ns > 0) & (window_shared_ns > 0)
    per_ns = np.where(has_shared, window_shared_ns / np.where(busy_ns > 0, busy_ns, 1.0), 1.0)
    lost_window = window[is_lost]
    shared_ns[is_lost] = load.lost_ns[lost_window] * per_ns[lost_window]
    return shared_ns


def _energy_nj(power_w: float | F64, dt_ns: I64 | F64) -> I64:
    """Watts are nanojoules per nanosecond."""
    limit = float(2**62)
    return np.minimum(np.rint(power_w * np.asarray(dt_ns, np.float64)), limit).astype(np.int64)


def _with_lost(
    window: I64, weight: F64, load: Load, busy_ns: F64, weight_sum: F64
) -> tuple[I64, F64, Bool]:
    """Windows and weights of the entries and of one more entry per window with lost time, and which
    these are."""
    lost_windows = np.flatnonzero(load.lost_ns > 0)
    if not len(lost_windows):
        return window, weight, np.zeros(len(window), bool)
    per_ns = np.where(busy_ns > 0, weight_sum / np.where(busy_ns > 0, busy_ns, 1.0), 1.0)
    insert_at = np.searchsorted(window, lost_windows, "right")
    is_lost = np.insert(np.zeros(len(window), bool), insert_at, True)
    lost_weight = load.lost_ns[lost_windows] * per_ns[lost_windows]
    return (
        np.insert(window, insert_at, lost_windows),
        np.insert(weight, insert_at, lost_weight),
        is_lost,
    )


def unknown_static_nj(energy_nj: I64, load: Load, busy_ns: F64) -> F64:
    """(n,) how far the entries' energy could be lower if the idle power is unknown.

    The amount is what idle CPUs would draw if they drew as much as busy ones.
    """
    capacity = busy_ns + load.idle_ns + load.lost_ns
    return energy_nj * (load.idle_ns / np.where(capacity > 0, capacity, 1.0))
