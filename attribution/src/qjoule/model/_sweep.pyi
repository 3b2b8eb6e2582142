# SPDX-License-Identifier: Apache-2.0
"""The sweep over segments, and other loops over rows, in C (attribution/sweep).

Python code uses `qjoule.model.windows`, `qjoule.model.charge` and `qjoule.model.arrays`.
"""

from typing import final

import numpy as np
import numpy.typing as npt

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
F64 = npt.NDArray[np.float64]
Bits = npt.NDArray[np.uint8]

@final
class Sweep:
    """Turns a stream of segments, in order of `t0_ns`, into complete windows.

    Arrays are C-contiguous. `boundaries_ns` ascends strictly. `cpu_core`, `core_package` and
    `cpu_watched` hold numbers from 0 up; `cpu_watched` is -1 for CPUs whose busy time nobody
    needs. Counts of more than `most_per_ns` per nanosecond, or of more than 2^53, are treated as
    implausible. Raises `ValueError` for arrays that do not fit together. After a `MemoryError`
    the object must be discarded.
    """

    def __init__(
        self,
        boundaries_ns: I64,
        cpu_core: I32,
        core_package: I32,
        cpu_watched: I32,
        cpu_small: I32,
        packages: int,
        watched: int,
        most_per_ns: int,
    ) -> None: ...
    def add(
        self,
        t0_ns: I64,
        t1_ns: I64,
        cpu: I32,
        group: I64,
        scaled: npt.NDArray[np.float32] | None,
        stolen: npt.NDArray[np.float32] | None,
        /,
        *counters_and_valid: npt.NDArray[np.uint64] | npt.NDArray[np.bool_] | None,
    ) -> None:
        """Takes n segments. An unknown `cpu` number is allowed. The last six are the counts of
        three counters, and which of them were read; or all six are None. Releases the GIL, but no
        other thread may use this sweep meanwhile."""

    def finish(self) -> None:
        """Ends all windows that are open."""

    def take(self) -> tuple[int, bytes, bytes, bytes, tuple[int, int, int, int, int, int, int]]:
        """Returns what was completed since the last call: the number of windows, `struct
        sweep_window` per window and package, busy ns per window and watched CPU, `struct
        sweep_entry` (windows are counted from the first of the stream), and `struct
        sweep_anomalies` of the whole stream. See sweep.h."""

def span(ids: U64, bits: Bits | None, offset: int, /) -> tuple[int, int]:
    """The least and greatest id that is not 0; (0, 0) if there is none. `bits`: which of the ids
    are there, one bit each, from bit `offset` on; None: all are."""

def charge(
    t0_ns: I64,
    t1_ns: I64,
    owner: npt.NDArray[np.uint32],
    query: U64,
    bits: Bits | None,
    offset: int,
    owner_group: I64,
    owner_marked: npt.NDArray[np.bool_],
    first: int,
    query_group: I64,
    query_marked: npt.NDArray[np.bool_],
    group: I64,
    /,
) -> tuple[int, int]:
    """Writes the group of each of n segments to `group`: that of its query, or else of its owner.

    `query_group` is by id from `first` on, below 0 for no group; `owner_group` is by id, its last
    entry for all others. Returns the time (ns) of queries and of marked owners, and that of marked
    queries. `bits` and `offset`: which segments have a query, as in `span`."""

def add(sums: F64, index: I64, values: F64, /) -> None:
    """Adds k columns `values` (k, n) to `sums` (size, k), row i to row `index[i]`, in order of i.
    Raises `IndexError` for an index out of range."""

def add_products(sums: F64, share: F64, row: I64, window: I64, values: F64, width: int, /) -> None:
    """Adds `share[i] * values[window[i]]` to `sums[row[i]]`, in order of i; rows have `width`
    values. Raises `IndexError` for a number out of range."""
