# SPDX-License-Identifier: Apache-2.0
"""Attributes the power of packages that another package keeps awake.

On machines with several sockets, none may sleep while a core of another is busy: sockets keep each
other's caches and links awake (on 2 x EPYC 7502, one busy core costs 35 to 55 W on both together,
and the first on the second socket nothing more: tud-zih-energy/2021-rome-ee). That power belongs
to those who keep the package awake, on whichever package they run.
"""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from qjoule.model.arrays import EFFECTS, Entries
from qjoule.model.energy import I64

#: Virtual machines may show each CPU as a package of its own.
MOST_PACKAGES = 8
_KEPT = EFFECTS.index("kept_awake")


def kept_on_average(active_ns: I64, dt_ns: I64) -> I64:
    """(windows, packages) ns in which a package slept while another one was awake.

    `active_ns` (windows, packages), `dt_ns` (windows,): lengths of the windows. Packages are
    assumed to wake independently of each other.
    """
    asleep = 1.0 - active_ns / np.maximum(dt_ns, 1)[:, None]
    kept_ns = np.zeros(active_ns.shape)
    for p in range(asleep.shape[1]):
        others_asleep = np.delete(asleep, p, axis=1).prod(axis=1)
        kept_ns[:, p] = asleep[:, p] * (1.0 - others_asleep) * dt_ns
    return np.rint(kept_ns).astype(np.int64)


def with_kept(entries: Entries, kept_ns: I64) -> Entries:
    """The entries with `kept_awake`: the time for which each owner kept a sleeping package awake.

    `kept_ns` (windows, packages): it is divided over a window's entries of the other packages, in
    proportion to their `shared_ns`: equally over the busy cores of a package that is awake. Owners
    that have no time on the package that they kept awake get an entry there without time.
    """
    packages = kept_ns.shape[1]
    if not 2 <= packages <= MOST_PACKAGES or not kept_ns.any():
        return entries
    groups, number = np.unique(entries.group, return_inverse=True)
    keys, amounts = [], []
    for slot in range(packages):
        other_ns = np.where(entries.package != slot, entries.shared_ns, 0.0)
        sums = np.bincount(entries.window, other_ns, len(kept_ns))
        per_ns = np.where(sums > 0, kept_ns[:, slot] / np.where(sums > 0, sums, 1.0), 0.0)
        entry_ns = other_ns * per_ns[entries.window]
        positive = np.flatnonzero(entry_ns > 0)
        keys.append((entries.window[positive] * packages + slot) * len(groups) + number[positive])
        amounts.append(entry_ns[positive])
    place, index = np.unique(np.concatenate(keys), return_inverse=True)
    key = (entries.window * packages + entries.package) * len(groups) + number
    kept_ns_of_entry = np.bincount(index.reshape(-1), np.concatenate(amounts), len(place))
    missing = place[~np.isin(place, key, assume_unique=True)]
    entries, key = _with_places(entries, key, missing, (packages, groups))
    effects = entries.effects.copy()
    effects[np.searchsorted(key, place), _KEPT] += kept_ns_of_entry
    return replace(entries, effects=effects)


def _with_places(
    entries: Entries, key: I64, missing: I64, dimensions: tuple[int, I64]
) -> tuple[Entries, I64]:
    """Adds entries without time at places (window * packages + package) * groups + group; `key`
    (m,): the places that there are. `dimensions`: the number of packages, and the groups."""
    if not len(missing):
        return entries, key
    packages, groups = dimensions
    order = np.searchsorted(key, missing)
    rows = order + np.arange(len(missing))
    added = Entries(
        *(np.insert(getattr(entries, column.name), order, 0, axis=0) for column in fields(Entries))
    )
    added.window[rows], remainder = np.divmod(missing, packages * len(groups))
    added.package[rows] = remainder // len(groups)
    added.group[rows] = groups[remainder % len(groups)]
    return added, np.insert(key, order, missing)
