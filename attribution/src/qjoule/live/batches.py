"""Window batches cut where an interval of the live view ends."""

from __future__ import annotations

import numpy as np

from qjoule.model.arrays import Entries, WindowBatch


def windows(batch: WindowBatch) -> int:
    """Number of windows in a batch."""
    return len(batch.idle_ns)


def cut(batch: WindowBatch, first: int, last: int) -> WindowBatch:
    """Windows `first` to `last` - 1 of a batch, counted from the batch's own first window."""
    if first == 0 and last == windows(batch):
        return batch
    entries = batch.entries
    low, high = np.searchsorted(entries.window, (first, last))
    return WindowBatch(
        batch.first + first,
        batch.energy.slice(first, last),
        batch.packages,
        batch.idle_ns[first:last],
        batch.lost_ns[first:last],
        Entries(
            entries.window[low:high] - first,
            entries.package[low:high],
            entries.group[low:high],
            entries.cpu_ns[low:high],
            entries.counters[low:high],
            entries.counted_ns[low:high],
        ),
    )
