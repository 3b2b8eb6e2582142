# SPDX-License-Identifier: Apache-2.0
"""Tails, wake-ups and memory traffic of a live view's windows, as the columns of `EFFECTS`.

The kernel side sums tails and wake-ups per owner exactly. Traffic is computed from a window's sums.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from qjoule.contract import WAKE_NS
from qjoule.model.arrays import F64, TAILS_NS, TRAFFIC_PER_NS, Entries, real_sums
from qjoule.model.energy import I64

_PACKAGE = len(TRAFFIC_PER_NS)
_CORE = _PACKAGE + len(TAILS_NS)
_PACKAGE_WAKES = _CORE + len(TAILS_NS)
_MISSES = 2  #: of the counters
#: The kernel side's fields with their columns.
FIELDS = (
    ("package_tail_ns", slice(_PACKAGE, _CORE)),
    ("core_tail_ns", slice(_CORE, _PACKAGE_WAKES)),
    ("package_wakes", slice(_PACKAGE_WAKES, _PACKAGE_WAKES + 1)),
    ("core_wakes", slice(_PACKAGE_WAKES + 1, _PACKAGE_WAKES + 2)),
)


def limited(entries: Entries, asleep_ns: I64, idle_ns: I64, cpus: I64) -> Entries:
    """Cuts tails to the idle time of their window and package, and wake-ups to what it allows.

    `asleep_ns`, `idle_ns` (windows, packages): time with all CPUs idle, and idle time added up over
    the CPUs. `cpus` (packages,): each may be woken from an idle time of the window before. Only the
    first window of a stream needs it: the kernel side sums from before tracing began.
    """
    effects = entries.effects.copy()
    most = (asleep_ns, idle_ns, asleep_ns / WAKE_NS + cpus, idle_ns / WAKE_NS + cpus)
    for (_, columns), room in zip(FIELDS, most, strict=True):
        longest = entries.effects[:, columns.stop - 1]
        sums = np.zeros(asleep_ns.shape)
        np.add.at(sums, (entries.window, entries.package), longest)
        fits = np.minimum(1.0, np.maximum(room, 0) / np.maximum(sums, 1.0))
        effects[:, columns] *= fits[entries.window, entries.package][:, None]
    return replace(entries, effects=effects)


def with_traffic(entries: Entries, core_ns: F64, active_ns: I64) -> Entries:
    """Adds traffic: shared time * mean misses per ns of the busy cores, up to each limit.

    `core_ns` (m,): each entry's time on cores, without what siblings used of them. `active_ns`
    (windows, packages). Sums do not show whose misses coincided. While an entry's owner runs, it
    is assumed to have as many cores as on average, at least one, and the others have the rest of
    the cores that are busy on average while the package is awake, at their own mean rate.
    """
    packages = active_ns.shape[1]
    place = entries.window * packages + entries.package
    misses = entries.counters[:, _MISSES]
    all_misses, all_ns = (real_sums(place, v, active_ns.size)[place] for v in (misses, core_ns))
    awake_ns = np.maximum(active_ns.reshape(-1)[place], 1.0)
    cores = np.maximum(all_ns / awake_ns, 1.0)
    own = np.clip(core_ns / awake_ns, 1.0, cores)
    rate = misses / np.maximum(core_ns, 1.0)
    others = (all_misses - misses) / np.maximum(all_ns - core_ns, 1.0)
    mean = (own * rate + (cores - own) * np.maximum(others, 0.0)) / cores
    effects = entries.effects.copy()
    effects[:, :_PACKAGE] = entries.shared_ns[:, None] * np.minimum(mean[:, None], TRAFFIC_PER_NS)
    return replace(entries, effects=effects)
