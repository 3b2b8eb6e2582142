"""Window batches cut where an interval of the live view ends."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from qjoule.model.arrays import WindowBatch


def windows(batch: WindowBatch) -> int:
    """Number of windows in a batch."""
    return len(batch.idle_ns)


def cut(batch: WindowBatch, first: int, last: int) -> WindowBatch:
    """Windows `first` to `last` - 1 of a batch, counted from the batch's own first window."""
    if first == 0 and last == windows(batch):
        return batch
    low, high = np.searchsorted(batch.entries.window, (first, last))
    entries = batch.entries.take(slice(low, high))
    return WindowBatch(
        batch.first + first,
        batch.energy.slice(first, last),
        batch.packages,
        batch.idle_ns[first:last],
        batch.lost_ns[first:last],
        replace(entries, window=entries.window - first),
        batch.active_ns[first:last],
        batch.core_ns[first:last],
    )
