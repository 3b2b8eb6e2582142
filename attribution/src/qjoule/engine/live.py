# SPDX-License-Identifier: Apache-2.0
"""Live front end: converts the kernel side's sums to the same windows as recorded segments.

The kernel side sums tails and wake-ups per owner exactly. Memory traffic is computed from a
window's sums.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from qjoule.contract import WAKE_NS, OwnerKind
from qjoule.engine.live_owners import Records
from qjoule.model.arrays import (
    COUNTERS,
    EFFECTS,
    F64,
    LONG_TAILS_NS,
    SMALL,
    TAILS_NS,
    TRAFFIC_PER_NS,
    Anomalies,
    Entries,
    Machine,
    Requests,
    WindowBatch,
    real_sums,
)
from qjoule.model.energy import I64, WindowEnergy
from qjoule.model.kept_awake import kept_on_average, with_kept
from qjoule.model.split import apportion

_PACKAGE = len(TRAFFIC_PER_NS)
_CORE = _PACKAGE + len(TAILS_NS)
_PACKAGE_WAKES = _CORE + len(TAILS_NS)
_LONG = len(EFFECTS) - len(LONG_TAILS_NS)
_MISSES = 2  #: column of the misses among the counters
#: The kernel side's fields, from short to long, and their columns.
FIELDS = (
    ("package_tail_ns", [*range(_PACKAGE, _CORE), *range(_LONG, len(EFFECTS))]),
    ("core_tail_ns", [*range(_CORE, _PACKAGE_WAKES)]),
    ("package_wakes", [_PACKAGE_WAKES]),
    ("core_wakes", [_PACKAGE_WAKES + 1]),
)


def limited(entries: Entries, asleep_ns: I64, idle_ns: I64, cpus: I64) -> Entries:
    """Limits tails to the idle time of their window and package, and wake-ups accordingly.

    `asleep_ns`, `idle_ns` (windows, packages): time with all CPUs idle, and idle time summed over
    the CPUs. `cpus` (packages,): each may be woken from an idle time of the window before. Only the
    first window of a stream needs it: the kernel side sums from before tracing began.
    """
    effects = entries.effects.copy()
    most = (asleep_ns, idle_ns, asleep_ns / WAKE_NS + cpus, idle_ns / WAKE_NS + cpus)
    for (_, columns), room in zip(FIELDS, most, strict=True):
        longest = entries.effects[:, columns[-1]]
        sums = np.zeros(asleep_ns.shape)
        np.add.at(sums, (entries.window, entries.package), longest)
        fits = np.minimum(1.0, np.maximum(room, 0) / np.maximum(sums, 1.0))
        effects[:, columns] *= fits[entries.window, entries.package][:, None]
    return replace(entries, effects=effects)


def with_traffic(entries: Entries, core_ns: F64, active_ns: I64) -> Entries:
    """Adds traffic: shared time * mean misses per ns of the busy cores, up to each limit.

    `core_ns` (m,): each entry's core time, without the siblings' part. `active_ns`
    (windows, packages). Sums do not show whose misses coincided. While an entry's owner runs, it
    is assumed to have its average number of cores, at least one, and the others have the rest of
    the cores that are busy on average while the package is awake, at their own mean rate.
    """
    packages = active_ns.shape[1]
    place = entries.window * packages + entries.package
    misses = entries.counters[:, _MISSES]
    all_misses, all_ns = (real_sums(place, v, active_ns.size)[place] for v in (misses, core_ns))
    awake_ns = np.maximum(active_ns.reshape(-1)[place], 1.0)
    cores = np.maximum(all_ns / awake_ns, 1.0)
    own_cores = np.clip(core_ns / awake_ns, 1.0, cores)
    rate = misses / np.maximum(core_ns, 1.0)
    other_rate = (all_misses - misses) / np.maximum(all_ns - core_ns, 1.0)
    mean = (own_cores * rate + (cores - own_cores) * np.maximum(other_rate, 0.0)) / cores
    effects = entries.effects.copy()
    effects[:, :_PACKAGE] = entries.shared_ns[:, None] * np.minimum(mean[:, None], TRAFFIC_PER_NS)
    return replace(entries, effects=effects)


def from_aggregates(
    records: Records,
    group: I64,
    energy: WindowEnergy,
    machine: Machine,
    *,
    first: int = 0,
    lost_ns: I64 | None = None,
    awake_ns: I64 | None = None,
    stolen: F64 | None = None,
    anomalies: Anomalies | None = None,
) -> WindowBatch:
    """Makes the batch of all windows of `energy` from the kernel side's sums over them.

    A record belongs to the window that contains its middle. `first`: number of the first window
    since the ledger began. `lost_ns`: (windows, packages). Idle is the remainder of the CPUs' time,
    so that owners + lost + idle = the windows' length times the CPUs, to the ns. Sums that exceed
    that are reduced in proportion. In window 0 the excess ran before tracing began; elsewhere it is
    counted as overlap.

    `awake_ns` (windows, packages) is the time with any CPU of the package busy. Where it is not
    known (negative), a package is assumed to be active for as long as possible. Sums do not show
    who ran at the same instant: active time is shared by the cores' time, which counts overlap once
    per pair of threads. `stolen` (packages,): the share of busy time that the host stole.
    """
    bounds, packages = energy.boundaries_ns, machine.packages
    count = max(len(bounds) - 1, 0)
    not_idle = records["owner_kind"] != OwnerKind.IDLE  # idle is computed as the remainder
    slot_of = {package: slot for slot, package in enumerate(packages)}
    slot = np.array([slot_of.get(p, -1) for p in records["package"].tolist()], np.int64)
    # Differences first: t0 + t1 of hostile records could overflow.
    t0, t1 = records["t0_ns"].astype(np.int64), records["t1_ns"].astype(np.int64)
    window = np.searchsorted(bounds, t0 + (t1 - t0) // 2, "right") - 1
    inside = not_idle & (slot >= 0) & (window >= 0) & (window < count)
    entries = _sum(records[inside], window[inside], slot[inside], group[inside], len(packages))
    sizes = np.bincount(machine.package_slots(), minlength=len(packages))
    capacity = np.diff(bounds)[:, None] * sizes[None, :]
    entries, beyond_ns = _cut(entries, capacity)
    busy_ns = _per_window(entries, entries.cpu_ns, capacity.shape)
    lost = np.zeros_like(busy_ns) if lost_ns is None else np.minimum(lost_ns, capacity - busy_ns)
    if anomalies is not None:
        anomalies.unknown_cpu += int((not_idle & (slot < 0)).sum())
        anomalies.outside_ns += int(records["cpu_ns"][not_idle & (slot >= 0) & ~inside].sum())
        begun = 1 if first == 0 else 0
        anomalies.outside_ns += int(beyond_ns[:begun].sum())
        anomalies.overlap_ns += int(beyond_ns[begun:].sum())
    active = np.minimum(busy_ns, np.diff(bounds)[:, None])
    if awake_ns is not None:
        least = -(-busy_ns // sizes)
        active = np.where(awake_ns >= 0, np.clip(awake_ns, least, active), active)
    entries = _share_active_time(entries, active)
    asleep = np.diff(bounds)[:, None] - active
    entries = limited(entries, asleep, capacity - busy_ns, sizes)
    entries = with_kept(entries, kept_on_average(active, np.diff(bounds)))
    if stolen is not None:
        entries = replace(entries, stolen_ns=entries.cpu_ns * stolen[entries.package])
    overlap = _per_window(entries, entries.overlap_ns, busy_ns.shape)
    return WindowBatch(
        first,
        energy,
        packages,
        capacity - busy_ns - lost,
        lost,
        entries,
        active,
        busy_ns - overlap // 2,
        _requests(records, window, group, count),
    )


def _share_active_time(entries: Entries, active_ns: I64) -> Entries:
    """Divides the active time of each window and package over its entries, and adds traffic."""
    core_ns = entries.cpu_ns - 0.5 * entries.overlap_ns
    sums = np.zeros(active_ns.shape)
    np.add.at(sums, (entries.window, entries.package), core_ns)
    per_ns = (active_ns / np.maximum(sums, 1.0))[entries.window, entries.package]
    return with_traffic(replace(entries, shared_ns=core_ns * per_ns), core_ns, active_ns)


def _requests(records: Records, window: I64, group: I64, windows: int) -> Requests:
    """Returns calls that own no CPU time; spans use only those that are counted."""
    rows = (records["owner_kind"] == OwnerKind.QUERY) & (records["cpu_ns"] == 0)
    rows &= (records["calls"] > 0) & (window >= 0) & (window < windows)
    return Requests.summed(window[rows], group[rows], records["calls"][rows].astype(np.int64))


def _per_window(entries: Entries, ns: I64, shape: tuple[int, ...]) -> I64:
    """Sums the entries' times per window and package."""
    sums = np.zeros(shape, np.int64)
    np.add.at(sums, (entries.window, entries.package), ns)
    return sums


def _cut(entries: Entries, capacity_ns: I64) -> tuple[Entries, I64]:
    """Reduces entries to the CPU time of their window and package; also returns what exceeded
    it."""
    busy = _per_window(entries, entries.cpu_ns, capacity_ns.shape)
    beyond = np.maximum(busy - capacity_ns, 0)
    if not beyond.any():
        return entries, beyond
    key = entries.window * capacity_ns.shape[1] + entries.package
    fits = np.minimum(busy, capacity_ns).ravel()
    cpu_ns = apportion(fits, key, entries.cpu_ns)
    overlap_ns = np.minimum(entries.overlap_ns, cpu_ns)
    cut = replace(entries, cpu_ns=cpu_ns, overlap_ns=overlap_ns)
    return cut.take((cpu_ns > 0) | entries.effects.any(axis=1)), beyond


def _sum(records: Records, window: I64, slot: I64, group: I64, packages: int) -> Entries:
    """Sums records by window, package and group. Parts are limited to their whole."""
    groups = int(group.max(initial=0)) + 1
    key = (window * packages + slot) * groups + group
    present, index = np.unique(key, return_inverse=True)
    pair, who = np.divmod(present, groups)
    cpu = records["cpu_ns"]
    overlap = np.minimum(records["overlap_ns"], cpu)

    def whole(values: npt.NDArray[np.uint64]) -> I64:
        sums = np.zeros(len(present), np.int64)
        np.add.at(sums, index, values.astype(np.int64))
        return sums

    def real(values: npt.NDArray[np.uint64]) -> F64:
        return real_sums(index, values.astype(np.float64), len(present))

    def columns(values: npt.NDArray[np.uint64]) -> F64:
        return np.stack([real(values[:, i]) for i in range(COUNTERS)], axis=1)

    def effects() -> F64:
        out = np.zeros((len(present), len(EFFECTS)))
        for name, columns in FIELDS:
            values = records[name].reshape(len(records), len(columns))
            for column, sums in zip(columns, values.T, strict=True):
                out[:, column] = real(sums)
        return out

    cpu_ns, caused = whole(cpu), effects()
    return Entries(
        pair // packages,
        pair % packages,
        who,
        cpu_ns,
        whole(overlap),
        cpu_ns.astype(np.float64),
        columns(records["counters"]),
        columns(np.minimum(records["counted_ns"], cpu[:, None])),
        columns(np.minimum(records["overlap_counters"], records["counters"])),
        real(np.minimum(records["scaled_ns"], cpu)),
        np.zeros(len(present)),
        np.zeros((len(present), SMALL)),  # the kernel does not sum by core type
        caused,
    ).take((cpu_ns > 0) | caused.any(axis=1))
