# SPDX-License-Identifier: Apache-2.0
"""The sweep over segments, in C (attribution/sweep). Python code uses `qjoule.model.windows`."""

from typing import final

import numpy as np
import numpy.typing as npt

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]

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
        counters: npt.NDArray[np.uint64] | None,
        valid: npt.NDArray[np.bool_] | None,
        scaled: npt.NDArray[np.float32] | None,
        /,
    ) -> None:
        """Takes n segments. An unknown `cpu` number is allowed; `counters` and `valid` are (n, 3).
        Releases the GIL, but no other thread may use this sweep meanwhile."""

    def finish(self) -> None:
        """Ends all windows that are open."""

    def take(self) -> tuple[int, bytes, bytes, bytes, tuple[int, int, int, int, int, int, int]]:
        """Returns what was completed since the last call: the number of windows, `struct
        sweep_window` per window and package, busy ns per window and watched CPU, `struct
        sweep_entry` (windows are counted from the first of the stream), and `struct
        sweep_anomalies` of the whole stream. See sweep.h."""
