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
    """What m entries cause besides running, in nJ, and the part of it that the package draws."""

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
    whole = np.floor(quota)
    share: I64 = whole.astype(np.int64)
    left = totals - np.add.reduceat(share, starts)
    share += _largest(quota - whole, left, starts, counts)
    # What rounding of large totals leaves is no remainder, and an entry without weight must not
    # get it.
    for i in np.flatnonzero((left < 0) | (left > counts) | (totals > _FLOAT_NJ)):
        part = slice(starts[i], starts[i] + counts[i])
        share[part] = _apportion_exactly(int(totals[i]), weight[part].tolist())
    return share


def _largest(remainder: F64, left: I64, starts: I64, counts: I64) -> Bool:
    """(m,) whether a remainder is among the `left` largest of its window; of equal ones the
    first."""
    # One key for window and remainder, so that plain values are sorted, without argsort or a
    # second key.
    key = np.repeat(np.arange(1.0, len(starts) + 1), counts) - remainder
    last = np.sort(key)[starts + np.clip(left, 1, counts) - 1]
    last = np.repeat(np.where(left > 0, last, 0.0), counts)
    out = key <= last
    extra = np.add.reduceat(out, starts, dtype=np.int64) - left
    if (left < counts).any() and (extra > 0).any():
        equal = key == last
        seen = np.cumsum(equal)
        before = seen[starts] - equal[starts]
        keep = np.add.reduceat(equal, starts, dtype=np.int64) - extra
        out &= ~equal | (seen <= np.repeat(before + keep, counts))
    return np.asarray(out)


def _apportion_exactly(total_nj: int, weight: list[float] | list[int]) -> list[int]:
    exact = [Fraction(w) for w in weight]
    whole = sum(exact)
    quota = [total_nj * w / whole for w in exact]
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
    dynamic: whoever ran pays for it, and a window in which nobody ran goes to idle. Lost CPU time
    takes its part, at the window's mean weight per nanosecond, as residual. Unknown windows are
    split as 0. `effects`: what the entries cause besides running; an owner that slept before the
    window began may have nothing else.
    """
    energy = np.where(known, energy_nj, 0)
    count = len(energy)
    busy_ns = real_sums(entries.window, entries.cpu_ns, count)
    weight_sum = real_sums(entries.window, weight, count)
    if (blank := (busy_ns > 0) & (weight_sum <= 0)).any():
        # Somebody ran, but no event of the weight happened, so time is the only weight left.
        weight = np.where(blank[entries.window], entries.cpu_ns, weight)
        weight_sum = real_sums(entries.window, weight, count)
    static = np.minimum(energy, _energy_nj(idle_w, load.dt_ns))
    # Lost time is assumed to have run on cores of its own.
    active = np.where(busy_ns > 0, load.active_ns, 0) + load.lost_ns
    standing = _energy_nj(shared_w, np.minimum(load.dt_ns, active))
    if effects is not None:
        standing += _energy_nj(1.0, real_sums(entries.window, effects.each_nj, count))
    shared = np.minimum(energy - static, standing)
    dynamic = energy - static - shared
    window, weight, is_lost = _with_lost(entries.window, weight, load, busy_ns, weight_sum)
    got = apportion(dynamic, window, weight)
    of_weight = got[~is_lost]
    once = np.zeros(len(entries.window), np.int64)
    if shared.any():
        each = shared_w * _shared_ns(entries, load, busy_ns, is_lost, window)
        if effects is not None:
            each[~is_lost] += effects.each_nj
        of_shared = apportion(shared, window, each)
        got += of_shared
        once = _once(of_shared[~is_lost], each[~is_lost], effects)
    of_static = np.zeros(len(entries.window), np.int64)
    if policy != "separate" and static.any():
        even = np.zeros(len(window))
        even[~is_lost] = entries.cpu_ns > 0
        by = even if policy == "even" else np.where(is_lost, 0, weight)
        spread = apportion(static, window, by)
        got, of_static = got + spread, spread[~is_lost]
    entry_nj = got[~is_lost]
    residual = np.zeros(count, np.int64)
    residual[window[is_lost]] = got[is_lost]
    rest = energy - residual
    np.subtract.at(rest, entries.window, entry_nj)
    # No CPU of this zone is known: its energy has no owner, not even idle.
    nowhere = (busy_ns == 0) & (load.idle_ns == 0) & (load.lost_ns == 0)
    residual[nowhere] += rest[nowhere]
    rest[nowhere] = 0
    return Split(entry_nj, rest, residual, dynamic, once, of_weight, of_static)


def _once(got_nj: I64, each_nj: F64, effects: Effects | None) -> I64:
    """The part of each entry's shared energy that a package draws once, in whole nJ."""
    if effects is None:
        return got_nj
    part = 1.0 - (effects.each_nj - effects.once_nj) / np.where(each_nj > 0, each_nj, 1.0)
    return np.floor(got_nj * np.clip(part, 0.0, 1.0)).astype(np.int64)


def _shared_ns(entries: Entries, load: Load, busy_ns: F64, is_lost: Bool, window: I64) -> F64:
    """Time that divides shared power; lost time has the window's mean share of it."""
    out = np.zeros(len(window))
    out[~is_lost] = entries.shared_ns
    of_window = real_sums(entries.window, entries.shared_ns, len(busy_ns))
    known = (busy_ns > 0) & (of_window > 0)
    per_ns = np.where(known, of_window / np.where(busy_ns > 0, busy_ns, 1.0), 1.0)
    at = window[is_lost]
    out[is_lost] = load.lost_ns[at] * per_ns[at]
    return out


def _energy_nj(power_w: float | F64, dt_ns: I64 | F64) -> I64:
    """Watts are nanojoules per nanosecond."""
    limit = float(2**62)
    return np.minimum(np.rint(power_w * np.asarray(dt_ns, np.float64)), limit).astype(np.int64)


def _with_lost(
    window: I64, weight: F64, load: Load, busy_ns: F64, weight_sum: F64
) -> tuple[I64, F64, Bool]:
    """Entries, with one more at the end of each window that lost time."""
    at = np.flatnonzero(load.lost_ns > 0)
    if not len(at):
        return window, weight, np.zeros(len(window), bool)
    per_ns = np.where(busy_ns > 0, weight_sum / np.where(busy_ns > 0, busy_ns, 1.0), 1.0)
    place = np.searchsorted(window, at, "right")
    marks = np.insert(np.zeros(len(window), bool), place, True)
    lost_weight = load.lost_ns[at] * per_ns[at]
    return np.insert(window, place, at), np.insert(weight, place, lost_weight), marks


def unknown_static_nj(energy_nj: I64, load: Load, busy_ns: F64) -> F64:
    """(n,) how far the entries' energy could be lower if the idle power is unknown.

    The amount is what idle CPUs would draw if they drew as much as busy ones.
    """
    capacity = busy_ns + load.idle_ns + load.lost_ns
    return energy_nj * (load.idle_ns / np.where(capacity > 0, capacity, 1.0))
