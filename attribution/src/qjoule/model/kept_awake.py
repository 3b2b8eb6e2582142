# SPDX-License-Identifier: Apache-2.0
"""Packages that another one keeps awake, and whose that is.

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
    """(windows, packages) for how long a package that slept had another one awake beside it.

    `active_ns` (windows, packages), `dt_ns` (windows,): all that is known of who was awake when.
    Packages are taken to wake independently of each other.
    """
    asleep = 1.0 - active_ns / np.maximum(dt_ns, 1)[:, None]
    out = np.zeros(active_ns.shape)
    for p in range(asleep.shape[1]):
        others = np.delete(asleep, p, axis=1).prod(axis=1)
        out[:, p] = asleep[:, p] * (1.0 - others) * dt_ns
    return np.rint(out).astype(np.int64)


def with_kept(entries: Entries, kept_ns: I64) -> Entries:
    """The entries with the time for which each owner kept packages awake that slept themselves.

    `kept_ns` (windows, packages): it is divided over a window's entries of the other packages, in
    proportion to their `shared_ns`: equally over the busy cores of a package that is awake. Owners
    that have no time on the package that they kept awake get an entry there without time.
    """
    packages = kept_ns.shape[1]
    if not 2 <= packages <= MOST_PACKAGES or not kept_ns.any():
        return entries
    names, number = np.unique(entries.group, return_inverse=True)
    keys, amounts = [], []
    for p in range(packages):
        of_others = np.where(entries.package != p, entries.shared_ns, 0.0)
        sums = np.bincount(entries.window, of_others, len(kept_ns))
        per_ns = np.where(sums > 0, kept_ns[:, p] / np.where(sums > 0, sums, 1.0), 0.0)
        mine = of_others * per_ns[entries.window]
        some = np.flatnonzero(mine > 0)
        keys.append((entries.window[some] * packages + p) * len(names) + number[some])
        amounts.append(mine[some])
    place, index = np.unique(np.concatenate(keys), return_inverse=True)
    key = (entries.window * packages + entries.package) * len(names) + number
    kept = np.bincount(index.reshape(-1), np.concatenate(amounts), len(place))
    missing = place[~np.isin(place, key, assume_unique=True)]
    entries, key = _with_places(entries, key, missing, (packages, names))
    effects = entries.effects.copy()
    effects[np.searchsorted(key, place), _KEPT] += kept
    return replace(entries, effects=effects)


def _with_places(
    entries: Entries, key: I64, missing: I64, of: tuple[int, I64]
) -> tuple[Entries, I64]:
    """Adds entries without time at places (window * packages + package) * groups + group; `key`
    (m,): the places that there are. `of`: the number of packages, and the groups."""
    if not len(missing):
        return entries, key
    packages, names = of
    order = np.searchsorted(key, missing)
    rows = order + np.arange(len(missing))
    added = Entries(
        *(np.insert(getattr(entries, one.name), order, 0, axis=0) for one in fields(Entries))
    )
    added.window[rows], rest = np.divmod(missing, packages * len(names))
    added.package[rows] = rest // len(names)
    added.group[rows] = names[rest % len(names)]
    return added, np.insert(key, order, missing)
