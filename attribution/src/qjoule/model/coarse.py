# SPDX-License-Identifier: Apache-2.0
"""Joins windows that are parts of a longer window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np

from qjoule.model.arrays import Entries, WindowBatch, real_sums
from qjoule.model.energy import I64, Bool, Cause, WindowEnergy


def ends(energy: WindowEnergy, series: Sequence[int] | slice = slice(None)) -> Bool:
    """(windows,) whether no counter of `series` is within a longer window of its own there."""
    of = list(series) if not isinstance(series, slice) else series
    out: Bool = (energy.cause[of] != Cause.PART).all(axis=0)
    return out


def coarse(batch: WindowBatch, series: Sequence[int]) -> WindowBatch:
    """The batch in windows as long as the counters `series` need, or unchanged if that is no
    longer.

    Trailing windows that no later window completes become one, with unknown energy
    (`Cause.PART`). In the result only the energies of `series` are meaningful. `first` stays
    that of the batch.
    """
    end = ends(batch.energy, series)
    if end.all():
        return batch
    last = np.flatnonzero(end)
    if not end[-1]:
        last = np.append(last, len(end) - 1)
    starts = np.append(0, last[:-1] + 1)
    which = np.searchsorted(last, np.arange(len(end)))
    cause = batch.energy.cause
    unknown = np.minimum.reduceat(cause, starts, axis=1) == Cause.PART
    worst = np.maximum.reduceat(np.where(cause == Cause.PART, 0, cause), starts, axis=1)
    energy = WindowEnergy(
        batch.energy.series,
        batch.energy.boundaries_ns[np.append(0, last + 1)],
        np.add.reduceat(batch.energy.energy_nj, starts, axis=1),
        np.where(unknown, Cause.PART, worst).astype(np.uint8),
        np.maximum.reduceat(batch.energy.half_width_ns, starts, axis=1),
    )
    return WindowBatch(
        batch.first,
        energy,
        batch.packages,
        np.add.reduceat(batch.idle_ns, starts, axis=0),
        np.add.reduceat(batch.lost_ns, starts, axis=0),
        _summed(replace(batch.entries, window=which[batch.entries.window])),
        np.add.reduceat(batch.active_ns, starts, axis=0),
        np.add.reduceat(batch.core_ns, starts, axis=0),
    )


def first_parts(batch: WindowBatch, series: Sequence[int]) -> I64:
    """For each window of `coarse`, the first of the batch's windows that it is made of."""
    end = ends(batch.energy, series)
    return np.flatnonzero(np.append(True, end[:-1])).astype(np.int64)


def _summed(entries: Entries) -> Entries:
    """Adds up entries of equal window, package and group."""
    if not len(entries.window):
        return entries
    order = np.lexsort((entries.group, entries.package, entries.window))
    keys = np.stack([entries.window, entries.package, entries.group])[:, order]
    new = np.append(True, (np.diff(keys, axis=1) != 0).any(axis=0))
    index = np.empty(len(order), np.int64)
    index[order] = np.cumsum(new) - 1
    count = int(new.sum())

    def total(values: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> object:
        if values.ndim == 2:
            return np.stack([real_sums(index, column, count) for column in values.T], axis=1)
        sums = real_sums(index, values, count)
        return sums.astype(np.int64) if values.dtype.kind == "i" else sums

    window, package, group = keys[:, new]
    rest = [total(getattr(entries, field.name)) for field in fields(Entries)[3:]]
    return Entries(window, package, group, *rest)  # type: ignore[arg-type]
